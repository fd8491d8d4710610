package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// backfill asks for runs of some slots of a job, in order.
func (w *world) backfill(j *job, nonce uint32, slots []time.Time, with func(*state.Backfill)) (state.BackfillID, error) {
	job, err := w.api.GetJob(w.ctx, j.id)
	if err != nil {
		return "", err
	}
	b := state.Backfill{
		Job: j.id, ID: state.NewBackfillID(time.Now(), nonce), From: slots[0], To: slots[len(slots)-1].Add(time.Second),
		All: true, Concurrency: 1, Actor: "test", Created: time.Now(), JobUID: job.Job.UID,
	}
	if with != nil {
		with(&b)
	}
	b, err = w.api.CreateBackfill(w.ctx, b, slots, job.Job.Revision)
	return b.ID, err
}

// longAgo are n instants, a minute apart, long ago.
func longAgo(n int) (slots []time.Time) {
	for i := range n {
		slots = append(slots, time.Date(1999, 10, 1, 0, i, 0, 0, time.UTC))
	}
	return slots
}

// backfilled are a backfill's runs that began, in order, each start once.
func (w *world) backfilled(j *job, id state.BackfillID) (slots []time.Time) {
	for _, s := range w.history.of(j) {
		if of, slot, ok := s.run.Backfill(); ok && of == id {
			slots = append(slots, slot)
		}
	}
	return slots
}

func (w *world) getBackfill(j *job, id state.BackfillID) state.Backfill {
	w.t.Helper()
	b, err := w.api.GetBackfill(w.ctx, j.id, id)
	require.NoError(w.t, err)
	return b
}

// TestBackfill runs past slots of a paused job, one after another, while leaders and an
// executor die.
func TestBackfill(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j", "* * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip })
		w.history.does(j, 2*time.Second, state.StateSucceeded)
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(time.Second)
		w.pause(j)
		slots := longAgo(12)
		id, err := w.backfill(j, 1, slots, nil)
		require.NoError(t, err)
		w.pass(5 * time.Second)
		got := w.getBackfill(j, id)
		require.Len(t, got.Open, 1)
		require.Positive(t, got.Succeeded)
		require.Equal(t, 12-got.Next, got.Remaining())
		w.control("c2")
		w.controls["c1"].kill()
		w.pass(10 * time.Second)
		w.worker("e2", place{})
		w.workers["e1"].kill()
		w.pass(time.Minute)
		got = w.getBackfill(j, id)
		require.False(t, got.Ended.IsZero(), "%+v", got)
		require.Equal(t, 12, got.Succeeded)
		begun := w.backfilled(j, id)
		require.Equal(t, slots, slices.Compact(begun), "in order, each once but for the one that was lost")
		require.LessOrEqual(t, len(begun), 13)
		e := w.entry(j, id.Run(slots[3]))
		require.Equal(t, state.StateSucceeded, e.Record.State)
		require.Equal(t, "get run ns/j 19991001T000300Z: not found", w.slotVerdict(j, slots[3]), "the slot's own is left alone")
		w.verify(true)
	})
}

// TestBackfillOverlap has a backfill meet live runs: it waits for the job's gate, unless
// that is overridden, and the job's slots meet its runs by the policy.
func TestBackfillOverlap(t *testing.T) {
	for _, override := range []bool{false, true} {
		t.Run(fmt.Sprint("override=", override), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				j := newJob("j", "*/20 * * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip })
				w.history.does(j, 15*time.Second, state.StateSucceeded)
				w.put(j)
				w.control("c1")
				w.worker("e1", place{})
				w.awaitLeader(0)
				w.until(time.Now().UTC().Truncate(time.Minute).Add(time.Minute + time.Second))
				slots := longAgo(6)
				id, err := w.backfill(j, 1, slots, func(b *state.Backfill) { b.Concurrency, b.OverrideOverlap = 3, override })
				require.NoError(t, err)
				w.pass(4 * time.Second)
				if override {
					require.Len(t, w.backfilled(j, id), 3)
				} else {
					require.Empty(t, w.backfilled(j, id), "the slot's run holds the gate")
				}
				w.pass(4 * time.Minute)
				got := w.getBackfill(j, id)
				require.Equal(t, 6, got.Succeeded, "%+v", got)
				require.Positive(t, w.slotsOf(j)["skipped:overlap"], "its runs count for the job's slots")
				w.verify(true)
			})
		})
	}
}

// TestCancelBackfill cancels a backfill, and another one by deleting its job.
func TestCancelBackfill(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j")
		w.history.does(j, 10*time.Second, state.StateSucceeded)
		nowhere := newJob("nowhere").with(func(s *state.JobSpec) { s.Selector = map[string]string{"zone": "nowhere"} })
		w.put(j)
		w.put(nowhere)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		running, err := w.backfill(j, 1, longAgo(10), func(b *state.Backfill) { b.Concurrency = 2 })
		require.NoError(t, err)
		pending, err := w.backfill(nowhere, 2, longAgo(5), func(b *state.Backfill) { b.Concurrency = 3 })
		require.NoError(t, err)
		gone, err := w.backfill(nowhere, 3, longAgo(5), nil)
		require.NoError(t, err)
		w.pass(3 * time.Second)
		require.Len(t, w.getBackfill(nowhere, pending).Open, 3)
		for j, id := range map[*job]state.BackfillID{j: running, nowhere: pending} {
			b, err := w.api.CancelBackfill(w.ctx, j.id, id, "ben", "enough", false, time.Now())
			require.NoError(t, err)
			require.False(t, b.CancelTime.IsZero())
		}
		w.pass(time.Second)
		b := w.getBackfill(j, running)
		require.True(t, b.Active())
		require.Len(t, b.Open, 2, "what runs goes on")
		require.Equal(t, 8, b.Cancelled)
		b = w.getBackfill(nowhere, pending)
		require.False(t, b.Active())
		require.Equal(t, 5, b.Cancelled)
		require.Equal(t, "cancelled:backfill_cancelled", w.verdict(nowhere, pending.Run(longAgo(1)[0])))
		w.delete(nowhere)
		w.pass(20 * time.Second)
		b = w.getBackfill(j, running)
		require.Equal(t, 2, b.Succeeded)
		require.False(t, b.Active())
		b = w.getBackfill(nowhere, gone)
		require.Equal(t, 5, b.Cancelled, "%+v", b)
		require.Equal(t, state.Leaderd, b.CancelActor)
		w.verify(true)
	})
}

// TestCancelRunningBackfill cancels a backfill whose runs go on, and then those too,
// while there is another leader.
func TestCancelRunningBackfill(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j")
		w.history.does(j, time.Hour, state.StateSucceeded)
		w.put(j)
		w.control("c1")
		w.control("c2")
		w.worker("e1", place{})
		w.awaitLeader(0)
		id, err := w.backfill(j, 1, longAgo(10), func(b *state.Backfill) { b.Concurrency, b.OverrideOverlap = 3, true })
		require.NoError(t, err)
		w.pass(3 * time.Second)
		require.Len(t, w.getBackfill(j, id).Open, 3)
		_, err = w.api.CancelBackfill(w.ctx, j.id, id, "ben", "enough", false, time.Now())
		require.NoError(t, err)
		w.pass(3 * time.Second)
		b := w.getBackfill(j, id)
		require.Len(t, b.Open, 3, "what runs goes on")
		open := b.Open
		w.leader().kill()
		b, err = w.api.CancelBackfill(w.ctx, j.id, id, "ann", "now", true, time.Now())
		require.NoError(t, err)
		require.Equal(t, "enough", b.CancelReason)
		w.pass(30 * time.Second)
		b = w.getBackfill(j, id)
		require.False(t, b.Active())
		require.Equal(t, 10, b.Cancelled)
		for _, i := range open {
			rec := w.entry(j, id.Run(longAgo(10)[i])).Record
			require.Equal(t, state.StateCancelled, rec.State)
			require.Equal(t, state.ReasonBackfill, rec.Reason)
			require.Equal(t, "its backfill was cancelled by ben: enough", rec.Detail)
			require.EqualValues(t, 1, rec.Generation)
		}
		w.verify(true)
	})
}

// TestBackfillLetsSlotsPass backfills a job whose slots queue: a slot waits for the
// run that is under way, and not for all that are still to come.
func TestBackfillLetsSlotsPass(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j", "*/2 * * * *").with(func(s *state.JobSpec) { s.Overlap, s.QueueLimit = state.OverlapQueue, 5 })
		w.history.does(j, 50*time.Second, state.StateSucceeded)
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.worker("e2", place{})
		w.awaitLeader(0)
		slots := longAgo(20)
		id, err := w.backfill(j, 1, slots, nil)
		require.NoError(t, err)
		begun := time.Now()
		w.pass(40 * time.Minute)
		require.Equal(t, 20, w.getBackfill(j, id).Succeeded)
		require.Equal(t, slots, w.backfilled(j, id), "in order, each once")
		var own int
		for _, s := range w.history.of(j) {
			slot, ok := s.run.Slot()
			if !ok || slot.Before(begun) {
				continue
			}
			own++
			require.Less(t, s.begun.Sub(slot), 110*time.Second, "%s waits for two runs at most", s.run)
		}
		require.GreaterOrEqual(t, own, 19)
		w.verify(true)
	})
}

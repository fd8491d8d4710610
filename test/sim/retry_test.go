package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// steady is a policy without jitter.
func steady(attempts int, first time.Duration) *state.Retry {
	return &state.Retry{MaxAttempts: attempts, InitialBackoff: first, Factor: 3, MaxBackoff: time.Hour, Jitter: new(0.0)}
}

// tried are when a job's work began, after an instant, and where.
func (w *world) tried(j *job, from time.Time) (at []time.Duration, nodes []string) {
	for _, s := range w.history.of(j) {
		at, nodes = append(at, s.begun.Sub(from).Round(time.Second)), append(nodes, s.node)
	}
	return at, nodes
}

func (w *world) record(j *job, run state.RunID) state.Record {
	w.t.Helper()
	e := w.entry(j, run)
	require.NotNil(w.t, e.Record, "%s has no verdict", run)
	return *e.Record
}

// withTwo starts two control nodes and two executors, and answers a job's slot that
// is due soon, while the job makes no other.
func withTwo(w *world, j *job) (slot time.Time) {
	w.control("c1")
	w.control("c2")
	w.worker("e1", place{})
	w.worker("e2", place{})
	w.awaitLeader(0)
	slot = time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
	j.with(func(s *state.JobSpec) { s.Schedules = []string{"@at " + slot.Format(time.RFC3339)} })
	w.put(j)
	return slot
}

// TestRetry has work fail until its attempts are used up: each is made when the
// policy has it, on another node than the last, whoever leads.
func TestRetry(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("leader killed %v", killed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				j := newJob("j").with(func(s *state.JobSpec) { s.Retry = steady(3, 20*time.Second) })
				slot := withTwo(w, j)
				w.history.does(j, time.Second, state.StateFailed)
				w.until(slot.Add(5 * time.Second))
				l := w.entry(j, state.SlotRunID(slot)).Live[0]
				require.Equal(t, state.StateWaiting, l.State)
				require.Equal(t, 1, l.Tries)
				require.WithinDuration(t, slot.Add(21*time.Second), l.NextTry, 100*time.Millisecond)
				if killed {
					w.leader().kill()
				}
				w.until(slot.Add(2 * time.Minute))
				at, nodes := w.tried(j, slot)
				require.Equal(t, []time.Duration{0, 21 * time.Second, 82 * time.Second}, at)
				require.NotEqual(t, nodes[0], nodes[1])
				require.NotEqual(t, nodes[1], nodes[2])
				rec := w.record(j, state.SlotRunID(slot))
				require.Equal(t, state.StateFailed, rec.State)
				require.Equal(t, state.ReasonAttempts, rec.Reason)
				require.Equal(t, "3 of 3 attempts", rec.Detail)
				require.Equal(t, 3, rec.Tries)
				require.Len(t, rec.Attempts, 3)
				w.verify(true)
			})
		})
	}
}

// TestRetryOnOneNode has the only executor make the next attempt too.
func TestRetryOnOneNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j").with(func(s *state.JobSpec) { s.Retry = steady(2, 20*time.Second) })
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.history.does(j, 0, state.StateFailed)
		w.put(j)
		run := w.trigger(j, 1, false)
		w.pass(5 * time.Second)
		w.history.does(j, 0, state.StateSucceeded)
		w.pass(30 * time.Second)
		require.Equal(t, "succeeded", w.verdict(j, run))
		require.Len(t, w.record(j, run).Attempts, 2)
		w.verify(true)
	})
}

// TestRetryHoldsItsGate has slots fall due while a run waits for its next attempt: to
// the overlap policy it is live.
func TestRetryHoldsItsGate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j", "* * * * *").with(func(s *state.JobSpec) {
			s.Overlap, s.Retry = state.OverlapSkip, steady(2, 100*time.Second)
		})
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		first := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
		w.history.does(j, 0, state.StateFailed)
		w.until(first.Add(30 * time.Second))
		w.history.does(j, 0, state.StateSucceeded)
		w.until(first.Add(3*time.Minute + 10*time.Second))
		require.Equal(t, []string{"succeeded", "skipped:overlap", "succeeded", "succeeded"}, w.verdictsFrom(j, first, time.Minute, 4))
		w.verify(true)
	})
}

// TestRunTimeout bounds runs over all their attempts: while one is under way, before
// one that would come too late, and while a paused job's run waits.
func TestRunTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		backoff time.Duration
		attempt int
		ends    time.Duration
		paused  bool
		want    string
	}{
		"under way":      {10 * time.Second, 2, 70 * time.Second, false, "timed_out:run_timeout"},
		"no time left":   {30 * time.Second, 1, 50 * time.Second, false, "failed:run_timeout"},
		"while it waits": {10 * time.Second, 1, 70 * time.Second, true, "timed_out:run_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				j := newJob("j").with(func(s *state.JobSpec) {
					s.RunTimeout, s.Retry = 70*time.Second, steady(5, c.backoff)
				})
				slot := withTwo(w, j)
				w.history.does(j, 50*time.Second, state.StateFailed)
				w.until(slot.Add(55 * time.Second))
				if c.paused {
					w.pause(j)
				}
				w.until(slot.Add(2 * time.Minute))
				require.Equal(t, c.want, w.verdict(j, state.SlotRunID(slot)))
				rec := w.record(j, state.SlotRunID(slot))
				require.Len(t, rec.Attempts, c.attempt)
				require.WithinDuration(t, slot.Add(c.ends), rec.Recorded, 6*time.Second)
				w.verify(true)
			})
		})
	}
}

// TestQueueTimeout has a run wait for others no longer than its job's queue timeout.
func TestQueueTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j", "* * * * *").with(func(s *state.JobSpec) {
			s.Overlap, s.QueueTimeout = state.OverlapQueue, 20*time.Second
		})
		w.history.does(j, 75*time.Second, state.StateSucceeded)
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		first := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
		w.until(first.Add(5 * time.Minute))
		// The second waits for 15 s; the third would have to wait for 30 s.
		require.Equal(t, []string{"succeeded", "succeeded", "missed:queue_timeout"}, w.verdictsFrom(j, first, time.Minute, 3))
		w.verify(false)
	})
}

// TestCancelBetweenAttempts ends a run that waits for its next attempt at once.
func TestCancelBetweenAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j").with(func(s *state.JobSpec) { s.Retry = steady(3, time.Hour) })
		slot := withTwo(w, j)
		w.history.does(j, 0, state.StateFailed)
		w.until(slot.Add(10 * time.Second))
		e, err := w.api.CancelRun(w.ctx, state.Cancel{
			Job: j.id, Run: state.SlotRunID(slot), Requested: time.Now(), Actor: "test", Reason: state.ReasonRequested,
		})
		require.NoError(t, err)
		require.Equal(t, state.StateWaiting, e.Live[0].State)
		w.pass(2 * time.Second)
		require.Equal(t, "cancelled:requested", w.verdict(j, state.SlotRunID(slot)))
		_, err = w.api.CancelRun(w.ctx, state.Cancel{Job: j.id, Run: state.SlotRunID(slot), Requested: time.Now(), Reason: "x"})
		require.ErrorIs(t, err, store.ErrOver)
		w.pass(2 * time.Hour)
		require.Len(t, w.history.of(j), 1)
		w.verify(true)
	})
}

// TestSnooze has work ask to be called again: that uses no attempt up.
func TestSnooze(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j").with(func(s *state.JobSpec) { s.Retry = steady(2, 10*time.Second) })
		slot := withTwo(w, j)
		w.history.says(j, 0, state.StateSucceeded, state.Directive{Snooze: 30 * time.Second})
		w.until(slot.Add(65 * time.Second)) // at 0, 30 and 60 s
		require.Len(t, w.history.of(j), 3)
		w.history.does(j, 0, state.StateFailed) // at 90 and 100 s
		w.until(slot.Add(3 * time.Minute))
		at, _ := w.tried(j, slot)
		require.Equal(t, []time.Duration{0, 30 * time.Second, 60 * time.Second, 90 * time.Second, 100 * time.Second}, at)
		rec := w.record(j, state.SlotRunID(slot))
		require.Equal(t, "failed:attempts", w.verdict(j, state.SlotRunID(slot)))
		require.Equal(t, 2, rec.Tries)
		require.True(t, rec.Attempts[0].Snoozed)
		require.False(t, rec.Attempts[3].Snoozed)
		w.verify(true)
	})
}

// TestFailuresAreCountedByRun pauses a job after two failed runs, of two attempts each.
func TestFailuresAreCountedByRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j", "* * * * *").with(func(s *state.JobSpec) {
			s.Overlap, s.PauseAfterFailures, s.Retry = state.OverlapSkip, 2, steady(2, 5*time.Second)
		})
		w.put(j)
		w.history.does(j, 0, state.StateFailed)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		first := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
		w.until(first.Add(30 * time.Second))
		e, err := w.api.GetJob(w.ctx, j.id)
		require.NoError(t, err)
		require.False(t, e.Job.Paused, "after two attempts")
		w.until(first.Add(90 * time.Second))
		e, err = w.api.GetJob(w.ctx, j.id)
		require.NoError(t, err)
		require.True(t, e.Job.Paused, "after two runs")
		require.Len(t, w.history.of(j), 4)
		w.verify(true)
	})
}

// dead are the runs of a job's dead letters.
func (w *world) dead(j *job) (runs []state.RunID) {
	w.t.Helper()
	page, more, err := w.api.ListDead(w.ctx, store.ListDead{Namespace: j.id.Namespace, Job: j.id.Name, Limit: 100})
	require.NoError(w.t, err)
	require.False(w.t, more)
	for i := range page {
		require.NotNil(w.t, page[i].Record)
		runs = append(runs, page[i].Run)
	}
	return runs
}

// TestDeadLetters has runs fail of a job that keeps two dead letters, and runs one of
// them again.
func TestDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j").with(func(s *state.JobSpec) {
			s.Retry, s.DeadLetter = steady(2, 10*time.Second), &state.DeadLetterPolicy{Keep: 2}
		})
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.history.does(j, 0, state.StateFailed)
		var runs []state.RunID
		for i := range 3 {
			runs = append(runs, w.trigger(j, uint32(i), false))
			w.pass(30 * time.Second)
			require.Equal(t, "failed:attempts", w.verdict(j, runs[i]))
		}
		require.Equal(t, runs[1:], w.dead(j), "the oldest is dropped")
		require.Equal(t, "failed:attempts", w.verdict(j, runs[0]), "its record stays")

		w.history.does(j, 0, state.StateSucceeded)
		again := state.Pending{Job: j.id, Run: state.TriggerRunID(time.Now(), 9), Requested: time.Now(), Actor: "test", Origin: runs[1]}
		_, err := w.api.RequeueDead(w.ctx, again)
		require.NoError(t, err)
		twice := again
		twice.Run = state.TriggerRunID(time.Now(), 10)
		_, err = w.api.RequeueDead(w.ctx, twice)
		require.ErrorIs(t, err, store.ErrNotFound, "one is requeued once")
		w.pass(10 * time.Second)
		require.Equal(t, "succeeded", w.verdict(j, again.Run))
		require.Equal(t, runs[1], w.record(j, again.Run).Origin)
		require.Equal(t, runs[2:], w.dead(j), "a success leaves none")

		require.NoError(t, w.api.DropDead(w.ctx, j.id, runs[2]))
		require.ErrorIs(t, w.api.DropDead(w.ctx, j.id, runs[2]), store.ErrNotFound)
		require.Empty(t, w.dead(j))
		w.verify(true)
	})
}

// TestDeadLetterOfOthers has a run of a lost executor, and one that ran out of its time
// while it waited, leave dead letters: their verdicts are the leader's.
func TestDeadLetterOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		lost := newJob("lost").with(func(s *state.JobSpec) {
			s.Guarantee, s.DeadLetter = state.AtMostOnce, &state.DeadLetterPolicy{}
		})
		late := newJob("late").with(func(s *state.JobSpec) {
			s.Overlap, s.RunTimeout, s.Retry, s.DeadLetter = state.OverlapSkip, time.Minute, steady(3, 20*time.Second), &state.DeadLetterPolicy{}
		})
		w.put(lost)
		w.put(late)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.history.does(lost, time.Hour, state.StateSucceeded)
		w.history.does(late, 0, state.StateFailed)
		gone, waits := w.trigger(lost, 1, false), w.trigger(late, 2, false)
		w.pass(5 * time.Second)
		w.workers["e1"].kill()
		w.pass(2 * time.Minute)
		require.Equal(t, "lost", w.verdict(lost, gone))
		require.Equal(t, "timed_out:run_timeout", w.verdict(late, waits))
		require.Equal(t, []state.RunID{gone}, w.dead(lost))
		require.Equal(t, []state.RunID{waits}, w.dead(late))
		w.verify(true)
	})
}

// buried tells whether a dead letter of a run was stored at the revision of event i.
func (c *checker) buried(i int, run string) bool {
	for i > 0 && c.audit[i-1].revision == c.audit[i].revision {
		i--
	}
	for at := c.audit[i].revision; i < len(c.audit) && c.audit[i].revision == at; i++ {
		if kind, rest := c.audit[i].part(); kind == "dead" && rest == run && !c.audit[i].Deleted {
			return true
		}
	}
	return false
}

// TestFailuresSpread has the target of 500 jobs down for all their attempts (P08): each
// makes six, no second has more than three times the mean of the starts, and those of
// jobs that are deleted or paused meanwhile stop.
func TestFailuresSpread(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.control("c1")
		w.worker("e1", place{capacity: 100})
		w.worker("e2", place{capacity: 100})
		w.awaitLeader(0)
		from := time.Now().UTC().Truncate(time.Minute).Add(2 * time.Minute)
		retry := &state.Retry{MaxAttempts: 6, InitialBackoff: time.Second, Factor: 2, MaxBackoff: time.Minute, Jitter: new(0.2)}
		jobs := make([]*job, 500)
		for i := range jobs {
			slot := from.Add(time.Duration(i%60) * time.Second)
			jobs[i] = newJob(fmt.Sprint("j", i), "@at "+slot.Format(time.RFC3339)).with(func(s *state.JobSpec) { s.Retry = retry })
			w.history.does(jobs[i], 0, state.StateFailed)
			w.put(jobs[i])
		}
		deleted, paused := jobs[0], jobs[60] // due first
		w.until(from.Add(10 * time.Second))
		w.delete(deleted)
		w.pause(paused)
		stopped := time.Now()
		w.until(from.Add(5 * time.Minute))

		seconds, starts := map[int64]int{}, 0
		for _, j := range jobs {
			spans := w.history.of(j)
			if j == deleted || j == paused {
				require.False(t, spans[len(spans)-1].begun.After(stopped), "%s went on", j.id)
				continue
			}
			require.Len(t, spans, 6, "%s", j.id)
			for _, s := range spans {
				seconds[s.begun.Unix()]++
				starts++
			}
		}
		for second, n := range seconds {
			require.LessOrEqual(t, n, 3*starts/len(seconds), "%s", time.Unix(second, 0).UTC())
		}
		w.verify(false)
	})
}

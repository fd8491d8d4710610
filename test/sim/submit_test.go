package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// submit asks for a run that is due after a delay.
func (w *world) submit(j *job, nonce uint64, delay time.Duration, key string) (state.RunID, error) {
	return w.submitFor(j, "", nonce, delay, key)
}

// submitFor is submit with a key of limits.
func (w *world) submitFor(j *job, limitKey string, nonce uint64, delay time.Duration, key string) (state.RunID, error) {
	now := time.Now().UTC()
	due := now.Add(delay).Truncate(time.Microsecond)
	run, _, err := w.api.Submit(w.ctx, state.Submission{
		Pending: state.Pending{Job: j.id, Run: state.SubmitRunID(due, nonce), Requested: due, Actor: "test", LimitKey: limitKey},
		Key:     key, KeyTTL: time.Hour, Now: now,
	})
	return run, err
}

// Runs that are due later start when they are, not before, whoever leads by then. Of
// wishes with one key one makes a run.
func TestDelayedRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a").with(func(s *state.JobSpec) { s.Overlap = state.OverlapAllow })
		w.put(j)
		for _, name := range []string{"c1", "c2"} {
			w.control(name)
		}
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		begun := time.Now()
		due := map[state.RunID]time.Time{}
		for i, delay := range []time.Duration{0, 3 * time.Second, 20 * time.Second, time.Minute, 10 * time.Minute} {
			for again := range uint64(3) {
				run, err := w.submit(j, uint64(i)<<8|again, delay, fmt.Sprint("k", i))
				require.NoError(t, err)
				due[run] = begun.Add(delay)
			}
		}
		require.Len(t, due, 5)
		w.pass(30 * time.Second)
		old := w.leader()
		old.kill()
		w.awaitLeader(old.term.Load())
		w.pass(10 * time.Minute)
		for run, at := range due {
			require.Equal(t, "succeeded", w.verdict(j, run), run)
			started := w.entry(j, run).Record.Attempts[0].Started
			require.False(t, started.Before(at), "run %s was due at %s and started at %s", run, at, started)
			require.WithinDuration(t, at, started, 300*time.Millisecond, run)
		}
		w.verify(true)
	})
}

// A run that is due later ends with its job, also where another one has its name by
// then.
func TestDelayedRunsOfDeletedJobs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, other := newJob("a"), newJob("b")
		w.put(j)
		w.put(other)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(time.Second)
		gone, err := w.submit(j, 1, 10*time.Minute, "")
		require.NoError(t, err)
		cancelled, err := w.submit(other, 2, 10*time.Minute, "")
		require.NoError(t, err)
		w.pass(time.Second)
		w.delete(j)
		w.pass(10 * time.Second)
		require.Equal(t, "cancelled:deleted", w.verdict(j, gone))
		_, err = w.api.CancelRun(w.ctx, state.Cancel{Job: other.id, Run: cancelled, Reason: state.ReasonRequested, Requested: time.Now()})
		require.NoError(t, err)

		// Nobody leads while the job is made anew.
		w.put(j)
		w.pass(time.Second)
		earlier, err := w.submit(j, 3, 5*time.Minute, "")
		require.NoError(t, err)
		w.leader().kill()
		w.pass(20 * time.Second)
		w.delete(j)
		w.put(j)
		w.control("c2")
		w.awaitLeader(0)
		later, err := w.submit(j, 4, 5*time.Minute, "")
		require.NoError(t, err)
		w.pass(11 * time.Minute)
		require.Equal(t, "cancelled:deleted", w.verdict(j, earlier))
		require.Equal(t, "succeeded", w.verdict(j, later))
		require.Equal(t, "cancelled:requested", w.verdict(other, cancelled))
		w.verify(true)
	})
}

// submitSpec asks for a run, due after a delay, of a job that is made for it.
func (w *world) submitSpec(j *job, nonce uint64, delay time.Duration, key string) (state.RunID, error) {
	now := time.Now().UTC()
	due := now.Add(delay).Truncate(time.Microsecond)
	_, run, _, err := w.api.SubmitSpec(w.ctx, store.SubmitSpec{
		Submission: state.Submission{
			Pending: state.Pending{Job: j.id, Run: state.SubmitRunID(due, nonce), Requested: due, Actor: "test"},
			Payload: []byte("p"), Key: key, KeyTTL: time.Hour, Now: now,
		},
		Spec: j.proto(),
	})
	return run, err
}

// A job that a submission made runs once, as its spec has it, whoever leads, and goes with
// all that it left when its run's retention is over, not before; one that was put
// meanwhile stays.
func TestSubmittedSpecs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.plan.Retention.Period, w.plan.Retention.MaxAge = time.Minute, 30*time.Minute
		spec := func(name string, change func(*state.JobSpec)) *job {
			return newJob(name).with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip }).with(change)
		}
		plain := spec("plain", func(*state.JobSpec) {})
		short := spec("short", func(s *state.JobSpec) { s.Retention = state.Retention{MaxAge: 10 * time.Minute} })
		split := spec("split", func(s *state.JobSpec) {
			s.Shards, s.Retention = &state.Shards{Count: 3}, state.Retention{MaxAge: 10 * time.Minute}
		})
		late := spec("late", func(s *state.JobSpec) { s.Retention = state.Retention{MaxAge: 10 * time.Minute} })
		kept := spec("kept", func(s *state.JobSpec) { s.Retention = state.Retention{MaxAge: 10 * time.Minute} })
		paused := spec("paused", func(s *state.JobSpec) { s.StartDeadline = 2 * time.Hour })
		for _, name := range []string{"c1", "c2"} {
			w.control(name)
		}
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		runs := map[*job]state.RunID{}
		for i, j := range []*job{plain, short, split, late, kept, paused} {
			delay := time.Duration(0)
			if j == late {
				delay = 40 * time.Minute
			}
			for range 2 {
				run, err := w.submitSpec(j, uint64(i), delay, "k")
				require.NoError(t, err)
				runs[j] = run
			}
			if j == paused {
				w.pause(j)
			}
		}
		w.put(kept)
		w.leader().kill()
		w.pass(10 * time.Second)
		w.awaitLeader(0)
		w.pass(8 * time.Minute)
		for _, j := range []*job{plain, short, split, kept} {
			require.Equal(t, "succeeded", w.verdict(j, runs[j]), j.id)
		}
		exists := func(j *job) bool {
			_, err := w.api.GetJob(w.ctx, j.id)
			return err == nil
		}
		w.pass(10 * time.Minute)
		for j, there := range map[*job]bool{plain: true, short: false, split: false, late: true, kept: true, paused: true} {
			require.Equal(t, there, exists(j), j.id)
		}
		w.pass(25 * time.Minute)
		require.Equal(t, "succeeded", w.verdict(late, runs[late]))
		w.resume(paused)
		w.pass(time.Minute)
		require.Equal(t, "succeeded", w.verdict(paused, runs[paused]))
		w.pass(40 * time.Minute)
		for _, j := range []*job{plain, short, split, late, paused} {
			require.False(t, exists(j), j.id)
		}
		require.True(t, exists(kept))
		w.pass(15 * time.Minute)
		for _, name := range []string{"plain", "short", "split", "late", "paused"} {
			for _, kind := range []string{"jobs", "versions", "deleted", "pending", "active", "history", "segments", "swept", "payloads", "results", "checkpoints", "gates"} {
				require.Zero(t, w.keys(store.DefaultPrefix+kind+"/ns/"+name), "%s of %s", kind, name)
			}
		}
		w.verify(true)
	})
}

// submit asks for runs that are due soon or later; some wishes have the same key.
func (c *chaos) submit() {
	j := c.anyJob()
	for range pick(c, 1, 2, 5) {
		c.nonce++
		key := ""
		if c.chance(50) {
			key = fmt.Sprint(c.nonce / 4)
		}
		customer := ""
		if state.PerKey(j.spec.Limits) {
			customer = pick(c, "", "acme", "other")
		}
		// A paused job refuses.
		_, _ = c.w.submitFor(j, customer, uint64(c.nonce), pick(c, 0, time.Second, 10*time.Second, time.Minute, 5*time.Minute), key)
	}
}

// adhoc asks for a run of a job that is made for it, which may go while it lasts.
func (c *chaos) adhoc() {
	c.nonce++
	j := newJob(fmt.Sprint("adhoc-", c.nonce/2)).with(func(s *state.JobSpec) {
		s.Overlap = pick(c, state.OverlapAllow, state.OverlapSkip)
		s.Retention.MaxAge = pick(c, 0, state.MinRetainedAge)
		if c.chance(25) {
			s.Shards = &state.Shards{Count: 3}
		}
	})
	// One of the name may be there.
	if _, err := c.w.submitSpec(j, uint64(c.nonce), pick(c, 0, 10*time.Second, time.Minute), fmt.Sprint(c.nonce/2)); err == nil && c.chance(20) {
		_ = c.w.api.DeleteJob(c.w.ctx, c.w.change(j)) // it may have gone, if the wish was an earlier one's
	}
}

package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// submit asks for a run that is due after a delay.
func (w *world) submit(j *job, nonce uint64, delay time.Duration, key string) (state.RunID, error) {
	now := time.Now().UTC()
	due := now.Add(delay).Truncate(time.Microsecond)
	run, _, err := w.api.Submit(w.ctx, state.Submission{
		Pending: state.Pending{Job: j.id, Run: state.SubmitRunID(due, nonce), Requested: due, Actor: "test"},
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

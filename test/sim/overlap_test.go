package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// slotsFrom are the verdicts on n slots, a step apart.
func (w *world) verdictsFrom(j *job, first time.Time, step time.Duration, n int) (all []string) {
	for i := range n {
		all = append(all, w.slotVerdict(j, first.Add(time.Duration(i)*step)))
	}
	return all
}

// small is a cluster of one control node and two executors.
func (w *world) small() *control {
	c := w.control("c1")
	w.worker("e1", place{})
	w.worker("e2", place{})
	w.awaitLeader(0)
	return c
}

// TestQueue has slots wait for a long run, in order, and those beyond the limit
// skipped.
func TestQueue(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "*/10 * * * * *").with(func(s *state.JobSpec) { s.Overlap, s.QueueLimit = state.OverlapQueue, 2 })
		w.history.does(j, 25*time.Second, state.StateSucceeded)
		w.put(j)
		w.small()
		first := time.Now().Truncate(10 * time.Second).Add(10 * time.Second)
		w.until(first.Add(22 * time.Second))
		require.Equal(t, []string{"running", "queued", "queued"}, w.verdictsFrom(j, first, 10*time.Second, 3))
		w.until(first.Add(56 * time.Second))
		// 0 ran to 25, 10 to 50, 20 runs to 75; 20 and 30 waited when 40 came.
		require.Equal(t, []string{"succeeded", "succeeded", "running", "queued", "skipped:overlap"},
			w.verdictsFrom(j, first, 10*time.Second, 5))
		runs := w.history.of(j)
		require.Len(t, runs, 3)
		for i := 1; i < len(runs); i++ {
			require.Less(t, runs[i].begun.Sub(runs[i-1].ended), 100*time.Millisecond, "a free gate waits for nobody")
		}
		w.pause(j)
		w.verify(false)
	})
}

// TestQueueSurvivesFailovers loses the leader, and the executor that a waiting run
// was planned onto.
func TestQueueSurvivesFailovers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "*/10 * * * * *").with(func(s *state.JobSpec) { s.Overlap, s.QueueLimit = state.OverlapQueue, 1000 })
		w.history.does(j, 15*time.Second, state.StateSucceeded)
		w.put(j)
		c := w.small()
		first := time.Now().Truncate(10 * time.Second).Add(10 * time.Second)
		w.until(first.Add(43 * time.Second))
		c.kill()
		w.until(first.Add(60 * time.Second))
		w.control("c2")
		w.awaitLeader(c.term.Load())
		w.until(first.Add(83 * time.Second))
		w.workers["e1"].kill()
		w.until(first.Add(100 * time.Second))
		w.worker("e3", place{})
		w.pause(j)
		w.resume(j)
		w.pass(time.Minute)
		j.spec.Schedules = nil
		w.put(j)
		w.pass(6 * time.Minute)
		w.verify(true)
		for _, v := range w.verdictsFrom(j, first, 10*time.Second, 9) {
			require.Equal(t, "succeeded", v)
		}
	})
}

// TestQueuedPastItsDeadline gives a slot up that waited too long.
func TestQueuedPastItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "@every 10s").with(func(s *state.JobSpec) {
			s.Overlap, s.QueueLimit, s.StartDeadline = state.OverlapQueue, 5, 12*time.Second
		})
		w.history.does(j, 45*time.Second, state.StateSucceeded)
		w.put(j)
		begun := time.Now()
		w.small()
		w.until(begun.Add(38 * time.Second))
		require.Equal(t, []string{"running", "missed:deadline", "queued"}, w.verdictsFrom(j, begun.Add(10*time.Second), 10*time.Second, 3))
		w.pause(j)
		w.pass(time.Minute)
		w.verify(true)
	})
}

// TestCancelRunning has a newer slot stop the run before it.
func TestCancelRunning(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "*/20 * * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapCancel })
		w.history.does(j, time.Minute, state.StateSucceeded)
		w.put(j)
		w.small()
		first := time.Now().Truncate(20 * time.Second).Add(20 * time.Second)
		w.until(first.Add(42 * time.Second))
		require.Equal(t, []string{"cancelled:overlap", "cancelled:overlap", "running"}, w.verdictsFrom(j, first, 20*time.Second, 3))
		e := w.entry(j, state.SlotRunID(first))
		require.Contains(t, e.Record.Detail, string(state.SlotRunID(first.Add(20*time.Second))))
		for i, s := range w.history.of(j) {
			require.Less(t, s.begun.Sub(first.Add(time.Duration(i)*20*time.Second)), time.Second)
		}
		w.pause(j)
		w.pass(2 * time.Minute)
		w.verify(true)
	})
}

// TestCancelSurvivesTheLeader loses the leader as soon as the wish is stored.
func TestCancelSurvivesTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "@every 30s").with(func(s *state.JobSpec) { s.Overlap = state.OverlapCancel })
		w.history.does(j, 10*time.Minute, state.StateSucceeded)
		w.put(j)
		begun := time.Now()
		c := w.small()
		w.until(begun.Add(58 * time.Second))
		c.kill() // executors have the slot in their plan
		w.until(begun.Add(63 * time.Second))
		require.Equal(t, "running", w.slotVerdict(j, begun.Add(30*time.Second)))
		require.Equal(t, "queued", w.slotVerdict(j, begun.Add(60*time.Second)))
		w.control("c2")
		w.awaitLeader(c.term.Load())
		w.pass(3 * time.Second)
		require.Equal(t, "cancelled:overlap", w.slotVerdict(j, begun.Add(30*time.Second)))
		require.Equal(t, "running", w.slotVerdict(j, begun.Add(60*time.Second)))
		w.pause(j)
		w.pass(15 * time.Minute)
		w.verify(true)
	})
}

// TestReplaceQueued has the newest slot wait, in the place of the one before.
func TestReplaceQueued(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "*/10 * * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapReplace })
		w.history.does(j, 35*time.Second, state.StateSucceeded)
		w.put(j)
		w.small()
		first := time.Now().Truncate(10 * time.Second).Add(10 * time.Second)
		w.until(first.Add(38 * time.Second))
		require.Equal(t, []string{"succeeded", "skipped:replaced", "skipped:replaced", "running"}, w.verdictsFrom(j, first, 10*time.Second, 4))
		require.Contains(t, w.entry(j, state.SlotRunID(first.Add(10*time.Second))).Record.Detail, string(state.SlotRunID(first.Add(20*time.Second))))
		w.pause(j)
		w.pass(time.Minute)
		w.verify(true)
	})
}

// TestAtMostThree starts no more runs of a job than may be live.
func TestAtMostThree(t *testing.T) {
	for _, policy := range []state.Overlap{state.OverlapAllow, state.OverlapQueue} {
		t.Run(policy.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				j := newJob("a", "*/10 * * * * *").with(func(s *state.JobSpec) { s.Overlap, s.MaxConcurrent = policy, 3 })
				w.history.does(j, 45*time.Second, state.StateSucceeded)
				w.put(j)
				w.small()
				first := time.Now().Truncate(10 * time.Second).Add(10 * time.Second)
				w.until(first.Add(42 * time.Second))
				want := []string{"running", "running", "running", "skipped:overlap", "skipped:overlap"}
				if policy == state.OverlapQueue {
					want = []string{"running", "running", "running", "queued", "skipped:overlap"}
				}
				require.Equal(t, want, w.verdictsFrom(j, first, 10*time.Second, 5))
				w.until(first.Add(46 * time.Second))
				if policy == state.OverlapQueue {
					require.Equal(t, "running", w.slotVerdict(j, first.Add(30*time.Second)))
				}
				w.pause(j)
				w.pass(2 * time.Minute)
				w.verify(true)
			})
		})
	}
}

// TestConcurrencyKey has jobs of one key wait for each other.
func TestConcurrencyKey(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		share := func(o state.Overlap) func(*state.JobSpec) {
			return func(s *state.JobSpec) { s.Overlap, s.ConcurrencyKey = o, "db" }
		}
		a, b := newJob("a").with(share(state.OverlapQueue)), newJob("b").with(share(state.OverlapQueue))
		skips := newJob("c").with(share(state.OverlapSkip))
		for _, j := range []*job{a, b, skips} {
			w.history.does(j, 20*time.Second, state.StateSucceeded)
			w.put(j)
		}
		w.small()
		w.pass(time.Second)
		one := w.trigger(a, 1, false)
		w.pass(time.Second)
		two := w.trigger(b, 2, false)
		w.pass(time.Second)
		three, beside := w.trigger(skips, 3, false), w.trigger(a, 4, true)
		w.pass(time.Second)
		require.Equal(t, "running", w.verdict(a, one))
		require.Equal(t, "queued", w.verdict(b, two))
		require.Equal(t, "skipped:overlap", w.verdict(skips, three))
		require.Equal(t, "run "+string(one)+" of ns/a was live", w.entry(skips, three).Record.Detail)
		require.Equal(t, "running", w.verdict(a, beside), "it may overlap")
		w.pass(18 * time.Second)
		require.Equal(t, "running", w.verdict(b, two))
		w.pass(time.Minute)
		w.verify(true)
	})
}

// TestCancelRun ends runs by hand: one that waits, and one that runs.
func TestCancelRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a").with(func(s *state.JobSpec) { s.Overlap, s.QueueLimit = state.OverlapQueue, 3 })
		w.history.does(j, 20*time.Minute, state.StateSucceeded)
		w.put(j)
		c := w.small()
		w.pass(time.Second)
		one := w.trigger(j, 1, false)
		w.pass(time.Second)
		two := w.trigger(j, 2, false)
		w.pass(time.Second)
		three := w.trigger(j, 3, false)
		w.pass(time.Second)
		cancel := func(run state.RunID) {
			_, err := w.api.CancelRun(w.ctx, state.Cancel{
				Job: j.id, Run: run, Requested: time.Now(), Actor: "test", Reason: state.ReasonRequested, Detail: "by test: why not",
			})
			require.NoError(t, err)
		}
		cancel(two)
		require.Equal(t, "cancelled:requested", w.verdict(j, two))
		c.kill()
		cancel(one)
		cancel(one)
		require.Equal(t, "running", w.verdict(j, one))
		w.control("c2")
		w.awaitLeader(c.term.Load())
		w.pass(3 * time.Second)
		require.Equal(t, "cancelled:requested", w.verdict(j, one))
		require.Equal(t, "by test: why not", w.entry(j, one).Record.Detail)
		require.Equal(t, "running", w.verdict(j, three))
		w.pass(30 * time.Minute)
		w.verify(true)
	})
}

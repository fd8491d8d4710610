package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// A job that is given a lower priority while its runs wait at a limit goes behind the
// others with all of them.
func TestPriorityOfWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		limited := func(name string, class state.Priority) *job {
			j := newJob(name).with(func(s *state.JobSpec) {
				s.Overlap, s.Limits, s.Priority = state.OverlapAllow, []state.Limit{{Name: "db", Max: 1}}, class
			})
			w.history.does(j, time.Second, state.StateSucceeded)
			w.put(j)
			return j
		}
		hog, other := limited("hog", state.PriorityCritical), limited("other", state.PriorityNormal)
		w.small()
		w.pass(2 * time.Second)
		w.submitAll(hog, 20)
		w.pass(time.Second)
		runs := w.submitAll(other, 5)
		w.pass(time.Second)
		w.put(hog.with(func(s *state.JobSpec) { s.Priority = state.PriorityLow }))
		w.pass(10 * time.Second)
		for _, run := range runs {
			require.Equal(t, "succeeded", w.verdict(other, run), run)
		}
		w.pass(30 * time.Second)
		w.verify(true)
	})
}

// A rate that is raised counts at once, also for what waits already.
func TestRateIsRaised(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		at := func(r state.Rate) func(*state.JobSpec) {
			return func(s *state.JobSpec) {
				s.Overlap, s.Limits = state.OverlapAllow, []state.Limit{{Name: "api", Rate: r}}
			}
		}
		j := newJob("a").with(at(state.Rate{Runs: 1, Per: time.Hour, Burst: 3}))
		w.put(j)
		w.small()
		w.pass(2 * time.Second)
		runs := w.submitAll(j, 13)
		w.pass(5 * time.Second)
		require.Len(t, w.history.of(j), 3)
		w.put(j.with(at(state.Rate{Runs: 2, Per: time.Second})))
		w.pass(8 * time.Second)
		for _, run := range runs {
			require.Equal(t, "succeeded", w.verdict(j, run), run)
		}
		w.verify(true)
	})
}

// Jobs may mean places by a name that others mean tokens by: those are two limits.
func TestPlacesAndTokensOfOneName(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		places := newJob("places").with(func(s *state.JobSpec) {
			s.Overlap, s.Limits = state.OverlapAllow, []state.Limit{{Name: "db", Max: 1}}
		})
		tokens := newJob("tokens").with(func(s *state.JobSpec) {
			s.Overlap, s.Limits = state.OverlapAllow, []state.Limit{{Name: "db", Rate: state.Rate{Runs: 1, Per: time.Hour}}}
		})
		for _, j := range []*job{places, tokens} {
			w.history.does(j, time.Second, state.StateSucceeded)
			w.put(j)
		}
		w.small()
		w.pass(2 * time.Second)
		runs := w.submitAll(places, 8)
		w.submitAll(tokens, 3)
		w.pass(12 * time.Second)
		for _, run := range runs {
			require.Equal(t, "succeeded", w.verdict(places, run), run)
		}
		require.Len(t, w.history.of(tokens), 1)
		w.pass(12 * time.Minute)
		w.verify(true)
	})
}

// A backfill waits while its job's circuit is open, and is listed as about to start: for
// want of more the API then tells of the circuit.
func TestBackfillAtACircuit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j").with(func(s *state.JobSpec) {
			s.CircuitBreaker = &state.CircuitBreaker{Failures: 1, CoolDown: time.Minute}
		})
		w.put(j)
		c := w.small()
		w.history.does(j, 0, state.StateFailed)
		w.pass(2 * time.Second)
		w.trigger(j, 1, false)
		w.pass(2 * time.Second)
		w.history.does(j, 0, state.StateSucceeded)
		id, err := w.backfill(j, 1, longAgo(2), nil)
		require.NoError(t, err)
		w.pass(10 * time.Second)
		require.Equal(t, map[string]int{"j WAITS_FOR_START ": 1}, w.waiting(c))
		w.pass(2 * time.Minute)
		require.Len(t, w.backfilled(j, id), 2)
		w.verify(true)
	})
}

// A rate of many in a second is not slowed down by how often the leader looks.
func TestQuickRate(t *testing.T) {
	for _, burst := range []int{1, 20} {
		bubble(t, func(t *testing.T, w *world) {
			j := newJob("a").with(func(s *state.JobSpec) {
				s.Overlap = state.OverlapAllow
				s.Limits = []state.Limit{{Name: "api", Rate: state.Rate{Runs: 100, Per: time.Second, Burst: burst}}}
			})
			w.put(j)
			w.small()
			w.pass(2 * time.Second)
			w.submitAll(j, 400)
			w.pass(3 * time.Second)
			require.InDelta(t, 300+burst, len(w.history.of(j)), 15)
			w.pass(3 * time.Second)
			require.Len(t, w.history.of(j), 400)
			w.verify(true)
		})
	}
}

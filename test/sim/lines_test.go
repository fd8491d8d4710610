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
			return func(s *state.JobSpec) { s.Overlap, s.Limits = state.OverlapAllow, []state.Limit{{Name: "api", Rate: r}} }
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

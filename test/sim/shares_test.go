package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// backlog keeps a number of runs of each job waiting for d, and answers how many of each
// succeeded in it.
func (w *world) backlog(jobs []*job, d time.Duration) map[string]int {
	w.t.Helper()
	const ahead = 150
	for i, j := range jobs {
		for n := range ahead {
			_, err := w.submit(j, uint64(i)<<32|uint64(n), 0, "")
			require.NoError(w.t, err)
		}
	}
	got := map[string]int{}
	w.pass(d)
	for _, j := range jobs {
		for _, run := range w.history.of(j) {
			if !run.ended.IsZero() {
				got[j.id.Name]++
			}
		}
	}
	return got
}

func shareJobs(limits []state.Limit) []*job {
	var jobs []*job
	for _, of := range []struct {
		name   string
		class  state.Priority
		weight int
	}{{"ten", state.PriorityHigh, 10}, {"thirty", state.PriorityHigh, 30}, {"sixty", state.PriorityHigh, 60}, {"low", state.PriorityLow, 100}} {
		jobs = append(jobs, newJob(of.name).with(func(s *state.JobSpec) {
			s.Overlap, s.Limits, s.Priority, s.Weight = state.OverlapAllow, limits, of.class, of.weight
			s.StartDeadline = time.Hour
		}))
	}
	return jobs
}

// requireShares: jobs of one class have shares as their weights, within 5 %, and a lower
// class nothing.
func requireShares(t *testing.T, got map[string]int) {
	t.Helper()
	sum := got["ten"] + got["thirty"] + got["sixty"]
	for name, part := range map[string]float64{"ten": 0.1, "thirty": 0.3, "sixty": 0.6} {
		require.InDelta(t, part, float64(got[name])/float64(sum), 0.05*part+1/float64(sum), "%s of %v", name, got)
	}
	require.LessOrEqual(t, got["low"], 1, got)
}

// On a full cluster runs are taken by class, and inside a class by weight.
func TestSharesOfAFullCluster(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		jobs := shareJobs(nil)
		for _, j := range jobs {
			w.history.does(j, time.Second, state.StateSucceeded)
			w.put(j)
		}
		w.control("c1")
		w.worker("e1", place{capacity: 2})
		w.worker("e2", place{capacity: 1})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		plug := newJob("plug").with(func(s *state.JobSpec) { s.Overlap, s.Priority = state.OverlapAllow, state.PriorityCritical })
		w.history.does(plug, 10*time.Second, state.StateSucceeded)
		w.put(plug)
		w.submitAll(plug, 3) // until all others wait
		w.pass(time.Second)
		got := w.backlog(jobs, 69*time.Second)
		requireShares(t, got)
		w.verify(false)
	})
}

// So they are at a limit, also when leaders die.
func TestSharesOfALimit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		limits := []state.Limit{{Name: "db", Max: 3}}
		jobs := shareJobs(limits)
		for _, j := range jobs {
			w.history.does(j, time.Second, state.StateSucceeded)
			w.put(j)
		}
		plug := newJob("plug").with(func(s *state.JobSpec) { s.Overlap, s.Limits = state.OverlapAllow, limits })
		w.history.does(plug, 10*time.Second, state.StateSucceeded)
		w.put(plug)
		w.control("c2")
		w.small()
		w.pass(2 * time.Second)
		w.submitAll(plug, 3)
		w.pass(time.Second)
		got := w.backlog(jobs, 40*time.Second)
		requireShares(t, got)
		old := w.leader()
		old.kill()
		w.awaitLeader(old.term.Load())
		w.pass(30 * time.Second)
		require.Empty(t, w.history.of(jobs[3]))
		w.verify(false)
	})
}

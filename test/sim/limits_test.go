package sim

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/planner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// submitAll asks for n runs of a job, now.
func (w *world) submitAll(j *job, n int) (runs []state.RunID) {
	w.t.Helper()
	for i := range n {
		run, err := w.submit(j, uint64(i)+1, 0, "")
		require.NoError(w.t, err)
		runs = append(runs, run)
	}
	return runs
}

// A limit that jobs share holds, what comes free is taken at once, and all that waited
// runs in the end.
func TestLimit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		limit := state.Limit{Name: "db", Max: 3}
		a := newJob("a").with(func(s *state.JobSpec) { s.Overlap, s.Limits = state.OverlapAllow, []state.Limit{limit} })
		b := newJob("b").with(func(s *state.JobSpec) { s.Overlap, s.Limits = state.OverlapQueue, []state.Limit{limit} })
		b.spec.QueueLimit = 100
		for _, j := range []*job{a, b} {
			w.history.does(j, 2*time.Second, state.StateSucceeded)
			w.put(j)
		}
		w.small()
		w.pass(2 * time.Second)
		begun := time.Now()
		runs := w.submitAll(a, 20)
		other := w.submitAll(b, 10)
		w.pass(time.Second)
		require.Len(t, append(w.history.of(a), w.history.of(b)...), 3)
		// 30 runs of 2 s, 3 at a time, take 20 s, and those of b one after another longer.
		w.until(begun.Add(28 * time.Second))
		for _, run := range runs {
			require.Equal(t, "succeeded", w.verdict(a, run), run)
		}
		for _, run := range other {
			require.Equal(t, "succeeded", w.verdict(b, run), run)
		}
		w.verify(true)
	})
}

// A limit that is per key holds for each key by itself: who submits much keeps nobody else
// waiting, and what comes free for a key is taken at once by those of the key.
func TestLimitPerKey(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a").with(func(s *state.JobSpec) {
			s.Overlap, s.Limits = state.OverlapAllow, []state.Limit{{Name: "customer", Max: 2, PerKey: true}}
		})
		w.history.does(j, 2*time.Second, state.StateSucceeded)
		w.put(j)
		w.small()
		w.pass(2 * time.Second)
		begun := time.Now()
		runs := map[string][]state.RunID{}
		nonce := uint64(0)
		submit := func(key string, n int) {
			for range n {
				nonce++
				run, err := w.submitFor(j, key, nonce, 0, "")
				require.NoError(t, err)
				runs[key] = append(runs[key], run)
			}
		}
		succeeded := func(key string) (n int) {
			for _, run := range runs[key] {
				if w.verdict(j, run) == "succeeded" {
					n++
				}
			}
			return n
		}
		submit("acme", 20)
		submit("other", 4)
		submit("", 4)
		w.pass(500 * time.Millisecond)
		require.Len(t, w.history.of(j), 3*2)
		w.until(begun.Add(3 * time.Second))
		submit("late", 2)
		w.until(begun.Add(7 * time.Second))
		require.Equal(t, []int{4, 4, 2}, []int{succeeded("other"), succeeded(""), succeeded("late")})
		// 20 runs of 2 s, 2 at a time, take 20 s.
		w.until(begun.Add(22 * time.Second))
		require.Equal(t, 20, succeeded("acme"))

		submit("acme", 3)
		w.leader().kill()
		w.control("c2")
		w.pass(30 * time.Second)
		require.Equal(t, 23, succeeded("acme"))
		w.verify(true)
	})
}

// A slot that is due while a limit is reached waits, those behind it are skipped, and it
// starts when there is room, whoever leads.
func TestSlotsWaitAtALimit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		limits := []state.Limit{{Name: "db", Cluster: true, Max: 1}}
		holder := newJob("holder").with(func(s *state.JobSpec) { s.Limits = limits })
		j := newJob("j", "*/10 * * * * *").with(func(s *state.JobSpec) { s.Limits, s.Overlap = limits, state.OverlapSkip })
		w.history.does(holder, 45*time.Second, state.StateSucceeded)
		w.put(holder)
		w.control("c2")
		w.small()
		w.pass(time.Second)
		w.until(time.Now().Truncate(10 * time.Second).Add(15 * time.Second))
		w.trigger(holder, 1, false)
		w.pass(time.Second)
		w.put(j)
		first := time.Now().Truncate(10 * time.Second).Add(10 * time.Second)
		w.until(first.Add(12 * time.Second))
		require.Equal(t, []string{"queued", "skipped:overlap"}, w.verdictsFrom(j, first, 10*time.Second, 2))
		old := w.leader()
		old.kill()
		w.awaitLeader(old.term.Load())
		// The new leader is not told of the end of a run that it has not planned.
		w.until(first.Add(42 * time.Second))
		require.Equal(t, "succeeded", w.slotVerdict(j, first))
		w.pause(j)
		w.pass(5 * time.Second)
		w.verify(true)
	})
}

// Starts keep to a rate, and lose nothing of it while runs wait.
func TestRate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a").with(func(s *state.JobSpec) {
			s.Overlap = state.OverlapAllow
			s.Limits = []state.Limit{{Name: "api", Rate: state.Rate{Runs: 4, Per: time.Second, Burst: 2}}}
		})
		w.put(j)
		w.small()
		w.pass(2 * time.Second)
		runs := w.submitAll(j, 42)
		w.pass(11 * time.Second)
		started := 0
		for _, run := range runs {
			if e := w.entry(j, run); e.Record != nil {
				require.Equal(t, state.StateSucceeded, e.Record.State)
				started++
			}
		}
		require.Equal(t, 42, started, "2 at once, and 40 in 10 s")
		w.verify(true)
	})
}

// Deadlines end what waits at a limit, with the reason.
func TestWaitsAtALimitEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		limits := []state.Limit{{Name: "db", Max: 1}}
		holder := newJob("holder").with(func(s *state.JobSpec) { s.Limits = limits })
		late := newJob("late").with(func(s *state.JobSpec) { s.Limits, s.StartDeadline = limits, 5*time.Second })
		queue := newJob("queue").with(func(s *state.JobSpec) { s.Limits, s.QueueTimeout = limits, 8*time.Second })
		w.history.does(holder, time.Minute, state.StateSucceeded)
		for _, j := range []*job{holder, late, queue} {
			w.put(j)
		}
		w.small()
		w.pass(time.Second)
		w.trigger(holder, 1, false)
		w.pass(time.Second)
		l, q := w.trigger(late, 1, false), w.trigger(queue, 1, false)
		w.pass(12 * time.Second)
		require.Equal(t, "missed:deadline", w.verdict(late, l))
		require.Equal(t, "missed:queue_timeout", w.verdict(queue, q))
		require.Contains(t, w.entry(late, l).Record.Detail, "limit db")
		require.Contains(t, w.entry(queue, q).Record.Detail, "limit db")
		w.pass(time.Minute)
		w.verify(true)
	})
}

// Runs go where there is enough of what they need, those that an executor has no room for
// wait, and the leader tells for what.
func TestResources(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a").with(func(s *state.JobSpec) { s.Resources = state.Resources{"gpu": 2} })
		none := newJob("none").with(func(s *state.JobSpec) { s.Resources = state.Resources{"gpu": 9} })
		full := newJob("full").with(func(s *state.JobSpec) { s.Selector = map[string]string{"small": "yes"} })
		retried := newJob("retried").with(func(s *state.JobSpec) { s.Retry = &state.Retry{MaxAttempts: 2, InitialBackoff: time.Minute} })
		for _, x := range []*job{j, none, full, retried} {
			w.history.does(x, 10*time.Second, state.StateSucceeded)
			w.put(x)
		}
		w.history.does(retried, time.Second, state.StateFailed)
		c := w.control("c1")
		w.worker("big", place{has: state.Resources{"gpu": 5}})
		w.worker("none", place{})
		w.worker("small", place{capacity: 1, labels: map[string]string{"small": "yes"}})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		runs := w.submitAll(j, 5)
		w.submitAll(none, 1)
		w.submitAll(full, 2)
		w.submitAll(retried, 1)
		delayed, err := w.submit(retried, 99, time.Hour, "")
		require.NoError(t, err)
		w.pass(5 * time.Second)
		require.Equal(t, map[string]int{
			"a WAITS_FOR_RESOURCE gpu": 3, "none WAITS_FOR_NODE ": 1, "full WAITS_FOR_CAPACITY ": 1, "retried WAITS_FOR_RETRY ": 1,
			"retried WAITS_FOR_TIME ": 1,
		}, w.waiting(c))
		w.history.does(retried, time.Second, state.StateSucceeded)
		w.pass(30 * time.Second)
		for _, run := range runs {
			e := w.entry(j, run)
			require.Equal(t, state.StateSucceeded, e.Record.State)
			require.Equal(t, "big", e.Record.Attempts[0].Node)
		}
		_, err = w.api.CancelRun(w.ctx, state.Cancel{Job: retried.id, Run: delayed, Reason: state.ReasonRequested, Requested: time.Now()})
		require.NoError(t, err)
		w.pass(12 * time.Minute)
		w.verify(true)
	})
}

// waiting counts what the leader says waits, by job, for what, and the resource.
func (w *world) waiting(c *control) map[string]int {
	w.t.Helper()
	res, err := planner.NewServer(c.planner).ListWaiting(w.ctx, &workerv1.ListWaitingRequest{})
	require.NoError(w.t, err)
	got := map[string]int{}
	for _, x := range res.GetWaiting() {
		got[x.GetJob()+" "+x.GetRun().GetWaitsFor().String()+" "+x.GetRun().GetResource()]++
	}
	return got
}

// The leader tells at which limit runs wait, behind which others, and until when.
func TestWhatWaitsAtLimits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := newJob("a").with(func(s *state.JobSpec) { s.Overlap, s.Limits = state.OverlapAllow, []state.Limit{{Name: "db", Max: 1}} })
		r := newJob("r").with(func(s *state.JobSpec) {
			s.Overlap, s.Limits = state.OverlapAllow, []state.Limit{{Name: "api", Rate: state.Rate{Runs: 1, Per: time.Minute}}}
		})
		q := newJob("q").with(func(s *state.JobSpec) { s.Overlap, s.QueueLimit = state.OverlapQueue, 10 })
		for _, j := range []*job{a, r, q} {
			w.history.does(j, 20*time.Second, state.StateSucceeded)
			w.put(j)
		}
		c := w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		begun := time.Now()
		w.submitAll(a, 3)
		w.submitAll(r, 3)
		w.submitAll(q, 3)
		w.pass(5 * time.Second)
		require.Equal(t, map[string]int{"a WAITS_FOR_LIMIT ": 2, "r WAITS_FOR_RATE ": 2, "q WAITS_FOR_RUNS ": 2}, w.waiting(c))
		res, err := planner.NewServer(c.planner).ListWaiting(w.ctx, &workerv1.ListWaitingRequest{Namespace: r.id.Namespace, Job: "r"})
		require.NoError(t, err)
		require.EqualValues(t, 2, res.GetTotal())
		require.WithinDuration(t, begun.Add(time.Minute), res.GetWaiting()[0].GetRun().GetUntil().AsTime(), time.Second)
		require.Equal(t, "a token of the rate of limit api", res.GetWaiting()[0].GetRun().GetDetail())
		w.pass(5 * time.Minute)
		require.Empty(t, w.waiting(c))
		w.verify(true)
	})
}

// Executors that a job prefers come first, others are used when those are full or gone, and
// it comes back to them.
func TestPreference(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "* * * * * *").with(func(s *state.JobSpec) {
			s.Overlap, s.Preference = state.OverlapAllow, map[string]string{"disk": "fast"}
		})
		w.put(j)
		w.control("c1")
		w.worker("slow", place{})
		w.awaitLeader(0)
		w.pass(10 * time.Second)
		fast := w.worker("fast", place{labels: map[string]string{"disk": "fast"}, capacity: 1})
		w.pass(20 * time.Second)
		on := func() map[string]int {
			got, since := map[string]int{}, time.Now().Add(-5*time.Second)
			for _, rec := range w.records(j) {
				if n := len(rec.Attempts); n > 0 && rec.Due.After(since) {
					got[rec.Attempts[n-1].Node]++
				}
			}
			return got
		}
		require.Equal(t, []string{"fast"}, slices.Collect(maps.Keys(on())))
		plug := newJob("plug").with(func(s *state.JobSpec) { s.Selector = map[string]string{"disk": "fast"} })
		w.history.does(plug, 10*time.Second, state.StateSucceeded)
		w.put(plug)
		w.submitAll(plug, 1)
		w.pass(8 * time.Second)
		require.Equal(t, []string{"slow"}, slices.Collect(maps.Keys(on())), "the preferred one is full")
		w.pass(15 * time.Second)
		fast.kill()
		w.pass(20 * time.Second)
		require.Equal(t, []string{"slow"}, slices.Collect(maps.Keys(on())), "it is gone")
		w.verify(false)
	})
}

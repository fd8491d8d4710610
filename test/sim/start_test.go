package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	past "github.com/leaderd/leaderd/internal/history"
	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// punctual checks that each slot of a job in (from, to] started once, not later
// than late.
func (w *world) punctual(j *job, from, to time.Time, late time.Duration) {
	w.t.Helper()
	started := map[state.RunID]time.Time{}
	for _, s := range w.history.of(j) {
		if s.attempt == 1 {
			require.NotContains(w.t, started, s.run)
			started[s.run] = s.begun
		}
	}
	for _, o := range past.Owes(w.replay().facts(to, false), from.Add(time.Nanosecond), to) {
		if o.Job != j.id.String() {
			continue
		}
		begun, ok := started[state.SlotRunID(o.Slot)]
		require.True(w.t, ok, "%s: slot %s did not start: %s", j.id, o.Slot.Format(clockLayout), w.slotVerdict(j, o.Slot))
		require.LessOrEqual(w.t, begun.Sub(o.Slot), late, "%s: slot %s was late", j.id, o.Slot.Format(clockLayout))
	}
}

func TestPunctualStarts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		jobs := []*job{
			newJob("a", "* * * * * *"),
			newJob("b", "@every 7s", "*/10 * * * * *"),
			newJob("c", "*/3 * * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip }),
		}
		for _, j := range jobs {
			w.put(j)
		}
		w.control("c1")
		w.worker("e1", place{})
		w.worker("e2", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		from := time.Now()
		w.pass(time.Minute)
		for _, j := range jobs {
			w.punctual(j, from, from.Add(time.Minute), 0)
		}
		w.verify(true)
	})
}

func TestOverlapIsSkipped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "* * * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip })
		w.history.does(j, 2500*time.Millisecond, state.StateSucceeded)
		w.control("c1")
		w.worker("e1", place{})
		w.worker("e2", place{})
		w.awaitLeader(0)
		w.put(j)
		begun := time.Now()
		w.pass(10*time.Second + 100*time.Millisecond)
		var got []string
		for i := 1; i <= 9; i++ {
			got = append(got, w.slotVerdict(j, begun.Truncate(time.Second).Add(time.Duration(i)*time.Second)))
		}
		const ran, skipped = "succeeded", "skipped:overlap"
		require.Equal(t, []string{ran, skipped, skipped, ran, skipped, skipped, ran, skipped, skipped}, got)
	})
}

func TestTriggers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip })
		w.history.does(j, 5*time.Second, state.StateSucceeded)
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(time.Second)

		asked := time.Now()
		first := w.trigger(j, 1, false)
		w.pass(time.Second)
		require.Equal(t, "running", w.verdict(j, first))
		require.LessOrEqual(t, w.history.of(j)[0].begun.Sub(asked), 100*time.Millisecond)

		second := w.trigger(j, 2, false)
		beside := w.trigger(j, 3, true)
		w.pass(time.Second)
		require.Equal(t, "skipped:overlap", w.verdict(j, second))
		require.Equal(t, "running", w.verdict(j, beside), "it may overlap")
		w.pass(10 * time.Second)
		require.Equal(t, "succeeded", w.verdict(j, first))
		require.Equal(t, "succeeded", w.verdict(j, beside))

		w.workers["e1"].drain()
		w.pass(time.Second)
		orphan := w.trigger(j, 4, false)
		w.pass(time.Second)
		w.delete(j)
		w.pass(time.Second)
		require.Equal(t, "cancelled:deleted", w.verdict(j, orphan))
	})
}

func TestNobodyMatches(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		often := newJob("often", "*/10 * * * * *")
		rarely := newJob("rarely", "@every 1h")
		strict := newJob("strict", "@every 1h").with(func(s *state.JobSpec) { s.StartDeadline = 20 * time.Second })
		for _, j := range []*job{often, rarely, strict} {
			j.spec.Selector = map[string]string{"gpu": "yes"}
			j.spec.Overlap = state.OverlapSkip
			w.put(j)
		}
		begun := time.Now()
		w.control("c1")
		w.worker("plain", place{})
		w.awaitLeader(0)
		w.until(begun.Add(time.Hour))
		require.Equal(t, "missed:no_matching_node", w.slotVerdict(often, begun.Add(10*time.Second)))
		require.Equal(t, store.ErrNotFound.Error(), w.slotVerdict(rarely, begun.Add(time.Hour))[len("get run ns/rarely 20000101T010000Z: "):], "it waits")

		w.pass(30 * time.Second)
		require.Equal(t, "missed:deadline", w.slotVerdict(strict, begun.Add(time.Hour)))
		w.worker("gpu", place{labels: map[string]string{"gpu": "yes"}})
		w.pass(time.Second)
		require.Equal(t, "succeeded", w.slotVerdict(rarely, begun.Add(time.Hour)), "late, but not too late")
		w.verify(false)
		w.pass(2 * time.Minute)
		w.verify(true)
	})
}

func TestBoundOnOpenEntriesLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.plan = planner.Config{MaxOpen: 100}
		var jobs []*job
		for i := range 30 {
			j := newJob(fmt.Sprint("j", i), "* * * * * *")
			jobs = append(jobs, j)
			w.put(j)
		}
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		from := time.Now()
		w.pass(30 * time.Second)
		for _, j := range jobs {
			w.punctual(j, from, from.Add(30*time.Second), 0)
		}
		w.verify(true)
	})
}

func TestJobThatNobodyCanRunCrowdsOutNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.plan = planner.Config{MaxOpen: 100}
		for i := range 2 {
			w.put(newJob(fmt.Sprint("nobody", i), "* * * * * *").with(func(s *state.JobSpec) {
				s.Selector = map[string]string{"no": "node"}
				s.StartDeadline = time.Hour
			}))
		}
		good := newJob("good", "* * * * * *")
		w.put(good)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		from := time.Now()
		w.pass(3 * time.Minute)
		w.punctual(good, from, from.Add(3*time.Minute), 0)
		w.verify(true)
	})
}

func TestCorruptJobHarmsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		good := newJob("good", "* * * * * *")
		w.put(good)
		for name, value := range map[string]string{"garbage": "\xff\xff\xff", "empty": "", "odd%2Fname%": "x"} {
			_, err := w.mem.Txn(w.ctx, kv.Txn{Then: []kv.Op{kv.Put(store.DefaultPrefix+"jobs/ns/"+name, []byte(value), 0)}})
			require.NoError(t, err)
		}
		w.put(newJob("unparsable", "every now and then"))
		w.control("c1")
		w.worker("e1", place{})
		c := w.awaitLeader(0)
		w.pass(2 * time.Second)
		from := time.Now()
		w.pass(10 * time.Second)
		w.punctual(good, from, from.Add(10*time.Second), 0)
		_, broken := c.catalog.Len()
		require.Equal(t, 4, broken)

		// One that breaks while it runs takes its slots' verdicts with it.
		_, err := w.mem.Txn(w.ctx, kv.Txn{Then: []kv.Op{kv.Put(store.DefaultPrefix+"jobs/ns/good", []byte("\xff"), 0)}})
		require.NoError(t, err)
		w.pass(5 * time.Second)
		n := len(w.history.of(good))
		w.put(good)
		w.pass(5 * time.Second)
		require.Greater(t, len(w.history.of(good)), n, "it is mended by a put")
		require.Empty(t, c.terms(), "nobody lost the leadership")
	})
}

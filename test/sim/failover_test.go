package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

func TestDeadLeaderMakesNoSlotLate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		jobs := []*job{newJob("a", "* * * * * *"), newJob("b", "@every 7s"), newJob("c", "*/20 * * * * *")}
		for _, j := range jobs {
			w.put(j)
		}
		for _, name := range []string{"c1", "c2", "c3"} {
			w.control(name)
		}
		w.worker("e1", place{})
		w.worker("e2", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		from := time.Now()
		for range 3 {
			c := w.leader()
			c.kill()
			w.awaitLeader(c.term.Load())
			w.pass(17 * time.Second)
			w.control(c.name)
		}
		to := time.Now()
		w.pass(2 * time.Second)
		for _, j := range jobs {
			w.punctual(j, from, to, 0)
		}
		w.verify(true)
	})
}

func TestLostTermEndsClean(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "* * * * * *")
		w.put(j)
		c := w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		first := c.term.Load()
		// Behind the leader's back: its lease still stands.
		_, err := w.mem.Txn(w.ctx, kv.Txn{Then: []kv.Op{kv.Delete(*c.key.Load())}})
		require.NoError(t, err)
		w.awaitLeader(first)
		require.ErrorIs(t, c.terms()[0], state.ErrTermLost)
		from := time.Now()
		w.pass(10 * time.Second)
		w.punctual(j, from, from.Add(10*time.Second), 0)
		require.Len(t, c.terms(), 1)
		w.verify(true)
	})
}

func TestExecutorDies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		every := newJob("every", "* * * * * *")
		again := newJob("again")
		once := newJob("once").with(func(s *state.JobSpec) { s.Guarantee = state.AtMostOnce })
		w.history.does(again, time.Minute, state.StateSucceeded)
		w.history.does(once, time.Minute, state.StateSucceeded)
		for _, j := range []*job{every, again, once} {
			w.put(j)
		}
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(time.Second)
		a, o := w.trigger(again, 1, false), w.trigger(once, 2, false)
		w.pass(time.Second)
		require.Equal(t, 2, w.history.running("e1"))
		w.worker("e2", place{})
		w.pass(3 * time.Second)

		died := time.Now()
		x.kill()
		w.pass(registrationTTL + 2*time.Second)
		// What it had claimed ahead is lost with it, all else goes elsewhere at once.
		w.punctual(every, died.Add(time.Second), died.Add(registrationTTL), 600*time.Millisecond)
		require.Equal(t, "lost", w.verdict(once, o))
		require.Equal(t, "running", w.verdict(again, a))
		spans := w.history.of(again)
		require.Len(t, spans, 2)
		require.Equal(t, 2, spans[1].attempt)
		require.Equal(t, "e2", spans[1].node)
		require.LessOrEqual(t, spans[1].begun.Sub(died), registrationTTL+100*time.Millisecond)
		w.pass(time.Minute)
		require.Equal(t, "succeeded", w.verdict(again, a))
		w.verify(true)
	})
}

func TestDrainHandsOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		every := newJob("every", "* * * * * *")
		long := newJob("long")
		edited := newJob("edited")
		for _, j := range []*job{long, edited} {
			w.history.does(j, time.Minute, state.StateSucceeded)
			w.put(j)
		}
		w.put(every)
		w.control("c1")
		x := w.worker("e1", place{grace: 2 * time.Second})
		w.awaitLeader(0)
		w.pass(time.Second)
		run, second := w.trigger(long, 1, false), w.trigger(edited, 2, false)
		w.pass(time.Second)
		w.put(edited.with(func(s *state.JobSpec) { s.Description = "of another version by now" }))
		w.worker("e2", place{})
		w.pass(time.Second)
		from := time.Now()
		x.drain()
		w.pass(5 * time.Second)
		w.punctual(every, from, from.Add(4*time.Second), 0)
		for _, j := range []*job{long, edited} {
			spans := w.history.of(j)
			require.Len(t, spans, 2, "it started anew elsewhere")
			require.Equal(t, "e2", spans[1].node)
			require.LessOrEqual(t, spans[1].begun.Sub(from), 2500*time.Millisecond, "once the grace is over, not at the next sweep")
		}
		w.pass(time.Minute)
		require.Equal(t, "succeeded", w.verdict(long, run))
		require.Equal(t, "succeeded", w.verdict(edited, second))
		w.verify(true)
	})
}

func TestSlowExecutorHarmsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		here := newJob("here", "* * * * * *").with(func(s *state.JobSpec) { s.Selector = map[string]string{"at": "e1"} })
		any := newJob("any", "* * * * * *")
		w.put(here)
		w.put(any)
		w.control("c1")
		w.worker("e1", place{labels: map[string]string{"at": "e1"}})
		slow := w.worker("e2", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		from := time.Now()
		slow.wire.freeze()
		w.pass(30 * time.Second)
		w.punctual(here, from, from.Add(29*time.Second), 0)
		// It still claims what it holds: it is only the leader that it does not hear.
		w.punctual(any, from, from.Add(29*time.Second), 600*time.Millisecond)
		slow.wire.thaw()
		w.pass(10 * time.Second)
		w.verify(true)
	})
}

func TestHedge(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "* * * * * *")
		w.put(j)
		w.control("c1")
		// It attends, but its claims get no answer for a while.
		deaf := w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		w.worker("e2", place{})
		w.pass(2 * time.Second)
		from := time.Now()
		deaf.link.setDown(true)
		w.pass(2500 * time.Millisecond)
		deaf.link.setDown(false)
		w.pass(2 * time.Second)
		w.punctual(j, from, from.Add(3*time.Second), 600*time.Millisecond)
		w.verify(true)
	})
}

// TestDeafNodeDoesNotLead has a node campaign whose watches tell nothing: it
// would pass the slots of a job that it does not know of.
func TestDeafNodeDoesNotLead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.put(newJob("before", "* * * * * *"))
		first := w.control("c1")
		w.awaitLeader(0)
		deaf := w.control("c2")
		w.worker("e1", place{})
		w.pass(time.Second)
		require.NotZero(t, deaf.lease.Load(), "it waits for its turn")
		deaf.link.deafen()
		w.put(newJob("flush", "@every 1h")) // ends the calls that were under way
		w.pass(time.Second)
		j := newJob("after", "* * * * * *")
		w.put(j)
		w.pass(5 * time.Second)
		first.kill()
		w.pass(12 * time.Second)
		require.NotEmpty(t, deaf.terms())
		require.ErrorContains(t, deaf.terms()[0], "watch was behind")
		deaf.kill()
		w.control("c3")
		w.awaitLeader(deaf.term.Load())
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestOldSlotDoesNotHoldUpTheNext has one slot that nobody can run hold the
// watermark for minutes before a leader dies: its successor does not go through all
// that was due since before it plans what is due next.
func TestOldSlotDoesNotHoldUpTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.plan.MaxOpen = 160 // what is due in a horizon, and a little more
		stuck := newJob("stuck", "0 1 0 * * *").with(func(s *state.JobSpec) {
			s.Overlap, s.StartDeadline = state.OverlapSkip, 10*time.Minute
			s.Selector = map[string]string{"no": "node"}
		})
		w.put(stuck)
		var all []*job
		for i := range 10 {
			all = append(all, newJob(fmt.Sprint("a", i), "* * * * * *"))
			w.put(all[i])
		}
		w.net.setLatency(time.Second)
		slot := time.Now().Truncate(time.Minute).Add(time.Minute)
		w.control("c1")
		w.control("c2")
		w.worker("e1", place{})
		c := w.awaitLeader(0)
		w.until(slot.Add(8 * time.Minute))
		mark, err := w.api.GetWatermark(w.ctx)
		require.NoError(t, err)
		require.True(t, mark.Instant.Before(slot), "the old slot holds it")
		from := time.Now()
		c.kill()
		w.awaitLeader(c.term.Load())
		w.pass(30 * time.Second)
		for _, j := range all {
			w.punctual(j, from, from.Add(30*time.Second), 0)
		}
		require.Empty(t, w.records(stuck), "it may run yet")
		w.until(slot.Add(11 * time.Minute))
		require.Equal(t, "missed:deadline", w.slotVerdict(stuck, slot))
		w.verify(true)
	})
}

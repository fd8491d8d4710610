package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// TestCircuit has what a job calls be down for a while: after two failures no run
// starts, whoever leads, until one probes; and the one that finds it well again lets all
// start.
func TestCircuit(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("leader killed %v", killed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				j := newJob("j", "* * * * *").with(func(s *state.JobSpec) {
					s.CircuitBreaker = &state.CircuitBreaker{Failures: 2, CoolDown: 150 * time.Second}
				})
				w.put(j)
				w.control("c1")
				w.control("c2")
				w.worker("e1", place{})
				w.worker("e2", place{})
				w.awaitLeader(0)
				first := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
				w.history.does(j, time.Second, state.StateFailed)
				w.until(first.Add(70 * time.Second)) // the circuit is open
				if killed {
					w.leader().kill()
				}
				w.until(first.Add(4*time.Minute + 10*time.Second)) // the first probe has failed
				w.history.does(j, 90*time.Second, state.StateSucceeded)
				w.until(first.Add(10*time.Minute + 10*time.Second))
				require.Equal(t, []string{
					"failed", "failed", "skipped:circuit_open", "skipped:circuit_open", "failed",
					"skipped:circuit_open", "skipped:circuit_open", "succeeded", "skipped:circuit_open", "running",
				}, w.verdictsFrom(j, first, time.Minute, 10))
				require.Len(t, w.history.of(j), 6)
				w.verify(true)
			})
		})
	}
}

// TestCircuitWithoutLeader has the circuit open, and let a probe start, while nobody
// leads: executors hold the plan, and need no more.
func TestCircuitWithoutLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j", "* * * * * *").with(func(s *state.JobSpec) {
			s.CircuitBreaker = &state.CircuitBreaker{Failures: 2, CoolDown: 5 * time.Second}
		})
		w.put(j)
		c := w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(10 * time.Second)
		c.kill()
		at := time.Now().UTC().Truncate(time.Second).Add(3 * time.Second)
		w.until(at.Add(-500 * time.Millisecond))
		w.history.does(j, 0, state.StateFailed)
		w.until(at.Add(9 * time.Second))
		got := w.verdictsFrom(j, at, time.Second, 8)
		require.Equal(t, []string{"failed", "failed"}, got[:2])
		open := 0
		for _, v := range got[2:] {
			if v == "skipped:circuit_open" {
				open++
			}
		}
		require.GreaterOrEqual(t, open, 4, "%v", got)
		w.history.does(j, 0, state.StateSucceeded)
		w.control("c2")
		w.awaitLeader(c.term.Load())
		w.pass(time.Minute)
		w.verify(true)
	})
}

// TestChains has jobs run after others while their leader is lost: each end makes one
// run of each.
func TestChains(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("leader killed %v", killed), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				first := newJob("first", "*/10 * * * * *")
				second := newJob("second").with(func(s *state.JobSpec) { s.After = &state.After{Jobs: []string{"first"}} })
				third := newJob("third").with(func(s *state.JobSpec) { s.After = &state.After{Jobs: []string{"second"}} })
				alert := newJob("alert").with(func(s *state.JobSpec) {
					s.After = &state.After{Jobs: []string{"first"}, On: state.AfterFailure}
				})
				for _, j := range []*job{first, second, third, alert} {
					w.put(j)
				}
				w.control("c1")
				w.control("c2")
				w.worker("e1", place{})
				w.worker("e2", place{})
				w.awaitLeader(0)
				begun := time.Now()
				for i := range 6 {
					w.history.does(first, time.Second, []state.RunState{state.StateSucceeded, state.StateFailed}[i%2])
					w.pass(20 * time.Second)
					if killed && i%2 == 1 {
						n := w.leader()
						n.kill()
						w.control(fmt.Sprint("again", i))
					}
				}
				w.pass(40 * time.Second)
				good, bad := 0, 0
				for _, s := range w.history.of(first) {
					switch {
					case s.begun.Before(begun):
					case s.state == state.StateSucceeded:
						good++
					default:
						bad++
					}
				}
				require.Greater(t, good, 4)
				require.Greater(t, bad, 4)
				w.verify(true)
				// All that the last few made is there, and of the chain.
				for _, s := range w.history.of(third) {
					r := w.record(third, s.run)
					require.Len(t, r.Upstream, 1)
					second := w.record(second, r.Upstream[0].Run)
					require.Equal(t, second.Correlation, r.Correlation)
					require.Equal(t, "first/"+string(second.Upstream[0].Run), r.Correlation)
				}
				require.NotEmpty(t, w.history.of(alert))
			})
		})
	}
}

// TestChainOfAll joins two jobs: a run is made once both have ended anew.
func TestChainOfAll(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := newJob("a"), newJob("b")
		both := newJob("both").with(func(s *state.JobSpec) { s.After = &state.After{Jobs: []string{"a", "b"}} })
		for _, j := range []*job{a, b, both} {
			w.put(j)
		}
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		nonce := uint32(0)
		trigger := func(j *job, how state.RunState) state.RunID {
			nonce++
			w.history.does(j, 0, how)
			run := w.trigger(j, nonce, false)
			w.pass(2 * time.Second)
			return run
		}
		trigger(a, state.StateSucceeded)
		second := trigger(a, state.StateSucceeded)
		trigger(b, state.StateFailed)
		require.Empty(t, w.history.of(both))
		w.leader().kill()
		w.control("c2")
		w.pass(15 * time.Second)
		other := trigger(b, state.StateSucceeded)
		w.pass(2 * time.Second)
		runs := w.history.of(both)
		require.Len(t, runs, 1)
		r := w.record(both, runs[0].run)
		require.Equal(t, []state.Upstream{{Job: "a", Run: second, State: state.StateSucceeded}, {Job: "b", Run: other, State: state.StateSucceeded}}, r.Upstream)
		require.Equal(t, "b/"+string(other), r.Correlation)
		trigger(b, state.StateSucceeded)
		require.Len(t, w.history.of(both), 1, "a has not ended anew")
		trigger(a, state.StateSucceeded)
		require.Len(t, w.history.of(both), 2)
		w.verify(true)
	})
}

// TestChainOfPausedJob skips what would run after another while the job is paused.
func TestChainOfPausedJob(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := newJob("a")
		b := newJob("b").with(func(s *state.JobSpec) { s.After = &state.After{Jobs: []string{"a"}} })
		w.put(a)
		old := w.trigger(a, 1, false)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(5 * time.Second)
		require.Equal(t, "succeeded", w.verdict(a, old))
		w.put(b)
		w.pass(5 * time.Second)
		require.Empty(t, w.history.of(b), "what ended before counts for nothing")
		w.pause(b)
		w.trigger(a, 2, false)
		w.pass(5 * time.Second)
		w.resume(b)
		w.trigger(a, 3, false)
		w.pass(5 * time.Second)
		require.Len(t, w.history.of(b), 1)
		w.verify(true)
	})
}

// TestChainOfShards has a run that is split be followed once.
func TestChainOfShards(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := newJob("a").with(func(s *state.JobSpec) { s.Shards = &state.Shards{Count: 4} })
		b := newJob("b").with(func(s *state.JobSpec) {
			s.After = &state.After{Jobs: []string{"a"}, On: state.AfterCompletion}
			s.CircuitBreaker = &state.CircuitBreaker{Failures: 1}
			s.Shards = &state.Shards{Count: 2}
		})
		w.put(a)
		w.put(b)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.history.does(b, 0, state.StateFailed)
		for i := range 3 {
			w.trigger(a, uint32(i), false)
			w.pass(5 * time.Second)
		}
		require.Len(t, w.history.of(b), 2, "the shards of one run, whose circuit then is open")
		w.verify(true)
	})
}

// TestHooks has hooks run after the verdict, without holding up what comes next, and not
// at all where their node has died.
func TestHooks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hook := &state.Hook{Command: &state.Command{Shell: "true"}}
		j := newJob("j", "*/10 * * * * *").with(func(s *state.JobSpec) {
			s.Overlap = state.OverlapSkip
			s.Hooks = &state.Hooks{OnSuccess: hook, OnExit: hook}
		})
		w.put(j)
		w.history.hookTakes = 25 * time.Second
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		first := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
		w.until(first.Add(35 * time.Second))
		require.Equal(t, []string{"succeeded", "succeeded", "succeeded"}, w.verdictsFrom(j, first, 10*time.Second, 3), "no hook holds them up")
		rec := w.record(j, state.SlotRunID(first))
		require.Equal(t, state.HookOnSuccess, rec.Hooks[0].Name)
		require.Equal(t, state.StateSucceeded, rec.Hooks[0].State)
		require.Equal(t, state.StateNone, rec.Hooks[1].State)
		x.kill()
		w.worker("e2", place{})
		w.pass(time.Minute)
		rec = w.record(j, state.SlotRunID(first))
		require.Equal(t, state.StateNone, rec.Hooks[1].State, "its node died, and nobody else runs it")
		w.pass(2 * time.Minute)
		late := w.record(j, state.SlotRunID(first.Add(2*time.Minute)))
		require.Equal(t, state.StateSucceeded, late.Hooks[1].State)
		w.verify(true)
	})
}

// TestHooksOfDrain has an executor shut down while hooks run: they have its grace.
func TestHooksOfDrain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hook := &state.Hook{Command: &state.Command{Shell: "true"}, Timeout: 10 * time.Minute}
		j := newJob("j").with(func(s *state.JobSpec) { s.Hooks = &state.Hooks{OnExit: hook} })
		w.put(j)
		w.history.hookTakes = 10 * time.Second
		w.control("c1")
		x := w.worker("e1", place{})
		w.awaitLeader(0)
		run := w.trigger(j, 1, false)
		w.pass(3 * time.Second)
		x.drain()
		w.pass(20 * time.Second)
		require.Equal(t, state.StateSucceeded, w.record(j, run).Hooks[0].State)

		w.history.hookTakes = 5 * time.Minute
		x = w.worker("e2", place{})
		w.pass(5 * time.Second)
		run = w.trigger(j, 2, false)
		w.pass(3 * time.Second)
		x.drain()
		w.pass(2 * time.Minute)
		require.Equal(t, state.StateInterrupted, w.record(j, run).Hooks[0].State)
		w.verify(true)
	})
}

package store

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// broken is the claim of a run that has a breaker, which is due.
func broken(c state.Claim, b *state.CircuitBreaker) state.Claim {
	c.Live.Circuit, c.ApplyOverlap = b, true
	return c
}

func (r *rig) circuit(id state.JobID, b *state.CircuitBreaker) state.Circuit {
	r.t.Helper()
	c, err := r.s.readCircuit(context.Background(), r.s.keys.circuit(id, b))
	require.NoError(r.t, err)
	return c
}

// The verdict that opens the circuit opens it in its own transaction; claims after it
// are held, skipped when they are due, and one is the probe, whose end decides.
func TestCircuitOfClaims(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		b := &state.CircuitBreaker{Failures: 2, CoolDown: 3 * time.Minute}
		job, n := r.setJob(billing), r.register("n")
		claim := func(i int) state.Claim { return broken(claimOf(billing, job, n, i, exclusive), b) }
		fail := func(i int, to state.RunState) {
			require.Equal(t, state.TokenStored, r.finish(endOf(r.start(claim(i)), to)))
		}
		fail(1, state.StateFailed)
		require.Equal(t, 1, r.circuit(billing, b).Failures)
		fail(2, state.StateTimedOut)
		open := r.circuit(billing, b)
		require.Equal(t, state.CircuitOpen, open.State)
		require.Equal(t, slotAt(2).Add(time.Second+3*time.Minute), open.Until)
		verdict, _ := r.get(r.s.keys.historyRun(billing, slotRun(2)))
		require.Equal(t, verdict.ModRevision, open.Revision, "one transaction")

		early := claim(3)
		early.ApplyOverlap = false
		require.Equal(t, state.ClaimHeld, r.claim(early).Status)
		require.Equal(t, state.ClaimSkipped, r.claim(claim(3)).Status)
		rec, _ := r.record(billing, slotRun(3))
		require.Equal(t, state.StateSkipped, rec.State)
		require.Equal(t, state.ReasonCircuitOpen, rec.Reason)
		require.Contains(t, rec.Detail, "2 runs in a row failed, the last of them 20261130T020200Z of")
		require.Equal(t, state.ClaimDecided, r.claim(claim(3)).Status, "asked again")

		probe := r.start(claim(6))
		require.Equal(t, state.CircuitHalfOpen, r.circuit(billing, b).State)
		require.Equal(t, state.Claimed, r.claim(claim(6)).Status, "asked again")
		require.Equal(t, state.ClaimSkipped, r.claim(claim(7)).Status)
		rec, _ = r.record(billing, slotRun(7))
		require.Contains(t, rec.Detail, "is its probe")

		require.Equal(t, state.TokenStored, r.finish(endOf(probe, state.StateFailed)))
		require.Equal(t, state.CircuitOpen, r.circuit(billing, b).State)
		require.Equal(t, state.ClaimSkipped, r.claim(claim(8)).Status)
		r.end(r.start(claim(10)))
		_, there := r.get(r.s.keys.circuit(billing, b))
		require.False(t, there, "a circuit that has nothing to tell has no key")
		r.end(r.start(claim(11)))
	})
}

// Two stores do not know of one another; both claims and ends are right all the same.
func TestCircuitOfTwoNodes(t *testing.T) {
	r := newRig(t)
	other := r.other()
	b := &state.CircuitBreaker{Failures: 1, Target: "api"}
	job, n := r.setJob(billing), r.register("n")
	r.end(r.start(broken(claimOf(billing, job, n, 1, false), b)))
	l := r.start(broken(claimOf(billing, job, n, 2, false), b))

	id := state.JobID{Namespace: billing.Namespace, Name: "another"}
	job2 := r.setJob(id)
	res, err := other.Claim(t.Context(), broken(claimOf(id, job2, n, 2, false), b))
	require.NoError(t, err)
	require.Equal(t, state.Claimed, res.Status)
	status, err := other.Finish(t.Context(), endOf(*res.Live, state.StateFailed))
	require.NoError(t, err)
	require.Equal(t, state.TokenStored, status)

	require.Equal(t, state.ClaimSkipped, r.claim(broken(claimOf(billing, job, n, 3, false), b)).Status, "its guess was old")
	r.end(l) // began before
	require.Equal(t, state.CircuitOpen, r.circuit(billing, b).State)
}

// A slot that an open circuit would have skipped has its verdict when the timeline was
// closed over it, whoever knew of that.
func TestCircuitAndClosedTimeline(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		term := r.lead("c")
		b := &state.CircuitBreaker{Failures: 1, CoolDown: time.Hour}
		job, n := r.setJob(billing), r.register("n")
		require.Equal(t, state.TokenStored, r.finish(endOf(r.start(broken(claimOf(billing, job, n, 1, exclusive), b)), state.StateFailed)))

		closed, err := r.other().CloseTimeline(t.Context(), term, slotAt(5))
		require.NoError(t, err)
		missed := state.Record{
			Job: billing, Run: slotRun(2), Generation: 1, State: state.StateMissed, Reason: state.ReasonOutage,
			Due: slotAt(2), Until: slotAt(5), Count: 4, Recorded: slotAt(5),
		}
		require.True(t, r.decideRange(term, missed, closed.Revision))
		for i := 2; i <= 5; i++ {
			require.Equal(t, state.ClaimDecided, r.claim(broken(claimOf(billing, job, n, i, exclusive), b)).Status)
		}
		require.Equal(t, state.ClaimSkipped, r.claim(broken(claimOf(billing, job, n, 6, exclusive), b)).Status)
	})
}

// Of many claims when the cool-down is over one is the probe.
func TestOneProbe(t *testing.T) {
	r := newRig(t)
	b := &state.CircuitBreaker{Failures: 1}
	job, n := r.setJob(billing), r.register("n")
	require.Equal(t, state.TokenStored, r.finish(endOf(r.start(broken(claimOf(billing, job, n, 1, false), b)), state.StateFailed)))
	stores := []*Store{r.s, r.other(), r.other()}
	var wait sync.WaitGroup
	got := make([]state.ClaimStatus, 24)
	for i := range got {
		wait.Go(func() {
			res, err := stores[i%len(stores)].Claim(context.Background(), broken(claimOf(billing, job, n, 10+i, false), b))
			if err == nil {
				got[i] = res.Status
			}
		})
	}
	wait.Wait()
	claimed := 0
	for _, s := range got {
		if s == state.Claimed {
			claimed++
		} else {
			require.Equal(t, state.ClaimSkipped, s)
		}
	}
	require.Equal(t, 1, claimed)
}

// Many ends at once are all counted.
func TestCircuitCountsAll(t *testing.T) {
	r := newRig(t)
	b := &state.CircuitBreaker{Rate: 100, Window: 100}
	job, n := r.setJob(billing), r.register("n")
	stores := []*Store{r.s, r.other()}
	lives := make([]state.Live, 12)
	for i := range lives {
		lives[i] = r.start(broken(claimOf(billing, job, n, i, false), b))
	}
	var wait sync.WaitGroup
	for i := range lives {
		wait.Go(func() {
			status, err := stores[i%2].Finish(context.Background(), endOf(lives[i], state.StateFailed))
			if err != nil || status != state.TokenStored {
				t.Errorf("run %d: %v, %v", i, status, err)
			}
		})
	}
	wait.Wait()
	require.Len(t, r.circuit(billing, b).Outcomes, len(lives))
	require.Equal(t, len(lives), r.circuit(billing, b).Failures)
}

// Whatever answers are lost, an end counts once.
func TestCircuitCountsOnce(t *testing.T) {
	r := newRig(t)
	b := &state.CircuitBreaker{Failures: 50}
	job, n := r.setJob(billing), r.register("n")
	for i := range 8 {
		l := r.start(broken(claimOf(billing, job, n, i, true), b))
		calls := 0
		r.onTxn(func(txn *kv.Txn) faulty.Fault {
			if calls++; calls <= i%4 && len(txn.If) > 0 {
				return faulty.Fault{After: kv.ErrUnknown}
			}
			return faulty.Fault{}
		})
		require.Equal(t, state.TokenStored, r.finish(endOf(l, state.StateFailed)))
		require.Equal(t, state.TokenStored, r.finish(endOf(l, state.StateFailed)), "asked again")
		r.onTxn(nil)
		require.Equal(t, i+1, r.circuit(billing, b).Failures)
	}
}

// Verdicts of the leader's count too.
func TestCircuitCountsTheLeaders(t *testing.T) {
	r := newRig(t)
	b := &state.CircuitBreaker{Failures: 2}
	term, job, n := r.lead("l"), r.setJob(billing), r.register("n")
	c := broken(claimOf(billing, job, n, 1, true), b)
	c.Live.AtMostOnce = true
	l := r.start(c)
	// Another node's count moves the circuit between.
	require.Equal(t, 0, r.circuit(billing, b).Failures)
	o := r.register("o")
	other := r.other()
	first, err := other.Claim(t.Context(), broken(claimOf(billing, job, o, 2, false), b))
	require.NoError(t, err)
	if first.Status == state.Claimed {
		_, err = other.Finish(t.Context(), endOf(*first.Live, state.StateFailed))
		require.NoError(t, err)
	}
	r.unregister(n)
	_, ok, err := r.s.MarkLost(t.Context(), term, l, slotAt(3))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, state.StateLost, r.verdict(billing, l.Run))
	require.NotEqual(t, state.Circuit{}, r.circuit(billing, b))

	// A waiting probe that is given up leaves the next run as the probe.
	n = r.register("n")
	b = &state.CircuitBreaker{Failures: 1, Target: "t", CoolDown: time.Second}
	require.Equal(t, state.TokenStored, r.finish(endOf(r.start(broken(claimOf(billing, job, n, 10, false), b)), state.StateFailed)))
	w := r.wait(r.start(broken(claimOf(billing, job, n, 11, false), b)))
	require.Equal(t, state.CircuitHalfOpen, r.circuit(billing, b).State)
	ok, err = r.s.GiveUp(t.Context(), term, w, state.StateCancelled, state.ReasonDeleted, slotAt(12), 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, state.CircuitOpen, r.circuit(billing, b).State)
	r.start(broken(claimOf(billing, job, n, 13, false), b))
	require.Equal(t, state.CircuitHalfOpen, r.circuit(billing, b).State)
}

// Further attempts of a run are not asked, and one that was the probe still is.
func TestCircuitLetsAttemptsGoOn(t *testing.T) {
	r := newRig(t)
	b := &state.CircuitBreaker{Failures: 1, CoolDown: time.Minute}
	job, n := r.setJob(billing), r.register("n")
	w := r.wait(r.start(broken(claimOf(billing, job, n, 1, false), b)))
	require.Equal(t, state.TokenStored, r.finish(endOf(r.start(broken(claimOf(billing, job, n, 2, false), b)), state.StateFailed)))
	next1 := r.start(broken(again(w, job, n), b))
	r.end(next1)
	require.Equal(t, state.CircuitOpen, r.circuit(billing, b).State)

	probe := r.wait(r.start(broken(claimOf(billing, job, n, 5, false), b)))
	next := again(probe, job, n)
	next.Live.Circuit = nil // its job has none any more
	l := r.start(next)
	r.end(l)
	require.Equal(t, state.CircuitClosed, r.circuit(billing, b).State)
}

// A probe of which nobody knew that it was one leaves its place to the next.
func TestCircuitOfForgottenProbe(t *testing.T) {
	r := newRig(t)
	b := &state.CircuitBreaker{Failures: 1, CoolDown: time.Second}
	job, n := r.setJob(billing), r.register("n")
	require.Equal(t, state.TokenStored, r.finish(endOf(r.start(broken(claimOf(billing, job, n, 1, false), b)), state.StateFailed)))
	probe := r.start(broken(claimOf(billing, job, n, 2, false), b))
	probe.Circuit = nil // as a node of another version has it
	r.end(probe)
	require.Equal(t, state.CircuitHalfOpen, r.circuit(billing, b).State)
	r.start(broken(claimOf(billing, job, n, 3, false), b))
	require.Equal(t, slotRun(3), r.circuit(billing, b).Probe)
}

// A job without a breaker reads and writes no more than before.
func TestNoCircuitCostsNothing(t *testing.T) {
	r := newRig(t)
	job, n := r.setJob(billing), r.register("n")
	r.end(r.start(claimOf(billing, job, n, 1, true)))
	txns := 0
	r.countTxns(&txns)
	r.end(r.start(claimOf(billing, job, n, 2, true)))
	require.Equal(t, 2, txns)
	r.onTxn(nil)
	for key := range r.dump() {
		require.NotContains(t, key, "circuits")
	}
}

func TestResetCircuit(t *testing.T) {
	r := newRig(t)
	spec := specOf("@every 1m")
	_, err := r.s.PutJob(t.Context(), putOf(billing, spec))
	require.NoError(t, err)
	_, _, err = r.s.GetCircuit(t.Context(), billing)
	require.ErrorIs(t, err, ErrNoCircuit)
	spec = specOf("@every 1m")
	spec.CircuitBreaker = &leaderdv1.CircuitBreaker{Failures: 1}
	put, err := r.s.PutJob(t.Context(), putOf(billing, spec))
	require.NoError(t, err)
	b := put.Entry.Job.Spec.CircuitBreaker
	n := r.register("n")
	claim := func(i int) state.Claim { return broken(claimOf(billing, put.Entry.Job.Revision, n, i, true), b) }
	require.Equal(t, state.TokenStored, r.finish(endOf(r.start(claim(1)), state.StateFailed)))
	c, target, err := r.s.GetCircuit(t.Context(), billing)
	require.NoError(t, err)
	require.Empty(t, target)
	require.Equal(t, state.CircuitOpen, c.State)
	require.Equal(t, state.ClaimSkipped, r.claim(claim(2)).Status)
	was, _, err := r.other().ResetCircuit(t.Context(), billing)
	require.NoError(t, err)
	require.Equal(t, state.CircuitOpen, was.State)
	require.Equal(t, state.TokenStored, r.finish(endOf(r.start(claim(3)), state.StateFailed)))

	// The answer is what was there, also when that of the store was lost.
	lost := false
	r.onTxn(func(txn *kv.Txn) faulty.Fault {
		if lost || len(txn.If) == 0 {
			return faulty.Fault{}
		}
		lost = true
		return faulty.Fault{After: kv.ErrUnknown}
	})
	was, _, err = r.s.ResetCircuit(t.Context(), billing)
	require.NoError(t, err)
	require.Equal(t, state.CircuitOpen, was.State)
	require.Zero(t, r.circuit(billing, b).Revision)
	r.onTxn(nil)
	require.Equal(t, state.TokenStored, r.finish(endOf(r.start(claim(4)), state.StateFailed)))

	// It goes with the job's breaker, and with the job.
	_, err = r.s.PutJob(t.Context(), putOf(billing, specOf("@every 1m")))
	require.NoError(t, err)
	_, there := r.get(r.s.keys.ownCircuit(billing))
	require.False(t, there)
	_, _, err = r.s.ResetCircuit(t.Context(), state.JobID{Namespace: "no", Name: "job"})
	require.ErrorIs(t, err, ErrNotFound)
}

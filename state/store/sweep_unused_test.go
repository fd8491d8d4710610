package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// A circuit goes once no job names it; those that are in use, or may be, stay.
func TestSweepCircuits(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term, n := r.lead("l"), r.register("n")
	put := func(id state.JobID, b *leaderdv1.CircuitBreaker) JobEntry {
		spec := specOf("@every 1m")
		spec.CircuitBreaker = b
		res, err := r.s.PutJob(ctx, putOf(id, spec))
		require.NoError(t, err)
		return res.Entry
	}
	fail := func(e JobEntry, slot int) state.Live {
		l := r.start(broken(claimOf(e.Job.ID, e.Job.Revision, n, slot, false), e.Job.Spec.CircuitBreaker))
		require.Equal(t, state.TokenStored, r.finish(endOf(l, state.StateFailed)))
		return l
	}
	circuits := func() int { return r.count(r.s.keys.prefix + "circuits/") }
	one, two := state.JobID{Namespace: "a", Name: "one"}, state.JobID{Namespace: "a", Name: "two"}
	other := state.JobID{Namespace: "a-b", Name: "other"}
	target := &leaderdv1.CircuitBreaker{Failures: 5, Target: "t"}
	a, b := put(one, target), put(two, target)
	fail(a, 1)
	fail(put(other, &leaderdv1.CircuitBreaker{Failures: 1}), 1)
	require.Equal(t, 2, circuits())
	require.NoError(t, r.s.SweepCircuits(ctx, term))
	require.Equal(t, 2, circuits(), "all are in use")

	put(one, nil)
	require.NoError(t, r.s.SweepCircuits(ctx, term))
	require.Equal(t, 2, circuits(), "the other job names it still")
	late := r.start(broken(claimOf(two, b.Job.Revision, n, 2, false), b.Job.Spec.CircuitBreaker))
	put(two, &leaderdv1.CircuitBreaker{Failures: 1, Target: "u"})
	damaged := r.put(r.s.keys.job(state.JobID{Namespace: "a", Name: "x"}), "\xff")
	require.NotZero(t, damaged)
	require.NoError(t, r.s.SweepCircuits(ctx, term))
	require.Equal(t, 2, circuits(), "a job that cannot be read may name it")
	r.remove(r.s.keys.job(state.JobID{Namespace: "a", Name: "x"}))
	require.NoError(t, r.s.SweepCircuits(ctx, term))
	require.Equal(t, 1, circuits())

	// A run that outlived its breaker counts there again, and that is forgotten too.
	require.Equal(t, state.TokenStored, r.finish(endOf(late, state.StateFailed)))
	require.Equal(t, 2, circuits())
	key := r.s.keys.circuit(two, b.Job.Spec.CircuitBreaker)
	found, ok := r.get(key)
	require.True(t, ok)
	changed, err := r.s.LastChange(ctx)
	require.NoError(t, err)
	put(one, target) // between the look at the jobs and the deletion
	require.NoError(t, r.s.dropCircuit(ctx, term, found, changed))
	require.Equal(t, 2, circuits())
	put(one, nil)
	require.NoError(t, r.s.SweepCircuits(ctx, term))
	require.Equal(t, 1, circuits())
	r.depose(term)
	require.NoError(t, r.s.SweepCircuits(ctx, r.lead("m")))
	require.Equal(t, 1, circuits())
	r.put(r.s.keys.prefix+"circuits/a/target/gone", "")
	require.ErrorIs(t, r.s.SweepCircuits(ctx, term), state.ErrTermLost)
}

// Places whose run's record somebody deleted come free; all others stay.
func TestSweepPlaces(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term, o := r.lead("l"), r.register("n")
	report := state.JobID{Namespace: "other", Name: "report"}
	rev, there := r.setJob(billing), r.setJob(report)
	db, all := state.Limit{Name: "db", Max: 3}, state.Limit{Name: "all", Cluster: true, Max: 3}
	keyed := state.Gate{Policy: state.OverlapAllow, Limit: 3, Key: "k"}
	claim := func(n int, exclusive bool) state.Claim {
		c := limited(billing, rev, o, n, db, all)
		if c.Exclusive = exclusive; !exclusive {
			c.Gate = keyed
		}
		return c
	}
	lost, waits := r.start(claim(0, false)), r.wait(r.start(claim(1, false)))
	atGate := limited(report, there, o, 0, all)
	atGate.Exclusive = true
	gate := r.start(atGate)
	places := func() int { return r.count(r.s.keys.prefix+"limits/") + r.count(r.s.keys.prefix+"gates/") }
	require.Equal(t, 7, places())
	freed, err := r.s.SweepPlaces(ctx, term)
	require.NoError(t, err)
	require.Zero(t, freed)

	r.remove(r.s.keys.live(&lost))
	r.put(r.s.keys.limitPlaces(db.ID("default", ""))+"x", "") // of nobody knows whom
	freed, err = r.s.SweepPlaces(ctx, term)
	require.NoError(t, err)
	require.Equal(t, 3, freed)
	require.Equal(t, 5, places())
	r.remove(r.s.keys.live(&gate))
	r.put(r.s.keys.live(&gate), "\xff")
	freed, err = r.s.SweepPlaces(ctx, term)
	require.NoError(t, err)
	require.Zero(t, freed, "the record cannot be read, and may be the run's")
	r.remove(r.s.keys.live(&gate))
	freed, err = r.s.SweepPlaces(ctx, term)
	require.NoError(t, err)
	require.Equal(t, 1, freed)
	require.Equal(t, []int{2}, r.taken(billing, "k"))
	require.Equal(t, 2, waits.Place)
	r.depose(term)
	r.remove(r.s.keys.live(&waits))
	_, err = r.s.SweepPlaces(ctx, term)
	require.ErrorIs(t, err, state.ErrTermLost)
}

package store

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

func (r *rig) decide(term state.Term, rec state.Record, exclusive bool, pending int64) bool {
	r.t.Helper()
	ok, err := r.s.Decide(r.t.Context(), term, rec, exclusive, pending)
	require.NoError(r.t, err)
	return ok
}

func (r *rig) closeTo(term state.Term, n int) state.Closed {
	r.t.Helper()
	closed, err := r.s.CloseTimeline(r.t.Context(), term, slotAt(n))
	require.NoError(r.t, err)
	return closed
}

func (r *rig) decideRange(term state.Term, rec state.Record, closed int64) bool {
	r.t.Helper()
	ok, err := r.s.DecideRange(r.t.Context(), term, rec, closed)
	require.NoError(r.t, err)
	return ok
}

func TestDecide(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for name, x := range map[string]struct {
			before func(r *rig, rev int64, a state.Owner)
			want   bool
		}{
			"nothing there": {func(*rig, int64, state.Owner) {}, true},
			"another run at the gate": {func(r *rig, rev int64, a state.Owner) {
				r.start(claimOf(billing, rev, a, 4, true))
			}, true},
			"another run dead at the gate": {func(r *rig, rev int64, a state.Owner) {
				r.end(r.start(claimOf(billing, rev, a, 4, true)))
			}, true},
			"another run beside the gate": {func(r *rig, rev int64, a state.Owner) {
				r.start(claimOf(billing, rev, a, 4, false))
			}, true},
			"live at the gate":     {func(r *rig, rev int64, a state.Owner) { r.start(claimOf(billing, rev, a, 5, true)) }, false},
			"live beside the gate": {func(r *rig, rev int64, a state.Owner) { r.start(claimOf(billing, rev, a, 5, false)) }, false},
			"a later shard live": {func(r *rig, rev int64, a state.Owner) {
				c := claimOf(billing, rev, a, 5, false)
				c.Live.Shard, c.Live.Shards = 7, 8
				r.start(c)
			}, false},
			"waits": {func(r *rig, rev int64, a state.Owner) {
				r.wait(r.start(claimOf(billing, rev, a, 5, exclusive)))
			}, false},
			"ended": {func(r *rig, rev int64, a state.Owner) {
				r.end(r.start(claimOf(billing, rev, a, 5, exclusive)))
			}, false},
		} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				rev, a, term := r.setJob(billing), r.register("a"), r.lead("l")
				x.before(r, rev, a)
				before := r.verdict(billing, slotRun(5))
				require.Equal(t, x.want, r.decide(term, skipOf(billing, 5), exclusive, 0))
				require.Equal(t, x.want, r.decide(term, skipOf(billing, 5), exclusive, 0), "asked again")
				if x.want {
					before = state.StateMissed
				}
				require.Equal(t, before, r.verdict(billing, slotRun(5)))
			})
		}
		t.Run("another verdict is never written over", func(t *testing.T) {
			r := newRig(t)
			term := r.lead("l")
			require.True(t, r.decide(term, skipOf(billing, 5), exclusive, 0))
			other := skipOf(billing, 5)
			other.State, other.Reason = state.StateSkipped, state.ReasonPaused
			require.False(t, r.decide(term, other, exclusive, 0))
			require.Equal(t, state.StateMissed, r.verdict(billing, slotRun(5)))
		})
		t.Run("the term is over", func(t *testing.T) {
			r := newRig(t)
			term := r.lead("l")
			r.depose(term)
			for _, term := range []state.Term{term, {Key: term.Key}} {
				_, err := r.s.Decide(t.Context(), term, skipOf(billing, 5), exclusive, 0)
				require.ErrorIs(t, err, state.ErrTermLost)
			}
			require.Equal(t, state.StateNone, r.verdict(billing, slotRun(5)))
		})
		t.Run("pending", func(t *testing.T) {
			r := newRig(t)
			rev, a, term := r.setJob(billing), r.register("a"), r.lead("l")
			rec := skipOf(billing, 5)
			rec.Run = state.TriggerRunID(rec.Due, 9)
			key := r.s.keys.pendingRun(billing, rec.Run)
			pending := r.put(key, "wish")
			require.False(t, r.decide(term, rec, exclusive, pending-1), "another wish")
			cancelled := rec
			cancelled.State, cancelled.Reason = state.StateCancelled, state.ReasonDeleted
			require.True(t, r.decide(term, cancelled, exclusive, pending))
			require.True(t, r.decide(term, cancelled, exclusive, pending), "asked again")
			require.False(t, r.decide(term, rec, exclusive, pending))
			_, there := r.get(key)
			require.False(t, there)

			c := claimOf(billing, rev, a, 5, exclusive)
			c.Live.Run = state.TriggerRunID(rec.Due, 10)
			c.Pending = r.put(r.s.keys.pendingRun(billing, c.Live.Run), "wish")
			r.start(c)
			rec.Run = c.Live.Run
			require.False(t, r.decide(term, rec, exclusive, c.Pending), "claimed")
		})
		t.Run("no verdict that fits", func(t *testing.T) {
			r := newRig(t)
			rec := skipOf(billing, 5)
			rec.State = state.StateCancelled // only what was asked for is cancelled
			_, err := r.s.Decide(t.Context(), r.lead("l"), rec, exclusive, 0)
			require.Error(t, err)
			rec.State = state.StateSucceeded
			_, err = r.s.Decide(t.Context(), r.lead("l"), rec, exclusive, 5)
			require.Error(t, err)
		})
	})
}

func TestCloseTimeline(t *testing.T) {
	r := newRig(t)
	none, err := r.s.GetClosed(t.Context())
	require.NoError(t, err)
	require.Zero(t, none)
	term := r.lead("l")
	one := r.closeTo(term, 5)
	require.Equal(t, slotAt(5), one.Instant)
	got, err := r.other().GetClosed(t.Context())
	require.NoError(t, err)
	require.Equal(t, one, got)

	back := r.closeTo(term, 3)
	require.Equal(t, slotAt(5), back.Instant, "what is closed stays closed")
	require.Greater(t, back.Revision, one.Revision, "and plans of older closings end")

	r.depose(term)
	for _, term := range []state.Term{term, {Key: term.Key}} {
		_, err = r.s.CloseTimeline(t.Context(), term, slotAt(9))
		require.ErrorIs(t, err, state.ErrTermLost)
	}
	two := r.lead("m")
	next, err := r.other().CloseTimeline(t.Context(), two, slotAt(7))
	require.NoError(t, err)
	// r.s has not heard of it, and yet opens nothing.
	last := r.closeTo(two, 6)
	require.Equal(t, slotAt(7), last.Instant)
	require.Greater(t, last.Revision, next.Revision)
}

func TestWatermark(t *testing.T) {
	r := newRig(t)
	w, err := r.s.GetWatermark(t.Context())
	require.NoError(t, err)
	require.Zero(t, w)
	term := r.lead("l")
	w = state.Watermark{
		Instant: slotAt(1), Written: slotAt(2), Term: term.Number,
		Lateness: state.Lateness{Starts: 3, P50: time.Millisecond, P99: time.Second, Max: time.Minute},
	}
	require.NoError(t, r.s.PutWatermark(t.Context(), term, w))
	got, err := r.s.GetWatermark(t.Context())
	require.NoError(t, err)
	require.NotZero(t, got.Revision)
	got.Revision = 0
	require.Equal(t, w, got)
	r.depose(term)
	for _, term := range []state.Term{term, {Key: term.Key}} {
		require.ErrorIs(t, r.s.PutWatermark(t.Context(), term, w), state.ErrTermLost)
	}
}

// A decision may reach the store after its caller has given it up, and has decided the
// slot together with others. It knows an older closed part then, and comes to nothing.
func TestDecisionThatComesLate(t *testing.T) {
	r := newRig(t)
	r.setJob(billing)
	term := r.lead("l")
	late := openStore(t, r.db, "") // as it knew the timeline when the decision was made
	_, err := late.GetClosed(t.Context())
	require.NoError(t, err)
	closed, err := r.s.CloseTimeline(t.Context(), term, slotAt(8))
	require.NoError(t, err)
	ok, err := r.s.DecideRange(t.Context(), term, rangeOf(billing, 3, 6), closed.Revision)
	require.NoError(t, err)
	require.True(t, ok)
	for n, want := range map[int]bool{2: true, 3: false, 5: false, 6: false, 7: true, 9: true} {
		for _, s := range []*Store{late, r.s} {
			for range 2 {
				ok, err := s.Decide(t.Context(), term, skipOf(billing, n), false, 0)
				require.NoError(t, err)
				require.Equal(t, want, ok, n)
			}
		}
	}
}

func TestDecideRange(t *testing.T) {
	trigger := func(n int) state.RunID { return state.TriggerRunID(slotAt(n).Add(time.Second), 7) }
	ask := func(r *rig, c state.Claim, n int) state.Claim {
		c.Live.Run = trigger(n)
		c.Pending = r.put(r.s.keys.pendingRun(billing, c.Live.Run), "wish")
		return c
	}
	for name, x := range map[string]struct {
		before func(r *rig, rev int64, a state.Owner)
		want   bool
	}{
		"nothing there": {func(*rig, int64, state.Owner) {}, true},
		"verdicts around it": {func(r *rig, rev int64, a state.Owner) {
			r.end(r.start(claimOf(billing, rev, a, 2, false)))
			r.end(r.start(claimOf(billing, rev, a, 9, false)))
		}, true},
		"verdict on the first":  {func(r *rig, rev int64, a state.Owner) { r.end(r.start(claimOf(billing, rev, a, 3, false))) }, false},
		"verdict on one inside": {func(r *rig, rev int64, a state.Owner) { r.end(r.start(claimOf(billing, rev, a, 5, true))) }, false},
		"verdict on the last":   {func(r *rig, rev int64, a state.Owner) { r.end(r.start(claimOf(billing, rev, a, 8, false))) }, false},
		"first live":            {func(r *rig, rev int64, a state.Owner) { r.start(claimOf(billing, rev, a, 3, false)) }, false},
		"last live":             {func(r *rig, rev int64, a state.Owner) { r.start(claimOf(billing, rev, a, 8, false)) }, false},
		"one live at the gate":  {func(r *rig, rev int64, a state.Owner) { r.start(claimOf(billing, rev, a, 5, true)) }, false},
		"one waits at the gate": {func(r *rig, rev int64, a state.Owner) {
			r.wait(r.start(claimOf(billing, rev, a, 5, true)))
		}, false},
		"another live at the gate":     {func(r *rig, rev int64, a state.Owner) { r.start(claimOf(billing, rev, a, 2, true)) }, true},
		"another live beside the gate": {func(r *rig, rev int64, a state.Owner) { r.start(claimOf(billing, rev, a, 9, false)) }, true},
		"asked for and ended between": {func(r *rig, rev int64, a state.Owner) {
			for n := 3; n < 8; n++ {
				r.end(r.start(ask(r, claimOf(billing, rev, a, n, n%2 == 0), n)))
			}
		}, true},
		"asked for and live between": {func(r *rig, rev int64, a state.Owner) {
			for n := 3; n < 8; n++ {
				r.start(ask(r, claimOf(billing, rev, a, n, false), n))
			}
		}, true},
		"asked for and live between, at the gate": {func(r *rig, rev int64, a state.Owner) {
			r.start(ask(r, claimOf(billing, rev, a, 4, true), 4))
		}, true},
		"asked for between, and one has a verdict": {func(r *rig, rev int64, a state.Owner) {
			r.end(r.start(ask(r, claimOf(billing, rev, a, 4, true), 4)))
			r.end(r.start(claimOf(billing, rev, a, 6, true)))
		}, false},
		"another job's": {func(r *rig, _ int64, a state.Owner) {
			other := state.JobID{Namespace: "default", Name: "billing-2"}
			rev := r.setJob(other)
			for n := range 9 {
				r.start(claimOf(other, rev, a, n, false))
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			rev, a, term := r.setJob(billing), r.register("a"), r.lead("l")
			x.before(r, rev, a)
			closed := r.closeTo(term, 8)
			before := r.dump()
			rec := rangeOf(billing, 3, 8)
			require.Equal(t, x.want, r.decideRange(term, rec, closed.Revision))
			require.Equal(t, x.want, r.decideRange(term, rec, closed.Revision), "asked again")
			if !x.want {
				require.Equal(t, before, r.dump())
				return
			}
			for n := 3; n <= 8; n++ {
				require.Equal(t, state.ClaimDecided, r.claim(claimOf(billing, rev, a, n, n%2 == 0)).Status)
				e, err := r.s.GetRun(t.Context(), billing, slotRun(n))
				require.NoError(t, err)
				require.Equal(t, state.StateMissed, e.Record.State)
			}
		})
	}
	t.Run("closed again", func(t *testing.T) {
		r := newRig(t)
		term := r.lead("l")
		closed := r.closeTo(term, 8)
		require.False(t, r.decideRange(term, rangeOf(billing, 3, 8), 0))
		r.closeTo(term, 8)
		require.False(t, r.decideRange(term, rangeOf(billing, 3, 8), closed.Revision))
	})
	t.Run("the term is over", func(t *testing.T) {
		r := newRig(t)
		term := r.lead("l")
		closed := r.closeTo(term, 8)
		r.depose(term)
		_, err := r.s.DecideRange(t.Context(), term, rangeOf(billing, 3, 8), closed.Revision)
		require.ErrorIs(t, err, state.ErrTermLost)
	})
	t.Run("no range", func(t *testing.T) {
		r := newRig(t)
		term := r.lead("l")
		closed := r.closeTo(term, 8)
		_, err := r.s.DecideRange(t.Context(), term, rangeOf(billing, 8, 3), closed.Revision)
		require.Error(t, err)
		rec := rangeOf(billing, 3, 8)
		rec.State = state.StateFailed
		_, err = r.s.DecideRange(t.Context(), term, rec, closed.Revision)
		require.Error(t, err)
	})
}

// What is read to decide a range is not read in a batch that gives one of the slots
// a verdict: the batch's revision would say that the verdict had been seen.
func TestRangeIsReadBesideBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db := openMemory(t)
		held := make(chan struct{})
		s, err := New(faulty.New(db, func(_ context.Context, c faulty.Call) faulty.Fault {
			if c.Txn != nil && len(c.Txn.Then) > 0 && c.Txn.Then[0].Key == "blocks" {
				<-held
			}
			return faulty.Fault{}
		}), Config{MaxInFlight: 1})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		var all sync.WaitGroup
		put := func(key string) (res kv.TxnResult) {
			res, err := s.batch.do(t.Context(), &request{txn: kv.Txn{Then: []kv.Op{kv.Put(key, nil, 0)}}, writes: []uint64{s.batch.hash(key)}})
			require.NoError(t, err)
			return res
		}
		all.Go(func() { put("blocks") })
		synctest.Wait()

		rec := &state.Record{Job: billing, Due: slotAt(1), Until: slotAt(9)}
		var seen int64
		var taken bool
		all.Go(func() {
			var err error
			seen, _, taken, err = s.slotsBetween(t.Context(), rec)
			require.NoError(t, err)
		})
		synctest.Wait()
		var revision int64
		all.Go(func() { revision = put(s.keys.historyRun(billing, state.SlotRunID(slotAt(5)))).Revision })
		synctest.Wait()
		close(held)
		all.Wait()
		require.True(t, taken || seen < revision, "seen up to %d, written at %d", seen, revision)
	})
}

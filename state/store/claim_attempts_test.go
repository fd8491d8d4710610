package store

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

func TestClaimFurtherAttempt(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		set := func(t *testing.T) (r *rig, rev int64, w state.Live, next state.Claim) {
			r = newRig(t)
			rev = r.setJob(billing)
			w = r.wait(r.start(claimOf(billing, rev, r.register("a"), 5, exclusive)))
			return r, rev, w, again(w, rev, r.register("b"))
		}
		t.Run("carries on the record", func(t *testing.T) {
			r, _, w, next := set(t)
			l := r.start(next)
			require.Greater(t, l.Token, w.Token)
			require.Equal(t, 2, l.Attempt)
			require.Len(t, l.Attempts, 1)
			require.Equal(t, state.StateFailed, l.Attempts[0].State)
			require.True(t, l.NextTry.IsZero())
			require.Equal(t, l, r.start(next), "asked again")
			r.end(l)
			require.NotEqual(t, state.Claimed, r.claim(next).Status, "asked again after its end")
		})
		t.Run("under the other policy", func(t *testing.T) {
			r, _, _, next := set(t)
			next.JobRevision, next.Exclusive = r.setJob(billing), !exclusive
			l := r.start(next)
			require.Equal(t, exclusive, l.Exclusive, "the record stays where it is")
			r.end(l)
		})
		for name, spoil := range map[string]func(r *rig, c *state.Claim){
			"another token":       func(_ *rig, c *state.Claim) { c.Token-- },
			"another attempt":     func(_ *rig, c *state.Claim) { c.Live.Attempt++ },
			"the same attempt":    func(_ *rig, c *state.Claim) { c.Live.Attempt-- },
			"another run":         func(_ *rig, c *state.Claim) { c.Live.Run = slotRun(6) },
			"another shard":       func(_ *rig, c *state.Claim) { c.Live.Shard++; c.Live.Run = slotRun(6) },
			"the job was edited":  func(r *rig, _ *state.Claim) { r.setJob(billing) },
			"another has claimed": func(r *rig, c *state.Claim) { o := *c; o.Live.Owner = r.register("c"); r.start(o) },
			"given up": func(r *rig, c *state.Claim) {
				w, _ := r.live(c.Live)
				ok, err := r.s.GiveUp(t.Context(), r.lead("l"), w, state.StateMissed, "", slotAt(7), 0)
				require.NoError(t, err)
				require.True(t, ok)
			},
		} {
			t.Run(name, func(t *testing.T) {
				r, _, _, next := set(t)
				spoil(r, &next)
				status := r.claim(next).Status
				require.Contains(t, []state.ClaimStatus{state.ClaimStale, state.ClaimDecided}, status)
			})
		}
		t.Run("owner gone", func(t *testing.T) {
			r, _, _, next := set(t)
			r.unregister(next.Live.Owner)
			require.Equal(t, state.ClaimDisowned, r.claim(next).Status)
		})
		t.Run("asked again by an owner that is gone", func(t *testing.T) {
			r, _, _, next := set(t)
			r.start(next)
			r.unregister(next.Live.Owner)
			require.Equal(t, state.ClaimDisowned, r.claim(next).Status)
		})
		t.Run("in the closed part", func(t *testing.T) {
			r, _, _, next := set(t)
			_, err := r.other().CloseTimeline(t.Context(), r.lead("l"), slotAt(9))
			require.NoError(t, err)
			r.start(next)
		})
	})
}

// The record of a run holds the gate while it waits: no other run comes in
// between its attempts.
func TestWaitingRunKeepsTheGate(t *testing.T) {
	r := newRig(t)
	rev, a := r.setJob(billing), r.register("a")
	w := r.wait(r.start(claimOf(billing, rev, a, 1, true)))
	require.Equal(t, state.ClaimHeld, r.claim(claimOf(billing, rev, a, 2, true)).Status)
	l := r.start(again(w, rev, a))
	require.Equal(t, state.ClaimHeld, r.claim(claimOf(billing, rev, a, 2, true)).Status)
	r.end(l)
	next := r.start(claimOf(billing, rev, a, 2, true))
	require.Greater(t, next.Token, l.Token)
}

func TestClaimOfABrokenGate(t *testing.T) {
	r := newRig(t)
	rev, a := r.setJob(billing), r.register("a")
	r.put(r.s.keys.activeGate(billing), "\xff\xff")
	_, err := r.s.Claim(t.Context(), claimOf(billing, rev, a, 1, true))
	require.ErrorContains(t, err, billing.String())
	// It is nobody else's trouble.
	other := state.JobID{Namespace: "default", Name: "other"}
	r.start(claimOf(other, r.setJob(other), a, 1, true))
}

// The first try of a claim whose answer was lost may have been carried out
// before the timeline was closed behind it.
func TestClaimAskedAgainAfterClosing(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		c := claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive)
		l := r.start(c)
		_, err := r.s.CloseTimeline(t.Context(), r.lead("l"), slotAt(9))
		require.NoError(t, err)
		require.Equal(t, l, r.start(c))
		hedge := c
		hedge.Live.Owner = r.register("b")
		require.Equal(t, state.ClaimDecided, r.claim(hedge).Status)
		r.end(l)
		require.Equal(t, state.ClaimDecided, r.claim(c).Status)
	})
}

// Only one transaction is spent on what is as expected.
func TestClaimGuessesTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		rev, a := r.setJob(billing), r.register("a")
		n := 0
		count := func() int { defer func() { n = 0 }(); return n }
		for i := range 4 {
			l := r.start(claimOf(billing, rev, a, i, true))
			r.end(l)
		}
		_, err := r.s.GetClosed(t.Context())
		require.NoError(t, err)
		r.countTxns(&n)
		l := r.start(claimOf(billing, rev, a, 5, true))
		require.Equal(t, 1, count())
		r.end(l)
		require.Equal(t, 1, count())
	})
}

// What writes the gate never shares its revision with another live record of
// the job: an exclusive claim tells them apart by that.
func TestGateSharesNoRevision(t *testing.T) {
	for name, write := range map[string]func(r *rig, rev int64, l state.Live) func(){
		"further attempt": func(r *rig, rev int64, l state.Live) func() {
			c := again(r.wait(l), rev, l.Owner)
			return func() { r.start(c) }
		},
		"wait": func(r *rig, _ int64, l state.Live) func() { return func() { r.wait(l) } },
		"lost": func(r *rig, _ int64, l state.Live) func() {
			term := r.lead("l")
			r.unregister(l.Owner)
			return func() {
				_, ok, err := r.s.MarkLost(context.Background(), term, l, slotAt(6))
				require.NoError(r.t, err)
				require.True(r.t, ok)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				rev, b := r.setJob(billing), r.register("b")
				write := write(r, rev, r.start(claimOf(billing, rev, r.register("a"), 5, true)))
				beside := claimOf(billing, rev, b, 5, false)
				beside.Live.Run = state.TriggerRunID(slotAt(5), 1)
				beside.Pending = r.put(r.s.keys.pendingRun(billing, beside.Live.Run), "wish")
				other := claimOf(jobNo(1), r.setJob(jobNo(1)), b, 5, true)

				begun, gone := false, make(chan struct{})
				r.onTxn(func(*kv.Txn) faulty.Fault {
					if !begun {
						begun = true
						<-gone
					}
					return faulty.Fault{}
				})
				var all sync.WaitGroup
				all.Go(func() { r.start(other) })
				synctest.Wait()
				all.Go(write)
				all.Go(func() { r.start(beside) })
				synctest.Wait()
				close(gone)
				all.Wait()
				at, _ := r.get(r.s.keys.activeGate(billing))
				next, _ := r.get(r.s.keys.activeShard(billing, beside.Live.Run, 0))
				require.NotZero(t, next.ModRevision)
				require.NotEqual(t, at.ModRevision, next.ModRevision)
			})
		})
	}
}

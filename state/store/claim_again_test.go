package store

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// A claim whose answer was lost is answered with its record, whatever has come to
// stand against the claim since: nobody else works on that record.
func TestClaimAskedAgainIsFound(t *testing.T) {
	caughtUp := func(r *rig, c *state.Claim) {
		c.ClosedRevision = r.closeTo(r.lead("l"), 9).Revision
	}
	for name, x := range map[string]struct {
		before func(r *rig, c *state.Claim)
		after  func(r *rig, c *state.Claim)
		hedge  state.ClaimStatus // what another owner's claim is answered
	}{
		"caught up, and closed again": {
			before: caughtUp,
			after:  func(r *rig, _ *state.Claim) { r.closeTo(r.lead("m"), 10) },
			hedge:  state.ClaimStale,
		},
		"closed again under the other policy": {
			before: caughtUp,
			after: func(r *rig, c *state.Claim) {
				r.closeTo(r.lead("m"), 10)
				c.Exclusive = !c.Exclusive
			},
			hedge: state.ClaimStale,
		},
		"closed, under the other policy": {
			after: func(r *rig, c *state.Claim) {
				r.closeTo(r.lead("m"), 10)
				c.Exclusive = !c.Exclusive
			},
			hedge: state.ClaimDecided,
		},
		"asked for, and edited to the other policy": {
			before: func(r *rig, c *state.Claim) {
				c.Live.Run = state.TriggerRunID(slotAt(5), 1)
				c.Pending = r.put(r.s.keys.pendingRun(billing, c.Live.Run), "wish")
			},
			after: func(r *rig, c *state.Claim) { r.setJob(billing); c.Exclusive = !c.Exclusive },
			hedge: state.ClaimStale,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, exclusive bool) {
				r := newRig(t)
				c := claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive)
				if x.before != nil {
					x.before(r, &c)
				}
				l := r.start(c)
				x.after(r, &c)
				require.Equal(t, l, r.start(c))
				hedge := c
				hedge.Live.Owner = r.register("b")
				status := r.claim(hedge).Status
				require.Contains(t, []state.ClaimStatus{x.hedge, state.ClaimLive}, status, status.String())
				r.end(l)
				require.Equal(t, state.ClaimDecided, r.claim(c).Status)
				r.unregister(c.Live.Owner)
				require.Equal(t, state.ClaimDisowned, r.claim(c).Status)
			})
		})
	}
}

// A run that has its verdict is answered so, though nobody can tell whose record
// lies at its job's gate.
func TestClaimOfADecidedRunBesideABrokenGate(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		c := claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive)
		r.end(r.start(c))
		r.put(r.s.keys.activeGate(billing), "\xff\xff")
		require.Equal(t, state.ClaimDecided, r.claim(c).Status)
	})
}

// StartClaim never waits for the store, not even where it has to read first.
func TestStartClaimDoesNotBlock(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			rev, a := r.setJob(billing), r.register("a")
			slot := claimOf(billing, rev, a, 5, exclusive)
			late := slot
			late.ClosedRevision = r.closeTo(r.lead("l"), 9).Revision
			r.closeTo(r.lead("m"), 10)

			away := make(chan struct{})
			r.onTxn(func(*kv.Txn) faulty.Fault { <-away; return faulty.Fault{} })
			answers := make(chan state.ClaimStatus, 2)
			for _, c := range []state.Claim{slot, late} {
				r.s.StartClaim(context.Background(), &c, func(res state.ClaimResult, err error) {
					if err != nil {
						res.Status = 0
					}
					answers <- res.Status
				})
			}
			synctest.Wait()
			require.Empty(t, answers)
			close(away)
			require.ElementsMatch(t, []state.ClaimStatus{state.ClaimDecided, state.ClaimStale},
				[]state.ClaimStatus{<-answers, <-answers})
		})
	})
}

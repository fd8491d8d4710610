package store

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// claimCase is one condition of the claim of billing's slot 5 by node a.
type claimCase struct {
	name string
	// prepare changes the world, or the claim, so that the answer is want.
	prepare func(r *rig, c *state.Claim)
	want    state.ClaimStatus
	only    string // "exclusive" or "allow"; both by default
}

// elsewhere starts slot n of billing on node b.
func elsewhere(r *rig, c *state.Claim, n int, exclusive bool) state.Live {
	return r.start(claimOf(billing, c.JobRevision, r.register("b"), n, exclusive))
}

func claimCases() []claimCase {
	term := func(r *rig) state.Term { return r.lead("l") }
	closeTo := func(r *rig, n int) state.Closed {
		closed, err := r.other().CloseTimeline(r.t.Context(), term(r), slotAt(n))
		require.NoError(r.t, err)
		return closed
	}
	pend := func(r *rig, c *state.Claim) {
		c.Live.Run = state.TriggerRunID(slotAt(5), 7)
		c.Pending = r.put(r.s.keys.pendingRun(billing, c.Live.Run), "wish")
	}
	return []claimCase{
		{name: "all holds", prepare: func(*rig, *state.Claim) {}, want: state.Claimed},

		{name: "job edited", prepare: func(r *rig, _ *state.Claim) { r.setJob(billing) }, want: state.ClaimStale},
		{name: "job deleted", prepare: func(r *rig, _ *state.Claim) { r.removeJob(billing) }, want: state.ClaimStale},
		{name: "job deleted and made again", prepare: func(r *rig, _ *state.Claim) {
			r.removeJob(billing)
			r.setJob(billing)
		}, want: state.ClaimStale},
		{name: "no job revision, no job", prepare: func(r *rig, c *state.Claim) {
			r.removeJob(billing)
			c.JobRevision = 0
		}, want: state.ClaimStale},

		{name: "owner gone", prepare: func(r *rig, c *state.Claim) { r.unregister(c.Live.Owner) }, want: state.ClaimDisowned},
		{name: "owner registered anew", prepare: func(r *rig, c *state.Claim) { r.register("a") }, want: state.ClaimDisowned},
		{name: "owner without a registration", prepare: func(_ *rig, c *state.Claim) {
			c.Live.Owner = state.Owner{Node: "nobody"}
		}, want: state.ClaimDisowned},

		{name: "live by another", prepare: func(r *rig, c *state.Claim) { elsewhere(r, c, 5, c.Exclusive) }, want: state.ClaimLive},
		{name: "live by me", prepare: func(r *rig, c *state.Claim) { r.start(*c) }, want: state.Claimed},
		{name: "live by an earlier registration of mine", prepare: func(r *rig, c *state.Claim) {
			r.start(*c)
			c.Live.Owner = r.register("a")
		}, want: state.ClaimLive},
		{name: "waits for another attempt", prepare: func(r *rig, c *state.Claim) { r.wait(elsewhere(r, c, 5, c.Exclusive)) }, want: state.ClaimLive},
		// A run that was claimed before its job's policy changed.
		{name: "live under the other policy", prepare: func(r *rig, c *state.Claim) {
			elsewhere(r, c, 5, !c.Exclusive)
			c.JobRevision = r.setJob(billing)
		}, want: state.ClaimLive},
		{name: "live under the other policy, at its time", prepare: func(r *rig, c *state.Claim) {
			elsewhere(r, c, 5, !c.Exclusive)
			c.JobRevision, c.ApplyOverlap = r.setJob(billing), true
		}, want: state.ClaimLive},
		{name: "ended under the other policy", prepare: func(r *rig, c *state.Claim) {
			r.end(elsewhere(r, c, 5, !c.Exclusive))
			c.JobRevision = r.setJob(billing)
		}, want: state.ClaimDecided},

		{name: "verdict", prepare: func(r *rig, c *state.Claim) { r.end(elsewhere(r, c, 5, c.Exclusive)) }, want: state.ClaimDecided},
		{name: "skipped", prepare: func(r *rig, c *state.Claim) {
			ok, err := r.s.Decide(r.t.Context(), term(r), skipOf(billing, 5), c.Exclusive, 0)
			require.NoError(r.t, err)
			require.True(r.t, ok)
		}, want: state.ClaimDecided},

		{name: "closed before it", prepare: func(r *rig, _ *state.Claim) { closeTo(r, 4) }, want: state.Claimed},
		{name: "closed up to it", prepare: func(r *rig, _ *state.Claim) { closeTo(r, 5) }, want: state.ClaimDecided},
		{name: "closed up to it, known here", prepare: func(r *rig, _ *state.Claim) {
			closeTo(r, 5)
			_, err := r.s.GetClosed(r.t.Context())
			require.NoError(r.t, err)
		}, want: state.ClaimDecided},
		{name: "closed up to it, an older closing known here", prepare: func(r *rig, _ *state.Claim) {
			closeTo(r, 1)
			_, err := r.s.GetClosed(r.t.Context())
			require.NoError(r.t, err)
			closeTo(r, 5)
		}, want: state.ClaimDecided},
		{name: "caught up", prepare: func(r *rig, c *state.Claim) { c.ClosedRevision = closeTo(r, 6).Revision }, want: state.Claimed},
		{name: "caught up, an older closing known here", prepare: func(r *rig, c *state.Claim) {
			closeTo(r, 1)
			_, err := r.s.GetClosed(r.t.Context())
			require.NoError(r.t, err)
			c.ClosedRevision = closeTo(r, 6).Revision
		}, want: state.Claimed},
		{name: "caught up, then closed again", prepare: func(r *rig, c *state.Claim) {
			c.ClosedRevision = closeTo(r, 6).Revision
			closeTo(r, 6)
		}, want: state.ClaimStale},
		{name: "caught up, then closed again as is known here", prepare: func(r *rig, c *state.Claim) {
			c.ClosedRevision = closeTo(r, 6).Revision
			closeTo(r, 6)
			_, err := r.s.GetClosed(r.t.Context())
			require.NoError(r.t, err)
		}, want: state.ClaimStale},

		{name: "pending", prepare: pend, want: state.Claimed},
		{name: "pending, in the closed part", prepare: func(r *rig, c *state.Claim) {
			closeTo(r, 9)
			pend(r, c)
		}, want: state.Claimed},
		{name: "pending gone", prepare: func(r *rig, c *state.Claim) {
			pend(r, c)
			r.remove(r.s.keys.pendingRun(billing, c.Live.Run))
		}, want: state.ClaimStale},
		{name: "pending written anew", prepare: func(r *rig, c *state.Claim) {
			pend(r, c)
			r.put(r.s.keys.pendingRun(billing, c.Live.Run), "another wish")
		}, want: state.ClaimStale},
		{name: "pending moved by another", prepare: func(r *rig, c *state.Claim) {
			pend(r, c)
			o := *c
			o.Live.Owner = r.register("b")
			r.start(o)
		}, want: state.ClaimLive},
		{name: "asked for, but never pending", prepare: func(r *rig, c *state.Claim) {
			c.Live.Run = state.TriggerRunID(slotAt(5), 7)
		}, want: state.ClaimStale},

		{name: "gate held", prepare: func(r *rig, c *state.Claim) { elsewhere(r, c, 4, true) }, want: state.ClaimHeld, only: "exclusive"},
		{name: "gate held, at its time", prepare: func(r *rig, c *state.Claim) {
			elsewhere(r, c, 4, true)
			c.ApplyOverlap = true
		}, want: state.ClaimSkipped, only: "exclusive"},
		{name: "gate held by a waiting run", prepare: func(r *rig, c *state.Claim) {
			r.wait(elsewhere(r, c, 4, true))
		}, want: state.ClaimHeld, only: "exclusive"},
		{name: "gate held by a waiting run, at its time", prepare: func(r *rig, c *state.Claim) {
			r.wait(elsewhere(r, c, 4, true))
			c.ApplyOverlap = true
		}, want: state.ClaimSkipped, only: "exclusive"},
		{name: "a run that the gate knows nothing of is live", prepare: func(r *rig, c *state.Claim) {
			elsewhere(r, c, 4, false)
		}, want: state.ClaimHeld, only: "exclusive"},
		{name: "a run that the gate knows nothing of is live, at its time", prepare: func(r *rig, c *state.Claim) {
			elsewhere(r, c, 4, false)
			c.ApplyOverlap = true
		}, want: state.ClaimSkipped, only: "exclusive"},
		{name: "it is live under the other policy beside another, at its time", prepare: func(r *rig, c *state.Claim) {
			elsewhere(r, c, 4, false)
			r.start(claimOf(billing, c.JobRevision, r.register("c"), 5, false))
			c.JobRevision, c.ApplyOverlap = r.setJob(billing), true
		}, want: state.ClaimLive, only: "exclusive"},
		{name: "gate held once, which this process saw end", prepare: func(r *rig, c *state.Claim) {
			r.end(elsewhere(r, c, 4, true))
		}, want: state.Claimed, only: "exclusive"},
		{name: "gate held once, which this process has not seen end", prepare: func(r *rig, c *state.Claim) {
			l := elsewhere(r, c, 4, true)
			status, err := r.other().Finish(r.t.Context(), endOf(l, state.StateSucceeded))
			require.NoError(r.t, err)
			require.Equal(r.t, state.TokenStored, status)
		}, want: state.Claimed, only: "exclusive"},
		{name: "gate held again since this process saw it free", prepare: func(r *rig, c *state.Claim) {
			r.end(elsewhere(r, c, 3, true))
			_, err := r.other().Claim(r.t.Context(), claimOf(billing, c.JobRevision, c.Live.Owner, 4, true))
			require.NoError(r.t, err)
		}, want: state.ClaimHeld, only: "exclusive"},
		{name: "gate's dead record gone since this process saw it", prepare: func(r *rig, c *state.Claim) {
			r.end(elsewhere(r, c, 3, true))
			r.remove(r.s.keys.activeGate(billing))
		}, want: state.Claimed, only: "exclusive"},
		{name: "gate's record gone, and a run beside it live", prepare: func(r *rig, c *state.Claim) {
			r.end(elsewhere(r, c, 3, true))
			r.remove(r.s.keys.activeGate(billing))
			elsewhere(r, c, 4, false)
		}, want: state.ClaimHeld, only: "exclusive"},
		{name: "the gate's run was lost for good", prepare: func(r *rig, c *state.Claim) {
			o := claimOf(billing, c.JobRevision, r.register("b"), 4, true)
			o.Live.AtMostOnce = true
			l := r.start(o)
			r.unregister(l.Owner)
			_, ok, err := r.s.MarkLost(r.t.Context(), term(r), l, slotAt(5))
			require.NoError(r.t, err)
			require.True(r.t, ok)
		}, want: state.Claimed, only: "exclusive"},
		{name: "beside others, on purpose", prepare: func(r *rig, c *state.Claim) {
			elsewhere(r, c, 4, true)
			r.start(claimOf(billing, c.JobRevision, c.Live.Owner, 3, false))
		}, want: state.Claimed, only: "allow"},
		{name: "a dead gate of the older policy", prepare: func(r *rig, c *state.Claim) {
			r.end(elsewhere(r, c, 4, true))
			c.JobRevision = r.setJob(billing)
		}, want: state.Claimed, only: "allow"},
	}
}

func TestClaimConditions(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for _, x := range claimCases() {
			if x.only != "" && (x.only == "exclusive") != exclusive {
				continue
			}
			t.Run(x.name, func(t *testing.T) {
				r := newRig(t)
				c := claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive)
				x.prepare(r, &c)
				res := r.claim(c)
				require.Equal(t, x.want.String(), res.Status.String())
				r.checkClaimed(&c, res)
				// Asked again, it says the same.
				once := r.claim(c)
				want := x.want
				if want == state.ClaimSkipped {
					want = state.ClaimDecided
				}
				require.Equal(t, want.String(), once.Status.String())
				require.Equal(t, res.Live, once.Live)
			})
		}
	})
}

// checkClaimed compares a claim's answer with what is stored.
func (r *rig) checkClaimed(c *state.Claim, res state.ClaimResult) {
	r.t.Helper()
	t := r.t
	l := c.Live
	l.Job, l.Exclusive = c.Job, c.Exclusive
	stored, live := r.live(l)
	mine := live && stored.Run == l.Run && stored.Owner == l.Owner
	switch res.Status {
	case state.Claimed:
		require.True(t, mine)
		require.Equal(t, &stored, res.Live)
		require.Equal(t, state.StateRunning, stored.State)
		require.Equal(t, state.StateNone, r.verdict(c.Job, l.Run))
		_, pending := r.get(r.s.keys.pendingRun(c.Job, l.Run))
		require.False(t, pending)
	case state.ClaimSkipped:
		rec, ok := r.record(c.Job, l.Run)
		require.True(t, ok)
		require.Equal(t, state.StateSkipped, rec.State)
		require.Equal(t, state.ReasonOverlap, rec.Reason)
		require.Equal(t, l.Due, rec.Due)
		require.False(t, mine)
	case state.ClaimLive, state.ClaimHeld, state.ClaimStale, state.ClaimDisowned:
		require.False(t, mine)
		require.Zero(t, res.Live)
		require.Equal(t, state.StateNone, r.verdict(c.Job, l.Run))
	}
}

// Two owners ask for one run at the same time: one gets it.
func TestClaimHedged(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			rev := r.setJob(billing)
			stores := []*Store{r.s, r.other()}
			const each = 8
			type answer struct {
				status state.ClaimStatus
				err    error
			}
			answers := make(chan answer, 2*each)
			for i := range 2 * each {
				o := r.register(string(rune('a' + i)))
				go func() {
					res, err := stores[i%2].Claim(t.Context(), claimOf(billing, rev, o, 5, exclusive))
					answers <- answer{res.Status, err}
				}()
			}
			synctest.Wait()
			count := map[state.ClaimStatus]int{}
			for range 2 * each {
				a := <-answers
				require.NoError(t, a.err)
				count[a.status]++
			}
			require.Equal(t, map[state.ClaimStatus]int{state.Claimed: 1, state.ClaimLive: 2*each - 1}, count)
		})
	})
}

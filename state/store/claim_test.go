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
		{name: "job deleted", prepare: func(r *rig, _ *state.Claim) { r.remove(r.s.keys.job(billing)) }, want: state.ClaimStale},
		{name: "job deleted and made again", prepare: func(r *rig, _ *state.Claim) {
			r.remove(r.s.keys.job(billing))
			r.setJob(billing)
		}, want: state.ClaimStale},
		{name: "no job revision, no job", prepare: func(r *rig, c *state.Claim) {
			r.remove(r.s.keys.job(billing))
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
		require.Equal(t, stored, res.Live)
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
			results := make(chan state.ClaimResult, 2*each)
			for i := range 2 * each {
				o := r.register(string(rune('a' + i)))
				go func() {
					res, err := stores[i%2].Claim(t.Context(), claimOf(billing, rev, o, 5, exclusive))
					require.NoError(t, err)
					results <- res
				}()
			}
			synctest.Wait()
			count := map[state.ClaimStatus]int{}
			for range 2 * each {
				count[(<-results).Status]++
			}
			require.Equal(t, map[state.ClaimStatus]int{state.Claimed: 1, state.ClaimLive: 2*each - 1}, count)
		})
	})
}

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
				ok, err := r.s.GiveUp(t.Context(), r.lead("l"), w, state.StateMissed, "", slotAt(7))
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

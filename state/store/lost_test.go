package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

func TestMarkLost(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		set := func(t *testing.T, atMostOnce bool) (*rig, state.Live, state.Term) {
			r := newRig(t)
			c := claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive)
			c.Live.AtMostOnce = atMostOnce
			return r, r.start(c), r.lead("l")
		}
		lose := func(r *rig, term state.Term, l state.Live) (state.Live, bool) {
			next, ok, err := r.s.MarkLost(t.Context(), term, l, slotAt(6))
			require.NoError(r.t, err)
			return next, ok
		}
		t.Run("waits for another attempt", func(t *testing.T) {
			r, l, term := set(t, false)
			r.unregister(l.Owner)
			w, ok := lose(r, term, l)
			require.True(t, ok)
			stored, _ := r.live(l)
			require.Equal(t, stored, w)
			require.Equal(t, state.StateWaiting, w.State)
			require.Equal(t, slotAt(6), w.NextTry)
			require.Equal(t, state.StateLost, w.Attempts[0].State)
			require.Equal(t, l.Token, w.Attempts[0].Token)
			same, ok := lose(r, term, l)
			require.True(t, ok, "asked again")
			require.Equal(t, w, same)
			next := r.start(again(w, r.setJob(billing), r.register("b")))
			_, ok = lose(r, term, l)
			require.False(t, ok, "asked again when another has it")
			_, ok = lose(r, term, next)
			require.False(t, ok, "whose registration stands")
		})
		t.Run("at most once", func(t *testing.T) {
			r, l, term := set(t, true)
			r.register("a") // anew: the old registration is gone all the same
			next, ok := lose(r, term, l)
			require.True(t, ok)
			require.NotEqual(t, state.StateWaiting, next.State)
			require.Equal(t, state.StateLost, r.verdict(billing, l.Run))
			_, ok = lose(r, term, l)
			require.True(t, ok, "asked again")
			r.start(claimOf(billing, r.setJob(billing), r.register("b"), 6, exclusive))
		})
		for name, spoil := range map[string]func(r *rig, l *state.Live){
			"its registration stands": func(*rig, *state.Live) {},
			"it came to an end": func(r *rig, l *state.Live) {
				r.end(*l)
				r.unregister(l.Owner)
			},
			"it waits already": func(r *rig, l *state.Live) {
				r.wait(*l)
				r.unregister(l.Owner)
			},
			"another token": func(r *rig, l *state.Live) {
				l.Token++
				r.unregister(l.Owner)
			},
			"no token": func(r *rig, l *state.Live) {
				l.Token, l.Run = 0, slotRun(6)
				l.Job.Name = "never claimed"
				r.unregister(l.Owner)
			},
			"it is not running": func(r *rig, l *state.Live) {
				l.State = state.StateWaiting
				r.unregister(l.Owner)
			},
		} {
			for _, atMostOnce := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					r, l, term := set(t, atMostOnce)
					spoil(r, &l)
					before := r.dump()
					_, ok := lose(r, term, l)
					require.False(t, ok)
					require.Equal(t, before, r.dump())
				})
			}
		}
		t.Run("the term is over", func(t *testing.T) {
			r, l, term := set(t, false)
			r.unregister(l.Owner)
			r.depose(term)
			r.lead("m")
			_, _, err := r.s.MarkLost(t.Context(), term, l, slotAt(6))
			require.ErrorIs(t, err, state.ErrTermLost)
			_, _, err = r.s.MarkLost(t.Context(), state.Term{Key: term.Key}, l, slotAt(6))
			require.ErrorIs(t, err, state.ErrTermLost, "no term at all")
			stored, _ := r.live(l)
			require.Equal(t, l, stored)
		})
	})
}

func TestGiveUp(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for _, to := range []state.RunState{state.StateLost, state.StateCancelled, state.StateMissed} {
			t.Run(to.String(), func(t *testing.T) {
				r := newRig(t)
				rev, a, term := r.setJob(billing), r.register("a"), r.lead("l")
				w := r.wait(r.start(claimOf(billing, rev, a, 5, exclusive)))
				for range 2 { // the second time asks again
					ok, err := r.s.GiveUp(t.Context(), term, w, to, "why", slotAt(9), 0)
					require.NoError(t, err)
					require.True(t, ok)
				}
				rec, _ := r.record(billing, w.Run)
				require.Equal(t, to, rec.State)
				require.Equal(t, "why", rec.Reason)
				require.Equal(t, w.Attempts, rec.Attempts)
				r.start(claimOf(billing, rev, a, 6, exclusive))
			})
		}
		t.Run("claimed meanwhile", func(t *testing.T) {
			r := newRig(t)
			rev, a, term := r.setJob(billing), r.register("a"), r.lead("l")
			w := r.wait(r.start(claimOf(billing, rev, a, 5, exclusive)))
			l := r.start(again(w, rev, a))
			ok, err := r.s.GiveUp(t.Context(), term, w, state.StateMissed, "", slotAt(9), 0)
			require.NoError(t, err)
			require.False(t, ok)
			_, err = r.s.GiveUp(t.Context(), term, l, state.StateMissed, "", slotAt(9), 0)
			require.Error(t, err, "it runs")
			r.end(l)
			ok, err = r.s.GiveUp(t.Context(), term, w, state.StateMissed, "", slotAt(9), 0)
			require.NoError(t, err)
			require.False(t, ok)
			require.Equal(t, state.StateSucceeded, r.verdict(billing, w.Run))
		})
		t.Run("the term is over", func(t *testing.T) {
			r := newRig(t)
			term := r.lead("l")
			w := r.wait(r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive)))
			r.depose(term)
			_, err := r.s.GiveUp(t.Context(), term, w, state.StateMissed, "", slotAt(9), 0)
			require.ErrorIs(t, err, state.ErrTermLost)
		})
		t.Run("no verdict that a waiting run can have", func(t *testing.T) {
			r := newRig(t)
			w := r.wait(r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive)))
			_, err := r.s.GiveUp(t.Context(), r.lead("l"), w, state.StateSucceeded, "", slotAt(9), 0)
			require.Error(t, err)
		})
	})
}

package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// unknowns are the ways in which an answer is lost.
var unknowns = map[string]faulty.Fault{
	"applied":                  {After: kv.ErrUnknown},
	"applied, of no class":     {After: errors.New("strange")},
	"applied, then timed out":  {DelayAfter: time.Hour},
	"not applied":              {Before: kv.ErrUnknown},
	"not applied, unavailable": {Before: kv.ErrUnavailable},
	"not applied, overloaded":  {Before: kv.ErrTooManyRequests},
	"not applied, timed out":   {Delay: time.Hour},
}

// Whatever became of its first try, each request's answer is that of an
// undisturbed one, and it was carried out once.
func TestUnknownOutcomes(t *testing.T) {
	ctx := context.Background()
	type world struct {
		*rig
		exclusive bool
		rev       int64
		a, b      state.Owner
		term      state.Term
	}
	start := func(w *world) state.Live { return w.start(claimOf(billing, w.rev, w.a, 5, w.exclusive)) }
	lost := func(w *world, atMostOnce bool) state.Live {
		c := claimOf(billing, w.rev, w.b, 5, w.exclusive)
		c.Live.AtMostOnce = atMostOnce
		l := w.start(c)
		w.unregister(w.b)
		return l
	}
	for name, prepare := range map[string]func(w *world) (do func() (any, error), want any){
		"claim": func(w *world) (func() (any, error), any) {
			return func() (any, error) {
				res, err := w.s.Claim(ctx, claimOf(billing, w.rev, w.a, 5, w.exclusive))
				return res.Status, err
			}, state.Claimed
		},
		"claim behind an ended run": func(w *world) (func() (any, error), any) {
			w.end(w.start(claimOf(billing, w.rev, w.a, 4, w.exclusive)))
			return func() (any, error) {
				res, err := w.s.Claim(ctx, claimOf(billing, w.rev, w.a, 5, w.exclusive))
				return res.Status, err
			}, state.Claimed
		},
		"claim of a pending run": func(w *world) (func() (any, error), any) {
			c := claimOf(billing, w.rev, w.a, 5, w.exclusive)
			c.Live.Run = state.TriggerRunID(slotAt(5), 1)
			c.Pending = w.put(w.s.keys.pendingRun(billing, c.Live.Run), "wish")
			return func() (any, error) {
				res, err := w.s.Claim(ctx, c)
				return res.Status, err
			}, state.Claimed
		},
		"claim of a further attempt": func(w *world) (func() (any, error), any) {
			c := again(w.wait(start(w)), w.rev, w.a)
			return func() (any, error) {
				res, err := w.s.Claim(ctx, c)
				return res.Status, err
			}, state.Claimed
		},
		"finish": func(w *world) (func() (any, error), any) {
			l := start(w)
			return func() (any, error) { return w.s.Finish(ctx, endOf(l, state.StateSucceeded)) }, state.TokenStored
		},
		"finish with retry": func(w *world) (func() (any, error), any) {
			l := start(w)
			return func() (any, error) { return w.s.Finish(ctx, retryOf(l, slotAt(6))) }, state.TokenStored
		},
		"finish, fenced": func(w *world) (func() (any, error), any) {
			l := start(w)
			w.wait(l)
			return func() (any, error) { return w.s.Finish(ctx, endOf(l, state.StateSucceeded)) }, state.TokenFenced
		},
		"checkpoint": func(w *world) (func() (any, error), any) {
			l := start(w)
			return func() (any, error) {
				res, err := w.s.Checkpoint(ctx, state.Checkpoint{Live: l, Data: []byte("x"), Saved: slotAt(5)})
				if err == nil && res.Revision == 0 {
					err = errors.New("no revision")
				}
				return res.Status, err
			}, state.TokenStored
		},
		"mark lost": func(w *world) (func() (any, error), any) {
			l := lost(w, false)
			return func() (any, error) {
				next, ok, err := w.s.MarkLost(ctx, w.term, l, slotAt(6))
				if stored, _ := w.live(l); err == nil && stored.Token != next.Token {
					err = errors.New("another token")
				}
				return ok, err
			}, true
		},
		"mark lost for good": func(w *world) (func() (any, error), any) {
			l := lost(w, true)
			return func() (any, error) {
				_, ok, err := w.s.MarkLost(ctx, w.term, l, slotAt(6))
				return ok, err
			}, true
		},
		"give up": func(w *world) (func() (any, error), any) {
			l := w.wait(start(w))
			return func() (any, error) {
				return w.s.GiveUp(ctx, w.term, l, state.StateMissed, "", slotAt(6), 0)
			}, true
		},
		"decide": func(w *world) (func() (any, error), any) {
			return func() (any, error) { return w.s.Decide(ctx, w.term, skipOf(billing, 5), w.exclusive, 0) }, true
		},
		"decide a pending run": func(w *world) (func() (any, error), any) {
			rec := skipOf(billing, 5)
			rec.Run = state.TriggerRunID(slotAt(5), 1)
			pending := w.put(w.s.keys.pendingRun(billing, rec.Run), "wish")
			return func() (any, error) { return w.s.Decide(ctx, w.term, rec, w.exclusive, pending) }, true
		},
		"decide a range": func(w *world) (func() (any, error), any) {
			closed := w.closeTo(w.term, 9)
			return func() (any, error) { return w.s.DecideRange(ctx, w.term, rangeOf(billing, 3, 8), closed.Revision) }, true
		},
		"close": func(w *world) (func() (any, error), any) {
			return func() (any, error) {
				c, err := w.s.CloseTimeline(ctx, w.term, slotAt(5))
				if errors.Is(err, kv.ErrUnknown) { // to close again is safe
					c, err = w.s.CloseTimeline(ctx, w.term, slotAt(5))
				}
				if now, _ := w.get(w.s.keys.closed()); err == nil && now.ModRevision != c.Revision {
					err = errors.New("another revision")
				}
				return c.Instant, err
			}, slotAt(5)
		},
	} {
		for how, f := range unknowns {
			t.Run(name+", "+how, func(t *testing.T) {
				bothWays(t, func(t *testing.T, exclusive bool) {
					synctest.Test(t, func(t *testing.T) {
						w := &world{rig: newRig(t), exclusive: exclusive}
						w.rev, w.a, w.b, w.term = w.setJob(billing), w.register("a"), w.register("b"), w.lead("l")
						_, err := w.s.GetClosed(t.Context())
						require.NoError(t, err)
						do, want := prepare(w)
						w.spoilWrites(f)
						got, err := do()
						require.NoError(t, err)
						require.Equal(t, want, got)
						w.onTxn(nil)
						again, err := do()
						require.NoError(t, err, "asked again")
						require.Equal(t, want, again, "asked again")
						w.checkOnce()
					})
				})
			})
		}
	}
}

// spoilWrites makes the next transaction that may write meet f.
func (r *rig) spoilWrites(f faulty.Fault) {
	met := false
	r.onTxn(func(x *kv.Txn) faulty.Fault {
		if met || len(x.If) == 0 {
			return faulty.Fault{}
		}
		met = true
		return f
	})
}

// checkOnce requires that each verdict and each attempt was written once.
func (r *rig) checkOnce() {
	res, err := r.db.Range(context.Background(), r.s.keys.history(), end(r.s.keys.history()), kv.RangeOptions{})
	require.NoError(r.t, err)
	for _, found := range res.KVs {
		require.EqualValues(r.t, 1, found.Version, found.Key)
	}
}

// A leader whose term ends while the answer to its write is lost is told the
// truth: it was carried out.
func TestUnknownOutcomeOfALeaderThatFalls(t *testing.T) {
	ctx := context.Background()
	for name, do := range map[string]func(r *rig, term state.Term) (ok bool, err error){
		"mark lost": func(r *rig, term state.Term) (bool, error) {
			l, _ := r.live(state.Live{Job: billing, Run: slotRun(5), Exclusive: true})
			_, ok, err := r.s.MarkLost(ctx, term, l, slotAt(6))
			return ok, err
		},
		"decide": func(r *rig, term state.Term) (bool, error) { return r.s.Decide(ctx, term, skipOf(billing, 9), true, 0) },
		"give up": func(r *rig, term state.Term) (bool, error) {
			w, _ := r.live(state.Live{Job: jobNo(1), Run: slotRun(5), Exclusive: true})
			return r.s.GiveUp(ctx, term, w, state.StateMissed, "", slotAt(9), 0)
		},
		"decide a range": func(r *rig, term state.Term) (bool, error) {
			closed, _ := r.get(r.s.keys.closed())
			return r.s.DecideRange(ctx, term, rangeOf(billing, 1, 3), closed.ModRevision)
		},
	} {
		for _, applied := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					term := r.lead("l")
					r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, true))
					r.unregister(state.Owner{Node: "a"})
					r.wait(r.start(claimOf(jobNo(1), r.setJob(jobNo(1)), r.register("b"), 5, true)))
					r.closeTo(term, 4)
					f := faulty.Fault{Before: kv.ErrUnknown}
					if applied {
						f = faulty.Fault{After: kv.ErrUnknown}
					}
					n := 0
					r.onTxn(func(*kv.Txn) faulty.Fault {
						if n++; n == 1 {
							return f
						}
						r.depose(term)
						return faulty.Fault{}
					})
					ok, err := do(r, term)
					require.Equal(t, applied, ok)
					if !applied {
						require.ErrorIs(t, err, state.ErrTermLost)
						return
					}
					require.NoError(t, err)
				})
			})
		}
	}
}

// Another takes the run on before the repetition of a finish whose answer was
// lost: it was stored all the same.
func TestUnknownFinishOvertaken(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			rev, a, b := r.setJob(billing), r.register("a"), r.register("b")
			l := r.start(claimOf(billing, rev, a, 5, exclusive))
			s := r.other()
			n := 0
			r.onTxn(func(*kv.Txn) faulty.Fault {
				switch n++; n {
				case 1:
					return faulty.Fault{After: kv.ErrUnknown}
				case 2:
				default:
					return faulty.Fault{} // it looks what became of it
				}
				w, _ := r.live(l)
				res, err := s.Claim(t.Context(), again(w, rev, b))
				require.NoError(t, err)
				require.Equal(t, state.Claimed, res.Status)
				return faulty.Fault{}
			})
			require.Equal(t, state.TokenStored, r.finish(retryOf(l, slotAt(6))))
		})
	})
}

// A transaction that was thought dead reaches the store after all that followed
// it: it changes nothing.
func TestLateRepetitions(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		rev, a, term := r.setJob(billing), r.register("a"), r.lead("l")
		var sent []kv.Txn
		r.onTxn(func(x *kv.Txn) faulty.Fault {
			sent = append(sent, *x)
			return faulty.Fault{}
		})
		repeat := func() {
			t.Helper()
			before := r.dump()
			for _, x := range sent {
				_, err := r.db.Txn(t.Context(), x)
				require.NoError(t, err)
			}
			require.Equal(t, before, r.dump())
		}
		l := r.start(claimOf(billing, rev, a, 1, exclusive))
		one, err := r.s.Checkpoint(t.Context(), state.Checkpoint{Live: l, Data: []byte("1"), Number: 1})
		require.NoError(t, err)
		_, err = r.s.Checkpoint(t.Context(), state.Checkpoint{Live: l, Data: []byte("2"), Number: 2, Previous: one.Revision})
		require.NoError(t, err)
		repeat()
		w := r.wait(l)
		repeat()
		l = r.start(again(w, rev, a))
		repeat()
		r.end(l)
		repeat()
		require.True(t, r.decide(term, skipOf(billing, 2), exclusive, 0))
		repeat()
		closed := r.closeTo(term, 5)
		repeat()
		require.True(t, r.decideRange(term, rangeOf(billing, 3, 5), closed.Revision))
		repeat()
		r.closeTo(term, 7)
		repeat()
		l = r.start(claimOf(billing, rev, a, 8, exclusive))
		r.unregister(a)
		_, ok, err := r.s.MarkLost(t.Context(), term, l, slotAt(9))
		require.NoError(t, err)
		require.True(t, ok)
		repeat()
		w, _ = r.live(l)
		ok, err = r.s.GiveUp(t.Context(), term, w, state.StateMissed, "", slotAt(9), 0)
		require.NoError(t, err)
		require.True(t, ok)
		repeat()
	})
}

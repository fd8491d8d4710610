package store

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// together sends the requests so that they go out in one transaction, the
// second of all.
func (r *batchRig) together(t *testing.T, qs ...*request) []*answered {
	meet := r.meet
	release := r.block(1)
	blocked := r.meet
	r.meet = func(n int, x *kv.Txn) faulty.Fault {
		if n == 0 || meet == nil {
			return blocked(n, x)
		}
		return meet(n-1, x)
	}
	r.send(t.Context(), r.set("first", ""))
	synctest.Wait()
	all := make([]*answered, len(qs))
	for i, q := range qs {
		all[i] = r.send(t.Context(), q)
		synctest.Wait()
	}
	release()
	r.all.Wait()
	require.Len(t, parts(&r.begun[1]), len(qs))
	return all
}

func (r *batchRig) news(n int) []*request {
	qs := make([]*request, n)
	for i := range qs {
		qs[i] = r.putNew(fmt.Sprint("k", i), fmt.Sprint(i))
	}
	return qs
}

func TestBatchPoison(t *testing.T) {
	for n := 1; n <= 9; n++ {
		for bad := range n {
			inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
				qs := r.news(n)
				qs[bad].txn.Then = append(qs[bad].txn.Then, kv.Put("twice", nil, 0), kv.Put("twice", nil, 0))
				for i, a := range r.together(t, qs...) {
					if i == bad {
						require.ErrorIs(t, a.err, kv.ErrInvalid)
						continue
					}
					require.NoError(t, a.err)
					require.True(t, a.res.Succeeded)
				}
			})
		}
	}
}

func TestBatchPassingFaults(t *testing.T) {
	for name, f := range map[string]faulty.Fault{
		"unavailable":         {Before: kv.ErrUnavailable},
		"overloaded":          {Before: kv.ErrTooManyRequests},
		"unknown not applied": {Before: kv.ErrUnknown},
		"unknown applied":     {After: kv.ErrUnknown},
		"no class applied":    {After: errors.New("strange")},
		"time-out applied":    {DelayAfter: time.Hour},
		"time-out before":     {Delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
				r.meet = func(n int, _ *kv.Txn) faulty.Fault {
					if n < 3 {
						return f
					}
					return faulty.Fault{}
				}
				applied := f.After != nil || f.DelayAfter != 0
				for i, a := range r.together(t, r.news(5)...) {
					require.NoError(t, a.err)
					require.Equal(t, !applied, a.res.Succeeded)
					if applied {
						require.Equal(t, fmt.Sprint(i), string(a.res.Results[0].KVs[0].Value))
					}
				}
				require.Len(t, r.begun, 1+4)
			})
		})
	}
}

func TestBatchFinalFaults(t *testing.T) {
	for _, final := range []error{kv.ErrNoSpace, kv.ErrPermission, kv.ErrInvalid} {
		t.Run(final.Error(), func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
				r.meet = func(int, *kv.Txn) faulty.Fault { return faulty.Fault{Before: final} }
				for _, a := range r.together(t, r.news(5)...) {
					require.ErrorIs(t, a.err, final)
					// etcd carries out the request that crosses its quota.
					require.Equal(t, errors.Is(final, kv.ErrNoSpace), errors.Is(a.err, kv.ErrUnknown))
				}
			})
		})
		// A refusal says nothing of the try before it.
		t.Run(final.Error()+" after an unknown outcome", func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
				r.meet = func(n int, _ *kv.Txn) faulty.Fault {
					if n == 0 {
						return faulty.Fault{After: kv.ErrUnknown}
					}
					return faulty.Fault{Before: final}
				}
				for _, a := range r.together(t, r.news(5)...) {
					require.ErrorIs(t, a.err, final)
					require.ErrorIs(t, a.err, kv.ErrUnknown, "it was applied")
				}
			})
		})
	}
}

func TestBatchGuards(t *testing.T) {
	guardsOn := func(r *batchRig, keys ...string) [][]kv.Compare {
		var out [][]kv.Compare
		for _, key := range keys {
			res, err := r.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put(key, nil, 0)}})
			require.NoError(t, err)
			out = append(out, []kv.Compare{{Key: key, Target: kv.TargetCreateRevision, Int: res.Revision}})
		}
		return out
	}
	t.Run("all hold: compared once", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			g := guardsOn(r, "n1", "n2")
			qs := r.news(10)
			for i, q := range qs {
				q.guard(g[i%2]...)
			}
			for _, a := range r.together(t, qs...) {
				require.True(t, a.res.Succeeded)
			}
			require.Len(t, r.begun, 2)
			require.Len(t, r.begun[1].If, 2)
			require.Len(t, r.begun[1].Then[0].Txn.If, 1)
		})
	})
	t.Run("one fails: only whom it concerns", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			g := guardsOn(r, "n1", "n2")
			_, err := r.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Delete("n2")}})
			require.NoError(t, err)
			qs := r.news(10)
			for i, q := range qs {
				q.guard(g[i%2]...)
			}
			for i, a := range r.together(t, qs...) {
				require.NoError(t, a.err)
				require.Equal(t, i%2 == 0, a.res.Succeeded)
				if i%2 == 1 {
					require.Empty(t, a.res.Results[0].KVs, "its else branch was read")
				}
			}
			require.Len(t, r.begun, 3)
		})
	})
	t.Run("they contradict each other", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			good := guardsOn(r, "closed")[0]
			old := []kv.Compare{{Key: "closed", Target: kv.TargetCreateRevision, Int: good[0].Int + 1}}
			qs := r.news(4)
			for i, q := range qs {
				q.guard([][]kv.Compare{good, old}[i%2]...)
			}
			for i, a := range r.together(t, qs...) {
				require.Equal(t, i%2 == 0, a.res.Succeeded)
			}
		})
	})
	t.Run("alone", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			g := guardsOn(r, "n1")
			_, err := r.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Delete("n1")}})
			require.NoError(t, err)
			q := r.putNew("a", "")
			q.guard(g[0]...)
			res, err := r.b.do(t.Context(), q)
			require.NoError(t, err)
			require.False(t, res.Succeeded)
			require.Len(t, res.Results, 1)
		})
	})
}

func TestBatchClose(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
		release := r.block(1)
		first := r.send(t.Context(), r.set("a", "0"))
		synctest.Wait()
		second := r.send(t.Context(), r.set("a", "1"))
		synctest.Wait()
		closed := make(chan struct{})
		r.all.Go(func() { r.b.close(); close(closed) })
		synctest.Wait()
		select {
		case <-closed:
			require.Fail(t, "closed with a request under way")
		default:
		}
		_, err := r.b.do(t.Context(), r.set("b", ""))
		require.ErrorIs(t, err, ErrClosed)
		release()
		r.all.Wait()
		require.NoError(t, first.err)
		require.NoError(t, second.err)
		require.True(t, second.res.Succeeded)
	})
}

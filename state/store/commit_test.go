package store

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// gathered sends requests so that they go out in one batch, which may be flat.
func (r *batchRig) gathered(t *testing.T, qs ...*request) []*answered {
	t.Helper()
	r.b.flat = optimism{}
	release := r.block(1)
	r.send(t.Context(), r.set("first", ""))
	synctest.Wait()
	all := make([]*answered, len(qs))
	for i, q := range qs {
		all[i] = r.send(t.Context(), q)
		synctest.Wait()
	}
	release()
	r.all.Wait()
	return all
}

func TestBatchFlat(t *testing.T) {
	t.Run("one transaction without nested ones", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			_, err := r.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put("old", []byte("there"), 0)}})
			require.NoError(t, err)
			guard := kv.Compare{Key: "guard", Target: kv.TargetCreateRevision}
			qs := r.news(20)
			for _, q := range qs {
				q.guard(guard)
			}
			look := &request{txn: kv.Txn{Then: []kv.Op{kv.Get("old"), kv.Get("none")}}}
			all := r.gathered(t, append(qs, look)...)
			require.Len(t, r.begun, 2)
			require.Len(t, r.begun[1].If, 21, "the guard once, and one compare of each")
			require.Len(t, r.begun[1].Then, 22)
			for _, a := range all[:20] {
				require.NoError(t, a.err)
				require.True(t, a.res.Succeeded)
				require.Len(t, a.res.Results, 1)
				require.Equal(t, all[0].res.Revision, a.res.Revision)
			}
			require.True(t, qs[0].shared)
			require.Len(t, all[20].res.Results, 2)
			require.Equal(t, "there", string(all[20].res.Results[0].KVs[0].Value))
			require.Empty(t, all[20].res.Results[1].KVs)
		})
	})
	t.Run("one is refused: the others are not", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			_, err := r.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put("k7", []byte("old"), 0)}})
			require.NoError(t, err)
			for i, a := range r.gathered(t, r.news(20)...) {
				require.NoError(t, a.err)
				require.Equal(t, i != 7, a.res.Succeeded, i)
				if i == 7 {
					require.Equal(t, "old", string(a.res.Results[0].KVs[0].Value), "its else branch was read")
				}
			}
			require.Len(t, r.begun, 3, "flat, then nested")
		})
	})
	t.Run("a guard fails: each under its own conditions", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			missed := 0
			r.b.missed = func() { missed++ }
			qs := r.news(10)
			for i, q := range qs {
				q.common = &common{guards: []kv.Compare{present("nowhere")}}
				if i == 3 {
					q.common.alone = []kv.Compare{present("nowhere")}
				}
			}
			for i, a := range r.gathered(t, qs...) {
				require.NoError(t, a.err)
				require.Equal(t, i != 3, a.res.Succeeded, i)
			}
			require.Len(t, r.begun, 4, "flat, then nested, then single")
			require.Equal(t, 1, missed)
			require.False(t, qs[0].shared)
		})
	})
	t.Run("a refusal makes the next batches nested", func(t *testing.T) {
		inBubble(t, Config{MaxInFlight: 1, MaxBatch: 2}, func(t *testing.T, r *batchRig) {
			_, err := r.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put("k0", nil, 0)}})
			require.NoError(t, err)
			r.gathered(t, r.news(8)...)
			var flats []bool
			for i := range r.begun[1:] {
				flats = append(flats, r.begun[1+i].Then[0].Kind != kv.OpTxn)
			}
			require.Equal(t, []bool{true, false, false, true, true}, flats)
		})
	})
	t.Run("applied, but the answer is lost", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			qs := r.news(5)
			lost := false
			r.b.flat = optimism{}
			release := r.block(1)
			blocked := r.meet
			r.meet = func(n int, x *kv.Txn) faulty.Fault {
				if n == 1 {
					lost = true
					return faulty.Fault{After: kv.ErrUnknown}
				}
				return blocked(n, x)
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
			require.True(t, lost)
			for i, a := range all {
				require.NoError(t, a.err)
				require.False(t, a.res.Succeeded, "its own first try stands")
				require.Equal(t, fmt.Sprint(i), string(a.res.Results[0].KVs[0].Value))
			}
		})
	})
}

// TestBatchFitsOneTransaction: however many guards, compares and operations the
// requests have, no batch is more than the store takes in one flat transaction.
func TestBatchFitsOneTransaction(t *testing.T) {
	for _, x := range []struct {
		name                     string
		compares, writes, guards int
	}{
		{"compares", 5, 1, 0},
		{"writes", 1, 7, 0},
		{"guards", 1, 1, 4},
	} {
		t.Run(x.name, func(t *testing.T) {
			inBubble(t, Config{MaxBatch: 96, MaxInFlight: 1}, func(t *testing.T, r *batchRig) {
				var qs []*request
				for i := range 200 {
					q := &request{}
					for k := range x.compares {
						q.txn.If = append(q.txn.If, absent(fmt.Sprint("none", i, "-", k)))
					}
					for k := range x.writes {
						q.txn.Then = append(q.txn.Then, kv.Put(fmt.Sprint("k", i, "-", k), nil, 0))
					}
					for k := range x.guards {
						q.guard(absent(fmt.Sprint("guard", i, "-", k)))
					}
					qs = append(qs, q)
				}
				for _, a := range r.gathered(t, qs...) {
					require.NoError(t, a.err)
					require.True(t, a.res.Succeeded)
				}
				for i := range r.begun {
					require.LessOrEqual(t, len(r.begun[i].If), kv.MaxTxnOps)
					require.LessOrEqual(t, len(r.begun[i].Then), kv.MaxTxnOps)
				}
			})
		})
	}
}

// parts are the requests of a transaction.
func parts(t *kv.Txn) []*kv.Txn {
	if len(t.Then) == 0 || t.Then[0].Kind != kv.OpTxn {
		return []*kv.Txn{t}
	}
	var all []*kv.Txn
	for i := range t.Then {
		all = append(all, t.Then[i].Txn)
	}
	return all
}

// meetings names a key that one request of a transaction writes and another one
// writes or relies on.
func meetings(t *kv.Txn) string {
	all := parts(t)
	for i, a := range all {
		for _, w := range a.Then {
			for k, b := range all {
				if w.Kind == kv.OpGet || i == k {
					continue
				}
				for _, c := range b.If {
					if c.Key == w.Key || c.End != "" && c.Key <= w.Key && w.Key < c.End {
						return w.Key
					}
				}
				for _, o := range b.Then {
					if o.Kind != kv.OpGet && o.Key == w.Key {
						return w.Key
					}
				}
			}
		}
	}
	return ""
}

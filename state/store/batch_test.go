package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/memkv"
)

// tap is a memkv that writes down each transaction, and lets a test hold it up
// or spoil it.
type tap struct {
	kv.KV
	mu      sync.Mutex
	begun   []kv.Txn
	running int
	most    int
	meet    func(n int, t *kv.Txn) faulty.Fault // the n-th, from 0; may block
}

func (p *tap) Txn(ctx context.Context, t kv.Txn) (kv.TxnResult, error) {
	p.mu.Lock()
	n := len(p.begun)
	p.begun = append(p.begun, t)
	p.running++
	p.most = max(p.most, p.running)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.running--
		p.mu.Unlock()
	}()
	return faulty.New(p.KV, func(context.Context, faulty.Call) faulty.Fault {
		if p.meet == nil {
			return faulty.Fault{}
		}
		return p.meet(n, &t)
	}).Txn(ctx, t)
}

// tries is how many transactions have begun.
func (p *tap) tries() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.begun)
}

type batchRig struct {
	*tap
	t   *testing.T
	b   *batcher
	db  *memkv.Store
	all sync.WaitGroup
}

// inBubble runs f with a batcher, in virtual time. Its batches are nested from the
// start: what is flat is tested by itself.
func inBubble(t *testing.T, cfg Config, f func(t *testing.T, r *batchRig)) {
	synctest.Test(t, func(t *testing.T) {
		db := memkv.New()
		t.Cleanup(db.Close)
		r := &batchRig{tap: &tap{KV: db}, t: t, db: db}
		r.b = newBatcher(r.tap, cfg.WithDefaults(), newMetrics(nil))
		r.b.flat.skip = math.MaxInt
		t.Cleanup(r.b.close)
		f(t, r)
		r.all.Wait()
	})
}

// putNew is a request to make a key, which answers what is there if it fails.
func (r *batchRig) putNew(key, value string) *request {
	return &request{
		txn: kv.Txn{
			If: []kv.Compare{absent(key)}, Then: []kv.Op{kv.Put(key, []byte(value), 0)}, Else: []kv.Op{kv.Get(key)},
		},
		writes: []uint64{r.b.hash(key)},
	}
}

// set is a request to write a key whatever is there.
func (r *batchRig) set(key, value string) *request {
	return &request{txn: kv.Txn{Then: []kv.Op{kv.Put(key, []byte(value), 0)}}, writes: []uint64{r.b.hash(key)}}
}

type answered struct {
	res kv.TxnResult
	err error
}

// send commits q in the background.
func (r *batchRig) send(ctx context.Context, q *request) *answered {
	a := &answered{}
	r.all.Go(func() { a.res, a.err = r.b.do(ctx, q) })
	return a
}

// block makes the first n transactions wait until the answer is called.
func (r *batchRig) block(n int) (release func()) {
	gone := make(chan struct{})
	r.meet = func(i int, _ *kv.Txn) faulty.Fault {
		if i < n {
			<-gone
		}
		return faulty.Fault{}
	}
	release = sync.OnceFunc(func() { close(gone) })
	r.t.Cleanup(release) // so that a failed test ends
	return release
}

func TestBatchGathersAndAnswersEachCaller(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
		_, err := r.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put("k7", []byte("old"), 0)}})
		require.NoError(t, err)
		release := r.block(1)
		first := r.send(t.Context(), r.putNew("first", "x"))
		synctest.Wait()
		var rest []*answered
		for i := range 20 {
			rest = append(rest, r.send(t.Context(), r.putNew(fmt.Sprintf("k%d", i), fmt.Sprint(i))))
		}
		synctest.Wait()
		require.Len(t, r.begun, 1, "fewer than gather wait for the one under way")
		release()
		r.all.Wait()
		require.Len(t, r.begun, 2)
		require.Len(t, parts(&r.begun[1]), 20)
		require.True(t, first.res.Succeeded)
		for i, a := range rest {
			require.NoError(t, a.err)
			require.Equal(t, i != 7, a.res.Succeeded, i)
			require.Equal(t, rest[0].res.Revision, a.res.Revision)
			if i == 7 {
				require.Equal(t, "old", string(a.res.Results[0].KVs[0].Value))
			}
		}
	})
}

func TestBatchLimits(t *testing.T) {
	t.Run("requests", func(t *testing.T) {
		inBubble(t, Config{MaxBatch: 10}, func(t *testing.T, r *batchRig) {
			release := r.block(1)
			r.send(t.Context(), r.set("first", ""))
			synctest.Wait()
			for i := range 25 {
				r.send(t.Context(), r.set(fmt.Sprint(i), ""))
			}
			synctest.Wait()
			release()
			r.all.Wait()
			var sizes []int
			for i := range r.begun {
				sizes = append(sizes, len(parts(&r.begun[i])))
			}
			require.Equal(t, []int{1, 10, 10, 5}, sizes)
		})
	})
	t.Run("bytes", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			release := r.block(1)
			r.send(t.Context(), r.set("first", ""))
			synctest.Wait()
			var all []*answered
			for i := range 20 {
				all = append(all, r.send(t.Context(), r.set(fmt.Sprint(i), strings.Repeat("x", 300<<10))))
			}
			// One that is above the batch's size alone, and below etcd's.
			all = append(all, r.send(t.Context(), r.set("big", strings.Repeat("x", batchBytes+100<<10))))
			synctest.Wait()
			release()
			r.all.Wait()
			for _, a := range all {
				require.NoError(t, a.err) // memkv refuses what etcd would
				require.True(t, a.res.Succeeded)
			}
			require.Greater(t, len(r.begun), 7)
		})
	})
	t.Run("in flight", func(t *testing.T) {
		inBubble(t, Config{MaxInFlight: 3, MaxBatch: 8}, func(t *testing.T, r *batchRig) {
			r.meet = func(int, *kv.Txn) faulty.Fault { return faulty.Fault{Delay: time.Second} }
			for i := range 500 {
				r.send(t.Context(), r.set(fmt.Sprint(i), ""))
			}
			r.all.Wait()
			require.Equal(t, 3, r.most)
		})
	})
}

// Requests that meet never share a transaction nor are under way at once, and
// go in the order in which they came; those between them that meet nothing
// overtake.
func TestBatchKeepsOrderOfConflicts(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
		release := r.block(1)
		first := r.send(t.Context(), r.set("a", "0"))
		synctest.Wait()
		second := r.set("a", "1")
		second.writes = append(second.writes, r.b.hash("b"))
		r.send(t.Context(), second)
		synctest.Wait()
		r.send(t.Context(), r.set("b", "2")) // meets only the one that waits
		synctest.Wait()
		const free = gather - 2 // with the two that wait, enough to go out
		for i := range free {
			r.send(t.Context(), r.set(fmt.Sprintf("free%d", i), ""))
		}
		synctest.Wait()
		require.Len(t, r.begun, 2, "the free ones overtake")
		require.Len(t, parts(&r.begun[1]), free)
		require.Zero(t, first.res.Revision)
		release()
		r.all.Wait()
		require.Len(t, r.begun, 4)
		require.Equal(t, "1", string(r.begun[2].Then[0].Value))
		require.Equal(t, "2", string(r.begun[3].Then[0].Value))
	})
}

func TestBatchNeverMixesConflicts(t *testing.T) {
	for seed := range uint64(50) {
		inBubble(t, Config{MaxInFlight: 4, MaxBatch: 8}, func(t *testing.T, r *batchRig) {
			rng := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			running := map[string]int{} // 1 and more: writers; below 0: readers
			order := map[string][]int{} // of writers, as they went out
			delays := make([]time.Duration, 4096)
			for i := range delays {
				delays[i] = time.Duration(rng.IntN(20)) * time.Millisecond
			}
			use := func(x *kv.Txn, by int) {
				for _, p := range parts(x) {
					key := p.Then[0].Key
					running[key] += by
					if by > 0 {
						require.Equal(t, 1, running[key], "a second writer of %s", key)
						require.Zero(t, running["read "+key], "a reader beside the writer of %s", key)
						var n int
						_, err := fmt.Sscan(string(p.Then[0].Value), &n)
						require.NoError(t, err)
						order[key] = append(order[key], n)
					}
				}
				for _, p := range parts(x) {
					for _, c := range p.If {
						running["read "+c.Key] += by
						if by > 0 && c.Key != p.Then[0].Key {
							require.Zero(t, running[c.Key], "a writer beside the reader of %s", c.Key)
						}
					}
				}
			}
			r.meet = func(n int, x *kv.Txn) faulty.Fault {
				mu.Lock()
				use(x, 1)
				mu.Unlock()
				time.Sleep(delays[n])
				mu.Lock()
				use(x, -1)
				mu.Unlock()
				return faulty.Fault{}
			}
			for i := range 300 {
				w, rd := fmt.Sprint("w", rng.IntN(12)), fmt.Sprint("w", rng.IntN(12))
				q := r.set(w, fmt.Sprint(i))
				if rd != w {
					q.txn.If = []kv.Compare{{Key: rd, Target: kv.TargetCreateRevision, Relation: kv.Greater, Int: -1}}
					q.reads = []uint64{r.b.hash(rd)}
				}
				r.send(t.Context(), q)
				synctest.Wait() // so that they come in this order
				if rng.IntN(4) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			r.all.Wait()
			for key, went := range order {
				require.True(t, slices.IsSorted(went), "%s: %v", key, went)
			}
		})
	}
}

func TestBatchCallerLeaves(t *testing.T) {
	gone := errors.New("gone")
	t.Run("before", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(gone)
			_, err := r.b.do(ctx, r.set("a", ""))
			require.ErrorIs(t, err, gone)
			require.NotErrorIs(t, err, kv.ErrUnknown)
			require.Empty(t, r.begun)
		})
	})
	t.Run("queued", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			release := r.block(1)
			r.send(t.Context(), r.set("a", "0"))
			synctest.Wait()
			ctx, cancel := context.WithCancelCause(t.Context())
			second := r.send(ctx, r.set("a", "1"))
			third := r.send(t.Context(), r.set("b", "2"))
			synctest.Wait()
			cancel(gone)
			synctest.Wait()
			require.ErrorIs(t, second.err, gone)
			require.NotErrorIs(t, second.err, kv.ErrUnknown)
			release()
			r.all.Wait()
			require.NoError(t, third.err)
			got, err := r.db.Range(t.Context(), "a", "", kv.RangeOptions{})
			require.NoError(t, err)
			require.Equal(t, "0", string(got.KVs[0].Value), "certainly not applied")
		})
	})
	t.Run("in flight", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			release := r.block(1)
			ctx, cancel := context.WithCancelCause(t.Context())
			first := r.send(ctx, r.set("a", "0"))
			synctest.Wait()
			cancel(gone)
			synctest.Wait()
			require.ErrorIs(t, first.err, gone)
			require.ErrorIs(t, first.err, kv.ErrUnknown)
			// What it wrote is still under way: nothing that meets it passes.
			second := r.send(t.Context(), r.putNew("a", "1"))
			synctest.Wait()
			require.Len(t, r.begun, 1)
			release()
			r.all.Wait()
			require.False(t, second.res.Succeeded)
		})
	})
	t.Run("between tries", func(t *testing.T) {
		inBubble(t, Config{}, func(t *testing.T, r *batchRig) {
			r.meet = func(int, *kv.Txn) faulty.Fault { return faulty.Fault{Before: kv.ErrUnavailable} }
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := r.b.do(ctx, r.set("a", "0"))
			require.ErrorIs(t, err, kv.ErrUnknown)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			tries := r.tries()
			time.Sleep(time.Minute)
			require.LessOrEqual(t, r.tries(), tries+1, "nobody asks any more")
		})
	})
}

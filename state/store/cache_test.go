package store

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/memkv"
)

func TestIndexIsAnOrderedMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var x index
		model := map[string]int64{}
		key := rapid.Custom(func(rt *rapid.T) string { return fmt.Sprintf("k%04d", rapid.IntRange(0, 1500).Draw(rt, "key")) })
		for _, k := range rapid.SliceOfNDistinct(key, 0, 1400, rapid.ID).Draw(rt, "loaded") {
			model[k] = 0
		}
		var items []*kv.KeyValue
		for _, k := range slices.Sorted(maps.Keys(model)) {
			items = append(items, &kv.KeyValue{Key: k})
		}
		x.load(items)
		for rev := range int64(rapid.IntRange(0, 3000).Draw(rt, "changes")) {
			k := fmt.Sprintf("k%04d", (rev*7919)%1501)
			if (rev/1000)%2 == 0 {
				x.set(&kv.KeyValue{Key: k, ModRevision: rev + 1})
				model[k] = rev + 1
			} else {
				x.remove(k)
				delete(model, k)
			}
		}
		from, to := key.Draw(rt, "from"), key.Draw(rt, "to")
		var want, got []string
		for _, k := range slices.Sorted(maps.Keys(model)) {
			if k >= from && k < to {
				want = append(want, fmt.Sprint(k, model[k]))
			}
		}
		x.ascend(from, to, func(item *kv.KeyValue) bool {
			got = append(got, fmt.Sprint(item.Key, item.ModRevision))
			return true
		})
		require.Equal(rt, want, got)
		require.Equal(rt, len(model), x.n)
		require.Len(rt, x.all(), x.n)
		for k, rev := range model {
			require.Equal(rt, rev, x.get(k).ModRevision)
		}
		require.Nil(rt, x.get("nothing"))
	})
}

// running runs a cache of /p/ on db until the test ends.
func running(t *testing.T, db kv.KV) *Cache {
	t.Helper()
	c := NewCache(db, "/p/", hclog.NewNullLogger())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return c
}

func put(t *testing.T, db kv.KV, key, value string) int64 {
	t.Helper()
	res, err := db.Txn(context.Background(), kv.Txn{Then: []kv.Op{kv.Put(key, []byte(value), 0)}})
	require.NoError(t, err)
	return res.Revision
}

func del(t *testing.T, db kv.KV, key string) int64 {
	t.Helper()
	res, err := db.Txn(context.Background(), kv.Txn{Then: []kv.Op{kv.Delete(key)}})
	require.NoError(t, err)
	return res.Revision
}

// follower keeps a map as a consumer would.
type follower struct {
	sub    *Subscription
	known  map[string]string
	resets int
}

func follow(t *testing.T, c *Cache) *follower {
	f := &follower{sub: c.Subscribe(), known: map[string]string{}}
	t.Cleanup(f.sub.Close)
	return f
}

func (f *follower) step(t *testing.T) Update {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	u, err := f.sub.Next(ctx)
	require.NoError(t, err)
	if u.Reset {
		f.resets++
		clear(f.known)
		for _, item := range u.All {
			f.known[item.Key] = string(item.Value)
		}
	}
	for _, e := range u.Events {
		if e.Deleted {
			delete(f.known, e.KV.Key)
		} else {
			f.known[e.KV.Key] = string(e.KV.Value)
		}
	}
	return u
}

func contents(c *Cache) map[string]string {
	kvs, _, _ := c.List(c.from, c.to, -1)
	m := map[string]string{}
	for _, item := range kvs {
		m[item.Key] = string(item.Value)
	}
	return m
}

func TestCacheFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := memkv.New()
		defer db.Close()
		for i := range 1200 {
			put(t, db, fmt.Sprintf("/p/%05d", i), "old")
		}
		put(t, db, "/p-2/x", "not mine")
		c := running(t, db)
		f := follow(t, c)
		require.True(t, f.step(t).Reset)
		require.Len(t, f.known, 1200)

		put(t, db, "/p/00007", "new")
		rev := del(t, db, "/p/00008")
		require.NoError(t, c.WaitFor(ctx, rev))
		got, ok := c.Get("/p/00007")
		require.True(t, ok)
		require.Equal(t, "new", string(got.Value))
		_, ok = c.Get("/p/00008")
		require.False(t, ok)
		require.Equal(t, 1199, c.Len())
		for f.known["/p/00008"] != "" {
			require.False(t, f.step(t).Reset)
		}
		require.Equal(t, contents(c), f.known)

		// A revision of another prefix is reached by progress.
		rev = put(t, db, "/elsewhere", "x")
		require.NoError(t, c.WaitFor(ctx, rev))
		require.NoError(t, c.Fresh(ctx))

		kvs, more, at := c.List("/p/00100", "/p/00200", 10)
		require.Len(t, kvs, 10)
		require.True(t, more)
		require.GreaterOrEqual(t, at, rev)

		// A quiet watch stays alive and says so.
		time.Sleep(time.Hour)
		require.Less(t, time.Since(c.LastHeard()), 2*askProgress)
		require.Equal(t, 1, f.resets)
	})
}

func TestCacheListsAnewAfterCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memkv.New()
		defer db.Close()
		put(t, db, "/p/a", "1")
		var broken atomic.Bool
		c := running(t, faulty.New(db, func(_ context.Context, call faulty.Call) faulty.Fault {
			if broken.Load() && (call.Op == faulty.OpNext || call.Op == faulty.OpWatch) {
				return faulty.Fault{Before: kv.ErrUnavailable}
			}
			return faulty.Fault{}
		}))
		f := follow(t, c)
		f.step(t)

		// A watch that only broke goes on where it ended.
		synctest.Wait() // until the watch waits
		broken.Store(true)
		put(t, db, "/p/b", "0") // ends the Next that is under way
		synctest.Wait()
		f.step(t)
		rev := put(t, db, "/p/b", "1")
		time.Sleep(time.Minute)
		broken.Store(false)
		require.NoError(t, c.WaitFor(t.Context(), rev))
		require.False(t, f.step(t).Reset)

		synctest.Wait() // until the watch waits
		broken.Store(true)
		put(t, db, "/p/b", "2") // ends the Next that is under way
		synctest.Wait()
		f.step(t)
		put(t, db, "/p/c", "1")
		del(t, db, "/p/a")
		rev = put(t, db, "/p/c", "2")
		time.Sleep(time.Minute)
		require.NoError(t, db.Compact(t.Context(), rev))
		require.Len(t, contents(c), 2, "it answers what it knew")
		broken.Store(false)
		require.NoError(t, c.WaitFor(t.Context(), rev))
		require.Equal(t, map[string]string{"/p/b": "2", "/p/c": "2"}, contents(c))
		require.True(t, f.step(t).Reset)
		require.Equal(t, contents(c), f.known)
	})
}

func TestCacheGivesUpASilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memkv.New()
		defer db.Close()
		var deaf atomic.Bool
		c := running(t, faulty.New(db, func(_ context.Context, call faulty.Call) faulty.Fault {
			if deaf.Load() && call.Op == faulty.OpNext {
				return faulty.Fault{Delay: 24 * time.Hour}
			}
			return faulty.Fault{}
		}))
		require.NoError(t, c.Fresh(t.Context()))
		synctest.Wait() // until the watch waits
		deaf.Store(true)
		rev := put(t, db, "/p/a", "1") // ends the Next that is under way
		synctest.Wait()
		rev = max(rev, put(t, db, "/p/b", "1"))
		time.Sleep(maxSilence + time.Minute)
		deaf.Store(false)
		time.Sleep(maxSilence + time.Minute)
		require.GreaterOrEqual(t, c.Revision(), rev)
		require.Len(t, contents(c), 2)
	})
}

func TestSlowConsumerGetsAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memkv.New()
		defer db.Close()
		c := running(t, db)
		require.NoError(t, c.Fresh(t.Context()))
		slow, fast := follow(t, c), follow(t, c)
		slow.step(t)
		fast.step(t)
		var rev int64
		for i := range maxBehind + 1000 {
			rev = put(t, db, fmt.Sprintf("/p/%d", i%100), fmt.Sprint(i))
			if i%1000 == 0 {
				require.NoError(t, c.WaitFor(t.Context(), rev))
				fast.step(t)
			}
		}
		require.NoError(t, c.WaitFor(t.Context(), rev))
		for fast.step(t).Revision < rev {
		}
		require.True(t, slow.step(t).Reset)
		require.Equal(t, contents(c), slow.known)
		require.Equal(t, contents(c), fast.known)
		require.Equal(t, 1, fast.resets)
	})
}

func TestJobsCacheListsWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := memkv.New()
		defer db.Close()
		var deaf atomic.Bool
		s := openStore(t, faulty.New(db, func(_ context.Context, call faulty.Call) faulty.Fault {
			if deaf.Load() && call.Op == faulty.OpNext {
				return faulty.Fault{DelayAfter: 24 * time.Hour}
			}
			return faulty.Fault{}
		}), "")
		c := s.JobsCache()
		running, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- c.Run(running) }()
		defer func() {
			cancel()
			require.NoError(t, <-done)
		}()
		for i := range 100 {
			deaf.Store(i > 95)
			_, err := s.PutJob(ctx, putOf(state.JobID{Namespace: "a", Name: fmt.Sprint(i)}, specOf("@daily")))
			require.NoError(t, err)
			page, err := c.ListJobs(ctx, ListJobs{Namespace: "a", Limit: 1000})
			require.NoError(t, err)
			require.Len(t, page.Jobs, i+1, "also with a deaf watch")
		}
	})
}

func TestNodesCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := openMemory(t)
		c := s.NodesCache()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		defer func() {
			cancel()
			require.NoError(t, <-done)
		}()
		reg, err := s.Register(t.Context(), state.Node{Name: "n1"}, 5*time.Second)
		require.NoError(t, err)
		put(t, db, s.keys.node("broken"), "\xff")
		require.NoError(t, c.Fresh(t.Context()))
		require.Equal(t, []state.Node{{Name: "n1", Revision: reg.Owner.Revision}}, c.Nodes())
		time.Sleep(time.Minute)
		require.NoError(t, c.Fresh(t.Context()))
		require.Empty(t, c.Nodes(), "its lease has ended")
	})
}

// TestCacheMemory holds the cache to its budget of 350 bytes a job beside the
// stored value.
func TestCacheMemory(t *testing.T) {
	const jobs, value = 50_000, 256
	items := make([]*kv.KeyValue, jobs)
	before := heap()
	for i := range items {
		items[i] = &kv.KeyValue{
			Key:   strings.Clone(fmt.Sprintf("/leaderd/jobs/namespace-%03d/some-job-%06d", i/1000, i)),
			Value: make([]byte, value), CreateRevision: 1, ModRevision: 1, Version: 1,
		}
	}
	c := NewCache(nil, "/leaderd/jobs/", hclog.NewNullLogger())
	c.index.load(items)
	items = nil
	per := float64(heap()-before)/jobs - value
	t.Logf("%.0f bytes a job beside its value", per)
	require.Less(t, per, 350.0)
	runtime.KeepAlive(c)
	runtime.KeepAlive(items)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

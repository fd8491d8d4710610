package memkv_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
)

func put(key string, lease kv.LeaseID) kv.Txn {
	return kv.Txn{Then: []kv.Op{kv.Put(key, nil, lease)}}
}

func count(t *testing.T, s kv.KV, key string) int {
	t.Helper()
	r, err := s.Range(t.Context(), key, "", kv.RangeOptions{})
	require.NoError(t, err)
	return len(r.KVs)
}

func TestLeasesEndOnTheInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memkv.New(memkv.WithMinTTL(time.Second))
		defer s.Close()
		id, ttl, err := s.Grant(t.Context(), 5*time.Second)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, ttl)
		_, err = s.Txn(t.Context(), put("a", id))
		require.NoError(t, err)

		time.Sleep(4 * time.Second)
		_, err = s.KeepAlive(t.Context(), id)
		require.NoError(t, err)
		time.Sleep(5*time.Second - time.Nanosecond)
		synctest.Wait()
		require.Equal(t, 1, count(t, s, "a"))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Zero(t, count(t, s, "a"))
		_, err = s.KeepAlive(t.Context(), id)
		require.ErrorIs(t, err, kv.ErrLeaseNotFound)
	})
}

func TestALeaseThatIsFoundDeadLeavesNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memkv.New()
		defer s.Close()
		for range 100 {
			id, ttl, err := s.Grant(t.Context(), time.Second)
			require.NoError(t, err)
			_, err = s.Txn(t.Context(), put("a", id))
			require.NoError(t, err)
			// Both timers fire at the same instant, in either order.
			time.Sleep(ttl)
			if _, err := s.KeepAlive(t.Context(), id); err != nil {
				require.ErrorIs(t, err, kv.ErrLeaseNotFound)
				require.Zero(t, count(t, s, "a"))
			} else {
				require.Equal(t, 1, count(t, s, "a"))
				require.NoError(t, s.Revoke(t.Context(), id))
			}
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memkv.New()
		ctx := t.Context()
		id, _, err := s.Grant(ctx, time.Second)
		require.NoError(t, err)
		w, err := s.Watch(ctx, "a", "", 0)
		require.NoError(t, err)
		got := make(chan error)
		go func() {
			_, err := w.Next(ctx)
			got <- err
		}()
		synctest.Wait()
		s.Close()
		s.Close()
		require.ErrorIs(t, <-got, kv.ErrUnavailable)
		w.Close()
		for _, err := range []error{
			second(s.Txn(ctx, put("a", 0))), second(s.Range(ctx, "a", "", kv.RangeOptions{})),
			second(s.Watch(ctx, "a", "", 0)), second(s.KeepAlive(ctx, id)),
			s.Revoke(ctx, id), s.Compact(ctx, 1), s.Progress(ctx),
		} {
			require.ErrorIs(t, err, kv.ErrUnavailable)
		}
		_, _, err = s.Grant(ctx, time.Second)
		require.ErrorIs(t, err, kv.ErrUnavailable)
	})
}

func second[T any](_ T, err error) error { return err }

func TestProgressComesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memkv.New(memkv.WithProgressInterval(time.Minute))
		defer s.Close()
		w, err := s.Watch(t.Context(), "a", "", 0)
		require.NoError(t, err)
		for i := range 3 {
			r, err := s.Txn(t.Context(), put("elsewhere", 0))
			require.NoError(t, err)
			// Contexts that end meanwhile do not put it off.
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				_, err = w.Next(ctx)
				cancel()
				require.ErrorIs(t, err, context.DeadlineExceeded, i)
			}
			began := time.Now()
			b, err := w.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, kv.WatchBatch{Revision: r.Revision}, b)
			require.Equal(t, 10*time.Second, time.Since(began))
		}
	})
}

func TestAWatchThatIsNotReadHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memkv.New()
		defer s.Close()
		ctx := t.Context()
		behind, err := s.Watch(ctx, "a", "", 0)
		require.NoError(t, err)
		idle, err := s.Watch(ctx, "b", "", 0)
		require.NoError(t, err)
		var last int64
		for range 5000 {
			r, err := s.Txn(ctx, put("a", 0))
			require.NoError(t, err)
			last = r.Revision
		}
		b, err := behind.Next(ctx)
		require.NoError(t, err)
		require.Len(t, b.Events, 1000)
		require.Equal(t, b.Events[999].KV.ModRevision, b.Revision)

		require.NoError(t, s.Compact(ctx, last))
		_, err = behind.Next(ctx)
		require.ErrorIs(t, err, kv.ErrCompacted)
		// One that had nothing to read lost nothing.
		r, err := s.Txn(ctx, put("b", 0))
		require.NoError(t, err)
		b, err = idle.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, r.Revision, b.Revision)
	})
}

// Increments by compare and swap, leases that come and go, compactions and readers,
// all at once: for the race detector, and nothing may be lost.
func TestConcurrentUse(t *testing.T) {
	s := memkv.New()
	defer s.Close()
	const workers, each = 8, 200
	ctx := t.Context()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for done := 0; done < each; {
				r, err := s.Range(ctx, "n", "", kv.RangeOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				c := kv.Compare{Key: "n", Target: kv.TargetModRevision}
				if len(r.KVs) > 0 {
					c.Int = r.KVs[0].ModRevision
				}
				x := put("n", 0)
				x.If = []kv.Compare{c}
				out, err := s.Txn(ctx, x)
				if err != nil {
					t.Error(err)
					return
				}
				if out.Succeeded {
					done++
				}
			}
		})
		wg.Go(func() {
			for j := range each {
				id, _, err := s.Grant(ctx, time.Minute)
				if err == nil {
					_, err = s.Txn(ctx, put(fmt.Sprint("l", i, j), id))
				}
				if err == nil {
					err = s.Revoke(ctx, id)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	w, err := s.Watch(ctx, "n", "", 0)
	require.NoError(t, err)
	seen := int64(0)
	for seen < workers*each {
		b, err := w.Next(ctx)
		require.NoError(t, err)
		for _, e := range b.Events {
			require.Greater(t, e.KV.Version, seen)
			seen = e.KV.Version
		}
		if err := s.Compact(ctx, b.Revision); err != nil {
			require.ErrorIs(t, err, kv.ErrCompacted)
		}
	}
	wg.Wait()
	r, err := s.Range(ctx, "l", "m", kv.RangeOptions{})
	require.NoError(t, err)
	require.Empty(t, r.KVs)
}

func BenchmarkTxn(b *testing.B) {
	s := memkv.New()
	defer s.Close()
	for i := range 100_000 {
		if _, err := s.Txn(b.Context(), put(fmt.Sprintf("/%07d", i), 0)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 7919) % 100_000
		x := put(fmt.Sprintf("/%07d", i), 0)
		x.If = []kv.Compare{{Key: x.Then[0].Key, Target: kv.TargetVersion, Relation: kv.Greater}}
		if r, err := s.Txn(b.Context(), x); err != nil || !r.Succeeded {
			b.Fatal(err)
		}
	}
}

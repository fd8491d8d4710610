package faulty_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/kv/kvtest"
	"github.com/leaderd/leaderd/state/memkv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without faults it is the store inside.
func TestConformance(t *testing.T) {
	kvtest.Run(t, kvtest.Config{
		New: func(t *testing.T) kv.KV {
			s := memkv.New()
			t.Cleanup(s.Close)
			return faulty.New(s, func(context.Context, faulty.Call) faulty.Fault { return faulty.Fault{} })
		},
		Wrap: synctest.Test,
	})
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memkv.New()
		defer inner.Close()
		var fault faulty.Fault
		var last faulty.Call
		s := faulty.New(inner, func(_ context.Context, c faulty.Call) faulty.Fault {
			last = c
			return fault
		})
		ctx := t.Context()
		put := kv.Txn{Then: []kv.Op{kv.Put("a", nil, 0)}}
		written := func() int64 {
			r, err := inner.Range(ctx, "a", "", kv.RangeOptions{})
			require.NoError(t, err)
			if len(r.KVs) == 0 {
				return 0
			}
			return r.KVs[0].Version
		}

		fault = faulty.Fault{Before: kv.ErrTooManyRequests}
		_, err := s.Txn(ctx, put)
		require.ErrorIs(t, err, kv.ErrTooManyRequests)
		require.Equal(t, faulty.OpTxn, last.Op)
		require.Equal(t, put, *last.Txn)
		require.Zero(t, written())

		fault = faulty.Fault{After: kv.ErrUnknown}
		r, err := s.Txn(ctx, put)
		require.ErrorIs(t, err, kv.ErrUnknown)
		require.Zero(t, r)
		require.Equal(t, int64(1), written())

		fault = faulty.Fault{Delay: time.Second, DelayAfter: time.Second}
		began := time.Now()
		_, err = s.Txn(ctx, put)
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(began))

		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		_, err = s.Txn(short, put)
		require.ErrorIs(t, err, kv.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, int64(2), written())

		long, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		_, err = s.Txn(long, put)
		require.ErrorIs(t, err, kv.ErrUnknown)
		require.Equal(t, int64(3), written())
	})
}

func TestFaultsOfWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memkv.New()
		defer inner.Close()
		var fault faulty.Fault
		s := faulty.New(inner, func(context.Context, faulty.Call) faulty.Fault { return fault })
		ctx := t.Context()
		w, err := s.Watch(ctx, "a", "", 0)
		require.NoError(t, err)
		broken := errors.New("broken")
		fault = faulty.Fault{Before: broken}
		_, err = w.Next(ctx)
		require.ErrorIs(t, err, broken)
		fault = faulty.Fault{}
		_, err = w.Next(ctx)
		require.ErrorIs(t, err, broken, "it stays dead")
		w.Close()

		fault = faulty.Fault{After: kv.ErrUnavailable}
		w, err = s.Watch(ctx, "a", "", 0)
		require.ErrorIs(t, err, kv.ErrUnavailable)
		require.Nil(t, w)
	})
}

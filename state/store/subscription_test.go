package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
)

func TestSubscriptionWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		db := memkv.New()
		defer db.Close()
		put := func(key string) int64 {
			res, err := db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(key, nil, 0)}})
			require.NoError(t, err)
			return res.Revision
		}
		c := NewCache(db, "/a/", hclog.NewNullLogger())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		defer func() { stop(); require.NoError(t, <-ended) }()
		sub := c.Subscribe()
		defer sub.Close()
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			t.Cleanup(cancel)
			return ctx
		}

		require.ErrorIs(t, sub.WaitFor(short(), put("/a/1")), context.DeadlineExceeded, "nobody consumes it")
		work := make(chan Update)
		go func() {
			for {
				u, err := sub.Next(ctx)
				if err != nil {
					close(work)
					return
				}
				work <- u
			}
		}()
		require.ErrorIs(t, sub.WaitFor(short(), 2), context.DeadlineExceeded, "it is consumed, and not done with")
		require.True(t, (<-work).Reset)
		require.NoError(t, sub.WaitFor(short(), 2))
		require.NoError(t, sub.WaitFor(short(), put("/b/1")), "a change elsewhere is nothing to wait for")
		last := put("/a/2")
		synctest.Wait()
		require.ErrorIs(t, sub.WaitFor(short(), last), context.DeadlineExceeded)
		require.Len(t, (<-work).Events, 1)
		require.NoError(t, sub.WaitFor(short(), last))
		stop()
		<-work
	})
}

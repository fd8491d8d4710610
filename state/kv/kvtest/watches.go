package kvtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
)

var watchTests = map[string]func(*testing.T, *env){
	"WatchWholeRevisions": func(t *testing.T, e *env) {
		key, end := e.all()
		e.put(t, "old", "1")
		w := e.watch(t, key, end, 0)
		lease := e.grant(t, patience)
		at := e.do(t,
			kv.Put(e.k("b"), []byte("2"), lease), kv.Put("kvtest/elsewhere", nil, 0), kv.Delete(e.k("old")),
			kv.Nested(&kv.Txn{Then: []kv.Op{kv.Put(e.k("a"), nil, 0)}}),
		).Revision
		b, err := next(t, w)
		require.NoError(t, err)
		require.Equal(t, at, b.Revision)
		require.Equal(t, []kv.Event{
			{KV: kv.KeyValue{Key: e.k("b"), Value: []byte("2"), CreateRevision: at, ModRevision: at, Version: 1, Lease: lease}},
			{Deleted: true, KV: kv.KeyValue{Key: e.k("old"), ModRevision: at}},
			{KV: kv.KeyValue{Key: e.k("a"), CreateRevision: at, ModRevision: at, Version: 1}},
		}, b.Events)
	},

	"WatchFromThePast": func(t *testing.T, e *env) {
		key, end := e.all()
		const n = 50
		first := int64(0)
		for i := range n {
			at := e.do(t, kv.Put(e.k("a"), fmt.Append(nil, i), 0), kv.Put(e.k("b"), nil, 0)).Revision
			if i == 0 {
				first = at
			}
		}
		for _, from := range []int64{first, first + n/2} {
			skipped := int(from - first)
			events := collect(t, e.watch(t, key, end, from), 2*(n-skipped))
			for i, ev := range events {
				require.Equal(t, from+int64(i/2), ev.KV.ModRevision)
			}
			require.Equal(t, fmt.Append(nil, skipped), events[0].KV.Value)
		}
		events := collect(t, e.watch(t, e.k("b"), "", first), n)
		require.Equal(t, int64(n), events[n-1].KV.Version)
	},

	"WatchALongHistory": func(t *testing.T, e *env) {
		// More than etcd, or anyone, puts in one batch.
		key, end := e.all()
		const n = 1500
		first := e.put(t, "a", "")
		for range n - 1 {
			e.put(t, "a", "")
		}
		events := collect(t, e.watch(t, key, end, first), n)
		require.Equal(t, first+n-1, events[n-1].KV.ModRevision)
	},

	"WatchLargeRevisions": func(t *testing.T, e *env) {
		// One revision of 4 MB, more than a message of etcd's holds. No transaction
		// could write it, but a lease's end can: its keys are long.
		key, end := e.all()
		var names []string
		for i := range 250 {
			names = append(names, fmt.Sprintf("%s%03d", strings.Repeat("long", 4000), i))
		}
		lease := e.grant(t, 10*patience)
		for from := 0; from < len(names); from += 50 {
			var ops []kv.Op
			for _, name := range names[from : from+50] {
				ops = append(ops, kv.Put(e.k(name), nil, lease))
			}
			e.do(t, ops...)
		}
		w := e.watch(t, key, end, 0)
		require.NoError(t, e.kv.Revoke(e.ctx, lease))
		b, err := next(t, w)
		require.NoError(t, err)
		require.Len(t, b.Events, len(names))
		require.Equal(t, b.Revision, b.Events[0].KV.ModRevision)
	},

	"WatchFromTheFuture": func(t *testing.T, e *env) {
		now := e.put(t, "a", "")
		w := e.watch(t, e.k("a"), "", now+3)
		for range 3 {
			e.put(t, "a", "")
		}
		require.Equal(t, now+3, collect(t, w, 1)[0].KV.ModRevision)
	},

	"WatchRanges": func(t *testing.T, e *env) {
		b, c := e.watch(t, e.k("b"), "", 0), e.watch(t, e.k("b"), e.k("c"), 0)
		e.prefix = "~" + e.prefix
		tail := e.watch(t, e.k("b"), "\x00", 0)
		tilde := e.prefix
		e.prefix = tilde[1:]
		for _, name := range []string{"a", "b", "bb", "c", "b"} {
			e.put(t, name, "")
			e.do(t, kv.Put(tilde+name, nil, 0))
		}
		require.Len(t, collect(t, b, 2), 2)
		require.Len(t, collect(t, c, 3), 3)
		require.Len(t, collect(t, tail, 4), 4)
		e.do(t, kv.DeleteRange(tilde, kv.PrefixEnd(tilde)))
	},

	"WatchMissesNothingAfterItsReturn": func(t *testing.T, e *env) {
		for i := range 20 {
			w := e.watch(t, e.k("a"), "", 0)
			at := e.put(t, "a", fmt.Sprint(i))
			require.Equal(t, at, collect(t, w, 1)[0].KV.ModRevision)
			w.Close()
		}
	},

	"WatchCloses": func(t *testing.T, e *env) {
		w := e.watch(t, e.k("a"), "", 0)
		other := e.watch(t, e.k("a"), "", 0)
		got := make(chan error, 1)
		go func() {
			_, err := w.Next(e.ctx)
			got <- err
		}()
		w.Close()
		w.Close()
		require.ErrorIs(t, <-got, kv.ErrClosed)
		_, err := w.Next(e.ctx)
		require.ErrorIs(t, err, kv.ErrClosed)
		e.put(t, "a", "")
		require.Len(t, collect(t, other, 1), 1)
	},

	"WatchOutlivesItsContexts": func(t *testing.T, e *env) {
		ctx, cancel := context.WithCancel(e.ctx)
		w, err := e.kv.Watch(ctx, e.k("a"), "", 0)
		require.NoError(t, err)
		defer w.Close()
		cancel()
		cause := errors.New("enough")
		done, stop := context.WithCancelCause(e.ctx)
		stop(cause)
		_, err = w.Next(done)
		require.ErrorIs(t, err, cause)
		e.put(t, "a", "")
		require.Len(t, collect(t, w, 1), 1)
	},

	"Progress": func(t *testing.T, e *env) {
		require.NoError(t, e.kv.Progress(e.ctx), "without a watch")
		w, other := e.watch(t, e.k("a"), "", 0), e.watch(t, e.k("b"), "", 0)
		at := e.put(t, "elsewhere", "")
		require.NoError(t, e.kv.Progress(e.ctx))
		for _, w := range []kv.Watcher{w, other} {
			b, err := next(t, w)
			require.NoError(t, err)
			require.Empty(t, b.Events)
			require.GreaterOrEqual(t, b.Revision, at)
		}
		at = e.put(t, "a", "")
		require.Equal(t, at, collect(t, w, 1)[0].KV.ModRevision)
	},
}

var contextTests = map[string]func(*testing.T, *env){
	"EndedContexts": func(t *testing.T, e *env) {
		before := e.put(t, "a", "")
		lease := e.grant(t, patience)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(e.ctx)
		cancel(cause)
		for name, call := range map[string]func() error{
			"txn":       func() error { _, err := e.kv.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(e.k("a"), nil, 0)}}); return err },
			"range":     func() error { _, err := e.kv.Range(ctx, e.k("a"), "", kv.RangeOptions{}); return err },
			"watch":     func() error { _, err := e.kv.Watch(ctx, e.k("a"), "", 0); return err },
			"progress":  func() error { return e.kv.Progress(ctx) },
			"grant":     func() error { _, _, err := e.kv.Grant(ctx, patience); return err },
			"keepalive": func() error { _, err := e.kv.KeepAlive(ctx, lease); return err },
			"revoke":    func() error { return e.kv.Revoke(ctx, lease) },
			"compact":   func() error { return e.kv.Compact(ctx, before) },
		} {
			err := call()
			require.ErrorIs(t, err, cause, name)
			require.ErrorIs(t, err, kv.ErrUnavailable, name)
			require.NotErrorIs(t, err, kv.ErrUnknown, name)
		}
		require.Equal(t, before, e.do(t).Revision)
		_, err := e.kv.KeepAlive(e.ctx, lease)
		require.NoError(t, err)
	},
}

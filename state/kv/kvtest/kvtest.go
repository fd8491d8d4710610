// Package kvtest is the conformance suite of package kv: what every
// implementation must answer, which is what etcd answers. Run checks one
// implementation; Model compares two of them over random histories.
package kvtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state/kv"
)

// patience bounds a wait for something that must happen. It ends tests that would
// hang, and asserts nothing about speed.
const patience = time.Minute

// Config tells Run about an implementation.
type Config struct {
	// New gives the store to one test. It may be the same store each time: the
	// tests run one after the other, each under keys of its own. Compaction and
	// the revision are common to all.
	New func(t *testing.T) kv.KV
	// Wrap runs the body of each test, New included; nil calls it. It is the place
	// for synctest.Test.
	Wrap func(t *testing.T, body func(*testing.T))
}

// env is what a test works with.
type env struct {
	kv     kv.KV
	prefix string // ends in "/"
	ctx    context.Context
}

// Run runs the suite as subtests of t.
func Run(t *testing.T, c Config) {
	for _, group := range []map[string]func(*testing.T, *env){
		revisionTests, rangeTests, txnTests, limitTests, leaseTests, watchTests, contextTests,
	} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				body := func(t *testing.T) {
					e := &env{kv: c.New(t), prefix: "kvtest/" + name + "/", ctx: t.Context()}
					// What an earlier run over the same store left.
					e.do(t, kv.DeleteRange(e.all()), kv.DeleteRange("~"+e.prefix, kv.PrefixEnd("~"+e.prefix)))
					test(t, e)
				}
				if c.Wrap == nil {
					body(t)
				} else {
					c.Wrap(t, body)
				}
			})
		}
	}
}

// k is a key of the test's own.
func (e *env) k(name string) string { return e.prefix + name }

// all is the range of the test's keys.
func (e *env) all() (key, end string) { return e.prefix, kv.PrefixEnd(e.prefix) }

func (e *env) txn(t *testing.T, x kv.Txn) kv.TxnResult {
	t.Helper()
	r, err := e.kv.Txn(e.ctx, x)
	require.NoError(t, err)
	return r
}

// do commits ops without a condition.
func (e *env) do(t *testing.T, ops ...kv.Op) kv.TxnResult {
	t.Helper()
	return e.txn(t, kv.Txn{Then: ops})
}

func (e *env) put(t *testing.T, name, value string) int64 {
	t.Helper()
	return e.do(t, kv.Put(e.k(name), []byte(value), 0)).Revision
}

func (e *env) delete(t *testing.T, name string) int64 {
	t.Helper()
	return e.do(t, kv.Delete(e.k(name))).Revision
}

// get answers one key, or nil.
func (e *env) get(t *testing.T, name string) *kv.KeyValue {
	t.Helper()
	r := e.list(t, e.k(name), "", kv.RangeOptions{})
	if len(r.KVs) == 0 {
		return nil
	}
	return &r.KVs[0]
}

func (e *env) list(t *testing.T, key, end string, o kv.RangeOptions) kv.RangeResult {
	t.Helper()
	r, err := e.kv.Range(e.ctx, key, end, o)
	require.NoError(t, err)
	return r
}

// names are the keys' own parts.
func (e *env) names(kvs []kv.KeyValue) []string {
	out := []string{}
	for _, k := range kvs {
		out = append(out, k.Key[len(e.prefix):])
	}
	return out
}

func (e *env) grant(t *testing.T, ttl time.Duration) kv.LeaseID {
	t.Helper()
	id, granted, err := e.kv.Grant(e.ctx, ttl)
	require.NoError(t, err)
	require.NotZero(t, id)
	require.GreaterOrEqual(t, granted, ttl)
	return id
}

func (e *env) watch(t *testing.T, key, end string, from int64) kv.Watcher {
	t.Helper()
	w, err := e.kv.Watch(e.ctx, key, end, from)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

func next(t *testing.T, w kv.Watcher) (kv.WatchBatch, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b, err := w.Next(ctx)
	require.NoError(t, ctx.Err(), "the watch delivered nothing")
	return b, err
}

// collect reads n events, and checks what holds for all batches.
func collect(t *testing.T, w kv.Watcher, n int) []kv.Event {
	t.Helper()
	var events []kv.Event
	for len(events) < n {
		b, err := next(t, w)
		require.NoError(t, err)
		last := int64(0)
		if len(events) > 0 {
			last = events[len(events)-1].KV.ModRevision
		}
		for i, ev := range b.Events {
			if i == 0 {
				require.Greater(t, ev.KV.ModRevision, last, "a revision split over two batches")
			}
			require.GreaterOrEqual(t, ev.KV.ModRevision, last)
			last = ev.KV.ModRevision
		}
		require.GreaterOrEqual(t, b.Revision, last)
		events = append(events, b.Events...)
	}
	require.Len(t, events, n)
	return events
}

// classes are the errors that tell outcomes apart.
var classes = []error{
	kv.ErrCompacted, kv.ErrLeaseNotFound, kv.ErrNoSpace, kv.ErrTooManyRequests,
	kv.ErrInvalid, kv.ErrUnavailable, kv.ErrUnknown, kv.ErrPermission, kv.ErrClosed,
}

// class is which of classes err is, nil for none.
func class(err error) error {
	for _, c := range classes {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}

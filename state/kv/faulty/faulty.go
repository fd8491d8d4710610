// Package faulty makes a store unreliable on purpose: it wraps any kv.KV and asks
// a hook, at each call, what shall go wrong with it. It is for tests and for the
// simulation.
package faulty

import (
	"context"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/state/kv"
)

// Op names a method of the store.
type Op string

// The methods, as a hook sees them.
const (
	OpTxn       Op = "txn"
	OpRange     Op = "range"
	OpWatch     Op = "watch"
	OpNext      Op = "next" // of a watcher, at each call
	OpProgress  Op = "progress"
	OpGrant     Op = "grant"
	OpKeepAlive Op = "keepalive"
	OpRevoke    Op = "revoke"
	OpCompact   Op = "compact"
)

// Call is what a hook is asked about.
type Call struct {
	Op    Op
	Key   string     // OpRange, OpWatch, OpNext: where the range starts
	Txn   *kv.Txn    // OpTxn; not to be modified
	Lease kv.LeaseID // OpKeepAlive, OpRevoke
}

// Fault is what shall happen to a call. The zero Fault is none. In order: Delay
// passes, then Before ends the call, or the store does it, then DelayAfter passes,
// then After takes the place of its answer.
type Fault struct {
	Delay      time.Duration
	Before     error // not applied: such as kv.ErrUnavailable
	DelayAfter time.Duration
	After      error // applied: such as kv.ErrUnknown. An error of the store itself stands
}

// Hook decides. It is called concurrently, and with the caller's context, and may
// block.
type Hook func(ctx context.Context, c Call) Fault

// KV is a faulty store. Its methods may be called concurrently where those of the
// store inside may.
type KV struct {
	inner kv.KV
	hook  Hook
}

var _ kv.KV = (*KV)(nil)

// New wraps inner. A context that ends within a delay gives kv.ErrUnavailable
// before the call and kv.ErrUnknown after it.
func New(inner kv.KV, hook Hook) *KV { return &KV{inner: inner, hook: hook} }

func (f *KV) do(ctx context.Context, c Call, call func() error) error {
	t := f.hook(ctx, c)
	if err := pause(ctx, t.Delay); err != nil {
		return fmt.Errorf("%s: %w: %w", c.Op, kv.ErrUnavailable, err)
	}
	if t.Before != nil {
		return fmt.Errorf("%s: %w", c.Op, t.Before)
	}
	if err := call(); err != nil {
		return err
	}
	if err := pause(ctx, t.DelayAfter); err != nil {
		return fmt.Errorf("%s: %w: %w", c.Op, kv.ErrUnknown, err)
	}
	if t.After != nil {
		return fmt.Errorf("%s: %w", c.Op, t.After)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Txn implements kv.KV.
func (f *KV) Txn(ctx context.Context, t kv.Txn) (r kv.TxnResult, err error) {
	err = f.do(ctx, Call{Op: OpTxn, Txn: &t}, func() (err error) {
		r, err = f.inner.Txn(ctx, t)
		return err
	})
	if err != nil {
		return kv.TxnResult{}, err
	}
	return r, nil
}

// Range implements kv.KV.
func (f *KV) Range(ctx context.Context, key, end string, o kv.RangeOptions) (r kv.RangeResult, err error) {
	err = f.do(ctx, Call{Op: OpRange, Key: key}, func() (err error) {
		r, err = f.inner.Range(ctx, key, end, o)
		return err
	})
	if err != nil {
		return kv.RangeResult{}, err
	}
	return r, nil
}

// Progress implements kv.KV.
func (f *KV) Progress(ctx context.Context) error {
	return f.do(ctx, Call{Op: OpProgress}, func() error { return f.inner.Progress(ctx) })
}

// Grant implements kv.KV.
func (f *KV) Grant(ctx context.Context, ttl time.Duration) (id kv.LeaseID, granted time.Duration, err error) {
	err = f.do(ctx, Call{Op: OpGrant}, func() (err error) {
		id, granted, err = f.inner.Grant(ctx, ttl)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return id, granted, nil
}

// KeepAlive implements kv.KV.
func (f *KV) KeepAlive(ctx context.Context, id kv.LeaseID) (ttl time.Duration, err error) {
	err = f.do(ctx, Call{Op: OpKeepAlive, Lease: id}, func() (err error) {
		ttl, err = f.inner.KeepAlive(ctx, id)
		return err
	})
	if err != nil {
		return 0, err
	}
	return ttl, nil
}

// Revoke implements kv.KV.
func (f *KV) Revoke(ctx context.Context, id kv.LeaseID) error {
	return f.do(ctx, Call{Op: OpRevoke, Lease: id}, func() error { return f.inner.Revoke(ctx, id) })
}

// Compact implements kv.KV.
func (f *KV) Compact(ctx context.Context, rev int64) error {
	return f.do(ctx, Call{Op: OpCompact}, func() error { return f.inner.Compact(ctx, rev) })
}

// Watch implements kv.KV.
func (f *KV) Watch(ctx context.Context, key, end string, from int64) (kv.Watcher, error) {
	var w kv.Watcher
	err := f.do(ctx, Call{Op: OpWatch, Key: key}, func() (err error) {
		w, err = f.inner.Watch(ctx, key, end, from)
		return err
	})
	if err != nil {
		if w != nil {
			w.Close()
		}
		return nil, err
	}
	return &watcher{f: f, key: key, inner: w}, nil
}

// watcher is a watch through the faulty store. A fault kills it, as an error of the
// store would.
type watcher struct {
	f     *KV
	key   string
	inner kv.Watcher
	err   error // why it died; Next's alone
}

// Next implements kv.Watcher.
func (w *watcher) Next(ctx context.Context) (b kv.WatchBatch, err error) {
	if w.err != nil {
		return kv.WatchBatch{}, w.err
	}
	err = w.f.do(ctx, Call{Op: OpNext, Key: w.key}, func() (err error) {
		b, err = w.inner.Next(ctx)
		return err
	})
	if err == nil {
		return b, nil
	}
	if ctx.Err() == nil || len(b.Events) > 0 {
		// Also where the context ended after a batch was taken: it would be lost.
		w.err = err
		w.inner.Close()
	}
	return kv.WatchBatch{}, err
}

// Close implements kv.Watcher.
func (w *watcher) Close() { w.inner.Close() }

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// patience is how long a call to a store that does not answer is waited for,
// where its caller would wait longer: then the connection is given up.
const patience = 6 * time.Second

// link is one node's way to the store.
type link struct {
	*faulty.KV // asks hook

	host  *host
	inner kv.KV
	// late has the transactions that are carried out after their callers were
	// told that nobody knows.
	late *background

	mu     sync.Mutex
	dead   bool
	down   chan struct{} // while the store refuses; closed when it is back
	out    chan struct{} // while no request gets through
	in     chan struct{} // while no answer gets through
	deaf   bool          // watches tell nothing any more
	faults *faults
	txn    func(*kv.Txn) faulty.Fault
}

// background is work that goes on behind the nodes.
type background struct {
	ctx context.Context // the world's lifetime
	all sync.WaitGroup
}

// faults are what goes wrong on a link, in thousandths of calls.
type faults struct {
	rng *rand.Rand // guarded by link.mu
	// refuse answers unavailable, lose answers unknown after the call was
	// carried out, vanish answers unknown and carries nothing out, late answers
	// unknown and carries it out afterwards.
	refuse, lose, vanish, late int
	// watch breaks a watch.
	watch int
	// delay is the longest delay of a call, before and after it.
	delay time.Duration
}

func newLink(inner kv.KV, h *host, late *background) *link {
	l := &link{host: h, inner: inner, late: late}
	l.KV = faulty.New(&wired{inner, l}, l.hook)
	return l
}

// hook decides what goes wrong with a call before it is sent.
func (l *link) hook(ctx context.Context, c faulty.Call) faulty.Fault {
	l.host.hold()
	if c.Op == faulty.OpNext {
		l.awaitUp(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead:
		return faulty.Fault{Before: fmt.Errorf("%w: %w", kv.ErrUnavailable, errCut)}
	case l.down != nil:
		return faulty.Fault{Delay: 200 * time.Millisecond, Before: kv.ErrUnavailable}
	case l.txn != nil && c.Op == faulty.OpTxn:
		return l.txn(c.Txn)
	case l.faults == nil:
		return faulty.Fault{}
	}
	return l.pick(c)
}

// pick is called with mu held.
func (l *link) pick(c faulty.Call) faulty.Fault {
	var t faulty.Fault
	f := l.faults
	dice := f.rng.IntN(1000)
	if c.Op == faulty.OpNext || c.Op == faulty.OpWatch {
		if dice < f.watch {
			t.Before = kv.ErrUnavailable
		}
		return t
	}
	if f.delay > 0 {
		t.Delay, t.DelayAfter = time.Duration(f.rng.Int64N(int64(f.delay))), time.Duration(f.rng.Int64N(int64(f.delay)))
	}
	switch {
	case dice < f.refuse:
		t.Before = kv.ErrUnavailable
	case dice < f.refuse+f.lose:
		t.After = kv.ErrUnknown
	case dice < f.refuse+f.lose+f.vanish:
		t.Before = kv.ErrUnknown
	case dice < f.refuse+f.lose+f.vanish+f.late && c.Op == faulty.OpTxn:
		t.Before = kv.ErrUnknown
		l.postpone(*c.Txn, time.Duration(f.rng.Int64N(int64(3*time.Second))), nil)
	}
	return t
}

// postpone carries a transaction out after d and once the way is free: it was on
// its way when its caller gave up.
func (l *link) postpone(txn kv.Txn, d time.Duration, way <-chan struct{}) {
	l.late.all.Go(func() {
		if way != nil {
			select {
			case <-way:
			case <-l.late.ctx.Done():
				return
			}
		}
		if sleep(l.late.ctx, d) {
			_, _ = l.inner.Txn(l.late.ctx, txn)
		}
	})
}

// awaitUp holds a watch up while the store is away: it tells nothing.
func (l *link) awaitUp(ctx context.Context) {
	l.mu.Lock()
	down := l.down
	if l.deaf {
		down = make(chan struct{}) // for ever
	}
	l.mu.Unlock()
	if down != nil {
		select {
		case <-down:
		case <-ctx.Done():
		}
	}
}

// cut ends the link for good.
func (l *link) cut() {
	l.setDown(false)
	l.setDeafMute(false, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

// deafen silences all watches for good.
func (l *link) deafen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

// setDown makes the store refuse, or serve again.
func (l *link) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	toggle(&l.down, down)
}

// setDeafMute keeps answers (and watches' events) or requests from getting
// through, while the other direction may be fine.
func (l *link) setDeafMute(deaf, mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	toggle(&l.in, deaf)
	toggle(&l.out, mute)
}

// toggle makes c a channel, or closes it.
func toggle(c *chan struct{}, on bool) {
	switch {
	case on && *c == nil:
		*c = make(chan struct{})
	case !on && *c != nil:
		close(*c)
		*c = nil
	}
}

// watchTxn lets f decide about each transaction.
func (l *link) watchTxn(f func(*kv.Txn) faulty.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.txn = f
}

func (l *link) setFaults(f *faults) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = f
}

func (l *link) ways() (out, in chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out, l.in
}

// pass waits until a way is free. It is free for a dead node: hook sees to those.
func pass(ctx context.Context, way <-chan struct{}, limit time.Duration) error {
	if way == nil {
		return nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-way:
		return nil
	case <-timer.C:
		return fmt.Errorf("no answer for %s: %w", limit, kv.ErrUnknown)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", kv.ErrUnknown, context.Cause(ctx))
	}
}

// wired is the store at the other end of a link that may be cut in one direction,
// as a node sees it that may be paused.
type wired struct {
	kv.KV

	link *link
}

// call carries a call over. txn is what a lost request would do later, if it is
// a transaction.
func (w *wired) call(ctx context.Context, txn *kv.Txn, do func() error) error {
	out, _ := w.link.ways()
	if err := pass(ctx, out, patience); err != nil {
		if txn != nil && rand.N(2) == 0 {
			w.link.postpone(*txn, 0, out)
		}
		return err
	}
	err := do()
	_, in := w.link.ways()
	if lost := pass(ctx, in, patience); lost != nil {
		err = lost
	}
	w.link.host.hold()
	return err
}

// Txn implements kv.KV.
func (w *wired) Txn(ctx context.Context, t kv.Txn) (r kv.TxnResult, err error) {
	err = w.call(ctx, &t, func() (err error) {
		r, err = w.KV.Txn(ctx, t)
		return err
	})
	return r, err
}

// Range implements kv.KV.
func (w *wired) Range(ctx context.Context, key, end string, o kv.RangeOptions) (r kv.RangeResult, err error) {
	err = w.call(ctx, nil, func() (err error) {
		r, err = w.KV.Range(ctx, key, end, o)
		return err
	})
	return r, err
}

// Progress implements kv.KV.
func (w *wired) Progress(ctx context.Context) error {
	return w.call(ctx, nil, func() error { return w.KV.Progress(ctx) })
}

// Grant implements kv.KV.
func (w *wired) Grant(ctx context.Context, ttl time.Duration) (id kv.LeaseID, granted time.Duration, err error) {
	err = w.call(ctx, nil, func() (err error) {
		id, granted, err = w.KV.Grant(ctx, ttl)
		return err
	})
	return id, granted, err
}

// KeepAlive implements kv.KV.
func (w *wired) KeepAlive(ctx context.Context, id kv.LeaseID) (ttl time.Duration, err error) {
	err = w.call(ctx, nil, func() (err error) {
		ttl, err = w.KV.KeepAlive(ctx, id)
		return err
	})
	return ttl, err
}

// Revoke implements kv.KV.
func (w *wired) Revoke(ctx context.Context, id kv.LeaseID) error {
	return w.call(ctx, nil, func() error { return w.KV.Revoke(ctx, id) })
}

// Watch implements kv.KV.
func (w *wired) Watch(ctx context.Context, key, end string, from int64) (kv.Watcher, error) {
	var inner kv.Watcher
	err := w.call(ctx, nil, func() (err error) {
		inner, err = w.KV.Watch(ctx, key, end, from)
		return err
	})
	if err != nil {
		if inner != nil {
			inner.Close()
		}
		return nil, err
	}
	return &wiredWatcher{inner, w.link}, nil
}

// wiredWatcher tells nothing while no answer gets through.
type wiredWatcher struct {
	kv.Watcher

	link *link
}

// Next implements kv.Watcher.
func (w *wiredWatcher) Next(ctx context.Context) (kv.WatchBatch, error) {
	b, err := w.Watcher.Next(ctx)
	for err == nil {
		_, in := w.link.ways()
		if in == nil {
			break
		}
		select {
		case <-in:
		case <-ctx.Done():
			err = fmt.Errorf("watch: %w", context.Cause(ctx))
		}
	}
	w.link.host.hold()
	return b, err
}

func leaseOf(c *control) kv.LeaseID { return kv.LeaseID(c.lease.Load()) }

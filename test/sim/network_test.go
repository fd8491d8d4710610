package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// link is one node's way to the store.
type link struct {
	kv *faulty.KV

	mu     sync.Mutex
	dead   bool
	down   chan struct{} // while the store is unreachable; closed when it is back
	deaf   bool          // watches tell nothing any more
	faults *faults
	txn    func(*kv.Txn) faulty.Fault
}

// faults are what goes wrong on a link, in thousandths of calls.
type faults struct {
	rng *rand.Rand // guarded by link.mu
	// refuse answers unavailable, lose answers unknown after the call was
	// carried out, vanish answers unknown and carries nothing out.
	refuse, lose, vanish int
	// watch breaks a watch.
	watch int
	// delay is the longest delay of a call, before and after it.
	delay time.Duration
}

var errCut = errors.New("the node is dead")

func newLink(inner kv.KV) *link {
	l := &link{}
	l.kv = faulty.New(inner, l.hook)
	return l
}

func (l *link) hook(ctx context.Context, c faulty.Call) faulty.Fault {
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
	return l.faults.pick(c.Op)
}

func (f *faults) pick(op faulty.Op) faulty.Fault {
	var t faulty.Fault
	dice := f.rng.IntN(1000)
	if op == faulty.OpNext || op == faulty.OpWatch {
		if dice < f.watch {
			t.Before = kv.ErrUnavailable
		}
		return t
	}
	if f.delay > 0 {
		t.Delay, t.DelayAfter = rand.N(f.delay), rand.N(f.delay)
	}
	switch {
	case dice < f.refuse:
		t.Before = kv.ErrUnavailable
	case dice < f.refuse+f.lose:
		t.After = kv.ErrUnknown
	case dice < f.refuse+f.lose+f.vanish:
		t.Before = kv.ErrUnknown
	}
	return t
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	if l.down != nil {
		close(l.down)
		l.down = nil
	}
}

// deafen silences all watches for good.
func (l *link) deafen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

// setDown makes the store unreachable, or reachable again.
func (l *link) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case down && l.down == nil:
		l.down = make(chan struct{})
	case !down && l.down != nil:
		close(l.down)
		l.down = nil
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

// network joins executors with control nodes.
type network struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
}

func newNetwork() *network { return &network{listeners: map[string]*bufconn.Listener{}} }

func (n *network) listen(name string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := bufconn.Listen(1 << 20)
	n.listeners[name] = l
	return l
}

func (n *network) unlisten(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.listeners[name]; l != nil {
		_ = l.Close()
		delete(n.listeners, name)
	}
}

// wire is one node's way to the others.
type wire struct {
	net *network

	mu     sync.Mutex
	dead   bool
	frozen chan struct{} // closed when it thaws; nil: not frozen
	conns  map[*wireConn]struct{}
}

func newWire(n *network) *wire { return &wire{net: n, conns: map[*wireConn]struct{}{}} }

// dial is executor.Dial.
func (w *wire) dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return w.connect(ctx, address) }))
}

func (w *wire) connect(ctx context.Context, address string) (net.Conn, error) {
	w.net.mu.Lock()
	l := w.net.listeners[address]
	w.net.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nobody listens at %s", address)
	}
	inner, err := l.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		_ = inner.Close()
		return nil, errCut
	}
	c := &wireConn{Conn: inner, wire: w, closed: make(chan struct{})}
	w.conns[c] = struct{}{}
	return c, nil
}

// cut breaks all connections; with dead there are no further ones.
func (w *wire) cut(dead bool) {
	w.mu.Lock()
	w.dead = w.dead || dead
	conns := w.conns
	w.conns = map[*wireConn]struct{}{}
	w.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

// freeze holds up whatever comes in and goes out, until thaw.
func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen == nil {
		w.frozen = make(chan struct{})
	}
}

func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen != nil {
		close(w.frozen)
		w.frozen = nil
	}
}

type wireConn struct {
	net.Conn
	wire   *wire
	once   sync.Once
	closed chan struct{}
}

func (c *wireConn) pass() error {
	c.wire.mu.Lock()
	frozen := c.wire.frozen
	c.wire.mu.Unlock()
	if frozen == nil {
		return nil
	}
	select {
	case <-frozen:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

func (c *wireConn) Read(p []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if err == nil {
		// What arrives while the wire is frozen arrives when it thaws.
		err = c.pass()
	}
	return n, err
}

func (c *wireConn) Write(p []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *wireConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.wire.mu.Lock()
		delete(c.wire.conns, c)
		c.wire.mu.Unlock()
	})
	return c.Conn.Close()
}

var rangeAll = kv.RangeOptions{KeysOnly: true}

func leaseOf(c *control) kv.LeaseID { return kv.LeaseID(c.lease.Load()) }

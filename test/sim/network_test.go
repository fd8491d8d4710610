package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

var errCut = errors.New("the node is dead")

// network joins executors with control nodes. A connection is two flows, one in
// each direction, that lose nothing and keep its order, as TCP does: what cannot
// get through now gets through later, or breaks the connection.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	// blocked are directions between two nodes in which nothing gets through.
	blocked map[[2]string]bool
	// turn is closed and made anew when what gets through has changed.
	turn    chan struct{}
	latency time.Duration // of each piece of a flow, at most
}

func newNetwork() *network {
	return &network{listeners: map[string]*listener{}, blocked: map[[2]string]bool{}, turn: make(chan struct{})}
}

// changed has all flows look anew at what gets through.
func (n *network) changed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.turn)
	n.turn = make(chan struct{})
}

// anybody stands for all hosts.
const anybody = "*"

// block stops what from sends to, or lets it through again.
func (n *network) block(from, to string, on bool) {
	n.mu.Lock()
	if on {
		n.blocked[[2]string{from, to}] = true
	} else {
		delete(n.blocked, [2]string{from, to})
	}
	n.mu.Unlock()
	n.changed()
}

func (n *network) setLatency(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency = d
}

// open tells whether something gets from one host to another now; if not, turn
// is closed when that may have changed.
func (n *network) open(from, to *host) (open bool, turn <-chan struct{}) {
	n.mu.Lock()
	blocked := len(n.blocked) > 0 && (n.blocked[[2]string{from.name, to.name}] ||
		n.blocked[[2]string{from.name, anybody}] || n.blocked[[2]string{anybody, to.name}])
	turn = n.turn
	n.mu.Unlock()
	return !blocked && !from.still() && !to.still(), turn
}

// await blocks until something gets from one host to another.
func (n *network) await(ctx context.Context, from, to *host) error {
	for {
		open, turn := n.open(from, to)
		if open {
			return nil
		}
		select {
		case <-turn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// listener takes a control node's connections.
type listener struct {
	net    *network
	host   *host
	queue  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (n *network) listen(h *host) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{net: n, host: h, queue: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[h.name] = l
	return l
}

func (n *network) unlisten(name string) {
	n.mu.Lock()
	l := n.listeners[name]
	delete(n.listeners, name)
	n.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address(l.host.name) }

type address string

// Network implements net.Addr.
func (address) Network() string { return "sim" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

// window is fixed: a connection that estimates what it needs asks after each message
// how long that took.
const window = 1 << 20

// wire is one node's way to the others.
type wire struct {
	host *host
	net  *network

	mu    sync.Mutex
	dead  bool
	conns []*conn
}

func newWire(h *host) *wire { return &wire{host: h, net: h.net} }

// dial is executor.Dial.
func (w *wire) dial(to string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+to,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return w.connect(ctx, to) }))
}

func (w *wire) connect(ctx context.Context, to string) (net.Conn, error) {
	w.net.mu.Lock()
	l := w.net.listeners[to]
	w.net.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nobody listens at %s", to)
	}
	if err := errors.Join(w.net.await(ctx, w.host, l.host), w.net.await(ctx, l.host, w.host)); err != nil {
		return nil, err
	}
	there, back := newFlow(w.host, l.host), newFlow(l.host, w.host)
	mine, theirs := &conn{out: there, in: back}, &conn{out: back, in: there}
	w.mu.Lock()
	if w.dead {
		w.mu.Unlock()
		return nil, errCut
	}
	w.conns = append(w.conns, mine)
	w.mu.Unlock()
	select {
	case l.queue <- theirs:
		return mine, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// cut breaks all connections; what is under way is lost. With dead there are no
// further ones.
func (w *wire) cut(dead bool) {
	w.mu.Lock()
	w.dead = w.dead || dead
	conns := w.conns
	w.conns = nil
	w.mu.Unlock()
	for _, c := range conns {
		c.out.reset()
		c.in.reset()
	}
}

// freeze holds up whatever comes in and goes out, until thaw.
func (w *wire) freeze() {
	w.net.block(w.host.name, anybody, true)
	w.net.block(anybody, w.host.name, true)
}

func (w *wire) thaw() {
	w.net.block(w.host.name, anybody, false)
	w.net.block(anybody, w.host.name, false)
}

// conn is one end of a connection.
type conn struct{ in, out *flow }

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) { return c.in.read(p) }

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.out.finish()
	c.in.abandon()
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address(c.out.from.name) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address(c.out.to.name) }

// SetDeadline implements net.Conn, for reads.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.deadline = t })
	return nil
}

// SetWriteDeadline implements net.Conn. It is not kept: a write waits for room
// only.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

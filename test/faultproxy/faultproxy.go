// Package faultproxy is a TCP proxy that breaks the network between two parties
// of a test on demand: it cuts connections, holds back the bytes of one or both
// directions, delays them, and slows them down.
//
// It never loses, changes or reorders a byte of a connection that lives on, as
// TCP does not either: what was held flows on after Heal.
package faultproxy

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// Direction is a set of the two ways through a proxy.
type Direction uint8

const (
	// Up is from the client to the target.
	Up Direction = 1 << iota
	// Down is from the target to the client.
	Down
	// Both is Up and Down.
	Both = Up | Down
)

// dialTimeout bounds the proxy's own connecting to the target.
const dialTimeout = 5 * time.Second

// Proxy listens on a loopback port and forwards to a target. Its methods are safe
// for concurrent use and, Close apart, do not block. They hold for connections
// that exist and for those to come.
type Proxy struct {
	target   string
	listener net.Listener

	mu      sync.Mutex
	faults  faults
	changed chan struct{} // closed at each change of faults
	links   map[*link]struct{}
	closed  bool

	wg sync.WaitGroup
}

// faults is what a proxy does to its connections.
type faults struct {
	cut       bool
	held      Direction
	up, down  time.Duration
	rate      [2]int // bytes a second, up and down; 0 is no limit
	connected int    // accepted so far, for Accepted
}

func (f faults) delay(d Direction) time.Duration {
	if d == Up {
		return f.up
	}
	return f.down
}

func (f faults) limit(d Direction) int {
	if d == Up {
		return f.rate[0]
	}
	return f.rate[1]
}

// Listen starts a proxy to the target, a host:port or a URL with them. It dials
// the target anew for every connection, so that may come and go.
func Listen(target string) (*Proxy, error) {
	if strings.Contains(target, "://") {
		u, err := url.Parse(target)
		if err != nil {
			return nil, fmt.Errorf("parse target: %w", err)
		}
		target = u.Host
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", target, err)
	}
	p := &Proxy{
		target:   target,
		listener: l,
		changed:  make(chan struct{}),
		links:    map[*link]struct{}{},
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Start is Listen for a test: it fails the test on error and closes the proxy in
// its cleanup.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := Listen(target)
	if err != nil {
		t.Fatalf("start fault proxy: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// Addr is the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Accepted counts the connections accepted and not cut at once.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults.connected
}

// Cut resets all connections, and every new one as soon as it is made, until
// Heal.
func (p *Proxy) Cut() {
	p.set(func(f *faults) { f.cut = true })
	p.Reset()
}

// Reset resets all connections once; new ones work.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Blackhole holds back all bytes of the given directions until Heal, as a network
// does that drops packets: connections stay open, can be made, and are silent.
// With one direction they are half open. Of the other direction nothing changes.
func (p *Proxy) Blackhole(d Direction) { p.set(func(f *faults) { f.held |= d }) }

// Delay makes every byte of the given directions take d longer. It does not slow
// down their rate. Heal does not end it; a Delay of zero does.
func (p *Proxy) Delay(dir Direction, d time.Duration) {
	p.set(func(f *faults) {
		if dir&Up != 0 {
			f.up = d
		}
		if dir&Down != 0 {
			f.down = d
		}
	})
}

// Throttle lets no more than so many bytes a second through each connection in
// each of the given directions; 0 is no limit. What does not get through yet is
// kept, up to some megabytes a connection; from there on the sender is held up.
// Heal does not end it; a Throttle of zero does.
func (p *Proxy) Throttle(dir Direction, bytesPerSecond int) {
	p.set(func(f *faults) {
		if dir&Up != 0 {
			f.rate[0] = bytesPerSecond
		}
		if dir&Down != 0 {
			f.rate[1] = bytesPerSecond
		}
	})
}

// Heal ends Cut and Blackhole. Held bytes flow on.
func (p *Proxy) Heal() {
	p.set(func(f *faults) { f.cut, f.held = false, 0 })
}

// Close resets all connections, stops listening, and waits for the proxy's
// goroutines. Closing twice does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close() // a second close is the only error
	p.Reset()
	p.wg.Wait()
}

func (p *Proxy) set(change func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) get() (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{client: client, done: make(chan struct{})}
	if !p.admit(l) {
		l.reset()
		return
	}
	defer p.forget(l)
	// Where the target is away the client learns it as a reset.
	server, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil || !l.attach(server) {
		l.reset()
		if server != nil {
			_ = server.Close() // nothing was sent on it
		}
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { p.forward(l, Up, client, server) })
	ways.Go(func() { p.forward(l, Down, server, client) })
	ways.Wait()
	l.reset()
}

func (p *Proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.faults.cut {
		return false
	}
	p.faults.connected++
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

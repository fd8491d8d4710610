package faultproxy

import (
	"net"
	"sync"
	"time"
)

const (
	chunkSize = 32 << 10
	// inFlight bounds the chunks of one way that are under way while delayed.
	inFlight = 256
)

// link is one client's connection and the one to the target that belongs to it.
type link struct {
	client net.Conn

	mu     sync.Mutex
	server net.Conn // nil until dialled
	over   bool
	done   chan struct{} // closed by reset
}

// attach adds the connection to the target; false when the link is over.
func (l *link) attach(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.server = server
	return true
}

// reset closes both ends with a TCP reset.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.over = true
	close(l.done)
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			// Both fail only on a connection that is closed already.
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
	}
}

type chunk struct {
	data []byte
	read time.Time
}

// forward copies one way until its source ends or the link is over, and then
// passes the end on.
func (p *Proxy) forward(l *link, way Direction, from, to net.Conn) {
	chunks := make(chan chunk, inFlight)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		defer close(chunks)
		for {
			buf := make([]byte, chunkSize)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case chunks <- chunk{data: buf[:n], read: time.Now()}:
				case <-l.done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for c := range chunks {
		if !p.pass(l, way, c.read) || !p.write(l, way, to, c.data) {
			l.reset()
			return
		}
	}
	if !p.pass(l, way, time.Now()) {
		return
	}
	if tcp, ok := to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // fails only where the other side is gone too
	}
}

// paces is how many pieces a second a throttled way is cut into.
const paces = 20

// write writes data as fast as the way allows; false when the link is over.
func (p *Proxy) write(l *link, way Direction, to net.Conn, data []byte) bool {
	for len(data) > 0 {
		piece := data
		f, changed := p.get()
		if rate := f.limit(way); rate > 0 {
			piece = data[:min(len(data), max(1, rate/paces))]
			select {
			case <-time.After(time.Duration(len(piece)) * time.Second / time.Duration(rate)):
			case <-changed:
				continue
			case <-l.done:
				return false
			}
		}
		if _, err := to.Write(piece); err != nil {
			return false
		}
		data = data[len(piece):]
	}
	return true
}

// pass blocks until a chunk read at the given instant may go on; false when the
// link is over.
func (p *Proxy) pass(l *link, way Direction, read time.Time) bool {
	for {
		f, changed := p.get()
		var due <-chan time.Time
		if f.held&way == 0 {
			left := time.Until(read.Add(f.delay(way)))
			if left <= 0 {
				return true
			}
			due = time.After(left)
		}
		select {
		case <-due:
		case <-changed:
		case <-l.done:
			return false
		}
	}
}

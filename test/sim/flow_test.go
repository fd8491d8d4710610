package sim

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// maxFlow is how many bytes may be on their way before a writer waits.
const maxFlow = 1 << 18

// flow is one direction of a connection.
type flow struct {
	from, to *host
	net      *network

	mu     sync.Mutex
	pieces []piece
	size   int
	last   time.Time // when the newest piece arrives
	// deadline is the reader's, zero for none.
	deadline time.Time
	err      error         // of reads behind the last piece; io.EOF once finished
	broken   error         // of writes, and of reads at once
	news     chan struct{} // closed and made anew at every change
}

type piece struct {
	data []byte
	at   time.Time
}

func newFlow(from, to *host) *flow {
	return &flow{from: from, to: to, net: from.net, news: make(chan struct{})}
}

// change applies do and wakes whoever waits.
func (f *flow) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.news)
	f.news = make(chan struct{})
}

func (f *flow) finish() {
	f.change(func() {
		if f.err == nil {
			f.err = io.EOF
		}
	})
}

func (f *flow) abandon() {
	f.change(func() {
		if f.broken == nil {
			f.broken = net.ErrClosed
		}
	})
}

func (f *flow) reset() {
	f.change(func() {
		if f.broken == nil {
			f.broken = errors.New("connection reset")
		}
	})
}

func (f *flow) write(p []byte) (int, error) {
	f.net.mu.Lock()
	latency := f.net.latency
	f.net.mu.Unlock()
	for {
		f.mu.Lock()
		news := f.news
		switch {
		case f.broken != nil:
			err := f.broken
			f.mu.Unlock()
			return 0, err
		case f.err != nil:
			f.mu.Unlock()
			return 0, net.ErrClosed
		case f.size < maxFlow:
			f.mu.Unlock()
			f.change(func() {
				at := time.Now()
				if latency > 0 {
					at = at.Add(rand.N(latency))
				}
				if at.Before(f.last) {
					at = f.last
				}
				f.last = at
				f.pieces = append(f.pieces, piece{append([]byte(nil), p...), at})
				f.size += len(p)
			})
			return len(p), nil
		}
		f.mu.Unlock()
		<-news
	}
}

func (f *flow) read(p []byte) (int, error) {
	for {
		open, turn := f.net.open(f.from, f.to)
		f.mu.Lock()
		news := f.news
		var wait time.Duration
		switch {
		case f.broken != nil:
			err := f.broken
			f.mu.Unlock()
			return 0, err
		case open && len(f.pieces) > 0:
			first := &f.pieces[0]
			if wait = time.Until(first.at); wait > 0 {
				break
			}
			n := copy(p, first.data)
			if first.data = first.data[n:]; len(first.data) == 0 {
				f.pieces[0] = piece{}
				f.pieces = f.pieces[1:]
			}
			full := f.size >= maxFlow
			f.size -= n
			f.mu.Unlock()
			if full {
				f.change(func() {})
			}
			return n, nil
		case open && f.err != nil:
			err := f.err
			f.mu.Unlock()
			return 0, err
		}
		if !f.deadline.IsZero() {
			left := time.Until(f.deadline)
			if left <= 0 {
				f.mu.Unlock()
				return 0, os.ErrDeadlineExceeded
			}
			if wait <= 0 || left < wait {
				wait = left
			}
		}
		f.mu.Unlock()
		f.sleep(wait, news, turn)
	}
}

// sleep waits for the next piece, or for news.
func (f *flow) sleep(d time.Duration, news, turn <-chan struct{}) {
	var arrives <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		arrives = timer.C
	}
	select {
	case <-arrives:
	case <-news:
	case <-turn:
	}
}

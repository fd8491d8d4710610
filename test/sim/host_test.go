package sim

import (
	"sync"
	"sync/atomic"
	"time"
)

// host is what a node runs on: its clock, and whether it runs at all.
type host struct {
	name   string
	net    *network
	offset atomic.Int64 // of its wall clock to the bubble's, in nanoseconds

	mu     sync.Mutex
	dead   bool
	paused chan struct{} // closed when it goes on; nil: it runs
}

// wall is the host's wall clock.
func (h *host) wall() time.Time { return time.Now().Add(h.skew()) }

func (h *host) skew() time.Duration { return time.Duration(h.offset.Load()) }

// set sets the host's clock, as an administrator or a time service does.
func (h *host) set(skew time.Duration) { h.offset.Store(int64(skew)) }

// pause stops the node's process: until resume nothing that it sends gets away,
// nothing that comes is received, and no work starts. That is all that others
// can see of it. What it does within itself meanwhile it could as well have done
// in the first instant after resume.
func (h *host) pause() {
	h.mu.Lock()
	if h.paused == nil && !h.dead {
		h.paused = make(chan struct{})
	}
	h.mu.Unlock()
	h.net.changed()
}

func (h *host) resume() {
	h.mu.Lock()
	if h.paused != nil {
		close(h.paused)
		h.paused = nil
	}
	h.mu.Unlock()
	h.net.changed()
}

// die ends the host for good. What waits for it to go on does.
func (h *host) die() {
	h.mu.Lock()
	h.dead = true
	h.mu.Unlock()
	h.resume()
}

// still tells whether nothing gets in or out.
func (h *host) still() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.paused != nil || h.dead
}

func (h *host) isDead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

// hold blocks while the host is paused. A process that stands still sees no
// context end, so none is taken.
func (h *host) hold() {
	for {
		h.mu.Lock()
		paused := h.paused
		h.mu.Unlock()
		if paused == nil {
			return
		}
		<-paused
	}
}

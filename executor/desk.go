package executor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderd/leaderd/executor/output"
	"github.com/leaderd/leaderd/executor/unclaimed"
	"github.com/leaderd/leaderd/internal/fair"
	"github.com/leaderd/leaderd/internal/minheap"
	"github.com/leaderd/leaderd/state"
)

const (
	// maxClaims is how many claims may be under way.
	maxClaims = 4096
	// maxFinishing is how many runs may wait for their verdict to be stored
	// beside those that count as running.
	maxFinishing = 4096
	// maxFull is how many entries that found no room are kept.
	maxFull = 1 << 16
	// busyAfter is how late an entry without room is reported.
	busyAfter = int64(100 * time.Millisecond)
	// remember is for how long what is over is known, and maxPast how much of it.
	remember = int64(time.Minute)
	maxPast  = 1 << 17
	// tick is how often the wall clock is looked at, at least.
	tick = time.Second
	// offerPart is how many entries are taken in, and claimPart how many claims
	// begin, under one hold of the mutex.
	offerPart = 256
	claimPart = 256
)

// desk is all that belongs to one registration: its queue, its runs, and what it
// remembers.
type desk struct {
	owner    state.Owner
	capacity int
	journal  Journal
	runner   Runner
	clock    func() time.Time // the wall clock
	born     time.Time        // where steady begins
	output   *output.Ring
	// unclaimed has what began without a claim before this registration; it may be nil.
	unclaimed *unclaimed.Runs
	log       *diary
	metrics   *metrics
	// fence ends the registration's work.
	fence context.CancelCauseFunc
	// trusted tells whether the registration is believed in now.
	trusted func() bool
	// kill, when closed, cuts short the grace of work that is being stopped.
	kill chan struct{}
	// work is what runs' work is done under, and final what their ends are stored under,
	// which may take longer.
	work, final context.Context //nolint:containedctx // of all runs: two for each would cost more
	// hooking has as many as hooks that run.
	hooking chan struct{}
	// strays counts the runs that earlier registrations left behind.
	strays *atomic.Int64

	starts starts

	wake   chan struct{} // of one: the pace has to look again
	handed chan struct{} // of one: a run was handed back in a drain
	idle   chan struct{} // closed once the desk is closed and no run is left, nor any hook

	mu      sync.Mutex
	closed  bool // takes nothing more, begins nothing more
	left    bool // its runs count as strays
	session *session
	entries map[key]*entry
	ahead   minheap.Heap[*entry]            // by due; claimed a lead before
	later   minheap.Heap[*entry]            // by when they are to be claimed again
	line    fair.Queue[state.JobID, waiter] // what found no room, or may find none
	turns   uint64                          // how often something began to stand there
	waiters []waiter                        // the same in the order in which they came, some of them void
	told    int                             // of how many of those the leader knows
	past    fifo[*entry]
	due     dues // of those in ahead
	lead    lead
	gates   claimGates
	parked  map[string][]*entry // what waits for other runs, by spec.scope
	claims  int                 // under way
	taken   int                 // of the capacity
	// spare is what is left of the resources; lanes is what entries in the line need.
	spare state.Resources
	lanes map[string]state.Resources
	held  int // runs from the begin of their claim until their end is stored
	hooks int // runs after that whose hooks are not over
	// toldStuck is when the leader was told last that claims without an answer take
	// the room, by the steady clock.
	toldStuck int64
	starving  bool // something waits for one of these three to sink
}

// newDesk makes a registration's desk, whose runs' work is done under work, and whose
// runs' ends are stored under final.
func newDesk(work, final context.Context, x *Executor, owner state.Owner, fence context.CancelCauseFunc) *desk {
	return &desk{
		owner:    owner,
		capacity: x.cfg.Node.Capacity,
		journal:  x.journal,
		runner:   x.runner,
		clock:    x.cfg.Wall,
		born:     time.Now(),
		output:   x.cfg.Output,

		unclaimed: x.cfg.Unclaimed,

		log:     x.log,
		metrics: x.metrics,
		fence:   fence,
		trusted: func() bool { return !errors.Is(context.Cause(work), ErrFenced) && x.registrar.Trusted(owner) },
		kill:    make(chan struct{}),
		work:    work,
		final:   final,
		hooking: make(chan struct{}, maxHooks),
		strays:  &x.strays,
		starts:  starts{wall: func() int64 { return x.cfg.Wall().UnixNano() }, wake: make(chan struct{}, 1)},
		wake:    make(chan struct{}, 1),
		handed:  make(chan struct{}, 1),
		idle:    make(chan struct{}),
		entries: make(map[key]*entry),
		due:     make(dues),
		gates:   make(claimGates),
		parked:  make(map[string][]*entry),
		spare:   spareOf(x.cfg.Node.Resources),
		lanes:   make(map[string]state.Resources),
		lead:    newLead(),
	}
}

// wall is this node's wall clock in nanoseconds since 1970.
func (d *desk) wall() int64 { return d.clock().UnixNano() }

// steady is a clock that nobody sets, in nanoseconds; it is never 0.
func (d *desk) steady() int64 { return 1 + int64(time.Since(d.born)) }

// close drops the queue and begins no more claims. Runs go on.
func (d *desk) close() (dropped, running int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for k, e := range d.entries {
		switch e.place {
		case ahead, later, full, behind:
			d.unqueue(e)
			delete(d.entries, k)
			dropped++
		case nowhere, claiming, claimed, over:
		}
	}
	d.ahead, d.later, d.line = minheap.Heap[*entry]{}, minheap.Heap[*entry]{}, fair.Queue[state.JobID, waiter]{}
	d.waiters, d.told = nil, 0
	if d.held+d.hooks == 0 {
		close(d.idle)
	}
	return dropped, d.held
}

// leave counts a run that is gone.
func (d *desk) leave(r *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held--
	d.release(r)
	if d.left {
		d.strays.Add(-1)
	}
	d.gone()
}

// gone follows the end of a run, or of its hooks.
func (d *desk) gone() {
	if d.closed && d.held+d.hooks == 0 {
		close(d.idle)
	}
}

// release gives a run's part of the capacity back, once.
func (d *desk) release(r *run) {
	if !r.released {
		r.released = true
		d.taken--
		d.giveResources(r)
	}
	if d.starving {
		signal(d.wake)
	}
}

// abandon leaves the runs that did not end to themselves, and counts them.
func (d *desk) abandon() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = true
	d.strays.Add(int64(d.held)) // hooks take no part of the capacity
	return d.held + d.hooks
}

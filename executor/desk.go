package executor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/leaderd/leaderd/executor/output"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
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
	// gatePause is how long an entry of an exclusive job waits while another claim
	// of the job is under way.
	gatePause = int64(10 * time.Millisecond)
	// offerPart is how many entries are taken in under one hold of the mutex.
	offerPart = 256
)

// desk is all that belongs to one registration: its queue, its runs, and what it
// remembers.
type desk struct {
	owner    state.Owner
	capacity int
	journal  Journal
	runner   Runner
	clock    func() time.Time // the wall clock
	output   *output.Ring
	log      hclog.Logger
	metrics  *metrics
	// fence ends the registration's work.
	fence context.CancelCauseFunc
	// trusted tells whether the registration is believed in now.
	trusted func() bool
	// kill, when closed, cuts short the grace of work that is being stopped.
	kill chan struct{}
	// strays counts the runs that earlier registrations left behind.
	strays *atomic.Int64

	wake chan struct{} // of one: the pace has to look again
	idle chan struct{} // closed once the desk is closed and no run is left

	mu      sync.Mutex
	closed  bool // takes nothing more, begins nothing more
	left    bool // its runs count as strays
	session *session
	entries map[key]*entry
	ahead   heap // by due; claimed a lead before
	later   heap // by when they are to be claimed again
	full    fifo[*entry]
	past    fifo[*entry]
	due     dues // of those in ahead
	lead    lead
	// gates are the exclusive jobs of which a claim is under way. A second one
	// would only be refused for the first one's sake, and hold capacity meanwhile.
	gates    map[state.JobID]struct{}
	claims   int  // under way
	taken    int  // of the capacity
	held     int  // goroutines of runs
	starving bool // something waits for one of these three to sink
}

func newDesk(x *Executor, owner state.Owner, fence context.CancelCauseFunc) *desk {
	return &desk{
		owner:    owner,
		capacity: x.cfg.Node.Capacity,
		journal:  x.journal,
		runner:   x.runner,
		clock:    x.cfg.Wall,
		output:   x.cfg.Output,
		log:      x.log,
		metrics:  x.metrics,
		fence:    fence,
		trusted:  func() bool { return x.registrar.Trusted(owner) },
		kill:     make(chan struct{}),
		strays:   &x.strays,
		wake:     make(chan struct{}, 1),
		idle:     make(chan struct{}),
		entries:  make(map[key]*entry),
		due:      make(dues),
		gates:    make(map[state.JobID]struct{}),
		lead:     newLead(),
	}
}

// wall is this node's wall clock in nanoseconds since 1970.
func (d *desk) wall() int64 { return d.clock().UnixNano() }

// pace begins claims when it is time for them, until ctx ends. Runs go on under
// work, and may try to have their end stored until final ends.
func (d *desk) pace(ctx, work, final context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	window, end := claimWindows(work)
	defer end()
	for {
		select {
		case <-ctx.Done():
			// Claims under way go on under work.
			d.finishClaims(work)
			return
		case <-d.wake:
		case <-timer.C:
		}
		now, claims := d.wall(), window()
		next := d.dispatch(now, func(r *run) { go d.execute(work, claims, final, r) })
		timer.Reset(min(max(time.Duration(next-now), 0), tick))
	}
}

// claimWindows makes the contexts of claims. All claims of a while share one,
// which ends at least claimWindow after the last of them began; one each would
// cost every run a timer.
func claimWindows(work context.Context) (window func() context.Context, end func()) {
	var (
		opened  time.Time
		ctx     context.Context
		cancel  context.CancelFunc = func() {}
		earlier                    = cancel
	)
	window = func() context.Context {
		if ctx == nil || time.Since(opened) > claimWindow {
			earlier()
			earlier = cancel
			opened = time.Now()
			ctx, cancel = context.WithTimeout(work, 2*claimWindow) //nolint:fatcontext // a child of work, not of the last one
		}
		return ctx
	}
	end = func() {
		earlier()
		cancel()
	}
	return window, end
}

// finishClaims waits for the claims under way, or for work's end.
func (d *desk) finishClaims(work context.Context) {
	for {
		d.mu.Lock()
		n := d.claims
		d.starving = true
		d.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-d.wake:
		case <-work.Done():
			return
		}
	}
}

// dispatch begins the claims that are to begin by now, in the order in which
// their entries are due, and answers when to look again.
func (d *desk) dispatch(now int64, begin func(*run)) (next int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(now)
	next = now + int64(tick)
	if d.closed {
		return next
	}
	lead := int64(d.lead.value(d.due.within(now + int64(maxLead))))
	d.metrics.lead.Set(time.Duration(lead).Seconds())
	for d.room() {
		e := d.pick(now, lead)
		if e == nil {
			d.starving = false
			if len(d.ahead) > 0 {
				next = min(next, d.ahead[0].at-lead)
			}
			if len(d.later) > 0 {
				next = min(next, d.later[0].at)
			}
			return next
		}
		begin(d.begin(e, now))
	}
	d.starving = true
	d.overflow(&d.ahead, ahead, now)
	d.overflow(&d.later, later, now)
	for _, h := range []heap{d.ahead, d.later} {
		if len(h) > 0 {
			next = min(next, h[0].at+busyAfter)
		}
	}
	return next
}

// room tells whether one more claim may begin.
func (d *desk) room() bool {
	return d.claims < maxClaims && d.taken+int(d.strays.Load()) < d.capacity && d.held < d.capacity+maxFinishing
}

// free is how many more claims may begin.
func (d *desk) free() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0
	}
	return max(0, d.capacity-d.taken-int(d.strays.Load()))
}

// pick removes from the queue the next entry whose claim is to begin by now.
func (d *desk) pick(now, lead int64) *entry {
	for {
		var e *entry
		switch {
		case d.full.len() > 0:
			e = d.full.pop()
			if e.place != full {
				continue
			}
		case prune(&d.later, later) && d.later[0].at <= now &&
			(!prune(&d.ahead, ahead) || d.later[0].e.plan.due <= d.ahead[0].at):
			e = d.later.pop().e
		case prune(&d.ahead, ahead) && d.ahead[0].at-lead <= now:
			e = d.ahead.pop().e
		default:
			return nil
		}
		d.unqueue(e)
		if e.expired(now) {
			delete(d.entries, e.key)
			continue
		}
		if _, claiming := d.gates[e.key.job]; claiming && e.plan.gated() {
			d.enqueue(e, later, now+gatePause)
			continue
		}
		return e
	}
}

// prune removes void items from the front; false if nothing is left.
func prune(h *heap, in place) bool {
	for len(*h) > 0 {
		if (*h)[0].valid(in) {
			return true
		}
		h.pop()
	}
	return false
}

// enqueue puts an entry that is nowhere into a heap.
func (d *desk) enqueue(e *entry, in place, at int64) {
	e.place, e.at = in, at
	if in == ahead {
		d.ahead.push(item{at, e})
		d.due.add(at)
	} else {
		d.later.push(item{at, e})
	}
	d.metrics.queued.Inc()
}

// unqueue marks an entry of the queue as nowhere. Its item may stay, and is void.
func (d *desk) unqueue(e *entry) {
	if e.place == ahead {
		d.due.remove(e.at)
	}
	e.place = nowhere
	d.metrics.queued.Dec()
}

// overflow takes those that have been due for a while, and found no room, out of
// a heap. The leader is told once, so that it gives them to others too.
func (d *desk) overflow(h *heap, in place, now int64) {
	for prune(h, in) && (*h)[0].at+busyAfter <= now {
		e := h.pop().e
		if e.expired(now) {
			d.unqueue(e)
			delete(d.entries, e.key)
			continue
		}
		if in == ahead {
			d.due.remove(e.at)
		}
		e.place = full
		d.full.push(e)
		if !e.busy {
			e.busy = true
			d.metrics.busy.Inc()
			d.report(e, workerv1.Progress_STEP_BUSY)
		}
	}
	for d.full.len() > maxFull {
		e := d.full.pop()
		switch {
		case e.place != full:
		case e.doubt:
			d.full.push(e)
			return
		default:
			d.unqueue(e)
			delete(d.entries, e.key)
		}
	}
}

// begin makes the run of an entry whose claim begins.
func (d *desk) begin(e *entry, now int64) *run {
	e.place = claiming
	d.claims++
	d.taken++
	d.held++
	d.lead.begin(now)
	if e.plan.gated() {
		d.gates[e.key.job] = struct{}{}
	}
	return newRun(d, e, now)
}

// close drops the queue and begins no more claims. Runs go on.
func (d *desk) close() (dropped, running int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for k, e := range d.entries {
		switch e.place {
		case ahead, later, full:
			d.unqueue(e)
			delete(d.entries, k)
			dropped++
		case nowhere, claiming, claimed, over:
		}
	}
	d.ahead, d.later, d.full = nil, nil, fifo[*entry]{}
	if d.held == 0 {
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
	if d.closed && d.held == 0 {
		close(d.idle)
	}
}

// release gives a run's part of the capacity back, once.
func (d *desk) release(r *run) {
	if !r.released {
		r.released = true
		d.taken--
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
	d.strays.Add(int64(d.held))
	return d.held
}

package executor

import (
	"context"
	"time"

	"github.com/leaderd/leaderd/internal/minheap"
)

// pace begins claims when it is time for them, until ctx ends. Runs go on under
// work.
func (d *desk) pace(ctx, work context.Context) {
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
		runs, next := d.dispatch(now)
		for _, r := range runs {
			d.claim(claims, r)
		}
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

// dispatch answers the runs whose claims are to begin by now, at most claimPart, and when
// to look again. If there is room for all that is to be claimed they are in the order in
// which their entries are due, else in that of the line.
func (d *desk) dispatch(now int64) (runs []*run, next int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(now)
	next = now + int64(tick)
	if d.closed {
		return nil, next
	}
	lead := int64(d.lead.value(d.due.within(now + int64(maxLead))))
	d.metrics.lead.Set(time.Duration(lead).Seconds())
	scarce := d.scarce(now, lead)
	if scarce && !d.gather(now, lead) {
		next = now
	}
	for d.room() {
		if len(runs) == claimPart {
			return runs, now
		}
		e := d.pick(now, lead, scarce)
		if e == nil {
			if d.ahead.Len() > 0 {
				next = min(next, d.ahead.Top().Key-lead)
			}
			if d.later.Len() > 0 {
				next = min(next, d.later.Top().Key)
			}
			if d.starving = d.line.Len() > 0; d.starving { // for what they need beside room
				next = d.tellWaiters(now, next)
			}
			return runs, next
		}
		runs = append(runs, d.begin(e, now, scarce))
	}
	d.starving = true
	if !scarce && !d.gather(now, lead) {
		next = now
	}
	next = d.tellWaiters(now, next)
	for _, h := range []*minheap.Heap[*entry]{&d.ahead, &d.later} {
		if h.Len() > 0 {
			next = min(next, h.Top().Key+busyAfter)
		}
	}
	d.shed(now)
	d.tellStuck()
	return runs, next
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
func (d *desk) pick(now, lead int64, scarce bool) *entry {
	if scarce {
		return d.callUp(now)
	}
	for {
		e := d.next(now, lead)
		if e == nil {
			return nil
		}
		d.unqueue(e)
		if e.expired(now) {
			delete(d.entries, e.key)
			d.relent(e, now)
			continue
		}
		switch {
		case !d.fits(e.plan.spec.needs):
			d.standInLine(e)
		case d.shut(e):
		default:
			return e
		}
	}
}

// enqueue puts an entry that is nowhere into a heap.
func (d *desk) enqueue(e *entry, in place, at int64) {
	e.place, e.at = in, at
	if in == ahead {
		d.ahead.Push(at, e)
		d.due.add(at)
	} else {
		d.later.Push(at, e)
	}
	d.metrics.queued.Inc()
}

// unqueue marks an entry of the queue as nowhere. Its item may stay, and is void.
func (d *desk) unqueue(e *entry) {
	if e.place == ahead {
		d.due.remove(e.at)
	}
	e.place = nowhere
	d.leavePark(e)
	d.metrics.queued.Dec()
}

// begin makes the run of an entry whose claim begins. called tells that it stood in the
// line.
func (d *desk) begin(e *entry, now int64, called bool) *run {
	e.place = claiming
	d.claims++
	d.taken++
	d.held++
	d.lead.begin(d.steady())
	if e.plan.alone() {
		d.claiming(e.key.job)
	}
	r := newRun(d, e, now)
	r.called = called
	d.takeResources(r)
	return r
}

package executor

import (
	"context"
	"time"

	"github.com/leaderd/leaderd/internal/minheap"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
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
			d.claim(work, claims, r)
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

// dispatch answers the runs whose claims are to begin by now, in the order in
// which their entries are due, at most claimPart, and when to look again.
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
	for d.room() {
		if len(runs) == claimPart {
			return runs, now
		}
		e := d.pick(now, lead)
		if e == nil {
			d.starving = false
			if d.ahead.Len() > 0 {
				next = min(next, d.ahead.Top().Key-lead)
			}
			if d.later.Len() > 0 {
				next = min(next, d.later.Top().Key)
			}
			return runs, next
		}
		runs = append(runs, d.begin(e, now))
	}
	d.starving = true
	d.overflow(&d.ahead, ahead, now)
	d.overflow(&d.later, later, now)
	d.tellStuck()
	for _, h := range []*minheap.Heap[*entry]{&d.ahead, &d.later} {
		if h.Len() > 0 {
			next = min(next, h.Top().Key+busyAfter)
		}
	}
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
func (d *desk) pick(now, lead int64) *entry {
	for {
		var e *entry
		switch {
		case d.full.len() > 0:
			e = d.full.pop()
			if e.place != full {
				continue
			}
		case prune(&d.later, later) && d.later.Top().Key <= now &&
			(!prune(&d.ahead, ahead) || d.ahead.Top().Key-lead > now || d.later.Top().Val.plan.start <= d.ahead.Top().Key):
			e = d.later.Pop().Val
		case prune(&d.ahead, ahead) && d.ahead.Top().Key-lead <= now:
			e = d.ahead.Pop().Val
		default:
			return nil
		}
		d.unqueue(e)
		if e.expired(now) {
			delete(d.entries, e.key)
			d.relent(e, now)
			continue
		}
		if d.shut(e) {
			continue
		}
		return e
	}
}

// prune removes void items from the front; false if nothing is left.
func prune(h *minheap.Heap[*entry], in place) bool {
	for h.Len() > 0 {
		if valid(h.Top(), in) {
			return true
		}
		h.Pop()
	}
	return false
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
	d.metrics.queued.Dec()
}

// overflow takes those that have been due for a while, and found no room, out of
// a heap. The leader is told once, so that it gives them to others too.
func (d *desk) overflow(h *minheap.Heap[*entry], in place, now int64) {
	for prune(h, in) && h.Top().Key+busyAfter <= now {
		e := h.Pop().Val
		if e.expired(now) {
			d.unqueue(e)
			delete(d.entries, e.key)
			d.relent(e, now)
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
			d.noRoom(e)
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
			d.relent(e, now)
		}
	}
}

// noRoom tells the leader why there is no room for an entry: runs that are at work
// take it, or claims that the journal leaves without an answer, any of which may have
// been carried out. What helps against the one does not against the other.
func (d *desk) noRoom(e *entry) {
	if !d.lead.stuck(d.steady()) {
		d.report(e, workerv1.Progress_STEP_BUSY)
		return
	}
	e.refused = true
	d.report(e, workerv1.Progress_STEP_REFUSED)
}

// tellStuck corrects what the leader was told of entries without room, when it shows
// that claims without an answer take it. Each is told once for each plan of it.
func (d *desk) tellStuck() {
	now := d.steady()
	if !d.lead.stuck(now) || now-d.toldStuck < int64(tick) {
		return
	}
	d.toldStuck = now
	for _, e := range d.full.items[d.full.head:] {
		if e.place == full && !e.refused {
			d.noRoom(e)
		}
	}
}

// begin makes the run of an entry whose claim begins.
func (d *desk) begin(e *entry, now int64) *run {
	e.place = claiming
	d.claims++
	d.taken++
	d.held++
	d.lead.begin(d.steady())
	if e.plan.alone() {
		d.claiming(e.key.job)
	}
	return newRun(d, e, now)
}

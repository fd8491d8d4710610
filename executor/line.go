package executor

import (
	"maps"

	"github.com/leaderd/leaderd/internal/minheap"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// Where more is to be claimed than there is room for, all of it stands in a line, and is
// taken by class and weight: see package fair. Where there is room for all, nobody does,
// and entries are claimed in order of due.

// gatherPart is how many entries go into the line under one hold of the mutex. Of more
// that come at once, classes are told apart in parts.
const gatherPart = 4096

// waiter is an entry's stay in the line. One whose entry has left it is void.
type waiter struct {
	entry *entry
	spec  *spec
	turn  uint64
}

func (w *waiter) void() bool { return w.entry.place != full || w.entry.turn != w.turn }

// scarce tells whether there may be more to claim by now than there is room for.
func (d *desk) scarce(now, lead int64) bool {
	if d.line.Len() > 0 {
		return true
	}
	ready := d.due.within(now+lead) + d.later.Len()
	return ready > min(d.capacity-d.taken-int(d.strays.Load()), maxClaims-d.claims, d.capacity+maxFinishing-d.held)
}

// standInLine has an entry, which is nowhere, wait for room.
func (d *desk) standInLine(e *entry) {
	if lane := e.plan.spec.flow.Lane; lane != "" {
		d.lanes[lane] = e.plan.spec.needs
	}
	d.turns++
	e.place, e.turn = full, d.turns
	w := waiter{e, e.plan.spec, e.turn}
	d.line.Push(w.spec.flow, w)
	d.waiters = append(d.waiters, w)
	d.metrics.queued.Inc()
}

// gather lets all that is to be claimed by now stand in the line; false if there may be
// more of it.
func (d *desk) gather(now, lead int64) bool {
	for range gatherPart {
		e := d.next(now, lead)
		if e == nil {
			return true
		}
		d.unqueue(e)
		if e.expired(now) {
			delete(d.entries, e.key)
			d.relent(e, now)
			continue
		}
		d.standInLine(e)
	}
	return false
}

// next takes the next entry off the heaps that is to be claimed by now, or answers nil.
func (d *desk) next(now, lead int64) *entry {
	switch {
	case prune(&d.later, later) && d.later.Top().Key <= now &&
		(!prune(&d.ahead, ahead) || d.ahead.Top().Key-lead > now || d.later.Top().Val.plan.start <= d.ahead.Top().Key):
		return d.later.Pop().Val
	case prune(&d.ahead, ahead) && d.ahead.Top().Key-lead <= now:
		return d.ahead.Pop().Val
	}
	return nil
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

// callUp takes the entry out of the line whose turn it is, of those for which there is
// room; nil: there is none.
func (d *desk) callUp(now int64) *entry {
	for {
		w, ok := d.line.Pop(d.laneFits)
		if !ok {
			return nil
		}
		if !w.void() {
			e := w.entry
			d.unqueue(e)
			switch {
			case e.expired(now):
				delete(d.entries, e.key)
				d.relent(e, now)
			case d.shut(e):
			default:
				return e
			}
		}
		d.line.Return(w.spec.flow)
	}
}

// tellWaiters tells the leader of those that have been due for a while and found no room,
// once, so that it gives them to others too; and answers when to look again.
func (d *desk) tellWaiters(now, next int64) int64 {
	for d.told < len(d.waiters) {
		w := &d.waiters[d.told]
		if !w.void() {
			if at := w.entry.at + busyAfter; at > now {
				next = min(next, at)
				break
			}
			if !w.entry.busy {
				w.entry.busy = true
				d.metrics.busy.Inc()
				d.noRoom(w.entry)
			}
		}
		d.told++
	}
	if len(d.waiters) > 2*d.line.Len()+1024 {
		kept, told := d.waiters[:0], 0
		for i := range d.waiters {
			if w := d.waiters[i]; !w.void() {
				kept = append(kept, w)
				if i < d.told {
					told++
				}
			}
		}
		clear(d.waiters[len(kept):])
		d.waiters, d.told = kept, told
	}
	return next
}

// shed drops what is too much to keep: the leader has it, and plans it again.
func (d *desk) shed(now int64) {
	for d.line.Len() > maxFull {
		w, ok := d.line.Shed()
		switch {
		case !ok:
			return
		case w.void():
		case w.entry.doubt:
			d.line.Push(w.spec.flow, w)
			return
		default:
			d.unqueue(w.entry)
			delete(d.entries, w.entry.key)
			d.relent(w.entry, now)
		}
	}
}

// noRoom tells the leader why there is no room for an entry: runs that are at work
// take it, or claims that the journal leaves without an answer, any of which may have
// been carried out. What helps against the one does not against the other.
func (d *desk) noRoom(e *entry) {
	if !d.lead.stuck(d.steady()) {
		d.reportBusy(e)
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
	for i := range d.waiters[:d.told] {
		if w := &d.waiters[i]; !w.void() && !w.entry.refused {
			d.noRoom(w.entry)
		}
	}
}

// fits tells whether there is what a run needs beside room.
func (d *desk) fits(needs state.Resources) bool { return len(needs) == 0 || d.spare.Cover(needs) }

func (d *desk) laneFits(lane string) bool { return lane == "" || d.fits(d.lanes[lane]) }

// spareOf is what there is when nothing is taken.
func spareOf(all state.Resources) state.Resources {
	spare := make(state.Resources, len(all))
	maps.Copy(spare, all)
	return spare
}

// takeResources takes what a run needs of the resources, and giveResources gives it back.
func (d *desk) takeResources(r *run) {
	for name, n := range r.plan.spec.needs {
		d.spare[name] -= n
	}
}

func (d *desk) giveResources(r *run) {
	for name, n := range r.plan.spec.needs {
		d.spare[name] += n
	}
}

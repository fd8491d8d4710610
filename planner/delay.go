package planner

import (
	"time"

	"github.com/leaderd/leaderd/internal/minheap"
	"github.com/leaderd/leaderd/state"
)

// delays are the runs that were asked for and are due behind the horizon, by when
// they are. They are opened when the horizon reaches them; until then they cost their
// place here alone.
type delays struct {
	heap minheap.Heap[*delayed]
	of   map[state.JobID]map[state.RunID]*delayed
	// voids is how many of the heap are none any more.
	voids int
}

// mostVoids is how many of the heap may be void before it is made anew without them, which
// happens once they are the greater part.
const mostVoids = 1000

// delayed is one of them; pending is nil once it is none any more.
type delayed struct{ pending *state.Pending }

// delay keeps p until the horizon reaches it; false if that is now.
func (t *term) delay(p *state.Pending, now time.Time) bool {
	if !p.Requested.After(now.Add(t.cfg.Horizon)) {
		return false
	}
	d := &t.delays
	runs := d.of[p.Job]
	if runs == nil {
		if d.of == nil {
			d.of = make(map[state.JobID]map[state.RunID]*delayed)
		}
		runs = make(map[state.RunID]*delayed)
		d.of[p.Job] = runs
	}
	if was := runs[p.Run]; was != nil {
		was.pending = p
		return true
	}
	e := &delayed{pending: p}
	runs[p.Run] = e
	d.heap.Push(p.Requested.UnixMicro(), e)
	return true
}

// openDelayed opens the runs that the horizon has reached.
func (t *term) openDelayed(now time.Time) {
	until := now.Add(t.cfg.Horizon).UnixMicro()
	for d := &t.delays; d.heap.Len() > 0 && d.heap.Top().Key <= until; {
		p := d.heap.Pop().Val.pending
		if p == nil {
			d.voids--
			continue
		}
		if runs := d.of[p.Job]; len(runs) > 1 {
			delete(runs, p.Run)
		} else {
			delete(d.of, p.Job)
		}
		t.openPending(p)
	}
}

// dropDelayed ends those of a job that was deleted.
func (t *term) dropDelayed(id state.JobID) {
	runs := t.delays.of[id]
	delete(t.delays.of, id)
	for _, e := range runs {
		p := e.pending
		t.delays.void(e)
		t.openPending(p)
	}
}

// void takes one out.
func (d *delays) void(e *delayed) {
	e.pending = nil
	if d.voids++; d.voids > mostVoids && 2*d.voids > d.heap.Len() {
		d.heap.Keep(func(e *delayed) bool { return e.pending != nil })
		d.voids = 0
	}
}

// forgetDelayed takes those out that are not pending any more, such as those that were
// cancelled.
func (t *term) forgetDelayed(gone []state.Pending) {
	d := &t.delays
	for i := range gone {
		p := &gone[i]
		runs := d.of[p.Job]
		e := runs[p.Run]
		if e == nil || e.pending.Revision > p.Revision {
			continue
		}
		if len(runs) > 1 {
			delete(runs, p.Run)
		} else {
			delete(d.of, p.Job)
		}
		d.void(e)
	}
}

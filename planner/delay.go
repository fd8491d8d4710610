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
}

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
		e.pending = nil
		t.openPending(p)
	}
}

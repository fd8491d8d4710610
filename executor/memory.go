package executor

import (
	"time"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// ending is what became of an entry that is over.
type ending struct {
	step     workerv1.Progress_Step
	state    state.RunState
	lateness time.Duration
	closed   int64 // of the plan that was claimed
	at       int64
	limitKey string // see state.Live
}

// answers tells whether a plan of the same attempt is answered by the ending. A
// slot in the closed part of the timeline is decided until a leader catches it
// up, which it says by another revision.
func (n *ending) answers(p *plan) bool {
	return n.step == workerv1.Progress_STEP_FINISHED || n.closed == p.closed
}

// conclude puts an entry into the memory and reports it.
func (d *desk) conclude(e *entry, n ending) {
	n.at = d.wall()
	pl := e.plan
	e.place, e.ended, e.run, e.plan = over, n, nil, nil
	d.past.push(e)
	d.reportEnd(e, pl)
	if scope := pl.spec.scope; scope != "" && n.step == workerv1.Progress_STEP_FINISHED {
		d.unpark(scope)
	}
}

// forget drops what has been over for long, and the oldest where that is much.
func (d *desk) forget(now int64) {
	for d.past.len() > 0 {
		e := d.past.first()
		if age := now - e.ended.at; d.past.len() <= maxPast && age >= 0 && age < remember {
			return
		}
		d.past.pop()
		if d.entries[e.key] == e {
			delete(d.entries, e.key)
		}
	}
}

// report tells the leader of a step, if it is its plan.
func (d *desk) report(e *entry, step workerv1.Progress_Step) { d.reportOf(e, e.plan, step) }

// reportOf is report for an older plan of the entry.
func (d *desk) reportOf(e *entry, p *plan, step workerv1.Progress_Step) {
	s := p.spec.session
	if s == nil || s != d.session {
		return
	}
	s.reports.add(progress{
		ref: p.spec.ref, due: p.due, run: string(p.run), shard: e.key.shard,
		attempt: e.key.attempt, step: step,
	})
}

// reportBusy tells the leader that there is no room for an entry, and what is lacking.
func (d *desk) reportBusy(e *entry) {
	s := e.plan.spec.session
	if s == nil || s != d.session {
		return
	}
	s.reports.add(progress{
		ref: e.plan.spec.ref, due: e.plan.due, run: string(e.plan.run), shard: e.key.shard, attempt: e.key.attempt,
		step: workerv1.Progress_STEP_BUSY, lack: d.spare.Lack(e.plan.spec.needs),
	})
}

// reportLimit is reportOf with the limit that was reached, if any was.
func (d *desk) reportLimit(e *entry, p *plan, step workerv1.Progress_Step, res *state.ClaimResult) {
	s := p.spec.session
	if s == nil || s != d.session {
		return
	}
	s.reports.add(progress{
		ref: p.spec.ref, due: p.due, run: string(p.run), shard: e.key.shard, attempt: e.key.attempt, step: step,
		limit: int32(res.Limit), notBefore: res.NotBefore,
	})
}

// reportEnd tells the leader, by its plan, what became of an entry that is over.
func (d *desk) reportEnd(e *entry, pl *plan) {
	s := pl.spec.session
	if s == nil || s != d.session {
		return
	}
	p := progress{
		ref: pl.spec.ref, due: pl.due, run: string(pl.run), shard: e.key.shard,
		attempt: e.key.attempt, step: e.ended.step,
	}
	if p.step == workerv1.Progress_STEP_FINISHED {
		p.lateness, p.state, p.limitKey = e.ended.lateness, uint32(e.ended.state), e.ended.limitKey
	}
	s.reports.add(p)
}

package planner

import (
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

const (
	// maxRecheck is how long a late entry is left alone at most.
	maxRecheck = 5 * time.Second
	// toldAgain is how late an entry is that every executor has, before they are
	// told again.
	toldAgain = 10 * time.Second
)

// place plans an entry onto the best executor that does not have it yet.
// Where none is left the entry stays as it is until one comes or check looks.
func (t *term) place(e *entry) {
	if e.verdict != state.StateNone || e.bar != nil || e.early || e.behind != nil || e.suspended || e.version.Paused && !e.backfill() || e.version.Broken != nil || t.gates.bad[e.version.ID] != nil ||
		e.waiting != nil && e.waiting.NextTry.After(t.now()) || e.waits && !e.mayStart() {
		return
	}
	if s := t.toldBy(e); s != nil {
		t.placeOn(e, s.owner.Node)
		return
	}
	if t.waitsInLine(e) || e.version.RunPlanned && t.awaitsNews(e, t.now()) {
		return
	}
	if e.split {
		t.placeShard(e)
		return
	}
	key, first := jobKey(e.version.ID), t.preferred(e.version)
	if last := e.failedOn(); last != "" && len(e.holders) == 0 {
		// Perhaps it was the node's fault: any other one that matches comes first.
		for _, name := range t.table.Rank(nil, key, first, 2) {
			if name != last && t.placeOn(e, name) {
				return
			}
		}
	}
	// The balancer's choice first, then the others in the job's order, so that
	// a hedge goes where the job would move.
	if name, ok := t.balancer.Assign(key, first, 1); ok && t.placeOn(e, name) {
		return
	}
	for _, name := range t.table.Rank(nil, key, first, len(e.holders)+2) {
		if t.placeOn(e, name) {
			return
		}
	}
	if e.version.Preferred().All() {
		return
	}
	for _, name := range t.table.Rank(nil, key, e.version.Selector, len(e.holders)+2) {
		if t.placeOn(e, name) {
			return
		}
	}
}

func (t *term) placeOn(e *entry, name string) bool {
	s := t.sessions[name]
	if s == nil || e.heldBy(s) {
		return false
	}
	e.holders = append(e.holders, s)
	s.plan(e)
	return true
}

// lookAt has check look at an entry at an instant, in microseconds, or before if that
// was asked for.
func (t *term) lookAt(e *entry, at int64) {
	if e.look == 0 || at < e.look {
		e.look = at
		t.checks.Push(at, e)
	}
}

// check looks again at entries that should have been claimed by now.
func (t *term) check(now time.Time) {
	at := now.UnixMicro()
	for t.checks.Len() > 0 {
		top := t.checks.Top()
		when, e := top.Key, top.Val
		if e.done || when != e.look {
			t.checks.Pop()
			continue
		}
		if when > at {
			return
		}
		t.checks.Pop()
		e.look = 0
		if e.deciding {
			continue // its decision looks again, if it must
		}
		t.checkLate(e, now)
	}
}

// checkLate deals with an entry that is late: it is missed, or one more
// executor gets it.
func (t *term) checkLate(e *entry, now time.Time) {
	if e.verdict != state.StateNone {
		t.tryDecide(e, now) // storing it went wrong
		return
	}
	if e.bar != nil && e.slot() {
		t.skipBarred(e, e.version.Revision, now)
		return
	}
	if e.early {
		t.comes(e)
		t.place(e)
		t.lookAt(e, e.start+t.cfg.HedgeDelay.Microseconds())
		return
	}
	if e.waits {
		t.checkQueued(e, now)
		return
	}
	if e.waiting != nil && t.checkWaiting(e, now) {
		return
	}
	if t.awaitsNews(e, now) || t.toldBy(e) != nil {
		t.place(e) // whatever its start deadline: it has begun, perhaps
		t.lookAt(e, now.Add(t.cfg.HedgeDelay).UnixMicro())
		return
	}
	late := now.Sub(micros(e.start))
	if e.helper() && late > e.version.Deadline {
		t.close(e)
		return
	}
	if e.slot() || e.pending != nil {
		if late > e.version.Deadline && !e.backfill() {
			t.missDeadline(e, t.whyLate(e), now)
			return
		}
		switch {
		case t.gates.bad[e.version.ID] != nil:
			t.suspectGate(e.version.ID)
		case late > suspectAfter && e.last != workerv1.Progress_STEP_BUSY:
			t.suspectGateAgain(e.version.ID, lateGateAgain, now)
		}
	}
	if e.slot() && e.closed == 0 && late > t.cfg.Horizon && t.overtaken(e, now) {
		t.decideVersion(e, state.StateMissed, t.whyUnplaced(e), now)
		return
	}
	again := min(max(2*t.cfg.HedgeDelay, late/4), maxRecheck)
	switch {
	case e.behind != nil:
	case len(e.holders) == 0 || e.busy:
		t.place(e)
		e.busy = false
	case e.backfill(): // it may wait for the job's gate, and is in no hurry
	case mutant.Off(mutant.Hedge):
	case t.hedges.spend(now):
		had := len(e.holders)
		t.place(e)
		switch {
		case len(e.holders) > had:
			t.metrics.hedges.Inc()
		case late > toldAgain:
			// All have it and none reports: tell them again, in case that a report
			// was lost.
			e.holders = nil
			t.place(e)
		default:
			t.hedges.giveBack()
		}
	}
	t.lookAt(e, now.Add(again).UnixMicro())
}

// overtaken tells whether a newer slot of the entry's job is due, so that the
// entry need not run.
func (t *term) overtaken(e *entry, now time.Time) bool {
	v := e.version
	switch {
	case v.CatchUpMost == 0 || now.Sub(micros(e.start)) > v.CatchUpAge:
		return true
	case v.CatchUp == state.CatchUpAll:
		newer, most := 0, v.CatchUpMost
		if 2*t.counted() >= t.cfg.MaxOpen {
			most = 1 // however many it wants, others need the room
		}
		for _, o := range e.job.open {
			if o.slot() && o.due > e.due && o.start <= now.UnixMicro() {
				newer++
			}
		}
		return newer >= most
	}
	if !v.Exclusive && 2*t.counted() < t.cfg.MaxOpen {
		return false // there is room to keep it
	}
	next := v.NextSlot(micros(e.due))
	return !next.IsZero() && !v.Due(next).After(now)
}

// whyUnplaced is the reason for which no executor has claimed an entry.
func (t *term) whyUnplaced(e *entry) string {
	_, matches := t.table.Owner(jobKey(e.version.ID), e.version.Selector)
	switch {
	case len(t.sessions) == 0:
		return state.ReasonNoExecutor
	case !matches:
		return state.ReasonNoMatchingNode
	case e.last == workerv1.Progress_STEP_BUSY:
		return state.ReasonNoCapacity
	case e.last == workerv1.Progress_STEP_REFUSED:
		return state.ReasonRefused
	}
	return state.ReasonUnclaimed
}

// report takes in what an executor says became of entries.
func (t *term) report(s *session, r *workerv1.Report, now time.Time) {
	for _, p := range r.GetProgress() {
		if p.GetStep() == workerv1.Progress_STEP_FINISHED {
			t.finished(s, p, now)
		}
		if step := p.GetStep(); step == workerv1.Progress_STEP_FINISHED || step == workerv1.Progress_STEP_DECIDED {
			if job := s.versions[p.GetRef()].timed; job != nil && p.GetRun() != "" {
				t.feedOf(job.job.ID, state.RunID(p.GetRun()))
			}
		}
		e := t.lookup(s, p)
		if e == nil {
			continue
		}
		switch p.GetStep() {
		case workerv1.Progress_STEP_CLAIMED, workerv1.Progress_STEP_FINISHED:
			t.hedges.earn()
			e.started = true
			t.close(e)
			t.musterOnce(e)
		case workerv1.Progress_STEP_DECIDED:
			if e.slot() && !micros(e.start).After(t.closing) {
				e.drop(s)
				t.verify(e)
				continue
			}
			t.hedges.earn()
			t.close(e)
			if e.split {
				t.muster(e.version.ID, e.runID())
			}
			if e.pending != nil {
				t.sweepPending(e.pending)
			}
		case workerv1.Progress_STEP_HELD:
			t.heldAt(e, s, int(p.GetLimit()), instant(p.GetNotBefore()))
		case workerv1.Progress_STEP_QUEUED:
			t.reachedBy(e, int(p.GetLimit()), instant(p.GetNotBefore()))
			if !e.waits { // else it is known by its new pending key
				t.hedges.earn()
				t.close(e)
				t.closeUnbegun(e)
			}
		case workerv1.Progress_STEP_BUSY:
			// It keeps the entry, but another one may be sooner.
			e.busy, e.last, e.lack = true, p.GetStep(), p.GetLack()
			t.place(e)
		case workerv1.Progress_STEP_STALE:
			// The job or run has changed: its change is on its way here.
			e.drop(s)
		case workerv1.Progress_STEP_REFUSED:
			e.drop(s)
			e.last = p.GetStep()
			if e.busy = true; len(e.holders) == 0 {
				t.lookAt(e, now.Add(t.cfg.HedgeDelay).UnixMicro())
			}
			t.suspectGateAgain(e.version.ID, gatesAgain, now)
		case workerv1.Progress_STEP_UNSPECIFIED:
		}
	}
}

// finished notes a run's end: how late it had started, and whether it waits for
// another attempt.
func (t *term) finished(s *session, p *workerv1.Progress, now time.Time) {
	job := s.versions[p.GetRef()].timed
	if job == nil {
		return
	}
	run := func() state.RunID {
		if p.GetRun() != "" {
			return state.RunID(p.GetRun())
		}
		return state.SlotRunID(micros(p.GetDue()))
	}
	if len(t.musters) > 0 || job.job.Shards != nil || p.GetShard() != 0 {
		t.shardFinished(job, run(), int(p.GetShard()), state.RunState(p.GetState()))
	}
	if to := state.RunState(p.GetState()); to == state.StateFailed || to == state.StateTimedOut {
		t.lookAtFailures(job)
		t.trimDead(job)
	}
	if state.RunState(p.GetState()) != state.StateWaiting {
		t.ended(job.job, p.GetLimitKey())
		t.advanceAfter(job.job.ID)
	}
	switch state.RunState(p.GetState()) { //nolint:exhaustive // of others it is not known that they started
	case state.StateSucceeded, state.StateFailed, state.StateTimedOut:
		t.lateness.add(now, time.Duration(p.GetLateness())*time.Microsecond)
	case state.StateWaiting:
		t.lookForRetry(job.job.ID, run())
	default:
	}
}

// lookup finds the open entry that a report is about.
func (t *term) lookup(s *session, p *workerv1.Progress) *entry {
	v := s.versions[p.GetRef()]
	if v.timed == nil {
		return nil
	}
	key := entryKey{job: v.timed, due: p.GetDue(), run: state.RunID(p.GetRun()), shard: int(p.GetShard())}
	e := t.open[key.open()]
	if e == nil || e.attempt() != max(1, int(p.GetAttempt())) {
		return nil // news of an earlier attempt, perhaps
	}
	step := p.GetStep()
	recorded := step == workerv1.Progress_STEP_CLAIMED || step == workerv1.Progress_STEP_DECIDED ||
		step == workerv1.Progress_STEP_FINISHED || step == workerv1.Progress_STEP_QUEUED
	if !recorded && v.revision != e.version.Revision {
		return nil // of the plan of an older version
	}
	return e
}

// close forgets an entry: it has a record, or is void.
func (t *term) close(e *entry) {
	if e.done {
		return
	}
	e.done = true
	e.holders = nil
	if t.toldBy(e) != nil {
		delete(t.unclaimed.told, e.cancelKey())
	}
	if e.begun && e.waiting == nil {
		t.begun--
	}
	if e.closed != 0 {
		t.catchUps--
	}
	if e.pending != nil && !e.waits {
		t.asked--
	}
	t.comes(e)
	delete(t.open, e.open())
	siblings := e.job.open
	last := len(siblings) - 1
	siblings[e.at] = siblings[last]
	siblings[e.at].at = e.at
	siblings[last] = nil
	e.job.open = siblings[:last]
	if next := e.ahead; next != nil {
		if e.ahead, next.behind = nil, nil; !next.done && !next.deciding {
			t.place(next)
		}
	}
	if e.waits {
		t.dequeue(e)
	}
	t.gone(e)
}

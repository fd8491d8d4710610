package planner

import (
	"time"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// unclaimed is what the term knows of runs that executors began without a claim, while
// they could not reach the store (state.OutageRunPlanned).
//
// Such a run is planned like any other, but onto the executor that has begun it, which
// claims it and tells how it ended. So the leader must not be faster than that: what an
// executor had stays its own for as long as its registration may stand, and what is late
// waits for those who registered anew; after a takeover, for a horizon, since nobody knows
// who had what.
type unclaimed struct {
	// told are the runs of which executors told, with the session to plan them on.
	told map[cancelKey]*session
	// returning are the executors that registered anew and do not attend yet, and how
	// long they are waited for.
	returning map[string]time.Time
	// tookOver is when the term began, awaited how long it waits, and before the revision
	// of the watermark that it found: who registered later had lost a registration, or is
	// new.
	tookOver, awaited time.Time
	before            int64
	// edge is up to where the leader before may have planned.
	edge time.Time
}

func newUnclaimed(mark state.Watermark, now time.Time, horizon time.Duration) unclaimed {
	u := unclaimed{
		told: make(map[cancelKey]*session), returning: make(map[string]time.Time), tookOver: now, awaited: now, before: mark.Revision,
	}
	if mark.Revision != 0 {
		u.awaited, u.edge = now.Add(horizon), later(mark.Instant, mark.Written).Add(2*horizon)
	}
	return u
}

func (e *entry) cancelKey() cancelKey { return cancelKey{e.version.ID, e.runID()} }

// noteUnrecorded takes in what an executor began without a claim.
func (t *term) noteUnrecorded(s *session, all []*workerv1.Unrecorded) {
	for _, r := range all {
		k := cancelKey{state.JobID{Namespace: r.GetNamespace(), Name: r.GetJob()}, state.RunID(r.GetRun())}
		if k.run.Kind() == state.KindSlot {
			t.unclaimed.told[k] = s
		}
	}
	if len(all) > 0 {
		t.cfg.Logger.Warn("an executor has begun runs without a claim, which are recorded now", "node", s.owner.Node, "runs", len(all))
	}
}

// forgetUnrecorded follows the end of a session.
func (t *term) forgetUnrecorded(s *session) {
	for k, told := range t.unclaimed.told {
		if told == s {
			delete(t.unclaimed.told, k)
		}
	}
}

// toldBy is the session of the executor that has begun the run of an entry without a
// claim; nil: none told.
func (t *term) toldBy(e *entry) *session {
	if !e.version.RunPlanned || len(t.unclaimed.told) == 0 {
		return nil
	}
	return t.unclaimed.told[e.cancelKey()]
}

// toldSlots are the slots of a job whose runs began without a claim.
func (t *term) toldSlots(j *Job) []time.Time {
	if !j.RunPlanned {
		return nil
	}
	var slots []time.Time
	for k := range t.unclaimed.told {
		if slot, ok := k.run.Slot(); ok && k.job == j.ID {
			slots = append(slots, slot)
		}
	}
	return slots
}

// awaitReturn waits for a node whose registration has ended, if it has a new one.
func (t *term) awaitReturn(name string) {
	if n, back := t.nodes[name]; back && n.Executor {
		t.unclaimed.returning[name] = t.now().Add(t.cfg.Horizon)
	}
}

// mayHaveBegun tells whether an executor that does not attend any more may begin an entry
// without a claim: as long as its registration stands, it may have heard nothing from the
// store.
func (t *term) mayHaveBegun(e *entry, s *session) bool {
	return e.version.RunPlanned && e.slot() && t.nodes[s.owner.Node].Revision == s.owner.Revision
}

// awaitsNews tells whether an executor may yet tell that it has begun the run of a late
// entry.
func (t *term) awaitsNews(e *entry, now time.Time) bool {
	if !e.version.RunPlanned || micros(e.start).After(now) || e.attempt() > 2 {
		return false
	}
	if _, slot := e.runID().Slot(); !slot {
		return false
	}
	for name, until := range t.unclaimed.returning {
		if now.Before(until) {
			return true
		}
		delete(t.unclaimed.returning, name)
	}
	return now.Before(t.unclaimed.awaited) && !micros(e.start).After(t.unclaimed.tookOver) && t.registeredAnew()
}

// registeredAnew tells whether an executor has registered since the watermark that the
// term found.
func (t *term) registeredAnew() bool {
	for _, n := range t.nodes {
		if n.Executor && n.Revision > t.unclaimed.before {
			return true
		}
	}
	return false
}

// afterNews runs do for a job once executors have had the time to tell what of its they
// have begun.
func (t *term) afterNews(j *Job, do func()) {
	if wait := t.unclaimed.awaited.Sub(t.now()); j.RunPlanned && wait > 0 {
		t.later(wait, do)
		return
	}
	do()
}

// oneByOne tells whether a slot that nobody ran gets a record of its own: one in which
// an executor that comes back late can note that it did.
func (t *term) oneByOne(v *Job, slot time.Time) bool {
	return v.RunPlanned && !slot.After(t.unclaimed.edge)
}

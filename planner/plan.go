package planner

import "time"

// counted are the open entries that are bounded: not those of shards whose run has begun,
// that wait for others, or are caught up one after another, since what is due now must not
// wait for them.
func (t *term) counted() int { return len(t.open) - t.early - t.queued - t.catchUps - t.begun }

// plan pops what is due within the horizon off the timeline, as far as the bound on
// open entries allows.
func (t *term) plan(now time.Time) {
	until := now.Add(t.cfg.Horizon)
	for t.counted() < t.cfg.MaxOpen && t.ctx.Err() == nil {
		job, slot, ok := t.timeline.pop(until)
		if !ok {
			t.planned = later(t.planned, until)
			t.metrics.horizon.Set(t.cfg.Horizon.Seconds())
			t.metrics.open.Set(float64(len(t.open)))
			t.metrics.waiting.Set(float64(t.queued))
			return
		}
		t.planned = later(t.planned, slot.Add(-time.Nanosecond))
		if due := job.job.Due(slot); due.UnixMicro() > job.since {
			if e := slotEntry(job, job.job, slot); t.add(e, now) && e.split {
				t.addHelpers(e, now)
			}
		}
	}
	t.metrics.horizon.Set(max(0, t.planned.Sub(now).Seconds()))
	t.metrics.open.Set(float64(len(t.open)))
	t.metrics.waiting.Set(float64(t.queued))
}

// add opens an entry and plans it onto its executor; false if it is open.
func (t *term) add(e *entry, now time.Time) bool {
	if _, dup := t.open[e.open()]; dup {
		return false
	}
	if e.start == 0 {
		e.start = e.due
	}
	t.open[e.open()] = e
	e.at = len(e.job.open)
	e.job.open = append(e.job.open, e)
	if e.begun && e.waiting == nil {
		t.begun++
	}
	if e.slot() {
		t.byDue.Push(e.holdsAt(), e)
	}
	switch {
	case e.pending == nil:
	case !e.pending.Queued.IsZero():
		t.enqueue(e)
	default:
		t.asked++
	}
	if e.slot() && !micros(e.start).After(t.closed.Instant) {
		e.closed = t.closed.Revision
		t.catchUps++
	}
	if e.waiting != nil && e.waiting.NextTry.After(now) {
		t.lookAt(e, e.waiting.NextTry.UnixMicro())
		return true
	}
	if e.bar != nil {
		t.lookAt(e, max(e.start, now.UnixMicro()))
		return true
	}
	if begins := micros(e.start).Add(-t.cfg.Horizon); e.start > e.due && begins.After(now) {
		e.early = true
		t.early++
		t.lookAt(e, begins.UnixMicro())
		return true
	}
	t.place(e)
	t.lookAt(e, max(e.start, now.UnixMicro())+t.cfg.HedgeDelay.Microseconds())
	return true
}

// comes makes an entry that was early one like any other.
func (t *term) comes(e *entry) {
	if e.early {
		e.early = false
		t.early--
	}
}

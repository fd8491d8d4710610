package planner

import (
	"context"
	"errors"
	"time"

	"github.com/leaderd/leaderd/internal/minheap"
	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
)

// mark sends the watermark to its writer, and closes the timeline behind it.
func (t *term) mark(now time.Time) {
	instant := now
	if t.planned.Before(now) {
		instant = t.planned
	}
	hold, held := t.hold()
	if held && hold.Before(instant) {
		instant = hold
	}
	t.lastMark = now
	t.floor = later(t.floor, instant)
	instant = t.floor
	if t.replays == 0 && (!held || !hold.Before(instant)) {
		t.spoken = t.known
	}
	lateness := t.lateness.summary(now)
	select {
	case <-t.marks: // an older one that was not written yet
	default:
	}
	t.marks <- state.Watermark{
		Instant: instant, Written: now, Jobs: t.spoken, Lateness: lateness, Late: t.late(now), UnreadableGates: t.badGates(),
		Clocks: t.wrongClocks(),
	}
	t.metrics.watermarkLag.Set(now.Sub(instant).Seconds())
	t.watchClosed()
	t.sweepGates(now)
	if durable := t.durable.Load(); durable != nil {
		s := &settled{closed: t.closed, until: durable.Instant, known: t.known, busy: t.replays > 0 || t.closings > 0}
		if held {
			s.until = earlier(s.until, hold)
		}
		t.settled.Store(s)
	}

	if behind := instant.Add(-t.cfg.ClosedBehind); behind.Sub(t.closing) >= time.Minute && t.replays == 0 && t.catchUps == 0 {
		t.closeUpTo(behind)
	}
}

// maxDone is how many entries that are done byDue may keep, beside as many as twice
// the open ones: they lie behind one that is open for long.
const maxDone = 4096

// hold is the last instant before the first slot, of those that are not to come,
// that is not known to be decided; ok is false where there is none.
func (t *term) hold() (hold time.Time, ok bool) {
	least := func(at time.Time) {
		if !ok || at.Before(hold) {
			hold, ok = at, true
		}
	}
	if t.byDue.Len() > 2*len(t.open)+maxDone {
		t.byDue = minheap.Heap[*entry]{}
		for _, e := range t.open {
			if e.slot() {
				t.byDue.Push(e.holdsAt(), e)
			}
		}
	}
	for t.byDue.Len() > 0 && !mutant.Off(mutant.Watermark) {
		top := t.byDue.Top()
		due, e := top.Key, top.Val
		if !e.done && e.slot() {
			least(micros(due).Add(-time.Second))
			break
		}
		t.byDue.Pop()
	}
	if first := t.timeline.first(); !first.IsZero() { // behind planned where a change has put it there
		least(first.Add(-time.Second))
	}
	if t.replays > 0 {
		least(t.replayed)
	}
	return hold, ok
}

// overdue is how long after it was due a run is late: before that its news may be
// on the way.
const overdue = time.Second

// lateShare is the part of the time that may be spent on looking for what is late: of
// hundreds of thousands of entries some always are, and to look at each takes long.
const lateShare = 100

// late tells what is due and has no record, as far as is known here. Where many entries
// are open the answer may be some seconds old.
func (t *term) late(now time.Time) state.Late {
	limit := now.Add(-overdue).UnixMicro()
	first := limit
	if t.byDue.Len() > 0 {
		first = t.byDue.Top().Key
	}
	if first >= limit && t.asked == 0 {
		return state.Late{}
	}
	begun := time.Now()
	if begun.Before(t.lateAgain) {
		return t.lastLate
	}
	t.lastLate = t.findLate(limit)
	t.lateAgain = begun.Add(lateShare * time.Since(begun))
	return t.lastLate
}

// findLate looks at all open entries.
func (t *term) findLate(limit int64) (l state.Late) {
	var worst *entry
	for _, e := range t.open {
		if e.start > limit || e.version.Paused || e.waiting != nil || e.bar != nil || e.backfill() || e.waits || e.begun || e.helper() {
			continue
		}
		l.Runs++
		if worst == nil || e.start < worst.start {
			worst = e
		}
	}
	if worst != nil {
		l.Worst, l.Since, l.Reason = worst.version.ID, micros(worst.start), t.whyUnplaced(worst)
	}
	return l
}

// writeMarks writes the watermark, the newest there is, until ctx ends.
func (t *term) writeMarks(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case w := <-t.marks:
			err := t.store.PutWatermark(ctx, t.leadership, w)
			if errors.Is(err, state.ErrTermLost) {
				return err
			}
			if err == nil {
				t.durable.Store(&w)
			} else if ctx.Err() == nil {
				t.cfg.Logger.Warn("watermark could not be written; the next one follows in a second", "err", err)
			}
		}
	}
}

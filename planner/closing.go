package planner

import (
	"context"
	"errors"
	"time"

	"github.com/leaderd/leaderd/state"
)

// closeUpTo closes the timeline up to an instant. It is tried until it is done.
func (t *term) closeUpTo(instant time.Time) {
	t.closing = later(t.closing, instant)
	t.closings++
	t.tryClose()
}

// tryClose closes up to t.closing: if the stored end cannot be read that is what
// makes sure that nothing is opened.
func (t *term) tryClose() {
	instant := t.closing
	t.task(func(ctx context.Context) func() {
		closed, err := t.store.CloseTimeline(ctx, t.leadership, instant)
		return func() {
			if err != nil {
				t.checkErr("close the timeline", err)
				t.later(time.Second, t.tryClose)
				return
			}
			if closed.Revision > t.closed.Revision {
				t.closed = closed
				t.reopen()
			}
			if t.closings--; t.closings > 0 {
				return
			}
			waiting := t.afterClosing
			t.afterClosing = nil
			for _, do := range waiting {
				do()
			}
		}
	})
}

// watchClosed looks whether the closed part is as this term wrote it: while it is
// not, no claim can be made. Only this term writes it, so it is closed again.
func (t *term) watchClosed() {
	if t.watching || t.closings > 0 || t.closed.Revision == 0 {
		return
	}
	t.watching = true
	known := t.closed.Revision
	t.task(func(ctx context.Context) func() {
		stored, err := t.store.GetClosed(ctx)
		return func() {
			t.watching = false
			gone := err == nil && stored.Revision < known
			if gone {
				err = errClosedGone
			}
			if t.closings > 0 || t.closed.Revision != known || !gone && !errors.Is(err, state.ErrUnreadable) {
				return // an outage of the store is told by those who write
			}
			t.unreadable("timeline/closed", err, "the timeline is closed again as far as it was")
			t.closeUpTo(t.closing)
		}
	})
}

// onceClosed runs do when no closing is under way.
func (t *term) onceClosed(do func()) {
	if t.closings == 0 {
		do()
		return
	}
	t.afterClosing = append(t.afterClosing, do)
}

// reopen lets open entries start that the closed part has swallowed: they are
// planned again, as slots that are caught up.
func (t *term) reopen() {
	for _, e := range t.open {
		if !e.slot() || micros(e.start).After(t.closed.Instant) {
			continue
		}
		if e.closed == 0 {
			t.catchUps++
		}
		e.closed, e.holders = t.closed.Revision, nil
		if !e.deciding {
			t.place(e)
		}
	}
}

// verify deals with a slot in the closed part that an executor calls decided:
// it may only have been closed when its claim of an older plan came.
func (t *term) verify(e *entry) {
	slot := micros(e.due)
	t.task(func(ctx context.Context) func() {
		decided, err := t.store.ListDecided(ctx, e.version.ID, slot, slot)
		return func() {
			switch {
			case e.done || e.deciding:
			case err != nil:
				t.checkErr("look for a record of "+e.version.ID.String(), err)
				t.lookAt(e, t.now().Add(time.Second).UnixMicro())
			case decided.Has(slot):
				t.close(e)
				t.musterOnce(e)
			case e.closed != 0 && len(e.holders) == 0:
				t.place(e)
			}
		}
	})
}

// holdMark keeps the watermark from passing from until replays is counted down.
func (t *term) holdMark(from time.Time) {
	if t.replays == 0 || from.Before(t.replayed) {
		t.replayed = from
	}
	t.replays++
}

// catchUp opens the entries of slots of an outage, in order. Of several each is
// planned once the one before it has started, or will not.
func (t *term) catchUp(j *timed, version *Job, slots []time.Time, now time.Time) {
	var last *entry
	for _, slot := range slots {
		e := t.catchUpOne(j, version, slot, now, last)
		if e != nil && !e.done {
			last = e
		}
	}
}

// catchUpOne opens the entry of a slot of an outage, and answers it if it may start.
// If the job has been changed since the slot was looked for, it gets its verdict
// instead.
func (t *term) catchUpOne(j *timed, version *Job, slot, now time.Time, behind *entry) *entry {
	e := slotEntry(j, version, slot)
	to := j.job
	switch {
	case t.jobs[version.ID] != j: // deleted
		switch {
		case j.end == nil:
			if t.add(e, now) {
				t.suspend(e)
			}
			return nil
		case slot.After(j.end.at):
			return nil
		}
		to = nil
	case to == version:
		if behind != nil {
			e.behind = behind
		}
		if !t.add(e, now) {
			return nil
		}
		if behind != nil {
			behind.ahead = e
		}
		return e
	case to.Effective.Before(slot):
		return nil // the slot is the newer version's
	}
	if t.add(e, now) {
		t.decide(e, state.StateSkipped, whySkipped(to), now)
	}
	return nil
}

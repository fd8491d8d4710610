package planner

import (
	"context"
	"errors"
	"time"

	"github.com/leaderd/leaderd/state"
)

// mark sends the watermark to its writer, and closes the timeline behind it.
func (t *term) mark(now time.Time) {
	instant := now
	if t.planned.Before(now) {
		instant = t.planned
	}
	for t.byDue.len() > 0 {
		due, e := t.byDue.top()
		if e.done {
			t.byDue.pop()
			continue
		}
		if before := micros(due).Add(-time.Second); before.Before(instant) {
			instant = before
		}
		break
	}
	if t.replays > 0 && t.replayed.Before(instant) {
		instant = t.replayed
	}
	t.lastMark = now
	t.floor = later(t.floor, instant)
	instant = t.floor
	late := t.lateness.summary(now)
	select {
	case <-t.marks: // an older one that was not written yet
	default:
	}
	t.marks <- state.Watermark{Instant: instant, Written: now, Lateness: late}
	t.metrics.watermarkLag.Set(now.Sub(instant).Seconds())

	if behind := instant.Add(-closedBehind); behind.Sub(t.closing) >= time.Minute && t.replays == 0 && t.catchUps == 0 {
		t.closeUpTo(behind)
	}
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
			if err != nil && ctx.Err() == nil {
				t.cfg.Logger.Warn("watermark could not be written; the next one follows in a second", "err", err)
			}
		}
	}
}

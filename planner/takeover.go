package planner

import (
	"context"
	"errors"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
)

// maxHeld is how many horizons the watermark may be behind the clock for a new
// leader to plan all slots since one by one.
const maxHeld = 2

// begin reads where the timeline is, and which jobs were deleted before it was
// begun to follow their changes.
//
// A watermark that cannot be read is replaced by an older one, which is as true:
// the one of the newest closing, or where that is not known either, none, as if
// nobody had led yet. Then all slots since are worked up by what is stored of
// them. The end of the closed part, where it cannot be read, is not guessed:
// takeOver closes up to now, behind which nobody has closed anything.
func (t *term) begin(ctx context.Context) (mark state.Watermark, gone []state.JobVersion, err error) {
	mark, markErr := t.store.GetWatermark(ctx)
	if markErr != nil && !errors.Is(markErr, state.ErrUnreadable) {
		return mark, nil, markErr
	}
	closed, err := t.store.GetClosed(ctx)
	switch {
	case errors.Is(err, state.ErrUnreadable):
		t.unreadable("timeline/closed", err, "the timeline is closed anew up to now, and slots since the watermark are worked up as an outage")
		t.closedLost = true
	case err != nil:
		return mark, nil, err
	default:
		t.closed = closed
	}
	if markErr != nil {
		if mark.Revision = 0; !closed.Mark.IsZero() {
			mark = state.Watermark{Instant: closed.Mark, Written: closed.Mark, Revision: closed.Revision}
		}
		t.unreadable("timeline/watermark", markErr, "an older watermark is taken in its place, and slots since are worked up as an outage",
			"watermark", markText(mark))
	}
	t.closing = t.closed.Instant
	gone, err = t.store.ListDeleted(ctx)
	return mark, gone, err
}

// unreadable tells of a key of the leader's alone that somebody else has written.
func (t *term) unreadable(key string, err error, handled string, args ...any) {
	t.metrics.unreadable.WithLabelValues(key).Inc()
	t.cfg.Logger.Error("the leader's own key cannot be read and is written anew; find out who wrote to it",
		append([]any{"key", key, "handled", handled, "err", err}, args...)...)
}

// takeOver begins where the watermark is. Slots behind it are done with; those
// since are planned again, and the claims of those that have a record come to
// nothing. If nobody led for longer than the horizon, they are an outage; so are
// those that an earlier leader had closed, and may not have worked up.
//
// One late slot holds the mark back for as long as its deadline. What lies further
// behind than held is then worked up job by job too, by what is stored: planned one
// by one, the slots of all jobs since would be in the way of those that are due.
func (t *term) takeOver(jobs []*Job, gone []state.JobVersion, mark state.Watermark, now time.Time) {
	from, seen := mark.Instant, mark.Written
	if mark.Revision == 0 {
		// Nobody has led yet.
		from = now
		for _, j := range jobs {
			if j.due() && j.Effective.Before(from) {
				from = j.Effective
			}
		}
		seen = from
	} else {
		t.spoken = mark.Jobs
		t.compareClocks(mark.Written, now)
	}
	t.floor = from
	t.unclaimed = newUnclaimed(mark, now, t.cfg.Horizon)
	before := spoken{from, mark.Jobs, state.MaxJitter}
	t.lastSeen = now
	// Up to edge slots are worked up one by one, whose records are looked for;
	// behind it they are planned.
	edge := t.closed.Instant
	if t.closedLost || now.Sub(seen) > t.cfg.Horizon {
		edge = later(edge, now.Truncate(time.Second))
	}
	if t.closedLost {
		edge = later(edge, mark.Written) // by an earlier leader's clock
	}
	why := state.ReasonOutage
	if held := now.Add(-t.cfg.Horizon).Truncate(time.Second); now.Sub(from) > maxHeld*t.cfg.Horizon && held.After(edge) {
		edge, why = held, state.ReasonUnclaimed
	}
	t.planned = later(from, edge)
	if edge.After(from) || t.closedLost {
		if why == state.ReasonOutage {
			t.logOutage(from, edge)
		} else {
			t.cfg.Logger.Info("a late slot had held the watermark; slots behind it are looked through", "from", from, "to", edge)
		}
		t.closeUpTo(edge)
	}
	for _, id := range mark.UnreadableGates {
		t.suspectGate(id)
	}
	for _, j := range jobs {
		timed := t.newTimed(j)
		t.jobs[j.ID] = timed
		t.watchPause(j)
		t.watchFailures(timed)
		t.watchChain(timed)
		t.trimDead(timed)
		if mutant.Off(mutant.Replay) {
			t.timeline.put(timed, now)
			continue
		}
		w := window{version: j, part: part{from: before.since(j.Revision, j.Effective), until: edge}, older: &before, why: why}
		t.timeline.put(timed, later(w.from, edge))
		if j.mayOwe(w.part) {
			if t.closings == 0 {
				t.closeUpTo(edge) // which voids what an earlier leader catches up
			}
			t.holdMark(from)
			t.onceClosed(func() { t.afterNews(j, func() { t.replay(timed, w) }) })
		} else if before.changed(j) {
			t.holdMark(from)
			t.onceClosed(func() { t.replayOlder(timed, j, before) })
		}
	}
	t.failures.audit = true
	for i := range gone {
		d := &gone[i]
		if t.jobs[d.Job.ID] == nil && before.ended(d.Job.Revision, d.Time) {
			t.holdMark(from)
			t.onceClosed(func() { t.replayGone(d, before) })
		}
	}
}

func (t *term) logOutage(from, to time.Time) {
	t.cfg.Logger.Warn("nobody planned for a while; slots that fell due are caught up by their jobs' policies",
		"from", from, "to", to)
}

// spoken is a watermark, and the revision of the jobs that it speaks for: all
// slots up to instant of versions that were stored up to there are decided. 0: that
// is not known.
type spoken struct {
	instant time.Time
	jobs    int64
	// jitter is how long after a version's end its slots may be due that are looked
	// at: what ended before instant may have some left.
	jitter time.Duration
}

// since is the instant after which slots of a version are looked at, which was
// stored at a revision.
func (s spoken) since(revision int64, effective time.Time) time.Time {
	if s.jobs == 0 && effective.After(s.instant.Add(-recheck)) || s.jobs != 0 && revision > s.jobs {
		return effective
	}
	return later(s.instant, effective)
}

// ended tells whether slots may be undecided of versions that a change at a
// revision ended as of an instant.
func (s spoken) ended(revision int64, at time.Time) bool {
	if s.jobs == 0 {
		return at.After(s.instant.Add(-recheck))
	}
	return revision > s.jobs || at.After(s.instant)
}

// changed tells whether slots of older versions of a job may be undecided.
func (s spoken) changed(j *Job) bool { return j.Generation > 1 && s.ended(j.Revision, j.Effective) }

// overslept works up the slots in (t.planned, until], which the clock has jumped
// over: the latest of a job runs, if the job wants it and its deadline allows,
// and the others are missed. The watermark stays behind them until all is done.
// Slots after until are planned at once.
func (t *term) overslept(until time.Time) {
	from := t.planned
	t.logOutage(from, until)
	t.planned = later(t.planned, until)
	t.closeUpTo(until)
	for _, j := range t.jobs {
		w := window{version: j.job, part: part{from, from, until}, why: state.ReasonOutage}
		if j.at >= 0 && j.next <= from.Unix() { // a change has just put it there
			w.from = time.Unix(j.next, 0).Add(-time.Second)
			w.after = w.from
		}
		t.timeline.put(j, until)
		if w.version.mayOwe(w.part) {
			t.holdMark(w.from)
			t.onceClosed(func() { t.replay(j, w) })
		}
	}
}

// window is a part of the closed timeline that is to be worked up for a version of a
// job, and for those before it that older leaves, if that is set. why is the reason
// for which its slots are missed.
type window struct {
	part
	version *Job
	older   *spoken
	why     string
}

// replay decides the slots of a window. It counts down replays when that is
// done. A job's replays follow one another.
func (t *term) replay(j *timed, w window) { t.inTurn(j, func() { t.tryReplay(j, w) }) }

func (t *term) tryReplay(j *timed, w window) {
	closed, began := t.closed, t.toldSlots(w.version)
	t.task(func(ctx context.Context) func() {
		var again []time.Time
		err := safely(func() (err error) {
			again, err = t.missOutage(ctx, w.version, w.part, began, closed.Revision, w.why)
			if err == nil && w.older != nil && w.older.changed(w.version) {
				err = t.skipOlder(ctx, endingBy(w.version), *w.older, closed)
			}
			return err
		})
		return func() {
			if err != nil {
				t.checkErr("work up an outage of "+w.version.ID.String(), err)
				t.later(time.Second, func() { t.tryReplay(j, w) })
				return
			}
			t.replays--
			t.catchUp(j, w.version, again, t.now())
			t.nextTurn(j)
		}
	})
}

// inTurn runs do when what was run before it for the job has called nextTurn.
func (t *term) inTurn(j *timed, do func()) {
	if j.replays != nil {
		*j.replays = append(*j.replays, do)
		return
	}
	j.replays = new([]func())
	do()
}

func (t *term) nextTurn(j *timed) {
	waiting := *j.replays
	if len(waiting) == 0 {
		j.replays = nil
		return
	}
	*j.replays = waiting[1:]
	waiting[0]()
}

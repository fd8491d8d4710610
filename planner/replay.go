package planner

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// missOutage gives the verdict missed:outage to every slot of the job in
// (from, until] that has no record, but for the latest if that is to be caught
// up: then it is answered.
func (t *term) missOutage(ctx context.Context, j *Job, from, until time.Time, closed int64) (latest time.Time, ok bool, err error) {
	if from.Before(j.Effective) {
		from = j.Effective
	}
	first, last := j.NextSlot(from), j.schedules.prev(until)
	if first.IsZero() || first.After(until) {
		return time.Time{}, false, nil
	}
	decided, err := t.store.ListDecided(ctx, j.ID, last, last)
	if err != nil {
		return time.Time{}, false, err
	}
	ok = j.CatchUp && !decided.Has(last) && until.Sub(last) <= j.Deadline
	end := last // the last slot to miss
	if ok {
		end = last.Add(-time.Second)
	}
	return last, ok, t.missWindow(ctx, j, from, end, closed, state.StateMissed, state.ReasonOutage)
}

// missWindow gives every slot of a version in (from, until] that has no record
// the same verdict.
func (t *term) missWindow(
	ctx context.Context, v *Job, from, until time.Time, closed int64, to state.RunState, reason string,
) error {
	first, last := v.schedules.next(from), v.schedules.prev(until)
	if first.IsZero() || first.After(last) {
		return nil
	}
	decided, err := t.store.ListDecided(ctx, v.ID, first, last)
	if err != nil {
		return err
	}
	for _, gap := range gaps(&decided, first, last) {
		if err := t.missRange(ctx, v, gap[0], gap[1], closed, to, reason); err != nil {
			return err
		}
	}
	return nil
}

// changedSince tells whether an older version of the job may have been due
// after from.
func changedSince(j *Job, from time.Time) bool { return j.Generation > 1 && j.Effective.After(from) }

// ending is what ended a job's older versions: a newer one, or its deletion.
type ending struct {
	id         state.JobID
	generation int64
	at         time.Time
	reason     string
}

func endingBy(j *Job) ending { return ending{j.ID, j.Generation, j.Effective, whySkipped(j)} }

// eachOlder calls do with each older version of a job that was in force after
// from, the window (from, until] in which it was, and why that ended.
func (t *term) eachOlder(
	ctx context.Context, end ending, from time.Time, do func(v *Job, from, until time.Time, reason string) error,
) error {
	older, err := t.store.OlderVersions(ctx, end.id, end.generation)
	if err != nil {
		return err
	}
	until, reason := end.at, end.reason
	for i := range older {
		v := compile(&older[i].Job, nil)
		if older[i].Change == state.ChangeDelete {
			until, reason = older[i].Time, whySkipped(nil)
		} else {
			if begun := later(from, v.Effective); v.due() && begun.Before(until) {
				if err := do(v, begun, until, reason); err != nil {
					return err
				}
			}
			until, reason = v.Effective, whySkipped(v)
		}
		if !until.After(from) {
			break
		}
	}
	return nil
}

// skipOlder gives the slots since from of a job's older versions, which its
// change left without a record, their verdicts.
func (t *term) skipOlder(ctx context.Context, end ending, from time.Time, closed state.Closed) error {
	if end.generation <= 1 || !end.at.After(from) {
		return nil
	}
	return t.eachOlder(ctx, end, from, func(v *Job, from, until time.Time, reason string) error {
		return t.skip(ctx, v, from, until, closed, reason)
	})
}

// skip gives every slot of a version in (from, until] that has no record the
// verdict skipped.
func (t *term) skip(ctx context.Context, v *Job, from, until time.Time, closed state.Closed, reason string) error {
	if edge := closed.Instant; from.Before(edge) {
		if until.Before(edge) {
			edge = until
		}
		if err := t.missWindow(ctx, v, from, edge, closed.Revision, state.StateSkipped, reason); err != nil {
			return err
		}
		from = edge
	}
	first, last := v.schedules.next(from), v.schedules.prev(until)
	if first.IsZero() || first.After(last) {
		return nil
	}
	decided, err := t.store.ListDecided(ctx, v.ID, first, last)
	if err != nil {
		return err
	}
	for slot := first; !slot.IsZero() && !slot.After(last); slot = v.schedules.next(slot) {
		if decided.Has(slot) {
			continue
		}
		if _, err := t.store.Decide(ctx, t.leadership, state.Record{
			Job: v.ID, Run: state.SlotRunID(slot), Generation: v.Generation, State: state.StateSkipped,
			Reason: reason, Due: slot, Recorded: t.now(), Shards: 1,
		}, v.Exclusive, 0); err != nil {
			return err
		}
	}
	return nil
}

// replayOlder is skipOlder beside the loop. It counts down replays.
func (t *term) replayOlder(j *timed, version *Job, from time.Time) {
	t.inTurn(j, func() {
		t.tryReplayOlder(version.ID, func(ctx context.Context, closed state.Closed) error {
			return t.skipOlder(ctx, endingBy(version), from, closed)
		}, func() { t.nextTurn(j) })
	})
}

// replayGone gives the last slots of a deleted job their verdicts. It counts
// down replays.
func (t *term) replayGone(d *state.JobVersion, from time.Time) {
	end := ending{d.Job.ID, d.Job.Generation, d.Time, whySkipped(nil)}
	t.tryReplayOlder(end.id, func(ctx context.Context, closed state.Closed) error {
		return t.skipOlder(ctx, end, from, closed)
	}, func() {})
}

// forgetDeleted drops the notes of deletions that the watermark has passed.
func (t *term) forgetDeleted() {
	if t.replays > 0 {
		return // the next sweep does
	}
	until := t.floor.Add(-recheck)
	t.task(func(ctx context.Context) func() {
		gone, err := t.store.ListDeleted(ctx)
		for i := range gone {
			if err == nil && gone[i].Time.Before(until) {
				err = t.store.ForgetDeleted(ctx, t.leadership, &gone[i])
			}
		}
		return func() { t.checkErr("forget deleted jobs", err) }
	})
}

func (t *term) tryReplayOlder(id state.JobID, do func(context.Context, state.Closed) error, done func()) {
	closed := t.closed
	t.task(func(ctx context.Context) func() {
		err := do(ctx, closed)
		return func() {
			if err != nil {
				t.checkErr("look at older versions of "+id.String(), err)
				t.later(time.Second, func() { t.tryReplayOlder(id, do, done) })
				return
			}
			t.replays--
			done()
		}
	})
}

// gaps are the windows between first and last, both included, that hold no
// decided slot.
func gaps(decided *state.Decided, first, last time.Time) [][2]time.Time {
	type window struct{ from, to time.Time }
	var taken []window
	for _, slot := range slices.SortedFunc(maps.Keys(decided.Slots), time.Time.Compare) {
		taken = append(taken, window{slot, slot})
	}
	for i := range decided.Ranges {
		taken = append(taken, window{decided.Ranges[i].Due, decided.Ranges[i].Until})
	}
	slices.SortFunc(taken, func(a, b window) int { return a.from.Compare(b.from) })
	var out [][2]time.Time
	from := first
	for _, w := range taken {
		if to := w.from.Add(-time.Second); !to.Before(from) && !from.After(last) {
			if to.After(last) {
				to = last
			}
			out = append(out, [2]time.Time{from, to})
		}
		from = later(from, w.to.Add(time.Second))
	}
	if !from.After(last) {
		out = append(out, [2]time.Time{from, last})
	}
	return out
}

// missRange stores one verdict for all slots from from to to, both included.
func (t *term) missRange(
	ctx context.Context, j *Job, from, to time.Time, closed int64, verdict state.RunState, reason string,
) error {
	before := from.Add(-time.Second)
	n := j.schedules.count(before, to)
	if n == 0 {
		return nil
	}
	rec := state.Record{
		Job: j.ID, Generation: j.Generation, State: verdict, Reason: reason,
		Due: j.schedules.next(before), Recorded: t.now(), Shards: 1,
	}
	rec.Run = state.SlotRunID(rec.Due)
	rec.Until = rec.Due
	if n > 1 {
		rec.Until, rec.Count = j.schedules.prev(to), n
	}
	ok, err := t.store.DecideRange(ctx, t.leadership, rec, closed)
	if err != nil {
		return err
	}
	if !ok {
		return errChangedMeanwhile
	}
	t.metrics.decided.WithLabelValues(rec.State.String(), rec.Reason).Add(float64(n))
	return nil
}

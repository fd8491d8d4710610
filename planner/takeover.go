package planner

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// takeOver begins where the watermark is. Slots behind it are done with; those
// since are planned again, and the claims of those that have a record come to
// nothing. If nobody led for longer than the horizon, they are an outage.
func (t *term) takeOver(jobs []*Job, mark state.Watermark, now time.Time) {
	from := mark.Instant
	if mark.Revision == 0 {
		from = now
	}
	t.planned, t.lastSeen = from, now
	down := mark.Revision != 0 && now.Sub(mark.Written) > t.cfg.Horizon
	for _, j := range jobs {
		timed := newTimed(j)
		t.jobs[j.ID] = timed
		after := from
		if j.Effective.After(from.Add(-recheck)) {
			// It may have changed just as the watermark passed.
			after = j.Effective
		}
		if down {
			timed.next = slotSeconds(j.NextSlot(after)) // for outage to see
			continue
		}
		t.timeline.put(timed, after)
		if changedSince(j, from) {
			t.holdMark(from)
			t.replayOlder(j, from)
		}
	}
	if down {
		t.outage(from, now)
	}
}

// outage works up the slots in (from, now], in which nobody planned: the latest
// of a job runs, if the job wants it and its deadline allows, and the others are
// missed. The watermark stays at from until all is done. Slots after now are
// planned at once.
func (t *term) outage(from, now time.Time) {
	t.cfg.Logger.Warn("nobody planned for a while; slots that fell due are caught up by their jobs' policies",
		"from", from, "to", now)
	until := now.Truncate(time.Second)
	var behind []*timed
	for _, j := range t.jobs {
		if j.next != never && j.next <= until.Unix() || changedSince(j.job, from) {
			behind = append(behind, j)
		}
		t.timeline.put(j, until)
	}
	t.planned = later(t.planned, until)
	if len(behind) == 0 {
		return
	}
	t.holdMark(from)
	t.closeFor(behind, from, until)
}

// holdMark keeps the watermark from passing from until replays is counted down.
func (t *term) holdMark(from time.Time) {
	if t.replays == 0 || from.Before(t.replayed) {
		t.replayed = from
	}
	t.replays++
}

// closeFor closes the timeline up to until, so that no claim of an old plan
// comes in between, then replays the jobs.
func (t *term) closeFor(behind []*timed, from, until time.Time) {
	t.task(func(ctx context.Context) func() {
		closed, err := t.store.CloseTimeline(ctx, t.leadership, until)
		return func() {
			if err != nil {
				t.checkErr("close the timeline after an outage", err)
				t.later(time.Second, func() { t.closeFor(behind, from, until) })
				return
			}
			t.closed = later(t.closed, closed.Instant)
			for _, e := range t.open {
				if e.closed != 0 { // caught up after an earlier outage
					e.closed, e.holders = closed.Revision, nil
					t.place(e)
				}
			}
			for _, j := range behind {
				t.replays++
				t.replay(j, j.job, from, until, closed.Revision)
			}
			t.replays--
		}
	})
}

// replay decides one job's slots of an outage.
func (t *term) replay(j *timed, version *Job, from, until time.Time, closed int64) {
	t.task(func(ctx context.Context) func() {
		latest, ok, err := t.missOutage(ctx, version, from, until, closed)
		if err == nil && changedSince(version, from) {
			err = t.eachOlder(ctx, version, from, func(v *Job, from, until time.Time) error {
				return t.missWindow(ctx, v, from, until, closed, state.StateSkipped, state.ReasonSuperseded)
			})
		}
		return func() {
			if err != nil {
				t.checkErr("work up an outage of "+version.ID.String(), err)
				t.later(time.Second, func() { t.replay(j, version, from, until, closed) })
				return
			}
			t.replays--
			if ok && j.job == version {
				t.add(&entry{
					entryKey: entryKey{job: j, due: latest.UnixMicro()}, version: version, closed: closed,
				}, time.Now())
			}
		}
	})
}

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

// eachOlder calls do with each older version of a job that was in force after
// from, and the window (from, until] in which it was.
func (t *term) eachOlder(ctx context.Context, j *Job, from time.Time, do func(v *Job, from, until time.Time) error) error {
	older, err := t.store.OlderVersions(ctx, j.ID, j.Generation)
	if err != nil {
		return err
	}
	until := j.Effective
	for i := range older {
		v := compile(&older[i], nil)
		begun := later(from, v.Effective)
		if v.due() && begun.Before(until) {
			if err := do(v, begun, until); err != nil {
				return err
			}
		}
		if until = v.Effective; !until.After(from) {
			break
		}
	}
	return nil
}

// replayOlder gives slots since from of a job's older versions, which its change
// left without a record, the verdict skipped:superseded.
func (t *term) replayOlder(j *Job, from time.Time) {
	t.task(func(ctx context.Context) func() {
		err := t.eachOlder(ctx, j, from, func(v *Job, from, until time.Time) error {
			for slot := v.schedules.next(from); !slot.IsZero() && !slot.After(until); slot = v.schedules.next(slot) {
				if _, err := t.store.Decide(ctx, t.leadership, state.Record{
					Job: v.ID, Run: state.SlotRunID(slot), Generation: v.Generation, State: state.StateSkipped,
					Reason: state.ReasonSuperseded, Due: slot, Recorded: time.Now(), Shards: 1,
				}, v.Exclusive, 0); err != nil {
					return err
				}
			}
			return nil
		})
		return func() {
			if err != nil {
				t.checkErr("look at older versions of "+j.ID.String(), err)
				t.later(time.Second, func() { t.replayOlder(j, from) })
				return
			}
			t.replays--
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
		Due: j.schedules.next(before), Recorded: time.Now(), Shards: 1,
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

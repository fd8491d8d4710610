package planner

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// missOutage gives the verdict missed, for the reason why, to every slot of the job in
// (from, until] that has no record, but for the latest if that is to be caught
// up: then it is answered.
func (t *term) missOutage(ctx context.Context, j *Job, from, until time.Time, closed int64, why string) (
	latest time.Time, ok bool, err error,
) {
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
	return last, ok, t.missWindow(ctx, j, from, end, closed, state.StateMissed, why)
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

// ending is what ended a job's older versions: a newer one, or its deletion.
type ending struct {
	id         state.JobID
	generation int64
	at         time.Time
	reason     string
}

func endingBy(j *Job) ending { return ending{j.ID, j.Generation, j.Effective, whySkipped(j)} }

// span is a version of a job, the window (from, until] in which it was in force and
// its slots may be undecided, and why that ended.
type span struct {
	version     *Job
	from, until time.Time
	reason      string
}

// spansOf are the spans of a job's older versions, the newest first, where end is
// what ended them and before what had been decided. A version ends with the first
// of those that are newer, whatever the clocks of those who made them. last is
// what ended the versions behind; whole is set where nothing of these is undecided.
func spansOf(end ending, older []state.JobVersion, before spoken) (spans []span, last ending, whole bool) {
	last = end
	for i := range older {
		v := &older[i]
		if !before.ended(v.Job.Revision, last.at) {
			return spans, last, true
		}
		if v.Change == state.ChangeDelete {
			last.ends(v.Job.Generation, v.Time, whySkipped(nil))
			continue
		}
		j := compile(&v.Job, nil)
		if from := before.since(v.Job.Revision, j.Effective); j.due() && from.Before(last.at) {
			spans = append(spans, span{j, from, last.at, last.reason})
		}
		last.ends(j.Generation, j.Effective, whySkipped(j))
	}
	return spans, last, false
}

// ends has what is before a version end with it, unless it had ended before.
func (e *ending) ends(generation int64, at time.Time, reason string) {
	e.generation = generation
	if !at.After(e.at) {
		e.at, e.reason = at, reason
	}
}

// skipOlder gives the slots of a job's older versions, which its change left
// without a record, their verdicts.
func (t *term) skipOlder(ctx context.Context, end ending, before spoken, closed state.Closed) error {
	if end.generation <= 1 {
		return nil
	}
	older, err := t.olderVersions(ctx, end.id, end.generation, func(older []state.JobVersion) bool {
		_, _, whole := spansOf(end, older, before)
		return whole
	})
	if err != nil {
		return err
	}
	spans, _, _ := spansOf(end, older, before)
	return t.skipSpans(ctx, spans, closed)
}

// olderVersions are a job's versions before a generation, 0 for all, the newest first,
// as many as enough asks for or as there are.
func (t *term) olderVersions(
	ctx context.Context, id state.JobID, before int64, enough func([]state.JobVersion) bool,
) (all []state.JobVersion, err error) {
	for {
		page, next, err := t.store.OlderVersions(ctx, id, before)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); next == 0 || enough(all) {
			return all, nil
		}
		before = next
	}
}

func (t *term) skipSpans(ctx context.Context, spans []span, closed state.Closed) error {
	for i := range spans {
		s := &spans[i]
		if err := t.skip(ctx, s.version, s.from, s.until, closed, s.reason); err != nil {
			return err
		}
	}
	return nil
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
func (t *term) replayOlder(j *timed, version *Job, before spoken) {
	t.inTurn(j, func() {
		t.tryReplayOlder(version.ID, func(ctx context.Context, closed state.Closed) error {
			return t.skipOlder(ctx, endingBy(version), before, closed)
		}, func() { t.nextTurn(j) })
	})
}

// replayGone gives the last slots of a deleted job their verdicts. It counts
// down replays.
func (t *term) replayGone(d *state.JobVersion, before spoken) {
	end := endingOf(d)
	t.tryReplayOlder(end.id, func(ctx context.Context, closed state.Closed) error {
		return t.skipOlder(ctx, end, before, closed)
	}, func() {})
}

// forgetDeleted drops the notes of deletions that the stored watermark speaks for
// and has passed.
func (t *term) forgetDeleted() {
	mark := t.durable.Load()
	if mark == nil {
		return // the next sweep does
	}
	t.task(func(ctx context.Context) func() {
		gone, err := t.store.ListDeleted(ctx)
		for i := range gone {
			if err == nil && gone[i].Job.Revision <= mark.Jobs && !gone[i].Time.After(mark.Instant) {
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

package planner

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// missOutage gives the verdict missed, for the reason why, to every slot of the job
// that was due in a part of the timeline and has no record, but for those that are
// to be caught up, or whose runs began without a claim: these are answered, in order.
// Slots that would not have run have the verdict for that.
func (t *term) missOutage(
	ctx context.Context, j *Job, p part, began []time.Time, closed int64, why string,
) (again []time.Time, err error) {
	first, last := j.firstOf(p), j.schedules.prev(p.until)
	if first.IsZero() || first.After(last) {
		return nil, nil
	}
	decided, err := t.store.ListDecided(ctx, j.ID, first, last)
	if err != nil {
		return nil, err
	}
	again = j.toCatchUp(&decided, p, first, last)
	if j.RunPlanned { // it was held until executors had told what they began
		now := t.now()
		again = slices.DeleteFunc(again, func(slot time.Time) bool { return now.Sub(j.Due(slot)) > j.CatchUpAge })
	}
	for _, slot := range began {
		if p.holds(j.Due(slot)) && !decided.Has(slot) && !slices.Contains(again, slot) {
			again = append(again, slot)
		}
	}
	slices.SortFunc(again, time.Time.Compare)
	for _, slot := range again {
		decided.Slots[slot] = struct{}{}
	}
	return again, t.missPart(ctx, j, p, first, last, &decided, closed, fate{state: state.StateMissed, reason: why})
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
		if !before.ended(v.Job.Revision, last.at.Add(before.jitter)) {
			return spans, last, true
		}
		if v.Change == state.ChangeDelete {
			last.ends(v.Job.Generation, v.Time, whySkipped(nil))
			continue
		}
		j := compile(&v.Job, nil)
		open := before.ended(v.Job.Revision, last.at.Add(min(j.jitter(), before.jitter)))
		if from := before.since(v.Job.Revision, j.Effective); open && j.due() && from.Add(-j.jitter()).Before(last.at) {
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
		if err := t.skip(ctx, s.version, part{from: s.from, until: s.until}, closed, s.reason); err != nil {
			return err
		}
	}
	return nil
}

// skip gives every slot of a version that is due after p.from, is up to p.until by
// its instant and has no record the verdict skipped.
func (t *term) skip(ctx context.Context, v *Job, p part, closed state.Closed, reason string) error {
	first, last := v.firstOf(p), v.schedules.prev(p.until)
	if first.IsZero() || first.After(last) {
		return nil
	}
	decided, err := t.store.ListDecided(ctx, v.ID, first, last)
	if err != nil {
		return err
	}
	why := fate{state: state.StateSkipped, reason: reason}
	if edge := closed.Instant; p.from.Before(edge) {
		end := last
		if edge.Before(end) {
			end = v.schedules.prev(edge)
		}
		if !end.Before(first) {
			behind := part{p.after, p.from, edge}
			if err := t.missPart(ctx, v, behind, first, end, &decided, closed.Revision, why); err != nil {
				return err
			}
		}
		p.from = edge
	}
	for slot := v.firstOf(p); !slot.IsZero() && !slot.After(last); slot = v.schedules.next(slot) {
		due := v.Due(slot)
		if !due.After(p.from) || decided.Has(slot) {
			continue
		}
		f := why.of(v, slot)
		if _, err := t.store.Decide(ctx, t.leadership, state.Record{
			Job: v.ID, Run: state.SlotRunID(slot), Generation: v.Generation, State: f.state,
			Reason: f.reason, Detail: f.detail, Due: due, Recorded: t.now(), Shards: 1,
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
		err := safely(func() error { return do(ctx, closed) })
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
	if !decided.Floor.IsZero() {
		taken = append(taken, window{time.Time{}, decided.Floor})
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

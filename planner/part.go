package planner

import (
	"context"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// part is a part (from, until] of the timeline, by when slots are due. Those up to
// after, by their instants, do not belong to it.
type part struct{ after, from, until time.Time }

func (p part) holds(due time.Time) bool { return due.After(p.from) && !due.After(p.until) }

// fate is the verdict of a slot that does not start.
type fate struct {
	state          state.RunState
	reason, detail string
}

// of is the fate of a slot that would have f: one that would not have run in any
// case says so.
func (f fate) of(v *Job, slot time.Time) fate {
	if bar, ok := v.Bar(slot); ok {
		return fate{state.StateSkipped, bar.Reason, bar.Detail}
	}
	return f
}

// toCatchUp are the slots in [first, last] that were due in p and are to run late,
// in order.
func (j *Job) toCatchUp(decided *state.Decided, p part, first, last time.Time) []time.Time {
	var out []time.Time
	for slot := last; len(out) < j.CatchUpMost && !slot.Before(first); slot = j.schedules.prev(slot.Add(-time.Second)) {
		if p.until.Sub(slot) > j.CatchUpAge+j.jitter() {
			break
		}
		due := j.Due(slot)
		if _, barred := j.Bar(slot); barred || !p.holds(due) || p.until.Sub(due) > j.CatchUpAge {
			continue
		}
		if !decided.Has(slot) {
			out = append(out, slot)
		} else if j.CatchUp == state.CatchUpLatest {
			break
		}
	}
	slices.Reverse(out)
	return out
}

// missPart gives every slot of a version in [first, last] that was due in p and is
// not decided a verdict: f, or that for which it would not have run anyway. Runs of
// the same are stored as one.
func (t *term) missPart(
	ctx context.Context, v *Job, p part, first, last time.Time, decided *state.Decided, closed int64, f fate,
) error {
	for ; t.oneByOne(v, first) && !first.IsZero() && !first.After(last); first = v.schedules.next(first) {
		if !p.holds(v.Due(first)) || decided.Has(first) {
			continue
		}
		if err := t.decideRange(ctx, v, slotRange{from: first, to: first, n: 1, fate: f.of(v, first)}, closed); err != nil {
			return err
		}
	}
	if first.IsZero() || first.After(last) {
		return nil
	}
	if v.rules == nil {
		for _, gap := range gaps(decided, first, last) {
			before := gap[0].Add(-time.Second)
			r := slotRange{from: v.schedules.next(before), to: v.schedules.prev(gap[1]), n: v.schedules.count(before, gap[1]), fate: f}
			if err := t.decideRange(ctx, v, r, closed); err != nil {
				return err
			}
		}
		return nil
	}
	var run slotRange
	for slot := first; !slot.IsZero() && !slot.After(last); slot = v.schedules.next(slot) {
		if err := ctx.Err(); err != nil {
			return err
		}
		open := p.holds(v.Due(slot)) && !decided.Has(slot)
		own := fate{}
		if open {
			own = f.of(v, slot)
		}
		if !open || own != run.fate {
			if err := t.decideRange(ctx, v, run, closed); err != nil {
				return err
			}
			run = slotRange{from: slot, fate: own}
		}
		if open {
			run.to = slot
			run.n++
		}
	}
	return t.decideRange(ctx, v, run, closed)
}

// slotRange are n slots of a version on end that share a fate.
type slotRange struct {
	from, to time.Time
	n        int64
	fate     fate
}

// decideRange stores one verdict for all slots of a range.
func (t *term) decideRange(ctx context.Context, v *Job, r slotRange, closed int64) error {
	if r.n == 0 {
		return nil
	}
	rec := state.Record{
		Job: v.ID, Run: state.SlotRunID(r.from), Generation: v.Generation, State: r.fate.state, Reason: r.fate.reason, Detail: r.fate.detail,
		Due: r.from, Until: r.from, Recorded: t.now(), Shards: 1,
	}
	if r.n > 1 {
		rec.Until, rec.Count = r.to, r.n
	}
	ok, err := t.store.DecideRange(ctx, t.leadership, rec, closed)
	if err != nil {
		return err
	}
	if !ok {
		return errChangedMeanwhile
	}
	t.metrics.decided.WithLabelValues(rec.State.String(), rec.Reason).Add(float64(r.n))
	return nil
}

// slotEntry makes the entry of a slot of a version.
func slotEntry(j *timed, v *Job, slot time.Time) *entry {
	e := &entry{
		entryKey: entryKey{job: j, due: slot.UnixMicro(), shard: v.first()}, version: v, start: v.Due(slot).UnixMicro(), split: v.splits(),
	}
	if bar, ok := v.Bar(slot); ok {
		e.bar = &bar
	}
	return e
}

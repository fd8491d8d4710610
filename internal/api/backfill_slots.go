package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// backfillSlot is a slot of the window, whether it gets a run, and what there is.
type backfillSlot struct {
	at   time.Time
	run  bool
	have string
}

// later is the later of two instants.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// slots are those of the window, in order of the runs. A window without an end ends with
// what is decided; one that reaches over slots which the cluster may yet run is refused,
// so that none of it is left out in silence.
func (s *backfillService) slots(ctx context.Context, job *state.Job, b *state.Backfill, now time.Time) ([]backfillSlot, error) {
	var v state.Violations
	plan := planner.Compile(job)
	switch {
	case plan.Broken != nil:
		v.Add("parent", "the job is quarantined: %s", plan.Broken)
		return nil, v
	case len(job.Spec.Schedules) == 0:
		v.Add("parent", "the job has no schedule, so it has no slots; see TriggerJob")
		return nil, v
	}
	decided := now
	mark, err := s.cfg.Watermark.GetWatermark(ctx)
	if err != nil && !errors.Is(err, store.ErrCorrupt) { // the leader writes it anew
		return nil, err
	}
	if err == nil && mark.Revision != 0 && mark.Instant.Before(decided) {
		decided = mark.Instant
	}
	past := now // up to which slots may be due that are not decided
	end := decided.Truncate(time.Second).Add(time.Second)
	if b.To.IsZero() {
		b.To = end
	} else if b.To.Before(past) {
		past = b.To
	}
	to := b.To
	if end.Before(to) {
		to = end
	}
	named, more := plan.NamedSlots(b.From, to, state.MaxBackfillSlots)
	switch {
	case more:
		v.Add("backfill.toTime", "the window has more than %d slots, the last of which is %s; ask for a shorter one",
			state.MaxBackfillSlots, named[len(named)-1].Format(time.RFC3339))
		return nil, v
	case len(named) == 0:
		if undecided, _ := plan.NamedSlots(later(to, b.From), past, 1); len(undecided) > 0 {
			v.Add("backfill.fromTime", "the slots from then on, such as %s, are still open: the watermark is at %s, %s behind%s; "+
				"the cluster may yet run them, so only slots before it can be run again", undecided[0].UTC().Format(time.RFC3339),
				decided.Format(time.RFC3339), now.Sub(decided).Round(time.Second), holder(mark.Late))
			return nil, v
		}
		v.Add("backfill.fromTime", "the job's schedules name no slot from then up to %s", to.Format(time.RFC3339))
		return nil, v
	}
	if open, _ := plan.NamedSlots(to, b.To, 1); len(open) > 0 {
		v.Add("backfill.toTime", "the slots from %s on are the cluster's own to run: the watermark is at %s%s; "+
			"leave the end out to have all before, or give that instant", open[0].UTC().Format(time.RFC3339),
			decided.Format(time.RFC3339), holder(mark.Late))
		return nil, v
	}
	have, err := s.have(ctx, b.Job, named)
	if err != nil {
		return nil, err
	}
	last := named[len(named)-1].Add(time.Second)
	again, err := s.cfg.Backfills.BackfilledSlots(ctx, b.Job, named[0], last)
	if err != nil {
		return nil, err
	}
	all := make([]backfillSlot, 0, len(named))
	for _, at := range named {
		slot := backfillSlot{at: at, run: true, have: "none"}
		if e := have(at); e != nil {
			slot.have, slot.run = haveOf(e)
		}
		if run, ok := again[at]; ok && slot.run {
			slot.have, slot.run = "run "+string(run), false
		}
		slot.run = slot.run || b.All
		if bar, barred := plan.Bar(at); barred { // it is not to run at all
			slot.have, slot.run = state.StateSkipped.String()+":"+bar.Reason, false
		}
		all = append(all, slot)
	}
	if b.Newest {
		slices.Reverse(all)
	}
	return all, nil
}

// holder names the job whose late run holds the watermark, where that is known.
func holder(l state.Late) string {
	if l.Runs == 0 {
		return ""
	}
	why := "has not started"
	if l.Reason != "" {
		why += ": " + l.Reason
	}
	return fmt.Sprintf(", held by %s, whose run due %s %s", l.Worst, l.Since.Format(time.RFC3339), why)
}

// have reads what there is of slots, which are in order.
func (s *backfillService) have(ctx context.Context, id state.JobID, slots []time.Time) (func(time.Time) *store.RunEntry, error) {
	byslot, ranges := map[time.Time]*store.RunEntry{}, []*store.RunEntry(nil)
	l := store.ListSlots{Job: id, From: slots[0], To: slots[len(slots)-1].Add(time.Second), Limit: maxPage}
	for l.From.Before(l.To) {
		page, err := s.cfg.Runs.ListSlots(ctx, l)
		if err != nil {
			return nil, err
		}
		if !page.Until.After(l.From) {
			return nil, fmt.Errorf("slots of %s from %s on cannot be read", id, l.From)
		}
		for i := range page.Slots {
			e := &page.Slots[i]
			if e.Record != nil && e.Record.Count > 1 {
				ranges = append(ranges, e)
			}
			if at, ok := e.Run.Slot(); ok {
				byslot[at] = e
			}
		}
		l.From = page.Until
	}
	return func(at time.Time) *store.RunEntry {
		if e := byslot[at]; e != nil {
			return e
		}
		for _, e := range ranges {
			if e.Record.Covers(at) {
				return e
			}
		}
		return nil
	}, nil
}

// haveOf says what there is of a slot, and whether that means that it is missing.
func haveOf(e *store.RunEntry) (text string, missing bool) {
	switch {
	case e.Broken != nil:
		return "unreadable", false
	case e.Record != nil:
		text = e.Record.State.String()
		if e.Record.Reason != "" {
			text += ":" + e.Record.Reason
		}
		return text, e.Record.State == state.StateSkipped || e.Record.State == state.StateMissed
	case len(e.Live) > 0:
		return e.Live[0].State.String(), false
	}
	return state.StatePending.String(), false
}

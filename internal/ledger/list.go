package ledger

import (
	"fmt"
	"time"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// maxSteps is how many slots one List computes.
const maxSteps = 20_000

// Input is what the ledger is made of.
type Input struct {
	Spans []Span
	// Records are those of the slots of the window, in order; the first may be a
	// verdict on a range that began before.
	Records []store.RunEntry
	// Floor is the instant up to which retention may have removed records, read behind
	// them; zero for none.
	Floor time.Time
	// Mark is the watermark, read before the rest; its Revision is 0 if there is none.
	Mark state.Watermark
	// Now is the wall clock.
	Now time.Time
}

// Entry is a slot, or a range of slots that share an answer.
type Entry struct {
	Answer      leaderdv1.Slot_Answer
	First, Last time.Time
	// Count is how many slots it stands for; 0 where that is not known.
	Count int64
	// Generation is the version that owed it; 0 where that is not known.
	Generation int64
	// Run is its record, where it has one.
	Run *store.RunEntry
	// By is the span that kept it from being due, where one did.
	By *Span
	// Detail says more, for people.
	Detail string
	// Excluded is the reason for which a planned slot will be skipped, state.ReasonDST
	// or state.ReasonCalendar; empty where it will run if nothing changes.
	Excluded string
}

// Window is what List is asked for.
type Window struct {
	// Since is the first instant of an edit that is told of by what it took away.
	Since time.Time
	// From and To are the slots, [From, To), in whole seconds.
	From, To time.Time
	// Most is the most entries to answer, at least 1.
	Most int
}

// List answers the slots of a window in order of their first instants. next is where
// to go on, the zero time if that is all: a list is cut where it has Most entries, and
// where it took too many steps.
func List(in *Input, w Window) (entries []Entry, next time.Time) {
	b := &builder{in: in, w: w}
	b.records = recordsOf(in.Records)
	for i := range in.Spans {
		s := &in.Spans[i]
		lo, hi := w.From.Add(-time.Second), w.To.Add(-time.Second)
		if s.From.After(lo) {
			lo = s.From
		}
		if !s.Until.IsZero() && s.Until.Before(hi) {
			hi = s.Until
		}
		if !lo.Before(hi) {
			continue
		}
		switch s.Kind {
		case KindDue:
			var was *Span
			if i > 0 {
				was = &in.Spans[i-1]
			}
			var then *Span
			if i+1 < len(in.Spans) {
				then = &in.Spans[i+1]
			}
			next = b.due(s, was, then, lo, hi)
		case KindPaused:
			next = b.idle(s, leaderdv1.Slot_ANSWER_PAUSED, lo, hi)
		case KindDeleted:
			next = b.idle(s, leaderdv1.Slot_ANSWER_DELETED, lo, hi)
		case KindQuarantined:
			b.unknown(s, leaderdv1.Slot_ANSWER_QUARANTINED, lo, hi)
		case KindUnknown:
			b.unknown(s, leaderdv1.Slot_ANSWER_UNKNOWN, lo, hi)
		}
		if !next.IsZero() {
			return b.entries, next
		}
	}
	b.take(w.To)
	return b.entries, time.Time{}
}

// record is a stored record and the slots that it stands for.
type record struct {
	first, last time.Time
	count       int64
	entry       *store.RunEntry
}

func (r *record) covers(slot time.Time) bool { return !slot.Before(r.first) && !slot.After(r.last) }

func recordsOf(entries []store.RunEntry) []record {
	records := make([]record, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		slot, ok := e.Run.Slot()
		if !ok {
			continue
		}
		r := record{slot, slot, 1, e}
		if rec := e.Record; rec != nil && rec.Count > 1 {
			if first, ok := rec.Run.Slot(); ok {
				r.first = first
			}
			r.last, r.count = rec.Until, rec.Count
		}
		records = append(records, r)
	}
	return records
}

type builder struct {
	in      *Input
	w       Window
	records []record // those that are not answered yet
	held    record   // the one that was answered last
	entries []Entry
	steps   int
}

func (b *builder) full() bool { return len(b.entries) >= b.w.Most || b.steps >= maxSteps }

// take answers the records of slots before an instant.
func (b *builder) take(before time.Time) {
	for len(b.records) > 0 && b.records[0].first.Before(before) {
		b.record()
	}
}

// record answers the first record, and the last slot that it stands for.
func (b *builder) record() (last time.Time) {
	r := b.records[0]
	b.records, b.held = b.records[1:], r
	e := Entry{Answer: leaderdv1.Slot_ANSWER_LIVE, First: r.first, Last: r.last, Count: r.count, Run: r.entry}
	switch {
	case r.entry.Record != nil:
		e.Answer, e.Generation = leaderdv1.Slot_ANSWER_VERDICT, r.entry.Record.Generation
	case r.entry.Broken != nil:
		e.Answer = leaderdv1.Slot_ANSWER_VERDICT // which cannot be read, as its run says
	case len(r.entry.Live) > 0:
		e.Generation = r.entry.Live[0].Generation
	}
	b.entries = append(b.entries, e)
	return r.last
}

// due answers the slots in (lo, hi] of a span that owes them, and those that the
// version before would have had. then is the span after it, nil for none.
func (b *builder) due(s, was, then *Span, lo, hi time.Time) (next time.Time) {
	slot := limited(s.job.NextSlot(lo), hi)
	lost, taken := time.Time{}, -1 // the slot that was edited away, and the entry of such
	if was != nil && was.Kind == KindDue && !s.From.Before(b.w.Since) {
		lost = limited(was.job.NextSlot(lo), hi)
	}
	for !slot.IsZero() || !lost.IsZero() {
		cur := slot
		if cur.IsZero() || !lost.IsZero() && lost.Before(cur) {
			cur = lost
		}
		if b.full() {
			if len(b.records) > 0 && b.records[0].first.Before(cur) {
				cur = b.records[0].first
			}
			return cur
		}
		b.steps++
		b.take(cur)
		through := cur // the last slot that this step answers
		switch {
		case cur.Equal(slot) && b.held.covers(cur):
			through = b.held.last
		case b.held.covers(cur) && s.names(cur):
			// The slot of both versions was passed with the others of the range.
		case len(b.records) > 0 && b.records[0].first.Equal(cur):
			through = b.record()
		case cur.Equal(slot):
			b.open(s, then, cur)
		case taken >= 0:
			b.entries[taken].Last = cur
			b.entries[taken].Count++
		default:
			taken = len(b.entries)
			b.entries = append(b.entries, Entry{
				Answer: leaderdv1.Slot_ANSWER_SUPERSEDED, First: cur, Last: cur, Count: 1, Generation: was.Version.Job.Generation, By: s,
			})
		}
		if !slot.IsZero() && !slot.After(through) {
			slot = limited(s.job.NextSlot(through), hi)
		}
		if !lost.IsZero() && !lost.After(cur) {
			lost = limited(was.job.NextSlot(cur), hi)
		}
	}
	return time.Time{}
}

// limited is a slot if there is one up to hi.
func limited(slot, hi time.Time) time.Time {
	if slot.After(hi) {
		return time.Time{}
	}
	return slot
}

// open answers a slot that has no record.
func (b *builder) open(s, then *Span, slot time.Time) {
	e := Entry{Answer: leaderdv1.Slot_ANSWER_OPEN, First: slot, Last: slot, Count: 1, Generation: s.Version.Job.Generation}
	due := s.job.Due(slot)
	switch m := &b.in.Mark; {
	case then != nil && due.After(s.Until):
		// Its jitter had it wait, and the version ended meanwhile.
		e.Answer, e.By = ended(then), then
	case !due.After(b.in.Floor):
		e.Answer = leaderdv1.Slot_ANSWER_REMOVED
	case !s.Expected && m.Revision != 0 && !due.After(m.Instant) && s.Version.Job.Revision <= m.Jobs:
		e.Answer = leaderdv1.Slot_ANSWER_UNEXPLAINED
	case due.After(b.in.Now):
		e.Answer = leaderdv1.Slot_ANSWER_PLANNED
		if bar, barred := s.job.Bar(slot); barred {
			e.Excluded, e.Detail = bar.Reason, fmt.Sprintf("it will be skipped:%s: %s", bar.Reason, bar.Detail)
		} else if !due.Equal(slot) {
			e.Detail = fmt.Sprintf("its jitter has it start %s later", due.Sub(slot))
		}
	}
	if n := len(b.entries) - 1; n >= 0 && e.Answer != leaderdv1.Slot_ANSWER_PLANNED {
		if last := &b.entries[n]; last.Answer == e.Answer && last.Generation == e.Generation {
			last.Last = slot
			last.Count++
			return
		}
	}
	b.entries = append(b.entries, e)
}

// ended is the answer to a slot that a span took away.
func ended(by *Span) leaderdv1.Slot_Answer {
	switch by.Kind {
	case KindPaused:
		return leaderdv1.Slot_ANSWER_PAUSED
	case KindDeleted:
		return leaderdv1.Slot_ANSWER_DELETED
	case KindQuarantined:
		return leaderdv1.Slot_ANSWER_QUARANTINED
	case KindUnknown, KindDue:
	}
	return leaderdv1.Slot_ANSWER_SUPERSEDED
}

// idle answers the slots in (lo, hi] that a span would have had, but for those that
// have a record.
func (b *builder) idle(s *Span, answer leaderdv1.Slot_Answer, lo, hi time.Time) (next time.Time) {
	for {
		b.take(lo.Add(1))
		end := hi
		if len(b.records) > 0 && !b.records[0].first.After(hi) {
			end = b.records[0].first.Add(-time.Second)
		}
		if b.full() {
			return lo.Truncate(time.Second).Add(time.Second)
		}
		n, last, more := b.count(s, lo, end)
		if n > 0 {
			b.entries = append(b.entries, Entry{
				Answer: answer, First: s.job.NextSlot(lo), Last: last, Count: n, Generation: s.Version.Job.Generation, By: s,
			})
		}
		switch {
		case more:
			return last.Add(time.Second)
		case end.Equal(hi):
			return time.Time{}
		}
		lo = b.record()
	}
}

// count is the number of slots in (lo, hi], the last of them, and whether it stopped
// there although there are more.
func (b *builder) count(s *Span, lo, hi time.Time) (n int64, last time.Time, more bool) {
	if s.job == nil {
		return 0, time.Time{}, false
	}
	if len(s.Version.Job.Spec.Schedules) == 1 {
		b.steps++
		if last = s.job.PrevSlot(hi); !last.After(lo) {
			return 0, last, false
		}
		return s.job.CountSlots(lo, hi), last, false
	}
	for slot := limited(s.job.NextSlot(lo), hi); !slot.IsZero(); slot = limited(s.job.NextSlot(slot), hi) {
		if b.steps >= maxSteps {
			return n, last, true
		}
		b.steps++
		n, last = n+1, slot
	}
	return n, last, false
}

// unknown answers a time of which it is not known what was due.
func (b *builder) unknown(s *Span, answer leaderdv1.Slot_Answer, lo, hi time.Time) {
	e := Entry{Answer: answer, First: lo.Truncate(time.Second).Add(time.Second), Last: hi.Truncate(time.Second)}
	if s.Kind == KindQuarantined {
		e.Generation, e.By, e.Detail = s.Version.Job.Generation, s, s.Broken.Error()
	}
	b.take(e.First)
	b.entries = append(b.entries, e)
	b.take(hi.Add(1))
}

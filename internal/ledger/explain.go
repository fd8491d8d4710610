package ledger

import (
	"fmt"
	"slices"
	"time"

	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/planner/schedule"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// Explanation says what an instant is to a job.
type Explanation struct {
	At time.Time
	// Entry is the slot; nil if no kept version names the instant.
	Entry *Entry
	// Span is that of the version that was in force; nil if there was no job yet.
	Span *Span
	// Created is when the job came into being, where that is later than At.
	Created time.Time
	// Schedules are what each schedule of the version says.
	Schedules []ScheduleAnswer
	// Before and After are the nearest slots; zero for none.
	Before, After time.Time
	// Floor is the instant up to which retention may have removed records.
	Floor time.Time
	// Jittered tells of a slot before the instant which its job's jitter had due just
	// then: a sentence that begins with a space, or empty.
	Jittered string
	// Spec is that of the version which the entry's record is of; nil where that is
	// not known.
	Spec *state.JobSpec
}

// ScheduleAnswer is what one schedule of a job says.
type ScheduleAnswer struct {
	schedule.Answer

	Text string
	// Before and After are its nearest instants; zero for none.
	Before, After time.Time
}

// Explain says what an instant is. Records are those of that instant.
func Explain(in *Input, t time.Time) Explanation {
	x := Explanation{At: t, Floor: in.Floor}
	x.Before, x.After = nearest(in.Spans, t)
	i := at(in.Spans, t)
	switch {
	case i >= 0:
		x.Span = &in.Spans[i]
		x.Schedules = answers(x.Span, t)
	case len(in.Spans) > 0 && !t.After(in.Spans[0].From):
		x.Created = in.Spans[0].From
	}
	if i >= 0 {
		x.Jittered = jittered(&in.Spans[i], t)
	}
	if t.Nanosecond() != 0 {
		return x
	}
	entries, _ := List(in, Window{From: t, To: t.Add(time.Second), Most: 1})
	// A range has instants between its slots.
	if len(entries) > 0 && (entries[0].Run == nil || entries[0].Count <= 1 || x.named()) {
		x.Entry = &entries[0]
		x.Spec = specOf(in.Spans, x.Entry.Generation)
		return x
	}
	if i < 0 || in.Spans[i].Kind != KindDue {
		return x
	}
	// The newest of the older versions that name it, and what came after that one.
	for j := range slices.Backward(in.Spans[:i]) {
		s := &in.Spans[j]
		if s.Kind != KindDue && s.Kind != KindPaused || !s.names(t) {
			continue
		}
		x.Entry = &Entry{
			Answer: leaderdv1.Slot_ANSWER_SUPERSEDED, First: t, Last: t, Count: 1, Generation: s.Version.Job.Generation, By: &in.Spans[j+1],
		}
		break
	}
	return x
}

// maxJittered is how many slots are looked at for one that was due at an instant.
const maxJittered = 10_000

// jittered tells of the slot of a span that jitter has due in the second of an
// instant; if there is none, of the one that was due last before it, as long as a slot
// in front of the instant may be due after it.
func jittered(s *Span, t time.Time) string {
	jitter := s.Version.Job.Spec.Jitter
	if s.Kind != KindDue || s.job == nil || jitter <= 0 {
		return ""
	}
	end := t.Truncate(time.Second).Add(time.Second)
	var slot, due time.Time
	at := s.prev(t)
	for range maxJittered {
		if at.IsZero() || t.Sub(at) > jitter {
			break
		}
		if d := s.job.Due(at); d.Before(end) && d.After(due) {
			slot, due = at, d
		}
		at = s.prev(at.Add(-time.Second))
	}
	switch {
	case slot.IsZero() || slot.Equal(t):
		return ""
	case due.Before(t.Truncate(time.Second)):
		return fmt.Sprintf(" The slot before it, %s, was due at %s by its jitter.", slot.UTC().Format(time.RFC3339), due.UTC().Format(dueLayout))
	}
	return fmt.Sprintf(" Slot %s was due just then, at %s, by its jitter of %s.",
		slot.UTC().Format(time.RFC3339), due.UTC().Format(dueLayout), due.Sub(slot))
}

const dueLayout = "2006-01-02T15:04:05.000Z"

// specOf is the spec of a version, with its defaults; nil for one that is not known.
func specOf(spans []Span, generation int64) *state.JobSpec {
	for i := range spans {
		if j := &spans[i].Version.Job; generation != 0 && j.Generation == generation {
			spec := j.Spec.WithDefaults()
			return &spec
		}
	}
	return nil
}

// named tells whether the version in force names the instant; it is taken for named
// where that version is not known.
func (x *Explanation) named() bool {
	return x.Span == nil || x.Span.job == nil || x.Span.names(x.At)
}

// answers are what the schedules of a span's version say of an instant; none of a
// version that cannot be planned.
func answers(s *Span, t time.Time) []ScheduleAnswer {
	if s.job == nil {
		return nil
	}
	var out []ScheduleAnswer
	o := planner.ScheduleOptions(&s.Version.Job)
	for _, text := range s.Version.Job.Spec.Schedules {
		a, err := schedule.Explain(text, o, t)
		if err != nil {
			continue // a text that cannot be read quarantines the job
		}
		compiled, err := schedule.Parse(text, o)
		if err != nil {
			continue
		}
		if miss, outside := window(&s.Version.Job.Spec, t); outside {
			a.Due, a.Misses = false, append([]schedule.Miss{miss}, a.Misses...)
		}
		out = append(out, ScheduleAnswer{Text: text, Answer: a, Before: compiled.Prev(t.Add(-1)), After: compiled.Next(t)})
	}
	return out
}

// window tells whether an instant is outside of a job's window, which excludes it
// whatever its schedules say.
func window(spec *state.JobSpec, t time.Time) (miss schedule.Miss, outside bool) {
	miss.Field = "window"
	switch {
	case !spec.Start.IsZero() && t.Before(spec.Start):
		miss.Text = spec.Start.UTC().Format(time.RFC3339)
		miss.Why = "the job's window begins at " + miss.Text
	case !spec.End.IsZero() && !t.Before(spec.End):
		miss.Text = spec.End.UTC().Format(time.RFC3339)
		miss.Why = "the job's window ended at " + miss.Text
	default:
		return miss, false
	}
	return miss, true
}

package ledger

import (
	"slices"
	"time"

	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/state"
)

// Kind is what a job was in a span.
type Kind uint8

// Kinds.
const (
	// KindUnknown: the version that was in force is kept no more.
	KindUnknown Kind = iota
	// KindDue: the job was due at its slots.
	KindDue
	// KindPaused: it was paused.
	KindPaused
	// KindDeleted: there was no such job.
	KindDeleted
	// KindQuarantined: it could not be planned.
	KindQuarantined
)

// Span is the time in which one version of a job was in force.
type Span struct {
	Kind Kind
	// From and Until are its time, (From, Until]. From is zero where it began before
	// all that is known, Until where it goes on.
	From, Until time.Time
	// Version is the version in force; zero for KindUnknown.
	Version state.JobVersion
	// By is the version that paused, deleted or broke the job; the same as Version, or
	// an older one if a paused job was edited.
	By state.JobVersion
	// Broken is why it could not be planned.
	Broken error

	// Expected: the pause before it will end by itself, which is no version yet.
	Expected bool

	// job is what the version would be due at if nothing kept it from being due, and
	// if it were in force for ever; nil where it could not be planned.
	job *planner.Job
}

// covers tells whether an instant is in the span.
func (s *Span) covers(at time.Time) bool {
	return at.After(s.From) && (s.Until.IsZero() || !at.After(s.Until))
}

// Effective is the instant after which a version is in force.
func Effective(v *state.JobVersion) time.Time {
	if v.Change == state.ChangeDelete || v.Job.Paused {
		return v.Time // these leave the job's own instant alone
	}
	return v.Job.Effective
}

// Spans are the times in which the versions of a job were in force, the oldest
// first. versions are the newest first, each with its own revision.
func Spans(versions []state.JobVersion) []Span {
	var spans []Span
	var until time.Time
	if len(versions) > 0 && versions[0].Job.Paused && versions[0].Change != state.ChangeDelete {
		if end := versions[0].Job.PausedUntil; !end.IsZero() {
			resumed := slices.Clone(versions)
			resumed[0].Job.Paused, resumed[0].Job.Effective = false, end
			after := spanOf(resumed, end, time.Time{})
			after.Expected = true
			spans, until = append(spans, after), end
		}
	}
	for i := range versions {
		v := &versions[i]
		from := Effective(v)
		if until.IsZero() || from.Before(until) {
			spans = append(spans, spanOf(versions[i:], from, until))
			until = from
		}
	}
	if n := len(versions); n > 0 && versions[n-1].Job.Generation > 1 {
		spans = append(spans, Span{Kind: KindUnknown, Until: until})
	}
	slices.Reverse(spans)
	return spans
}

// spanOf is the span of the first of versions, which are the newest first.
func spanOf(versions []state.JobVersion, from, until time.Time) Span {
	v := versions[0]
	s := Span{Kind: KindDue, From: from, Until: until, Version: v, By: v}
	would := v.Job
	would.Paused, would.Effective = false, from
	s.job = planner.Compile(&would)
	switch {
	case v.Change == state.ChangeDelete:
		s.Kind = KindDeleted
	case s.job.Broken != nil:
		s.Kind, s.Broken = KindQuarantined, s.job.Broken
	case v.Job.Paused:
		s.Kind = KindPaused
		for i := range versions {
			if !versions[i].Job.Paused {
				break
			}
			if s.By = versions[i]; s.By.Change == state.ChangePause {
				break
			}
		}
	}
	if s.job.Broken != nil {
		s.job = nil
	}
	return s
}

// at is the index of the span that an instant is in, or -1.
func at(spans []Span, t time.Time) int {
	return slices.IndexFunc(spans, func(s Span) bool { return s.covers(t) })
}

// next is the first slot of the span after an instant, or the zero time.
func (s *Span) next(after time.Time) time.Time {
	if s.job == nil {
		return time.Time{}
	}
	if t := s.job.NextSlot(after); s.Until.IsZero() || !t.After(s.Until) {
		return t
	}
	return time.Time{}
}

// prev is the last slot of the span at or before an instant, or the zero time.
func (s *Span) prev(atOrBefore time.Time) time.Time {
	if s.job == nil {
		return time.Time{}
	}
	if !s.Until.IsZero() && s.Until.Before(atOrBefore) {
		atOrBefore = s.Until
	}
	return s.job.PrevSlot(atOrBefore)
}

// names tells whether an instant is a slot of the span's version.
func (s *Span) names(t time.Time) bool {
	return s.job != nil && s.job.NextSlot(t.Add(-time.Second)).Equal(t)
}

// nearest are the last slot that was due before an instant, and the first that was
// due or will be after it.
func nearest(spans []Span, t time.Time) (before, after time.Time) {
	for i := range slices.Backward(spans) {
		if s := &spans[i]; s.Kind == KindDue && s.From.Before(t) && before.IsZero() {
			before = s.prev(t.Add(-1)) // in front of a whole second is the second before
		}
	}
	for i := range spans {
		if s := &spans[i]; s.Kind == KindDue && (s.Until.IsZero() || s.Until.After(t)) && after.IsZero() {
			after = s.next(t)
		}
	}
	return before, after
}

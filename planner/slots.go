package planner

import (
	"fmt"
	"time"

	"github.com/leaderd/leaderd/planner/schedule"
	"github.com/leaderd/leaderd/state"
)

// schedules are a job's schedules together: a slot that several name is one. Only
// slots in its window count.
type schedules struct {
	all    []schedule.Schedule
	window *bounds // nil: for all time
}

// bounds are [start, end), where those are set.
type bounds struct{ start, end time.Time }

// later is an instant after which the same slots in the bounds lie.
func (b *bounds) later(after time.Time) time.Time {
	if b != nil && !b.start.IsZero() && after.Before(b.start) {
		return b.start.Add(-time.Nanosecond)
	}
	return after
}

// earlier is an instant up to which the same slots in the bounds lie.
func (b *bounds) earlier(until time.Time) time.Time {
	if b != nil && !b.end.IsZero() && !until.Before(b.end) {
		return b.end.Add(-time.Nanosecond)
	}
	return until
}

// parseSchedules compiles the schedules of a job. The error names the field.
//
// A local time that the clock leaves out is a slot in any case: where the job skips
// those, it does not run, but has its verdict like any other.
func parseSchedules(j *state.Job, spec *state.JobSpec) (schedules, error) {
	all, err := parseAll(j, spec, schedule.MissingShift)
	s := schedules{all: all}
	if !spec.Start.IsZero() || !spec.End.IsZero() {
		s.window = &bounds{spec.Start, spec.End}
	}
	return s, err
}

func parseAll(j *state.Job, spec *state.JobSpec, missing schedule.Missing) ([]schedule.Schedule, error) {
	options := ScheduleOptions(j)
	options.Zone, options.Missing = spec.TimeZone, missing
	out := make([]schedule.Schedule, 0, len(spec.Schedules))
	for i, text := range spec.Schedules {
		s, err := schedule.Parse(text, options)
		if err != nil {
			return nil, fmt.Errorf("spec.schedules[%d]: %w", i, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// ScheduleOptions is how a job's schedules are read.
func ScheduleOptions(j *state.Job) schedule.Options {
	options := schedule.Options{Zone: j.Spec.TimeZone, Anchor: j.Anchor, Job: j.ID.String()}
	switch j.Spec.RepeatedTime {
	case state.RepeatedFirst:
	case state.RepeatedLast:
		options.Repeated = schedule.RepeatedLast
	case state.RepeatedBoth:
		options.Repeated = schedule.RepeatedBoth
	}
	return options
}

// PrevSlot is the last slot at or before the instant, or the zero time where there
// is none, or the job is paused or broken.
func (j *Job) PrevSlot(atOrBefore time.Time) time.Time {
	if !j.due() {
		return time.Time{}
	}
	if t := j.schedules.prev(atOrBefore); t.After(j.Effective) {
		return t
	}
	return time.Time{}
}

// CountSlots is the number of slots in (after, until]. It is cheap for a job of one
// schedule; of several it steps through the slots.
func (j *Job) CountSlots(after, until time.Time) int64 {
	if !j.due() {
		return 0
	}
	if after.Before(j.Effective) {
		after = j.Effective
	}
	return j.schedules.count(after, until)
}

// next is the first slot after the instant, or the zero time.
func (s *schedules) next(after time.Time) time.Time {
	after = s.window.later(after)
	var first time.Time
	for i := range s.all {
		if t := s.all[i].Next(after); !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !s.window.earlier(first).Equal(first) {
		return time.Time{}
	}
	return first
}

// prev is the last slot at or before the instant, or the zero time.
func (s *schedules) prev(atOrBefore time.Time) time.Time {
	atOrBefore = s.window.earlier(atOrBefore)
	var last time.Time
	for i := range s.all {
		if t := s.all[i].Prev(atOrBefore); t.After(last) {
			last = t
		}
	}
	if !s.window.later(last).Equal(last) {
		return time.Time{}
	}
	return last
}

// count is the number of slots in (after, until]. For several schedules it
// steps through them, since they may share slots.
func (s *schedules) count(after, until time.Time) int64 {
	after, until = s.window.later(after), s.window.earlier(until)
	switch len(s.all) {
	case 0:
		return 0
	case 1:
		return s.all[0].Count(after, until)
	}
	var n int64
	for t := s.next(after); !t.IsZero() && !t.After(until); t = s.next(t) {
		n++
	}
	return n
}

// NamedSlots are the instants in [from, to) that the job's schedules name, whether the
// job was paused then, or this version in force; at most so many, and whether there are
// more. A broken job names none.
func (j *Job) NamedSlots(from, to time.Time, most int) (slots []time.Time, more bool) {
	if j.Broken != nil || len(j.schedules.all) == 0 {
		return nil, false
	}
	for t := j.schedules.next(from.Add(-time.Nanosecond)); !t.IsZero() && t.Before(to); t = j.schedules.next(t) {
		if len(slots) == most {
			return slots, true
		}
		slots = append(slots, t)
	}
	return slots, false
}

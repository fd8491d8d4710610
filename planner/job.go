package planner

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/planner/placement"
	"github.com/leaderd/leaderd/planner/schedule"
	"github.com/leaderd/leaderd/state"
)

// Job is a version of a job as planning needs it. It is immutable.
type Job struct {
	ID         state.JobID
	Revision   int64
	Generation int64
	// Effective is the instant after which slots of this version are due, and of
	// older ones no more.
	Effective time.Time
	Deadline  time.Duration
	Selector  placement.Selector
	Exclusive bool
	// CatchUp tells whether the latest slot of an outage runs.
	CatchUp bool
	Paused  bool
	// PausedUntil is when the pause ends by itself; zero: it does not.
	PausedUntil time.Time
	// PauseAfter is how many runs in a row may fail before the job is paused; 0: any
	// number.
	PauseAfter int
	// Broken is set where the stored job cannot be planned. Such a job is due
	// never and harms no other.
	Broken error

	schedules schedules
	// stored is the job's value in the store, which its spec is read from when
	// an executor needs it.
	stored []byte
}

// ErrNoTarget: a stored job names nothing to run that this version knows.
var ErrNoTarget = errors.New("spec: has no target that this version knows")

// Compile makes the planned form of a job, to ask when it is due. What keeps it
// from being planned ends up in Broken.
func Compile(j *state.Job) *Job { return compile(j, nil) }

func compile(j *state.Job, stored []byte) *Job {
	spec := j.Spec.WithDefaults()
	c := &Job{
		ID:         j.ID,
		Revision:   j.Revision,
		Generation: j.Generation,
		Effective:  j.Effective,
		Deadline:   spec.StartDeadline,
		Selector:   selector(spec.Selector),
		Exclusive:  spec.Exclusive(),
		CatchUp:    spec.CatchUp == state.CatchUpLatest,
		Paused:     j.Paused,
		PauseAfter: spec.PauseAfterFailures,
		stored:     stored,
	}
	if j.Paused {
		c.PausedUntil = j.PausedUntil
		// A pause leaves the job's own instant alone, since it makes no slot due.
		c.Effective = j.Updated
	}
	c.schedules, c.Broken = parseSchedules(j.ID, &spec, j.Anchor)
	if c.Broken == nil && spec.Command == nil && spec.HTTP == nil && !spec.NoOp {
		c.Broken = ErrNoTarget
	}
	if c.Broken != nil {
		c.schedules = nil
	}
	return c
}

// selector is the placement form of a spec's selector.
func selector(labels map[string]string) placement.Selector {
	if len(labels) == 0 {
		return placement.Selector{}
	}
	require := make(map[string][]string, len(labels))
	for label, value := range labels {
		require[label] = []string{value}
	}
	return placement.Require(require)
}

// broken is the planned form of a stored job that cannot even be read.
func broken(id state.JobID, revision int64, err error) *Job {
	return &Job{ID: id, Revision: revision, Broken: err}
}

// parseSchedules compiles the schedules of a spec. The error names the field.
func parseSchedules(id state.JobID, spec *state.JobSpec, anchor time.Time) (schedules, error) {
	out := make(schedules, 0, len(spec.Schedules))
	for i, text := range spec.Schedules {
		s, err := schedule.Parse(text, schedule.Options{Zone: spec.TimeZone, Anchor: anchor, Job: id.String()})
		if err != nil {
			return nil, fmt.Errorf("spec.schedules[%d]: %w", i, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// schedules are a job's schedules together: a slot that several name is one.
type schedules []schedule.Schedule

// next is the first slot after the instant, or the zero time.
func (s schedules) next(after time.Time) time.Time {
	var first time.Time
	for i := range s {
		if t := s[i].Next(after); !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// prev is the last slot at or before the instant, or the zero time.
func (s schedules) prev(atOrBefore time.Time) time.Time {
	var last time.Time
	for i := range s {
		if t := s[i].Prev(atOrBefore); t.After(last) {
			last = t
		}
	}
	return last
}

// count is the number of slots in (after, until]. For several schedules it
// steps through them, since they may share slots.
func (s schedules) count(after, until time.Time) int64 {
	switch len(s) {
	case 0:
		return 0
	case 1:
		return s[0].Count(after, until)
	}
	var n int64
	for t := s.next(after); !t.IsZero() && !t.After(until); t = s.next(t) {
		n++
	}
	return n
}

// due tells whether the job can be due at all.
func (j *Job) due() bool { return j.Broken == nil && !j.Paused && len(j.schedules) > 0 }

// NextSlot is the first slot after the instant, or the zero time where there is
// none, or the job is paused or broken.
func (j *Job) NextSlot(after time.Time) time.Time {
	if !j.due() {
		return time.Time{}
	}
	if after.Before(j.Effective) {
		after = j.Effective
	}
	return j.schedules.next(after)
}

package planner

import (
	"time"

	"github.com/leaderd/leaderd/planner/schedule"
	"github.com/leaderd/leaderd/state"
)

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

// ScheduleOptions is how a job's schedules are read.
func ScheduleOptions(j *state.Job) schedule.Options {
	return schedule.Options{Zone: j.Spec.TimeZone, Anchor: j.Anchor, Job: j.ID.String()}
}

package planner

import (
	"time"

	"github.com/leaderd/leaderd/state"
)

// maxBarred is how many slots that do not run NextRun looks at, each of which stands
// for all up to where its calendars may say something else.
const maxBarred = 10_000

// NextRun is the first slot after the instant that is to run, or the zero time where
// there is none: of a job that is paused until an instant the first one after that,
// and none that the job's rules bar. It looks at a bounded number of slots: where so
// many in a row are barred, the answer is the zero time too.
func (j *Job) NextRun(after time.Time) time.Time { return j.guarded(j.nextRun, after) }

func (j *Job) nextRun(after time.Time) time.Time {
	if j.Broken != nil || len(j.schedules.all) == 0 || j.Paused && j.pausedUntil == 0 {
		return time.Time{}
	}
	after = later(after, j.Effective)
	if j.Paused {
		after = later(after, micros(j.pausedUntil))
	}
	for range maxBarred {
		if after = j.schedules.next(after); after.IsZero() {
			break
		}
		bar, barred := j.Bar(after)
		if !barred {
			return after
		}
		if bar.Reason == state.ReasonCalendar {
			after = later(after, j.rules.steady(after).Add(-1))
		}
	}
	return time.Time{}
}

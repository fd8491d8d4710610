package planner

import (
	"context"
	"errors"
	"time"

	"github.com/leaderd/leaderd/state"
)

// watchPause has the pause of a job's version, if it ends by itself, ended then.
func (t *term) watchPause(j *Job) {
	if j.Paused && j.pausedUntil != 0 {
		t.pauses.Push(j.pausedUntil, j)
	}
}

// endPauses resumes the jobs whose pauses have come to their end. The resumed
// version comes back as a change, and makes slots due after that end: a leader that
// gets to it late finds them like those of any change that it hears of late.
func (t *term) endPauses(now time.Time) {
	for t.pauses.Len() > 0 && t.pauses.Top().Key <= now.UnixMicro() {
		j := t.pauses.Pop().Val
		if have := t.jobs[j.ID]; have == nil || have.job != j {
			continue // it was changed, and the change was watched in its turn
		}
		t.task(func(ctx context.Context) func() {
			err := t.store.EndPause(ctx, t.leadership, j.ID, j.Revision, now)
			return func() {
				switch {
				case errors.Is(err, state.ErrJobChanged): // its change is on its way here
				case err != nil:
					t.checkErr("end the pause of "+j.ID.String(), err)
					t.pauses.Push(t.now().Add(time.Second).UnixMicro(), j)
				default:
					t.cfg.Logger.Info("pause has come to its end", "job", j.ID, "until", micros(j.pausedUntil))
				}
			}
		})
	}
}

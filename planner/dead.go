package planner

import (
	"context"
	"time"
)

// trimAfter is how long after a run that may have left a dead letter those of its job
// are counted: one reading serves all that ended meanwhile. So a job may have more than
// it keeps for that long, and for as long as the news of them is lost: a new leader, and
// a change of the job, have them counted too.
const trimAfter = 5 * time.Second

// trimDead drops the dead letters that a job does not keep.
func (t *term) trimDead(j *timed) {
	if j.job.DeadLetters == 0 || j.trimming {
		return
	}
	j.trimming = true
	t.later(trimAfter, func() {
		j.trimming = false
		id, keep := j.job.ID, j.job.DeadLetters
		if keep == 0 {
			return
		}
		t.task(func(ctx context.Context) func() {
			n, err := t.store.TrimDead(ctx, t.leadership, id, keep)
			return func() {
				t.metrics.deadDropped.Add(float64(n))
				if n > 0 {
					t.cfg.Logger.Warn("the oldest dead letters of a job are dropped, since it keeps no more", "job", id, "dropped", n, "keeps", keep)
				}
				if err != nil {
					t.checkErr("trim the dead letters of "+id.String(), err)
					t.trimDead(j)
				}
			}
		})
	})
}

package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/state"
)

// auditAgain is the least time between two looks at all jobs that failures pause.
const auditAgain = 10 * time.Second

// failures are the jobs that so many failed runs in a row pause. Whether they have
// failed is read from the store each time: reports may be lost, so one only says when
// it is worth a look, and after a takeover or a new session all are looked at.
type failures struct {
	watched map[*timed]struct{}
	// looking are those that are being read; true: once more after that.
	looking map[*timed]bool
	audit   bool
	audited time.Time
}

// watchFailures takes a job's newest version in.
func (t *term) watchFailures(j *timed) {
	if j.job.PauseAfter == 0 || j.job.Paused || j.job.Broken != nil {
		delete(t.failures.watched, j)
		return
	}
	if t.failures.watched == nil {
		t.failures.watched = make(map[*timed]struct{})
	}
	t.failures.watched[j] = struct{}{}
}

// auditFailures looks at all such jobs where reports may have been lost.
func (t *term) auditFailures(now time.Time) {
	if !t.failures.audit || now.Sub(t.failures.audited).Abs() < auditAgain {
		return
	}
	t.failures.audit, t.failures.audited = false, now
	for j := range t.failures.watched {
		t.lookAtFailures(j)
	}
}

// lookAtFailures pauses a job if its newest runs have failed. The pause is of the
// version whose runs they are, or of none.
func (t *term) lookAtFailures(j *timed) {
	if _, watched := t.failures.watched[j]; !watched {
		return
	}
	if _, looking := t.failures.looking[j]; looking {
		t.failures.looking[j] = true
		return
	}
	if t.failures.looking == nil {
		t.failures.looking = make(map[*timed]bool)
	}
	t.failures.looking[j] = false
	v, now := j.job, t.now()
	t.task(func(ctx context.Context) func() {
		last, all, err := t.store.FailuresInARow(ctx, v.ID, v.Generation, v.PauseAfter)
		if err == nil && all {
			err = t.store.PauseFailing(ctx, t.leadership, v.ID, v.Revision, failedInARow(v.PauseAfter, last), now)
		}
		return func() {
			again := t.failures.looking[j]
			delete(t.failures.looking, j)
			switch {
			case errors.Is(err, state.ErrJobChanged): // its change is on its way here
			case err != nil:
				t.checkErr("look at the last runs of "+v.ID.String(), err)
				t.later(time.Second, func() { t.lookAtFailures(j) })
			case all:
				t.cfg.Logger.Warn("job is paused, since its runs fail", "job", v.ID, "failures", v.PauseAfter, "run", last)
			case again:
				t.lookAtFailures(j)
			}
		}
	})
}

// failedInARow is the reason of such a pause. It names the run that caused it.
func failedInARow(n int, last state.RunID) string {
	if n == 1 {
		return fmt.Sprintf("run %s failed", last)
	}
	return fmt.Sprintf("%d runs in a row failed, the last of them %s", n, last)
}

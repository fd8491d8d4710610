package planner

import (
	"context"
	"errors"
	"time"

	"github.com/leaderd/leaderd/state"
)

// decide gives an entry a verdict in place of a start. If it turns out to have
// a record already, that is as good.
func (t *term) decide(e *entry, to state.RunState, reason string, now time.Time) {
	t.decideAt(e, to, reason, "", 0, now)
}

// skipBarred gives a slot that its job's rules bar from running its verdict, which
// relies on a revision of the job as decideAt's does.
func (t *term) skipBarred(e *entry, relies int64, now time.Time) {
	if e.deciding || e.done {
		return
	}
	e.verdict, e.reason, e.detail, e.relies = state.StateSkipped, e.bar.Reason, e.bar.Detail, relies
	t.tryDecide(e, now)
}

// decideVersion is decide for a verdict that is true only while the job is as the
// entry's version has it: the job may have been changed, which is news that has
// not come yet, so that the slot may be due no more.
func (t *term) decideVersion(e *entry, to state.RunState, reason string, now time.Time) {
	t.decideAt(e, to, reason, "", e.version.Revision, now)
}

// missDeadline gives an entry the verdict that its start deadline is over; why says
// what kept it.
func (t *term) missDeadline(e *entry, why string, now time.Time) {
	t.decideAt(e, state.StateMissed, state.ReasonDeadline, why, e.version.Revision, now)
}

// decideGone ends a run whose job is not there, as far as is known here. It may have
// been made, or made again, which is news that has not come yet.
func (t *term) decideGone(e *entry, now time.Time) {
	t.decideAt(e, state.StateCancelled, state.ReasonDeleted, "", state.NoJob, now)
}

func (t *term) decideAt(e *entry, to state.RunState, reason, detail string, relies int64, now time.Time) {
	if e.deciding || e.done {
		return
	}
	e.verdict, e.reason, e.detail, e.relies = to, reason, detail, relies
	t.tryDecide(e, now)
}

func (t *term) tryDecide(e *entry, now time.Time) {
	e.deciding = true
	to, reason, waiting := e.verdict, e.reason, e.waiting
	rec := state.Record{
		Job: e.version.ID, Run: e.runID(), Generation: e.version.Generation, State: to, Reason: reason,
		Detail: e.detail, Due: micros(e.start), Recorded: now, Shards: 1,
	}
	if err := t.gates.bad[rec.Job]; err != nil && reason == state.ReasonUnreadable {
		rec.Detail = err.Error()
	}
	var pending int64
	if e.pending != nil {
		pending, rec.Origin, rec.Chain = e.pending.Revision, e.pending.Origin, e.pending.Chain
		rec.LimitKey = e.pending.LimitKey
	}
	exclusive, relies := e.version.Exclusive, e.relies
	t.task(func(ctx context.Context) func() {
		var ok bool
		var err error
		if waiting != nil {
			ok, err = t.store.GiveUp(ctx, t.leadership, *waiting, to, reason, now, relies)
		} else {
			ok, err = t.store.DecideVersion(ctx, t.leadership, rec, exclusive, pending, relies)
		}
		return func() {
			e.deciding = false
			switch {
			case errors.Is(err, state.ErrJobChanged):
				t.undecide(e)
			case err != nil:
				t.checkErr("decide "+rec.Job.String(), err)
				t.lookAt(e, t.now().Add(time.Second).UnixMicro())
			default:
				if ok {
					t.metrics.decided.WithLabelValues(to.String(), reason).Inc()
				}
				t.close(e)
				if e.split {
					t.muster(rec.Job, rec.Run) // which closes the others
				}
				t.feedOf(rec.Job, rec.Run)
				if waiting != nil {
					t.endedOf(rec.Job, waiting.LimitKey)
				}
				if j := t.jobs[rec.Job]; j != nil && to == state.StateTimedOut {
					t.lookAtFailures(j)
					t.trimDead(j)
				}
			}
		}
	})
}

// undecide takes back a verdict that was not stored since the job has changed.
// Its change may have come meanwhile; if not it is on its way.
func (t *term) undecide(e *entry) {
	if e.done {
		return
	}
	e.verdict, e.reason, e.detail, e.relies = state.StateNone, "", "", 0
	now := t.now()
	t.lookAt(e, now.Add(time.Second).UnixMicro())
	to := e.job.job
	switch {
	case t.jobs[e.version.ID] != e.job && !e.slot(): // deleted, and made again perhaps
		t.close(e)
		t.later(time.Second, func() { t.adopt(e) })
	case t.jobs[e.version.ID] != e.job: // deleted
		if e.job.end != nil {
			t.supersedeEntry(e, nil, *e.job.end, now)
		} else {
			t.suspend(e)
		}
	case to.Revision > e.version.Revision:
		t.supersedeEntry(e, to, endingAt(to, now), now)
	case e.pending != nil && len(e.holders) == 0:
		t.place(e)
	}
}

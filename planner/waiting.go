package planner

import (
	"context"
	"time"

	"github.com/leaderd/leaderd/state"
)

// lookAgainAfter is the least time between two readings of the live records for
// waiting ones: each reads them all.
const lookAgainAfter = 200 * time.Millisecond

// lookForWaiting reads the waiting records and plans their next attempts. What
// is asked for while a reading is under way is one further reading.
func (t *term) lookForWaiting() {
	if t.looking {
		t.lookAgain = true
		return
	}
	t.looking, t.lookAgain = true, false
	t.task(func(ctx context.Context) func() {
		live, err := t.store.ListLive(ctx, func(l *state.Live) bool { return l.State == state.StateWaiting })
		return func() {
			after := lookAgainAfter
			if err != nil {
				t.checkErr("list waiting runs", err)
				t.lookAgain, after = true, time.Second
			}
			for i := range live {
				t.addWaiting(&live[i], t.now())
			}
			t.later(after, func() {
				if t.looking = false; t.lookAgain {
					t.lookForWaiting()
				}
			})
		}
	})
}

// addWaiting opens an entry for a further attempt at a run.
func (t *term) addWaiting(l *state.Live, now time.Time) {
	job := t.jobs[l.Job]
	if job == nil {
		t.task(func(ctx context.Context) func() {
			_, err := t.store.GiveUp(ctx, t.leadership, *l, state.StateCancelled, state.ReasonDeleted, now)
			return func() { t.checkErr("give up "+l.Job.String(), err) }
		})
		return
	}
	key := entryKey{job: job, due: l.Due.UnixMicro(), shard: l.Shard}
	if _, slot := l.Run.Slot(); !slot {
		key.run = l.Run
	}
	if e := t.open[key.open()]; e != nil {
		if e.waiting != nil && e.waiting.Token >= l.Token || e.deciding {
			return
		}
		t.close(e) // the run has a record: this is its next attempt
	}
	e := &entry{entryKey: key, version: job.job, waiting: l}
	t.add(e, now)
}

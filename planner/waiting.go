package planner

import (
	"context"
	"time"

	"github.com/leaderd/leaderd/state"
)

// lookAgainAfter is the least time between two readings of the live records for
// waiting ones: each reads them all.
const lookAgainAfter = 200 * time.Millisecond

// checkWaiting ends a waiting run whose time is over.
func (t *term) checkWaiting(e *entry, now time.Time) (over bool) {
	most := e.version.RunTimeout
	if most == 0 || now.Before(e.waiting.Began().Add(most)) {
		return false
	}
	t.decideAt(e, state.StateTimedOut, state.ReasonRunTimeout, "", e.version.Revision, now)
	return true
}

// lookForRetry plans the next attempts of a run of which it was told that it waits.
func (t *term) lookForRetry(id state.JobID, run state.RunID) {
	t.task(func(ctx context.Context) func() {
		live, err := t.store.LiveOf(ctx, id, run)
		return func() {
			if err != nil {
				t.checkErr("look for the waiting run "+id.String()+" "+string(run), err)
				t.later(time.Second, t.lookForWaiting)
				return
			}
			for i := range live {
				if live[i].State == state.StateWaiting {
					t.addWaiting(&live[i], t.now())
				}
			}
		}
	})
}

// lookForWaiting reads the waiting records and plans their next attempts, and musters
// the runs that are split, or whose first step is at work. What is asked for while a
// reading is under way is one further reading.
func (t *term) lookForWaiting() {
	if t.looking {
		t.lookAgain = true
		return
	}
	t.looking, t.lookAgain = true, false
	t.task(func(ctx context.Context) func() {
		live, err := t.store.ListLive(ctx, func(l *state.Live) bool { return l.State == state.StateWaiting || l.IsHeader() || l.Listing != nil })
		return func() {
			after := lookAgainAfter
			if err != nil {
				t.checkErr("list waiting runs", err)
				t.lookAgain, after = true, time.Second
			}
			for i := range live {
				if live[i].IsHeader() || live[i].Listing != nil {
					t.muster(live[i].Job, live[i].Run)
				}
				if live[i].State == state.StateWaiting {
					t.addWaiting(&live[i], t.now())
				}
			}
			t.later(after, func() {
				if t.looking = false; t.lookAgain {
					t.lookForWaiting()
				}
			})
		}
	})
}

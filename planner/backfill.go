package planner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// feedAgain is how long a backfill is left alone at most while it is under way: news
// of its runs may be lost.
const feedAgain = 5 * time.Second

// backfills are those under way. What is known of one here is only when to look at it:
// all else is in its stored value, which FeedBackfill moves on by compare and swap. So
// a leader may look too often, or two of them at once, and no run is made twice.
type backfills struct {
	known map[backfillKey]*feeding
	fed   time.Time // when all were looked at last
}

type backfillKey struct {
	job state.JobID
	id  state.BackfillID
}

type feeding struct {
	looking, again bool
	override       bool
}

// noteBackfills takes in backfills that are new or were changed.
func (t *term) noteBackfills(all []state.Backfill) {
	for i := range all {
		b := &all[i]
		key := backfillKey{b.Job, b.ID}
		f := t.backfills.known[key]
		switch {
		case f == nil && !b.Active():
			continue
		case f == nil:
			f = &feeding{override: b.OverrideOverlap}
			if t.backfills.known == nil {
				t.backfills.known = make(map[backfillKey]*feeding)
			}
			t.backfills.known[key] = f
		}
		t.feed(key)
	}
}

// feedBackfills looks at all of them now and then.
func (t *term) feedBackfills(now time.Time) {
	if len(t.backfills.known) == 0 || now.Sub(t.backfills.fed).Abs() < feedAgain {
		return
	}
	t.backfills.fed = now
	for key := range t.backfills.known {
		t.feed(key)
	}
}

// feedOf looks at the backfill that a run is of, if it is one's, since the run ended.
func (t *term) feedOf(id state.JobID, run state.RunID) {
	if of, _, ok := run.Backfill(); ok {
		t.feed(backfillKey{id, of})
	}
}

// feed looks at a backfill once, and once more for what is asked meanwhile.
func (t *term) feed(key backfillKey) {
	f := t.backfills.known[key]
	if f == nil {
		return
	}
	if f.looking {
		f.again = true
		return
	}
	f.looking, f.again = true, false
	now := t.now()
	most := state.MaxBackfillConcurrency
	switch job := t.find(key.job, now); {
	case f.override:
	case job != nil && slices.ContainsFunc(job.queue, func(e *entry) bool { return !e.backfill() }):
		// Slots wait: they go first, for none would ever get by a backfill whose next
		// run always waits already.
		most = 0
	case job == nil || job.job.Exclusive:
		most = 1 // more would only wait for one another
	}
	t.task(func(ctx context.Context) func() {
		b, open, err := t.store.FeedBackfill(ctx, t.leadership, key.job, key.id, most, now)
		return func() {
			f.looking = false
			switch {
			case errors.Is(err, state.ErrUnreadable):
				t.cfg.Logger.Error("backfill cannot be read and is left alone; delete its key", "job", key.job, "backfill", key.id, "err", err)
				delete(t.backfills.known, key)
			case err != nil:
				t.checkErr("feed backfill "+string(key.id)+" of "+key.job.String(), err)
				t.later(time.Second, func() { t.feed(key) })
			default:
				t.dropFed(key, open)
				if !b.Active() {
					t.cfg.Logger.Info("backfill has ended", "job", key.job, "backfill", key.id,
						"succeeded", b.Succeeded, "failed", b.Failed, "cancelled", b.Cancelled)
					delete(t.backfills.known, key)
				} else if f.again {
					t.feed(key)
				}
			}
		}
	})
}

// dropFed closes the entries of a backfill's runs that are over: who ended them told
// nobody here.
func (t *term) dropFed(key backfillKey, open []state.RunID) {
	job := t.jobs[key.job]
	if job == nil {
		return
	}
	for _, e := range slices.Clone(job.open) {
		if of, _, ok := e.run.Backfill(); ok && of == key.id && !e.deciding && !slices.Contains(open, e.run) {
			t.close(e)
		}
	}
}

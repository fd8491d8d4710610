package planner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// Runs that were asked for, and runs that wait, are news that come apart from those
// of the jobs: one may be of a job of which nothing is known here yet. It ends as the
// run of a deleted job only when all is known that was stored before it, and by a
// transaction that compares that there is no such job.

// find answers a job as it is known by now, nil if there is none.
func (t *term) find(id state.JobID, now time.Time) *timed {
	if t.jobs[id] == nil {
		// Perhaps the news of it is on the way to this loop.
		if c := t.sources.Catalog.Get(id); c != nil {
			t.change(change{id: id, job: c}, now)
		}
	}
	return t.jobs[id]
}

// onceKnown runs do in the loop when all changes of jobs up to a revision are known.
func (t *term) onceKnown(revision int64, do func()) {
	t.goSafely(func() error {
		err := t.sources.Fresh(t.ctx, revision)
		t.post(t.ctx, func() {
			if err != nil {
				t.checkErr("wait for the jobs' watch", err)
				t.later(time.Second, func() { t.onceKnown(revision, do) })
				return
			}
			do()
		})
		return nil
	})
}

// adopt opens the run of an entry that is closed anew, for the job as it is now.
func (t *term) adopt(e *entry) {
	if e.waiting != nil {
		t.addWaiting(e.waiting, t.now())
	} else {
		t.openPending(e.pending)
	}
}

// addPending opens entries for runs that were asked for.
func (t *term) addPending(runs []state.Pending) {
	for i := range runs {
		t.openPending(&runs[i])
	}
}

func (t *term) openPending(p *state.Pending) {
	now := t.now()
	if job := t.find(p.Job, now); job != nil {
		if !t.delay(p, now) {
			t.addAsked(p, job, now)
		}
		return
	}
	t.onceKnown(p.Revision, func() {
		now := t.now()
		switch job := t.find(p.Job, now); {
		case job == nil:
			t.orphan(p, now)
		case !t.delay(p, now):
			t.addAsked(p, job, now)
		}
	})
}

func (t *term) addAsked(p *state.Pending, job *timed, now time.Time) {
	shard, split := job.job.shape(p)
	e := &entry{
		entryKey: entryKey{job: job, due: p.Requested.UnixMicro(), run: p.Run, shard: shard},
		version:  job.job,
		pending:  p,
		split:    split,
	}
	if was := t.open[e.open()]; was != nil && was.pending != nil && was.pending.Revision < p.Revision {
		// It was found to have to wait.
		if was.deciding {
			again := *p
			t.later(tick, func() { t.openPending(&again) })
			return
		}
		if !p.Queued.IsZero() {
			t.heldBack(was)
		}
		t.close(was)
	}
	if t.add(e, now) && p.Born < job.job.Born {
		// It was asked of an earlier job of this name.
		t.decide(e, state.StateCancelled, state.ReasonDeleted, now)
	}
}

// closeUnbegun closes the entries of the other shards of a run of which one was found to
// have to wait: all of it waits, and is known by its pending key.
func (t *term) closeUnbegun(found *entry) {
	if !found.split {
		return
	}
	run := found.runID()
	for _, e := range slices.Clone(found.job.open) {
		if e.split && !e.begun && e.waiting == nil && e.pending == nil && !e.deciding && e.runID() == run {
			t.close(e)
		}
	}
}

// orphan ends a pending run whose job has been deleted.
func (t *term) orphan(p *state.Pending, now time.Time) {
	gone := t.newTimed(&Job{ID: p.Job, Policy: &Policy{}, Paused: true})
	e := &entry{
		entryKey: entryKey{job: gone, due: p.Requested.UnixMicro(), run: p.Run}, version: gone.job, pending: p,
	}
	t.add(e, now)
	t.decideGone(e, now)
}

// addWaiting opens an entry for a further attempt at a run.
func (t *term) addWaiting(l *state.Live, now time.Time) {
	if job := t.find(l.Job, now); job != nil {
		t.openWaiting(l, job, now)
		return
	}
	t.onceKnown(l.Token, func() {
		now := t.now()
		if job := t.find(l.Job, now); job != nil {
			t.openWaiting(l, job, now)
		} else {
			t.giveUp(l, now)
		}
	})
}

func (t *term) openWaiting(l *state.Live, job *timed, now time.Time) {
	key := entryKey{job: job, due: l.Due.UnixMicro(), shard: l.Shard}
	if slot, ok := l.Run.Slot(); ok {
		key.due = slot.UnixMicro()
	} else {
		key.run = l.Run
	}
	if e := t.open[key.open()]; e != nil {
		if e.waiting != nil && e.waiting.Token >= l.Token || e.deciding {
			return
		}
		t.close(e) // the run has a record: this is its next attempt
	}
	e := &entry{entryKey: key, version: job.job, waiting: l, start: later(l.Due, l.NextTry).UnixMicro()}
	if l.Header != 0 {
		e.split, e.begun, e.shards = true, true, l.Shards
		if m := t.musters[cancelKey{l.Job, l.Run}]; m != nil {
			e.node = m.nodeOf(l.Shard)
		}
	}
	if t.add(e, now) && begunAt(l) < job.job.Born {
		// It is of an earlier job of this name.
		t.decide(e, state.StateCancelled, state.ReasonDeleted, now)
	}
}

// begunAt is a revision at which the run of a live record had begun: that of its first
// attempt, which is always kept.
func begunAt(l *state.Live) int64 {
	if len(l.Attempts) > 0 && l.Attempts[0].Token != 0 {
		return min(l.Token, l.Attempts[0].Token)
	}
	return l.Token
}

// giveUp ends a waiting run whose job has been deleted.
func (t *term) giveUp(l *state.Live, now time.Time) {
	t.task(func(ctx context.Context) func() {
		_, err := t.store.GiveUp(ctx, t.leadership, *l, state.StateCancelled, state.ReasonDeleted, now, state.NoJob)
		return func() {
			if errors.Is(err, state.ErrJobChanged) {
				t.later(time.Second, func() { t.addWaiting(l, t.now()) })
				return
			}
			t.checkErr("give up "+l.Job.String(), err)
		}
	})
}

package planner

import (
	"context"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// change takes a job's newest version into account.
func (t *term) change(c change, now time.Time) {
	if c.reset {
		t.lookForDeleted(t.known)
		return
	}
	was := t.jobs[c.id]
	switch {
	case c.job == nil:
		if was != nil && (c.revision == 0 || was.job.Revision < c.revision) {
			t.remove(was, c.revision)
		}
		return
	case was == nil:
		was = t.newTimed(c.job)
		t.jobs[c.id] = was
		if c.job.Generation > 1 {
			t.lookBehind(was, c.job, t.known)
		}
	case was.job.Revision > c.job.Revision:
		return
	case was.job.Revision == c.job.Revision && (c.job.Broken == nil || was.job.Broken != nil):
		return // else it is the same version, which turned out to be broken
	default:
		end := endingAt(c.job, now)
		t.skipUnplanned(was, was.job, was.next, end)
		t.supersede(was, c.job, end, now)
		if c.job.Generation > was.job.Generation+1 {
			t.lookBehind(was, c.job, was.job.Revision)
		}
	}
	was.job, was.last = c.job, never
	t.watchPause(c.job)
	t.watchFailures(was)
	t.watchChain(was)
	t.trimDead(was)
	t.rescope(was)
	t.balancer.Release(jobKey(c.id)) // its selector may be another
	if c.job.Broken != nil {
		t.cfg.Logger.Warn("job is quarantined: it is due never until it is mended", "job", c.id, "err", c.job.Broken)
	}
	after := c.job.Effective
	if c.job.mayOwe(part{from: after, until: t.closing}) {
		// The change is older than the end of the closed part, where other
		// versions' slots may have their verdicts already.
		t.holdMark(after)
		w := window{version: c.job, part: part{from: after, until: t.closing}, why: state.ReasonOutage}
		t.onceClosed(func() { t.replay(was, w) })
		after = t.closing
	}
	t.timeline.put(was, after)
}

// supersede takes back what was planned of a job's older version. Slots that
// were due before the change get a verdict.
func (t *term) supersede(was *timed, to *Job, end ending, now time.Time) {
	for _, s := range t.sessions {
		s.forget(was.job)
	}
	for _, e := range slices.Clone(was.open) {
		t.supersedeEntry(e, to, end, now)
	}
}

// supersedeEntry takes an entry of an older version back; to is nil for a deleted
// job.
func (t *term) supersedeEntry(e *entry, to *Job, end ending, now time.Time) {
	switch {
	case e.helper():
		t.close(e)
	case e.begun && e.waiting == nil && to == nil:
		t.close(e)
		t.muster(e.version.ID, e.runID())
	case e.waiting != nil || e.pending != nil || e.begun:
		// A run that exists goes on with the newest version, or ends with its job.
		if to == nil {
			t.decideGone(e, now)
		} else {
			e.version, e.holders = to, nil
			t.reshape(e)
			t.leaveLine(e)
			if !to.Paused || e.backfill() {
				t.place(e)
			}
		}
	case micros(e.due).After(end.at):
		t.close(e)
	default:
		t.holdFor(e)
		if e.bar != nil {
			t.skipBarred(e, 0, now)
			return
		}
		t.decide(e, state.StateSkipped, end.reason, now)
	}
}

// reshape has a run that was asked for begin as its job's newest version has it: with a
// first step, with shards, or as one piece of work.
func (t *term) reshape(e *entry) {
	if e.pending == nil || e.version.Broken != nil {
		return
	}
	shard, split := e.version.shape(e.pending)
	if e.shard == shard && e.split == split {
		return
	}
	delete(t.open, e.open())
	e.shard, e.split = shard, split
	t.open[e.open()] = e
}

// holdFor keeps the watermark from speaking for a change as long as a slot is not
// decided that the change takes back, and that would only be due later.
func (t *term) holdFor(e *entry) {
	if e.start > e.due && !e.held {
		e.held = true
		t.byDue.Push(e.holdsAt(), e)
	}
}

// skipUnplanned gives slots of a version from next on that a change makes due no
// more, and that the bound on open entries has kept from being planned, their
// verdicts.
func (t *term) skipUnplanned(was *timed, version *Job, next int64, end ending) {
	if next == never {
		return
	}
	from := time.Unix(next, 0).Add(-time.Second)
	if !from.Before(end.at) {
		return
	}
	t.holdMark(from)
	t.onceClosed(func() {
		t.inTurn(was, func() {
			t.tryReplayOlder(version.ID, func(ctx context.Context, closed state.Closed) error {
				return t.skip(ctx, version, part{from, from, end.at}, closed, end.reason)
			}, func() { t.nextTurn(was) })
		})
	})
}

// lookBehind gives slots of versions of a job between a revision and the newest
// one their verdicts: the watch may have passed over versions that came and went.
func (t *term) lookBehind(j *timed, newest *Job, known int64) {
	t.holdMark(t.floor)
	t.onceClosed(func() { t.replayOlder(j, newest, spoken{instant: newest.Effective, jobs: known}) })
}

// lookForDeleted does that for jobs that came and went altogether.
func (t *term) lookForDeleted(known int64) {
	t.holdMark(t.floor)
	t.onceClosed(func() {
		t.tryReplayOlder(state.JobID{}, func(ctx context.Context, closed state.Closed) error {
			gone, err := t.store.ListDeleted(ctx)
			for i := range gone {
				d := &gone[i]
				if err == nil && d.Job.Revision > known {
					err = t.skipOlder(ctx, endingOf(d), spoken{instant: d.Time, jobs: known}, closed)
				}
			}
			return err
		}, func() {})
	})
}

// remove takes a job that was deleted at a revision, if that is known, off the
// timeline. Its slots end at the instant that is stored with the deletion, which has
// to be read: this node's clock may be another one. Until then its open entries
// stand still. Runs that were asked for before the deletion end with it, those since
// are another job's of the same name.
func (t *term) remove(was *timed, revision int64) {
	now := t.now()
	for _, s := range t.sessions {
		s.forget(was.job)
	}
	next := was.next
	t.timeline.remove(was)
	t.balancer.Release(jobKey(was.job.ID))
	delete(t.jobs, was.job.ID)
	delete(t.failures.watched, was)
	t.dropChain(was.job.ID)
	t.dropDelayed(was.job.ID)
	for _, e := range slices.Clone(was.open) {
		switch {
		case e.helper(), e.begun && e.waiting == nil:
			t.supersedeEntry(e, nil, ending{}, now)
		case e.slot():
			t.suspend(e)
		case e.asked() < revision:
			t.decide(e, state.StateCancelled, state.ReasonDeleted, now)
		case revision != 0 && !e.deciding:
			t.close(e)
			t.adopt(e)
		default:
			t.supersedeEntry(e, nil, ending{}, now)
		}
	}
	hold := t.planned
	if next != never && next <= hold.Unix() {
		hold = time.Unix(next, 0).Add(-time.Second)
	}
	t.holdMark(hold)
	var end ending
	t.onceClosed(func() {
		t.inTurn(was, func() {
			t.tryReplayOlder(was.job.ID, func(ctx context.Context, closed state.Closed) (err error) {
				end, err = t.endDeleted(ctx, was.job, closed)
				return err
			}, func() {
				was.end = &end
				for _, e := range slices.Clone(was.open) {
					if e.suspended {
						e.suspended, e.deciding = false, false
						t.supersedeEntry(e, nil, end, t.now())
					}
				}
				t.skipUnplanned(was, was.job, next, end)
				t.nextTurn(was)
			})
		})
	})
}

// suspend has a slot's entry wait until it is known when its job was deleted.
func (t *term) suspend(e *entry) {
	if !e.deciding {
		e.deciding, e.suspended, e.holders = true, true, nil
	}
}

// endDeleted answers what ended a version of a job that is deleted, and gives the
// slots of versions that came and went after it their verdicts.
func (t *term) endDeleted(ctx context.Context, was *Job, closed state.Closed) (ending, error) {
	versions, err := t.olderVersions(ctx, was.ID, 0, func(all []state.JobVersion) bool {
		return len(all) > 0 && all[len(all)-1].Job.Revision <= was.Revision
	})
	if err != nil {
		return ending{}, err
	}
	// Of several deletions, the first after was.
	deleted := -1
	for i := range versions {
		if versions[i].Job.Revision > was.Revision && versions[i].Change == state.ChangeDelete {
			deleted = i
		}
	}
	if deleted < 0 {
		t.cfg.Logger.Warn("record of a deletion is gone; the job's slots end now", "job", was.ID)
		return ending{id: was.ID, at: t.now(), reason: whySkipped(nil)}, nil
	}
	d := &versions[deleted]
	spans, end, _ := spansOf(endingOf(d), versions[deleted+1:], spoken{instant: d.Time, jobs: was.Revision})
	return end, t.skipSpans(ctx, spans, closed)
}

func endingOf(d *state.JobVersion) ending {
	return ending{d.Job.ID, d.Job.Generation, d.Time, whySkipped(nil)}
}

// endingAt is what ended the version before a job's, where that was seen at now.
func endingAt(j *Job, now time.Time) ending {
	end := endingBy(j)
	if end.at.IsZero() { // it cannot be read
		end.at = now
	}
	return end
}

// whySkipped is the reason for which slots that were due before a change, and
// had not started, are skipped. A nil job was deleted.
func whySkipped(to *Job) string {
	switch {
	case to == nil:
		return state.ReasonDeleted
	case to.Broken != nil:
		return state.ReasonInvalidJob
	case to.Paused:
		return state.ReasonPaused
	}
	return state.ReasonSuperseded
}

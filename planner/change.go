package planner

import (
	"context"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// change takes a job's newest version into account.
func (t *term) change(c change, now time.Time) {
	was := t.jobs[c.id]
	if c.job != nil && was != nil && was.job.Revision >= c.job.Revision {
		return
	}
	switch {
	case was == nil && c.job == nil:
		return
	case was == nil:
		was = newTimed(c.job)
		t.jobs[c.id] = was
	default:
		t.skipUnplanned(was, c.job, now)
		t.supersede(was, c.job, now)
	}
	if c.job == nil {
		t.timeline.remove(was)
		t.balancer.Release(jobKey(c.id))
		delete(t.jobs, c.id)
		return
	}
	was.job, was.last = c.job, never
	t.balancer.Release(jobKey(c.id)) // its selector may be another
	if c.job.Broken != nil {
		t.cfg.Logger.Warn("job is quarantined: it is due never until it is mended", "job", c.id, "err", c.job.Broken)
	}
	after := c.job.Effective
	if first := c.job.NextSlot(after); !first.IsZero() && !first.After(t.closing) {
		// The change is older than the end of the closed part, where other
		// versions' slots may have their verdicts already.
		t.holdMark(after)
		w := window{version: c.job, from: after, until: t.closing}
		t.onceClosed(func() { t.replay(was, w) })
		after = t.closing
	}
	t.timeline.put(was, after)
}

// supersede takes back what was planned of a job's older version. Slots that
// were due before the change get a verdict; to is nil for a deleted job.
func (t *term) supersede(was *timed, to *Job, now time.Time) {
	for _, s := range t.sessions {
		s.forget(was.job)
	}
	for _, e := range slices.Clone(was.open) {
		t.supersedeEntry(e, to, now)
	}
}

func (t *term) supersedeEntry(e *entry, to *Job, now time.Time) {
	switch {
	case e.waiting != nil || e.pending != nil:
		// A run that exists goes on with the newest version, or ends with its job.
		if to == nil {
			t.decide(e, state.StateCancelled, state.ReasonDeleted, now)
		} else {
			e.version, e.holders = to, nil
			if !to.Paused {
				t.place(e)
			}
		}
	case micros(e.due).After(endOf(to, now)):
		t.close(e)
	default:
		t.decide(e, state.StateSkipped, whySkipped(to), now)
	}
}

// skipUnplanned gives slots that the change makes due no more, and that the
// bound on open entries has kept from being planned, their verdicts.
func (t *term) skipUnplanned(was *timed, to *Job, now time.Time) {
	if was.at < 0 {
		return
	}
	version, until, reason := was.job, endOf(to, now), whySkipped(to)
	from := time.Unix(was.next, 0).Add(-time.Second)
	if !from.Before(until) {
		return
	}
	t.holdMark(from)
	t.onceClosed(func() {
		t.inTurn(was, func() {
			t.tryReplayOlder(version.ID, func(ctx context.Context, closed state.Closed) error {
				return t.skip(ctx, version, from, until, closed, reason)
			}, func() { t.nextTurn(was) })
		})
	})
}

// endOf is the instant after which slots of the version before to are due no
// more, where the change was seen at now.
func endOf(to *Job, now time.Time) time.Time {
	if to == nil || to.Effective.IsZero() { // deleted, or it cannot be read
		return now
	}
	return to.Effective
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

package planner

import (
	"context"
	"errors"
	"time"

	"github.com/leaderd/leaderd/state"
)

// Retention is for how long past runs are kept. Verdicts that are beyond the limits
// of their job are removed, the oldest first; older ones of those that stay are packed.
// The leader looks at each job once a period, spread over it, and moves in bounded
// steps with pauses between, so that no run waits for it.
type Retention struct {
	// Retention has the limits of jobs that set none: MaxRuns 1–1,000,000, default
	// 1000; MaxAge 10m–3660 days, default 30 days.
	state.Retention
	// Period is how often each job is looked at, 1s–24h. Default 10m.
	Period time.Duration
	// Budget is how many bytes the store may have in use: beyond it the oldest
	// history of all jobs goes first, whatever their limits. Default half of what the
	// store says is its quota, or 1 GiB where it says nothing.
	Budget int64
}

func (r Retention) withDefaults() Retention {
	r.Retention = r.Or(state.Retention{MaxRuns: state.DefaultRetainedRuns, MaxAge: state.DefaultRetainedAge})
	if r.Period == 0 {
		r.Period = 10 * time.Minute
	}
	return r
}

const (
	// sweepPause is the least time between two looks at jobs, and sweepDuty how many
	// times as long as a step the pause after it is.
	sweepPause = 2 * time.Millisecond
	sweepDuty  = 4
	// sweepWait is how long a sweep waits that cannot go on yet.
	sweepWait = 5 * time.Second
	// firstPause is the pause in a term's first round, which does not know how many
	// jobs there are.
	firstPause = 20 * time.Millisecond
	// idleRate is for how long a rate is kept that has all its tokens.
	idleRate = time.Hour
)

// settled is what a sweep may rely on.
type settled struct {
	closed state.Closed
	// until is the instant up to which all slots of the versions that were stored up to
	// known are decided, and the stored watermark has come. It may go back, where a
	// change makes a slot due behind the watermark.
	until time.Time
	known int64
	busy  bool // slots are being worked up
}

// round is one look at all jobs.
type round struct {
	begun time.Time
	pause time.Duration
	// cut is since when verdicts were written that are kept whatever their job's
	// limits, for want of room; zero: they all are within them.
	cut    time.Time
	over   bool // the store is beyond its budget
	frugal bool // it takes no writes

	jobs, kept, removed, packed int
	oldest                      time.Time
}

// retain sweeps history until ctx ends, or the term.
func (t *term) retain(ctx context.Context) error {
	var last *round
	for {
		r := &round{begun: t.now(), pause: firstPause}
		if last != nil {
			r.pause = min(firstPause, max(sweepPause, t.cfg.Retention.Period/time.Duration(2*max(1, last.jobs))))
		}
		t.measure(ctx, r, last)
		if err := t.sweepAll(ctx, r); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended
		}
		t.told(r)
		if err := t.sweepRest(ctx); err != nil {
			return err
		}
		wait := t.cfg.Retention.Period - t.now().Sub(r.begun)
		switch {
		case r.over && r.cut.IsZero():
			wait = 0 // it is known now how far history reaches back
		case r.over:
			wait = min(wait, t.reclaim(ctx))
		}
		last = r
		if !rest(ctx, wait) {
			return nil
		}
	}
}

// sweepRest forgets what is kept for many jobs and is not used any more. Its error ends the
// term.
func (t *term) sweepRest(ctx context.Context) error {
	for _, sweep := range []func() error{
		func() error { return t.store.SweepRates(ctx, t.leadership, t.now().Add(-idleRate)) },
		func() error { return t.store.SweepCircuits(ctx, t.leadership) },
		func() error {
			_, err := t.store.SweepPlaces(ctx, t.leadership)
			return err
		},
	} {
		if err := sweep(); errors.Is(err, state.ErrTermLost) {
			return err
		} else if err != nil && ctx.Err() == nil {
			t.cfg.Logger.Warn("what is not used any more could not be forgotten; the next round tries again", "err", err)
		}
	}
	return nil
}

// rest waits; false where ctx ends first.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, sweepPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sweepAll looks at every job that has any history. Its error ends the term.
func (t *term) sweepAll(ctx context.Context, r *round) error {
	for from := ""; ; {
		id, next, ok, err := t.store.NextHistory(ctx, from)
		switch {
		case ctx.Err() != nil || err == nil && !ok:
			return nil //nolint:nilerr // ctx ended
		case err != nil:
			t.cfg.Logger.Warn("history cannot be looked through; trying again", "err", err)
			if !rest(ctx, sweepWait) {
				return nil
			}
			continue
		}
		from = next
		r.jobs++
		// One job that cannot be swept keeps no other from it.
		if err := safely(func() error { return t.sweepJob(ctx, id, r) }); errors.Is(err, state.ErrTermLost) {
			return err
		} else if err != nil && ctx.Err() == nil {
			t.metrics.sweepErrors.Inc()
			t.cfg.Logger.Warn("history of a job could not be swept; the next round tries again", "job", jobKey(id), "err", err)
		}
		if !rest(ctx, r.pause) {
			return nil
		}
	}
}

// sweepJob does for a job what is due in this round.
func (t *term) sweepJob(ctx context.Context, id state.JobID, r *round) error {
	s := t.settled.Load()
	for ; s == nil || s.busy || s.closed.Revision == 0; s = t.settled.Load() {
		if !rest(ctx, sweepWait) {
			return nil
		}
	}
	keep, jitter, gone, adhoc := t.cfg.Retention.Retention, time.Duration(0), false, false
	if j := t.sources.Catalog.Get(id); j != nil {
		if j.Revision > s.known {
			return nil // slots of this version that lie behind the watermark may be undecided
		}
		if adhoc = j.Adhoc; adhoc {
			keep = state.AdhocRetention(keep)
		}
		keep, jitter = j.Retention.Or(keep), j.jitter()
	} else {
		last, _, err := t.store.OlderVersions(ctx, id, 0)
		if err != nil {
			return err
		}
		gone = len(last) > 0 && last[0].Change == state.ChangeDelete
		if len(last) > 0 {
			if !gone || last[0].Job.Revision > s.known || last[0].Time.After(s.until) {
				return nil // it is about to be known, or a leader has still to deal with it
			}
			if adhoc = last[0].Job.Adhoc; adhoc {
				keep = state.AdhocRetention(keep)
			}
			keep = last[0].Job.Spec.Retention.Or(keep)
		}
	}
	now := t.now()
	left := 0
	sw := state.Sweep{
		Job: id, MaxRuns: keep.MaxRuns, Before: later(now.Add(-keep.MaxAge), r.cut),
		Bound:  earlier(s.closed.Instant, s.until.Add(-t.cfg.ClosedBehind)).Add(-jitter),
		Young:  now.Add(-t.cfg.ClosedBehind),
		Closed: t.chains.limit(id, s.closed.Revision), Frugal: r.frugal, Span: keep.MaxAge / 8,
	}
	if r.frugal { // without a note, a change of the job must find nothing that is not there
		sw.Bound = sw.Bound.Add(-state.MaxJitter)
	}
	for first := true; ; first = false {
		begun := time.Now()
		done, err := t.store.SweepJob(ctx, t.leadership, sw)
		if err != nil {
			return err
		}
		r.removed += done.Removed
		r.packed += done.Packed
		t.metrics.removed.Add(float64(done.Removed))
		t.metrics.packed.Add(float64(done.Packed))
		if first {
			r.kept += done.Kept
			if r.oldest.IsZero() || !done.Oldest.IsZero() && done.Oldest.Before(r.oldest) {
				r.oldest = done.Oldest
			}
		}
		if left = done.Kept; !done.More {
			break
		}
		sw.After, sw.Passed = done.After, done.Passed
		if !rest(ctx, min(sweepDuty*time.Since(begun), time.Second)) {
			return nil
		}
	}
	return t.retire(ctx, id, left, adhoc, gone, keep.MaxAge)
}

// retire deletes a job that a submission made, once nothing is left of its runs, and
// forgets one that was deleted. The former's deletion need not be remembered for long:
// nobody made it.
func (t *term) retire(ctx context.Context, id state.JobID, left int, adhoc, gone bool, age time.Duration) error {
	var err error
	switch {
	case gone && adhoc:
		_, err = t.store.ForgetJob(ctx, t.leadership, id, t.now().Add(-t.cfg.ClosedBehind))
	case gone:
		_, err = t.store.ForgetJob(ctx, t.leadership, id, t.now().Add(-age))
	case adhoc && left == 0:
		_, err = t.store.RetireJob(ctx, t.leadership, id, t.now())
	}
	return err
}

// told has metrics and the log say what a round did.
func (t *term) told(r *round) {
	t.metrics.sweepRound.Set(t.now().Sub(r.begun).Seconds())
	t.metrics.records.Set(float64(r.kept - r.removed))
	t.metrics.oldest.Set(0)
	if !r.oldest.IsZero() {
		t.metrics.oldest.Set(t.now().Sub(r.oldest).Seconds())
	}
	if r.removed > 0 || r.packed > 0 {
		t.cfg.Logger.Debug("history was swept", "jobs", r.jobs, "removed", r.removed, "packed", r.packed, "kept", r.kept-r.removed)
	}
}

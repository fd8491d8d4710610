package executor

import (
	"context"
	"errors"
	"time"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/executor/unclaimed"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

const (
	// askLeast and askMost bound how long the store has, after its silence has cost the
	// registration, to show that it can be reached: a quarter of the TTL, in which several
	// control nodes are asked. A process that was stopped did not hear it either.
	askLeast, askMost = time.Second, 3 * time.Second
	// doubleAfter is how long after its registration a node waits for what began without
	// a claim to be planned again, before it takes it as decided. Leaders hold such slots
	// for a horizon.
	doubleAfter = time.Minute
	// loseAfter is when it gives up to have it noted.
	loseAfter = time.Hour
	// maxUnrecorded is of how many such runs a leader is told at once.
	maxUnrecorded = 1 << 13
	// noteEvery is how often it looks.
	noteEvery = 5 * time.Second
)

// withoutClaim answers what of the queue may begin without a claim, now that cause has
// ended the registration.
func (d *desk) withoutClaim(cause error) []unclaimed.Start {
	if d.unclaimed == nil || !errors.Is(cause, errUnanswered) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var starts []unclaimed.Start
	for _, e := range d.entries {
		switch e.place {
		case ahead, later, full, behind, claiming:
		case claimed:
			if e.run == nil || e.plan.start <= d.wall() {
				continue // it has begun, under the registration, and is stopped with it
			}
		case nowhere, over:
			continue
		}
		if e.mayGoOn() {
			starts = append(starts, e.asStart())
		}
	}
	return starts
}

// mayGoOn tells whether an entry may begin without a claim: the first attempt at a slot
// of a job that wants it.
func (e *entry) mayGoOn() bool {
	sp := e.plan.spec
	return sp.runPlanned && !e.plan.hedge && !sp.revoked && e.left == nil && e.plan.run == "" && e.key.attempt == 1 && e.plan.closed == 0 && !e.plan.split
}

// asStart is an entry as it begins without a claim.
func (e *entry) asStart() unclaimed.Start {
	t := e.plan.spec.task
	t.Run, t.Shards, t.Attempt = e.key.run, 1, 1
	t.Slot = time.Unix(0, e.plan.due).UTC()
	t.Submitted = e.plan.spec.policy.KeepResult
	if most := e.plan.spec.policy.RunTimeout; most != 0 && (t.Timeout == 0 || most < t.Timeout) {
		t.Timeout = most
	}
	return unclaimed.Start{
		Key: unclaimed.Key{Job: e.key.job, Run: e.key.run}, Due: time.Unix(0, e.plan.start), Until: time.Unix(0, e.until), Task: t,
	}
}

// goOn has what was planned begin without a claim, unless the store answers after all.
func (x *Executor) goOn(reg state.Registration, planned []unclaimed.Start) {
	ctx, cancel := context.WithTimeout(context.Background(), min(max(reg.TTL/4, askLeast), askMost))
	defer cancel()
	if _, err := x.journal.KeepAlive(ctx, reg); err == nil || errors.Is(err, state.ErrNotRegistered) {
		return
	}
	x.log.Warn("the store cannot be reached; slots of jobs that want it begin without a claim", "planned", len(planned))
	x.cfg.Unclaimed.Adopt(planned)
}

// recall is the run of a planned entry as it began here without a claim; nil: it has not.
func (d *desk) recall(k key, p *plan) *unclaimed.Run {
	if !p.spec.runPlanned {
		return nil
	}
	return d.unclaimed.Find(unclaimed.Key{Job: k.job, Run: k.run})
}

// relate awaits, in the place of work, the end of a run that began without a claim.
func (d *desk) relate(work context.Context, r *run) runner.Outcome {
	left := r.entry.left
	select {
	case <-left.Ended():
	case <-work.Done():
		return runner.Outcome{State: state.StateInterrupted, Error: context.Cause(work).Error(), Ended: d.clock()}
	}
	o := left.End().Outcome()
	r.begun = !o.Started.IsZero()
	r.lateness = max(left.Begun.Sub(left.Due), 0)
	return o
}

// relateEnd adds to the end of a run that began without a claim what it left.
func (r *run) relateEnd(f *state.Finish) {
	if left := r.entry.left; left != nil && r.begun {
		f.Attempt.Unclaimed = true
		f.Tail, f.OutputBytes = left.End().Tail, left.End().Bytes
	}
}

// unrecorded are the runs that the leader is told of: they began without a claim.
func (d *desk) unrecorded() []*workerv1.Unrecorded {
	all := d.unclaimed.All()
	told := make([]*workerv1.Unrecorded, min(len(all), maxUnrecorded))
	for i := range told {
		r := all[i]
		told[i] = &workerv1.Unrecorded{Namespace: r.Job.Namespace, Job: r.Job.Name, Run: string(r.Run)}
	}
	return told
}

// noteDoubles has what began without a claim noted with the run's record where that was
// decided otherwise, until ctx ends.
func (d *desk) noteDoubles(ctx context.Context) {
	if d.unclaimed == nil {
		return
	}
	ticker := time.NewTicker(noteEvery)
	defer ticker.Stop()
	for begun := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, left := range d.unclaimed.All() {
			select {
			case <-left.Ended():
			default:
				continue
			}
			if d.decided(left.Key) || time.Since(begun) > doubleAfter && !d.planned(left.Key) {
				d.noteDouble(ctx, left, time.Since(begun))
			}
		}
	}
}

// decided tells whether the store has called an attempt at a run decided, planned
// whether one is on its way.
func (d *desk) decided(k unclaimed.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[key{job: k.Job, run: k.Run, attempt: 1}]
	return e != nil && e.place == over && e.ended.step == workerv1.Progress_STEP_DECIDED
}

func (d *desk) planned(k unclaimed.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for attempt := int32(1); attempt <= 2; attempt++ {
		if e := d.entries[key{job: k.Job, run: k.Run, attempt: attempt}]; e != nil && e.place != over {
			return true
		}
	}
	return false
}

func (d *desk) noteDouble(ctx context.Context, left *unclaimed.Run, waited time.Duration) {
	end := left.End()
	a := state.Attempt{
		Number: 1, Node: d.owner.Node, Started: end.Started, Ended: end.Ended, State: end.State, Error: clip(end.Error), Unclaimed: true,
	}
	if end.ExitCode != nil {
		a.ExitCode, a.HasCode = *end.ExitCode, true
	}
	ctx, cancel := context.WithTimeout(ctx, noteEvery)
	defer cancel()
	err := d.journal.NoteDouble(ctx, state.DoubleReport{Job: left.Job, Run: left.Run, Attempt: a})
	switch {
	case err == nil:
		d.log.Warn("a run that began without a claim had been decided otherwise; it is noted with the record", "job", left.Job, "run", left.Run)
		d.unclaimed.Noted(left)
	case waited > loseAfter:
		d.log.Error("a run that began without a claim is not recorded: it has no record of its own", "job", left.Job, "run", left.Run,
			"state", end.State, "started", end.Started, "ended", end.Ended, "err", err)
		d.unclaimed.Lost(left)
	default:
		d.log.Debug("a run that began without a claim is not noted yet", "job", left.Job, "run", left.Run, "err", err)
	}
}

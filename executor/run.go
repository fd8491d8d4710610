package executor

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderd/leaderd/executor/output"
	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/internal/mutant"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

const (
	// claimWindow is for how long claims share a context, and the least time
	// after which a claim without an answer is given up, to be asked again.
	claimWindow = 15 * time.Second
	minRefused  = time.Second
	// heldAgain is how long a run that waits for another leaves the gate alone.
	heldAgain  = time.Second
	maxRefused = 30 * time.Second
)

// run is an entry on its way from claim to verdict. It belongs to whoever takes it
// on: the pace until its claim is asked for, the journal's answer to that, starts
// until its slot, then its goroutine until the work is over, and last the journal's
// answer to its end; but for released.
type run struct {
	desk  *desk
	entry *entry
	plan  *plan
	until int64
	claim state.Claim
	live  *state.Live // once it is claimed
	part  *state.Part // of a run that is split
	out   *output.Writer
	end   state.Finish

	called   bool  // it stood in the line for room
	applied  bool  // the overlap policy was asked for
	begun    bool  // the work was
	released bool  // its part of the capacity; guarded by the desk's mutex
	unkept   bool  // its work may say no more of itself; guarded by keeping
	tries    uint8 // to have its end stored
	lateness time.Duration

	wish   atomic.Pointer[stopped]                 // that it ends
	stop   atomic.Pointer[context.CancelCauseFunc] // of its work
	away   atomic.Bool                             // it is handed over: it starts elsewhere
	asking atomic.Bool                             // the journal has not answered yet
	asked  int64                                   // its claim was, by the steady clock
	enough context.CancelFunc                      // of that, where it has a time of its own

	keeping sync.Mutex
	kept    *kept // what its work says of itself; nil: nothing
}

// newRun is called with the desk's mutex held.
func newRun(d *desk, e *entry, now int64) *run {
	return &run{desk: d, entry: e, plan: e.plan, until: e.until, applied: now >= e.plan.start && !e.plan.waits()}
}

// start is when the work of a claimed run may begin. A shard of a slot's run is planned by
// its slot; where an earlier version of the job had made that due later, the record says so.
func (r *run) start() int64 { return max(r.plan.start, r.live.Due.UnixNano()) }

// claim asks for the run's claim. What follows from the answer, claimed does.
func (d *desk) claim(window context.Context, r *run) {
	begun := d.clock()
	ctx := window
	if left := time.Duration(r.until - begun.UnixNano()); left > 0 && left < 2*claimWindow {
		// An answer after the start deadline would be of no use.
		ctx, r.enough = context.WithTimeout(d.work, left)
	}
	sp := r.plan.spec
	r.asked = d.steady()
	r.asking.Store(true)
	defer crashed(func(err error) bool { return d.claimed(r, state.ClaimResult{}, err) })
	r.claim = state.Claim{
		Job:         sp.job,
		JobRevision: sp.revision,
		Live: state.Live{
			Job:        sp.job,
			Run:        r.entry.key.run,
			Shard:      int(r.entry.key.shard),
			Shards:     int(r.plan.shards),
			Generation: sp.generation,
			State:      state.StateRunning,
			Attempt:    int(r.entry.key.attempt),
			Owner:      d.owner,
			Term:       sp.session.term,
			Due:        time.Unix(0, r.plan.start).UTC(),
			Claimed:    begun.UTC(),
			AtMostOnce: sp.atMostOnce,
			Origin:     r.plan.origin,
			LimitKey:   r.plan.limitKey,
			DeadLetter: sp.policy.DeadLetter != nil,
			Circuit:    sp.policy.CircuitBreaker,
		},
		Exclusive:      r.plan.gated(),
		Token:          r.plan.token,
		Pending:        r.plan.pending,
		ClosedRevision: r.plan.closed,
		ApplyOverlap:   r.applied,
		Split:          r.plan.split,
		Limits:         sp.policy.Limits,
	}
	if r.lists() {
		r.claim.Live.Listing = sp.listing()
	}
	if r.plan.chain != nil {
		r.claim.Live.Chain = *r.plan.chain
	}
	if !r.plan.allowOverlap {
		r.claim.Gate = sp.gate
	}
	d.journal.StartClaim(ctx, &r.claim, func(res state.ClaimResult, err error) { d.claimed(r, res, err) })
}

// claimed goes on with a run whose claim was answered: towards its slot, or back
// into the queue, or out. It is false where there was an answer before.
func (d *desk) claimed(r *run, res state.ClaimResult, err error) bool {
	if !r.asking.CompareAndSwap(true, false) {
		return false
	}
	if r.enough != nil {
		r.enough()
	}
	took, ended := time.Duration(d.steady()-r.asked), d.work.Err() != nil
	d.metrics.claim.Observe(took.Seconds())
	if err != nil && !ended {
		d.metrics.refused.Inc()
		d.log.Debug("claim has no answer", "job", r.entry.key.job, "run", r.entry.key.run, "shard", r.entry.key.shard, "err", err)
	}
	if r.live = res.Live; r.plan.split {
		part := res.Part
		r.part = &part
	}
	if d.settle(r, &res, err, took, ended) {
		d.starts.add(r)
	} else {
		d.leave(r)
	}
	return true
}

// settle does what follows from a claim's answer, and tells whether it is ours.
func (d *desk) settle(r *run, res *state.ClaimResult, err error, took time.Duration, ended bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.wall()
	e := r.entry
	if r.plan.alone() {
		d.admit(e.key.job, now)
	}
	d.claims--
	d.lead.end(d.steady(), took)
	if d.starving {
		signal(d.wake)
	}
	e.place = nowhere
	if r.called && res.Status != state.Claimed {
		d.line.Return(r.plan.spec.flow) // its job has had no turn
	}
	if err != nil {
		if d.closed || ended {
			delete(d.entries, e.key)
			return false
		}
		d.refused(e, now)
		return false
	}
	e.doubt = e.doubt && res.Status == state.ClaimHeld
	switch res.Status {
	case state.Claimed:
		e.place, e.token, e.run = claimed, r.live.Token, r
		r.away.Store(d.closed && r.plan.spec.handover)
		d.report(e, workerv1.Progress_STEP_CLAIMED)
		return true
	case state.ClaimLive, state.ClaimDecided, state.ClaimSkipped:
		d.conclude(e, ending{step: workerv1.Progress_STEP_DECIDED, closed: r.plan.closed})
	case state.ClaimHeld:
		switch {
		case d.closed:
			delete(d.entries, e.key)
		case r.plan.queued || e.plan.queued:
			d.wait(r, res, now)
		case r.applied:
			d.refused(e, now)
		case r.plan.waits() && now >= e.plan.start:
			d.enqueue(e, later, now+int64(jittered(heldAgain)))
			signal(d.wake)
		default:
			d.enqueue(e, later, max(e.plan.start, now))
			signal(d.wake)
		}
	case state.ClaimQueued:
		// The leader plans it anew, by its pending key.
		d.reportLimit(e, r.plan, workerv1.Progress_STEP_QUEUED, res)
		if d.closed || e.plan.same(r.plan) {
			delete(d.entries, e.key)
			break
		}
		d.enqueue(e, later, now)
		signal(d.wake)
	case state.ClaimStale:
		if !d.closed && !e.plan.same(r.plan) {
			// It was planned anew while the claim was under way.
			d.enqueue(e, later, now)
			signal(d.wake)
			break
		}
		delete(d.entries, e.key)
		d.report(e, workerv1.Progress_STEP_STALE)
	case state.ClaimDisowned:
		delete(d.entries, e.key)
		d.fence(fmt.Errorf("%w: a claim was disowned", ErrFenced))
	default:
		d.refused(e, now)
	}
	return false
}

// refused lets an entry whose claim came to nothing wait for another try.
func (d *desk) refused(e *entry, now int64) {
	e.doubt = true
	if !e.refused {
		e.refused = true
		d.report(e, workerv1.Progress_STEP_REFUSED)
	}
	wait := min(minRefused<<min(e.refusals, 5), maxRefused)
	if e.refusals < 255 {
		e.refusals++
	}
	d.enqueue(e, later, now+int64(jittered(wait)))
	signal(d.wake)
}

// carry does the work of a claimed run whose slot is there, and has its end
// stored, whatever becomes of the work.
func (d *desk) carry(r *run) {
	var o runner.Outcome
	returned := false
	defer func() {
		if !returned { // the work panicked or ended its goroutine
			o = d.crash(r, recover())
		}
		d.finish(r, &o)
	}()
	d.starts.began()
	work, stop := context.WithCancelCause(d.work)
	defer stop(nil)
	// Whoever wishes that the run ends sets wish before it looks for stop.
	r.stop.Store(&stop)
	wish := r.wish.Load()
	switch {
	case wish != nil && work.Err() == nil:
		o = runner.Outcome{State: state.StateCancelled, Error: wish.Error(), Ended: d.clock()}
	case r.away.Load() && work.Err() == nil:
		o = runner.Outcome{State: state.StateInterrupted, Error: runner.ErrDrained.Error(), Ended: d.clock()}
	case work.Err() != nil:
		o = runner.Outcome{State: state.StateInterrupted, Error: context.Cause(work).Error(), Ended: d.clock()}
	case !d.trusted() && !mutant.Off(mutant.SlotTrust) && !mutant.Off(mutant.SelfFence):
		// The process was stopped until now, and the run may be another's.
		o = runner.Outcome{State: state.StateInterrupted, Error: ErrFenced.Error(), Ended: d.clock()}
	case r.entry.left != nil:
		o = d.relate(work, r)
	default:
		o = d.perform(work, r)
		d.starts.yield()
	}
	returned = true
}

// inTime bounds an attempt by what is left of its run's time; false: nothing is.
func (r *run) inTime(t *runner.Task) bool {
	most := r.plan.spec.policy.RunTimeout
	if most == 0 {
		return true
	}
	if len(r.live.Attempts) > 0 {
		most -= r.desk.clock().Sub(r.live.Began())
	}
	if most <= 0 {
		return false
	}
	if t.Timeout == 0 || most < t.Timeout {
		t.Timeout = most
	}
	return true
}

// perform runs the work of a run that is due.
func (d *desk) perform(work context.Context, r *run) runner.Outcome {
	now := d.wall()
	if now > r.until {
		// The claim was answered, or the machine woke up, too late.
		r.end.Reason = state.ReasonDeadline
		return runner.Outcome{State: state.StateCancelled, Error: "the start deadline has passed", Ended: d.clock()}
	}
	t := r.plan.spec.task
	if !r.inTime(&t) {
		return runner.Outcome{State: state.StateTimedOut, Error: "the run's time was over before the attempt began", Ended: d.clock()}
	}
	if r.entry.key.run.Kind().Given() {
		payload, err := d.journal.GetPayload(work, r.entry.key.job, r.entry.key.run)
		if err != nil {
			// It has not begun, and may begin elsewhere.
			return runner.Outcome{State: state.StateInterrupted, Error: clip("payload: " + err.Error()), Ended: d.clock()}
		}
		t.Submitted, t.Payload = true, payload
		now = d.wall()
	}
	t.Submitted = t.Submitted || r.plan.spec.policy.KeepResult
	r.stepOf(&t)
	t.Chain = r.live.Chain
	r.lateness = time.Duration(max(now-r.start(), 0))
	if r.plan.queued || r.live.Tries+r.live.Snoozes > 0 || t.Step == state.StepShard {
		// That it waited for other runs, for its next try, or to be listed, is no lateness.
		r.lateness = max(min(r.lateness, time.Duration(now-r.claim.Live.Claimed.UnixNano())), 0)
	}
	r.begun = true
	d.metrics.starts.Inc()
	d.metrics.lateness.Observe(r.lateness.Seconds())
	d.metrics.running.Inc()
	defer d.metrics.running.Dec()

	t.Run, t.Shard, t.Shards = r.entry.key.run, int(r.entry.key.shard), int(r.plan.shards)
	if r.plan.split {
		t.Shards, t.Part = r.live.Shards, r.part
	}
	t.Attempt, t.Token, t.Kill = int(r.entry.key.attempt), r.live.Token, d.kill
	t.Keeper = r
	if r.plan.run == "" {
		t.Slot = time.Unix(0, r.plan.due).UTC()
	} else if slot, ok := r.plan.run.Nominal(); ok {
		t.Slot = slot
	}
	var out io.Writer
	if d.output != nil && !t.NoOp {
		w, err := d.output.Create(output.Key{Job: t.Job, Run: t.Run, Shard: t.Shard, Attempt: t.Attempt})
		if err != nil {
			d.log.Warn("output of a run is not kept", "job", t.Job, "run", t.Run, "shard", t.Shard, "err", err)
		} else {
			r.out, out = w, w
		}
	}
	return d.runner.Run(work, t, out)
}

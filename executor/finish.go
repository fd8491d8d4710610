package executor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/executor/runner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

const (
	minUnstored = 100 * time.Millisecond
	maxUnstored = 5 * time.Second
	// bareFinish is after how many errors an end is stored without its output:
	// perhaps that is what the store cannot take.
	bareFinish = 3
)

// crash is the outcome of work that panicked with p, or, where that is nil, ended its
// goroutine.
func (d *desk) crash(r *run, p any) runner.Outcome {
	crash := "the work ended its goroutine"
	if p != nil {
		crash = fmt.Sprintf("panic: %v", p)
	}
	d.log.Error("a run crashed", "job", r.entry.key.job, "run", r.entry.key.run, "shard", r.entry.key.shard,
		"err", crash, "stack", string(debug.Stack()))
	return runner.Outcome{State: state.StateFailed, Error: crash, Crashed: true, Ended: d.clock()}
}

// finish follows the end of a run's work.
func (d *desk) finish(r *run, o *runner.Outcome) {
	d.mu.Lock()
	d.release(r)
	d.mu.Unlock()

	r.ending(o)
	d.record(r)
}

// over concludes a run whose end is stored, or fenced, or given up (0).
func (d *desk) over(r *run, status state.TokenStatus) {
	f := &r.end
	n := ending{step: workerv1.Progress_STEP_FINISHED, lateness: r.lateness, closed: r.plan.closed, limitKey: f.Live.LimitKey}
	if status == state.TokenStored {
		n.state = f.Attempt.State
		if !f.Retry.IsZero() {
			n.state = state.StateWaiting
		}
		d.metrics.finished[n.state].Inc()
		if r.entry.left != nil && r.begun {
			d.unclaimed.Recorded(r.entry.left)
		}
		if n.state == state.StateWaiting {
			d.retried(&f.Attempt)
		}
		if r.away.Load() {
			signal(d.handed)
		}
	} else {
		d.metrics.unstored.Inc()
	}
	if status == state.TokenFenced && d.trusted() {
		d.log.Warn("the end of a run was fenced although this node's registration stands; its verdict is not stored",
			"job", r.entry.key.job, "run", r.entry.key.run, "shard", r.entry.key.shard, "attempt", r.entry.key.attempt,
			"state", f.Attempt.State, "token", r.live.Token)
	}
	if d.log.IsDebug() {
		d.log.Debug("run ended", "job", r.entry.key.job, "run", r.entry.key.run, "shard", r.entry.key.shard, "attempt", r.entry.key.attempt,
			"state", n.state, "lateness", r.lateness, "err", f.Attempt.Error)
	}
	hooks := status == state.TokenStored && len(f.Hooks) > 0 && f.Retry.IsZero()
	d.mu.Lock()
	d.conclude(r.entry, n)
	if hooks {
		d.hooks++
	}
	d.mu.Unlock()
	d.leave(r)
	if hooks {
		go d.runHooks(r)
	}
}

// retried counts an attempt that another one follows.
func (d *desk) retried(a *state.Attempt) {
	if a.Snoozed {
		d.metrics.snoozed.Inc()
	} else if c := d.metrics.retried[a.State]; c != nil {
		c.Inc()
	}
}

// ending makes what the store shall know of the run's end.
func (r *run) ending(o *runner.Outcome) {
	if o.Ended.IsZero() {
		o.Ended = r.desk.clock()
	}
	if o.State == state.StateNone || state.CheckTransition(state.StateRunning, o.State) != nil {
		o.State, o.Error = state.StateFailed, fmt.Sprintf("the work ended as %s: %s", o.State, o.Error)
	}
	list := r.list(o)
	f := &r.end
	*f = state.Finish{
		Live: r.live,
		List: list,
		Attempt: state.Attempt{
			Number:   int(r.entry.key.attempt),
			Node:     r.live.Owner.Node,
			Token:    r.live.Token,
			Term:     r.live.Term,
			Claimed:  r.live.Claimed,
			Ended:    o.Ended.UTC(),
			State:    o.State,
			ExitCode: o.ExitCode,
			HasCode:  o.HasCode,
			Error:    clip(o.Error),
		},
		Reason: f.Reason, // where the work did not begin
		Detail: clipTo(o.Unkept, state.MaxDetailBytes),
		Result: o.Result,
	}
	r.letGo(f)
	if wish := r.wish.Load(); wish != nil && o.State == state.StateCancelled && f.Reason == "" {
		f.Reason, f.Detail = clipTo(wish.reason, state.MaxReasonBytes), clipTo(wish.detail, state.MaxDetailBytes)
	}
	if r.begun && !o.Started.IsZero() {
		f.Attempt.Started = o.Started.UTC()
	}
	if o.State != state.StateSucceeded || o.Directive != (state.Directive{}) {
		r.next(f, o)
	}
	// The end of a shard, of a job that had shards once, is no verdict.
	if f.Retry.IsZero() && r.live.Header == 0 && (!f.Attempt.Started.IsZero() || slices.ContainsFunc(r.live.Attempts, func(a state.Attempt) bool { return !a.Started.IsZero() })) {
		f.Hooks = r.plan.spec.policy.Hooks.Due(f.Attempt.State)
	}
	r.relateEnd(f)
	if r.out != nil {
		if err := errors.Join(r.out.Close(), o.OutputErr); err != nil {
			r.desk.log.Warn("output of a run is not complete", "job", r.entry.key.job, "run", r.entry.key.run, "shard", r.entry.key.shard, "err", err)
		}
		f.Tail, f.OutputBytes = r.out.Tail(), r.out.Bytes()
	}
}

// next adds to the end of an attempt what follows it, where that is not simply its
// success.
func (r *run) next(f *state.Finish, o *runner.Outcome) {
	n := r.plan.spec.policy.AfterAttempt(&state.AttemptEnd{
		Live: r.live, Attempt: &f.Attempt, Crashed: o.Crashed, Directive: o.Directive,
	}, r.desk.clock().UTC())
	f.Live.Tries, f.Live.Snoozes = n.Tries, n.Snoozes
	f.Attempt.State, f.Attempt.Snoozed = n.State, n.Snoozed
	f.Retry = n.At
	if n.Error != "" {
		f.Attempt.Error = n.Error
	}
	if f.Reason == "" {
		f.Reason, f.Detail = n.Reason, n.Detail
	}
}

// record has the end of a run stored, and concludes the run when there is an
// answer. It asks until there is one, or until the ends of runs are given up.
func (d *desk) record(r *run) {
	r.asking.Store(true)
	defer crashed(func(err error) bool { return d.recorded(r, 0, err) })
	d.journal.StartFinish(d.final, &r.end, func(status state.TokenStatus, err error) { d.recorded(r, status, err) })
}

// recorded goes on with a run whose end was answered. It is false where there was an
// answer before.
func (d *desk) recorded(r *run, status state.TokenStatus, err error) bool {
	switch {
	case !r.asking.CompareAndSwap(true, false):
		return false
	case err == nil:
		d.over(r, status)
	default:
		go d.recordAgain(r, err)
	}
	return true
}

// recordAgain follows the error err of one of record's tries.
func (d *desk) recordAgain(r *run, err error) {
	f := &r.end
	if d.final.Err() != nil {
		d.log.Warn("the end of a run is given up with the registration", "job", r.entry.key.job, "run", r.entry.key.run,
			"shard", r.entry.key.shard, "state", f.Attempt.State, "err", err)
		d.over(r, 0)
		return
	}
	if r.tries == 0 {
		d.log.Warn("the end of a run is not stored, trying on", "job", r.entry.key.job, "run", r.entry.key.run,
			"shard", r.entry.key.shard, "err", err)
	}
	if r.tries+1 == bareFinish {
		f.Tail = nil
	}
	// Where final ends meanwhile it is asked once more, for the error's sake.
	sleep(d.final, jittered(min(minUnstored<<min(r.tries, 10), maxUnstored)))
	if r.tries < 255 {
		r.tries++
	}
	d.record(r)
}

// crashed is deferred around a call of the journal: it tells of a panic as of an
// error. A panic after the answer is not the journal's, and goes on.
func crashed(tell func(error) bool) {
	if p := recover(); p != nil && !tell(fmt.Errorf("panic: %v\n%s", p, debug.Stack())) {
		panic(p)
	}
}

// jittered is a random time from half of d to d.
func jittered(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}

// clip makes text fit a record.
func clip(text string) string { return clipTo(text, state.MaxErrorBytes) }

func clipTo(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

package executor

import (
	"context"
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

// finish is deferred by carry: it also meets work that panicked or ended its
// goroutine.
func (d *desk) finish(final context.Context, r *run) {
	if !r.returned {
		crash := "the work ended its goroutine"
		if p := recover(); p != nil {
			crash = fmt.Sprintf("panic: %v", p)
		}
		d.log.Error("a run crashed", "job", r.key.job, "run", r.key.run, "shard", r.key.shard,
			"err", crash, "stack", string(debug.Stack()))
		r.outcome = runner.Outcome{State: state.StateFailed, Error: crash, Crashed: true, Started: r.outcome.Started, Ended: d.clock()}
	}
	d.mu.Lock()
	d.release(r)
	d.mu.Unlock()

	r.end = r.ending()
	d.record(final, r, &r.end, 0)
}

// over concludes a run whose end is stored, or fenced, or given up (0).
func (d *desk) over(r *run, f *state.Finish, status state.TokenStatus) {
	n := ending{step: workerv1.Progress_STEP_FINISHED, lateness: r.lateness, closed: r.plan.closed, limitKey: f.Live.LimitKey}
	if status == state.TokenStored {
		n.state = f.Attempt.State
		if !f.Retry.IsZero() {
			n.state = state.StateWaiting
		}
		d.metrics.finished[n.state].Inc()
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
			"job", r.key.job, "run", r.key.run, "shard", r.key.shard, "attempt", r.key.attempt,
			"state", f.Attempt.State, "token", r.live.Token)
	}
	if d.log.IsDebug() {
		d.log.Debug("run ended", "job", r.key.job, "run", r.key.run, "shard", r.key.shard, "attempt", r.key.attempt,
			"state", n.state, "lateness", r.lateness, "err", r.outcome.Error)
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
		go d.runHooks(r, f)
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

// ending is what the store shall know of the run's end.
func (r *run) ending() state.Finish {
	o := &r.outcome
	if o.Ended.IsZero() {
		o.Ended = r.desk.clock()
	}
	if o.State == state.StateNone || state.CheckTransition(state.StateRunning, o.State) != nil {
		o.State, o.Error = state.StateFailed, fmt.Sprintf("the work ended as %s: %s", o.State, o.Error)
	}
	list := r.list()
	f := state.Finish{
		Live: r.live,
		List: list,
		Attempt: state.Attempt{
			Number:   int(r.key.attempt),
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
		Reason: r.reason,
		Detail: clipTo(o.Unkept, state.MaxDetailBytes),
		Result: o.Result,
	}
	r.letGo(&f)
	if wish := r.wish.Load(); wish != nil && o.State == state.StateCancelled && f.Reason == "" {
		f.Reason, f.Detail = clipTo(wish.reason, state.MaxReasonBytes), clipTo(wish.detail, state.MaxDetailBytes)
	}
	if r.begun && !o.Started.IsZero() {
		f.Attempt.Started = o.Started.UTC()
	}
	if o.State != state.StateSucceeded || o.Directive != (state.Directive{}) {
		r.next(&f)
	}
	// The end of a shard, of a job that had shards once, is no verdict.
	if f.Retry.IsZero() && r.live.Header == 0 && (!f.Attempt.Started.IsZero() || slices.ContainsFunc(r.live.Attempts, func(a state.Attempt) bool { return !a.Started.IsZero() })) {
		f.Hooks = r.plan.spec.policy.Hooks.Due(f.Attempt.State)
	}
	if r.out != nil {
		if err := errors.Join(r.out.Close(), o.OutputErr); err != nil {
			r.desk.log.Warn("output of a run is not complete", "job", r.key.job, "run", r.key.run, "shard", r.key.shard, "err", err)
		}
		f.Tail, f.OutputBytes = r.out.Tail(), r.out.Bytes()
	}
	return f
}

// next adds to the end of an attempt what follows it, where that is not simply its
// success.
func (r *run) next(f *state.Finish) {
	n := r.plan.spec.policy.AfterAttempt(&state.AttemptEnd{
		Live: &r.live, Attempt: &f.Attempt, Crashed: r.outcome.Crashed, Directive: r.outcome.Directive,
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
// answer. It asks until there is one, or until ctx ends.
func (d *desk) record(ctx context.Context, r *run, f *state.Finish, tries int) {
	answer := func(status state.TokenStatus, err error) bool {
		switch {
		case !r.asking.CompareAndSwap(true, false):
			return false
		case err == nil:
			d.over(r, f, status)
		default:
			go d.recordAgain(ctx, r, f, tries, err)
		}
		return true
	}
	r.asking.Store(true)
	defer crashed(func(err error) bool { return answer(0, err) })
	d.journal.StartFinish(ctx, f, func(status state.TokenStatus, err error) { answer(status, err) })
}

// recordAgain follows the error err of one of record's tries.
func (d *desk) recordAgain(ctx context.Context, r *run, f *state.Finish, tries int, err error) {
	if ctx.Err() != nil {
		d.log.Warn("the end of a run is given up with the registration", "job", r.key.job, "run", r.key.run,
			"shard", r.key.shard, "state", f.Attempt.State, "err", err)
		d.over(r, f, 0)
		return
	}
	if tries == 0 {
		d.log.Warn("the end of a run is not stored, trying on", "job", r.key.job, "run", r.key.run,
			"shard", r.key.shard, "err", err)
	}
	if tries+1 == bareFinish {
		f.Tail = nil
	}
	// Where ctx ends meanwhile it is asked once more, for the error's sake.
	sleep(ctx, jittered(min(minUnstored<<min(tries, 10), maxUnstored)))
	d.record(ctx, r, f, tries+1)
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

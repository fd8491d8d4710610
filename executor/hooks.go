package executor

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

const (
	// maxHooks is how many hooks run at a time on an executor, beside its capacity, and
	// maxHooksWaiting of how many runs they may wait; those of others are not run, which
	// their records say.
	maxHooks        = 64
	maxHooksWaiting = 4096
	// hookNoteTimeout is for how long it is tried to store what became of a hook.
	hookNoteTimeout = 30 * time.Second
)

// runHooks runs the hooks of a run whose verdict is stored, one after the other. The
// verdict names them; whoever stored it runs them, once, and nobody else ever does. They
// take no part of the capacity, and nothing waits for them but the end of the desk.
func (d *desk) runHooks(r *run) {
	f := &r.end
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.hooks--
		d.gone()
	}()
	d.mu.Lock()
	crowded := d.hooks > maxHooksWaiting
	d.mu.Unlock()
	for i := range f.Hooks {
		h := f.Hooks[i]
		switch {
		case crowded:
			h.State, h.Error, h.Ended = state.StateFailed, "not run: too many hooks wait on the executor", d.clock().UTC()
		case !d.hookTurn(d.work):
			h.State, h.Error, h.Ended = state.StateInterrupted, "not run: "+clip(context.Cause(d.work).Error()), d.clock().UTC()
		default:
			d.runHook(r, f, &h)
		}
		d.metrics.hooks[h.State == state.StateSucceeded].Inc()
		d.noteHook(r, &h)
	}
}

// hookTurn waits until a hook may run; false if ctx ends before.
func (d *desk) hookTurn(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case d.hooking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// runHook runs one whose turn it is, and puts into h what became of it.
func (d *desk) runHook(r *run, f *state.Finish, h *state.HookRun) {
	defer func() {
		<-d.hooking
		if p := recover(); p != nil {
			h.State, h.Error, h.Ended = state.StateFailed, clip(fmt.Sprintf("panic: %v", p)), d.clock().UTC()
			d.log.Error("a hook crashed", "job", r.entry.key.job, "run", r.entry.key.run, "hook", h.Name, "err", h.Error, "stack", string(debug.Stack()))
		}
	}()
	hook := r.plan.spec.policy.Hooks.Of(h.Name)
	a := &f.Attempt
	t := runner.Task{
		Job: r.entry.key.job, Run: r.entry.key.run, Shards: 1, Attempt: a.Number, Token: a.Token, Chain: r.live.Chain,
		Timeout: hook.Timeout, KillGrace: r.plan.spec.policy.KillGrace, Kill: d.kill,
		Command: hook.Command, HTTP: hook.HTTP,
		After: &runner.HookOf{
			Hook: h.Name, State: a.State, Reason: f.Reason, Error: a.Error, Code: a.ExitCode, HasCode: a.HasCode,
		},
	}
	if t.Timeout == 0 {
		t.Timeout = state.DefaultHookTimeout
	}
	if r.plan.run == "" {
		t.Slot = time.Unix(0, r.plan.due).UTC()
	} else if slot, ok := r.plan.run.Nominal(); ok {
		t.Slot = slot
	}
	out := &tail{most: state.MaxHookTail}
	o := d.runner.Run(d.work, t, out)
	h.State, h.Started, h.Ended = o.State, o.Started.UTC(), o.Ended.UTC()
	h.ExitCode, h.HasCode, h.Error, h.Tail = o.ExitCode, o.HasCode, clip(o.Error), out.kept
	if h.State != state.StateSucceeded {
		d.log.Warn("a hook did not end well", "job", r.entry.key.job, "run", r.entry.key.run, "hook", h.Name, "state", h.State, "err", h.Error)
	}
}

// noteHook has it stored what became of a hook.
func (d *desk) noteHook(r *run, h *state.HookRun) {
	ctx, cancel := context.WithTimeout(d.final, hookNoteTimeout)
	defer cancel()
	err := d.journal.NoteHook(ctx, state.HookReport{Job: r.entry.key.job, Run: r.entry.key.run, Token: r.live.Token, Hook: *h})
	if err != nil {
		d.log.Warn("what became of a hook is not stored", "job", r.entry.key.job, "run", r.entry.key.run, "hook", h.Name, "state", h.State, "err", err)
	}
}

// tail keeps the end of what is written.
type tail struct {
	most int
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

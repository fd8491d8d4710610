package executor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

// hooked has a job's spec name all hooks.
func hooked(s *state.JobSpec) {
	hook := &state.Hook{Command: &state.Command{Shell: "true"}}
	s.Hooks = &state.Hooks{OnSuccess: hook, OnFailure: hook, OnExit: hook}
}

// hooksOf runs one slot of a job with hooks, whose work does as given, and answers the
// hooks that ran, in order.
func hooksOf(t *testing.T, r *rig, does func(ctx context.Context) runner.Outcome, with func(*state.JobSpec)) (ran []runner.Task) {
	t.Helper()
	r.work.hook = func(ctx context.Context, task runner.Task) runner.Outcome {
		if task.After == nil {
			return does(ctx)
		}
		ran = append(ran, task)
		if task.After.Hook == state.HookOnSuccess {
			panic("the hook panics")
		}
		return runner.Outcome{State: state.StateSucceeded}
	}
	l := r.lead(5)
	due := soon(5 * time.Second)
	l.plan(noop(1, func(s *state.JobSpec) {
		hooked(s)
		if with != nil {
			with(s)
		}
	}), slot(1, due))
	until(due.Add(time.Minute))
	return ran
}

func TestHooksFollowTheVerdict(t *testing.T) {
	for to, want := range map[state.RunState][]state.HookName{
		state.StateSucceeded: {state.HookOnSuccess, state.HookOnExit},
		state.StateFailed:    {state.HookOnFailure, state.HookOnExit},
		state.StateTimedOut:  {state.HookOnFailure, state.HookOnExit},
		state.StateCancelled: {state.HookOnExit},
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, nil)
			ran := hooksOf(t, r, func(context.Context) runner.Outcome {
				return runner.Outcome{State: to, Error: "so", ExitCode: 3, HasCode: true, Started: time.Now()}
			}, nil)
			var names []state.HookName
			for _, task := range ran {
				names = append(names, task.After.Hook)
				require.Equal(t, to, task.After.State)
				require.Equal(t, 3, task.After.Code)
				require.Equal(t, state.DefaultHookTimeout, task.Timeout)
			}
			require.Equal(t, want, names)
			finish := r.journal.finished()[0]
			require.Len(t, finish.Hooks, len(want), "the verdict names them")
			require.Len(t, r.journal.hooks, len(want))
			for i, note := range r.journal.hooks {
				require.Equal(t, want[i], note.Hook.Name)
				require.Equal(t, finish.Live.Token, note.Token)
				if want[i] == state.HookOnSuccess {
					require.Equal(t, state.StateFailed, note.Hook.State)
					require.Equal(t, "panic: the hook panics", note.Hook.Error)
				} else {
					require.Equal(t, state.StateSucceeded, note.Hook.State)
				}
			}
			r.close()
		})
	}
}

// Work that an earlier registration left behind, and whose end is stored after all, has its
// hooks, and leaves nothing of the capacity taken, nor more than there is.
func TestHooksOfWorkThatWasLeftBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release, ran := make(chan struct{}), 0
		r := newRig(t, nil)
		r.work.hook = func(_ context.Context, task runner.Task) runner.Outcome {
			if task.After == nil {
				<-release
			} else {
				ran++
			}
			return runner.Outcome{State: state.StateSucceeded, Started: time.Now()}
		}
		l := r.lead(5)
		due := soon(5 * time.Second)
		l.plan(noop(1, hooked), slot(1, due))
		until(due.Add(time.Second))
		r.journal.set(func() {
			r.journal.keepAlive = func(context.Context) (time.Duration, error) { return 0, state.ErrNotRegistered }
		})
		pass(5 * time.Second)
		r.journal.set(func() { r.journal.keepAlive = nil })
		pass(time.Minute)
		require.EqualValues(t, 1, r.x.strays.Load())
		close(release)
		pass(time.Second)
		require.Len(t, r.journal.finished(), 1)
		require.Zero(t, r.x.strays.Load(), "%d hooks ran", ran)
		r.close()
	})
}

// No hook follows what is no verdict of this executor's.
func TestNoHooks(t *testing.T) {
	fails := func(context.Context) runner.Outcome {
		return runner.Outcome{State: state.StateFailed, Error: "so", Started: time.Now()}
	}
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.journal.onFinish = func(context.Context, state.Finish) (state.TokenStatus, error) { return state.TokenFenced, nil }
		require.Empty(t, hooksOf(t, r, fails, nil), "it was fenced")
		r.close()
	})
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		ran := hooksOf(t, r, fails, func(s *state.JobSpec) { s.Retry = &state.Retry{MaxAttempts: 2} })
		require.Empty(t, ran, "another attempt follows")
		require.Empty(t, r.journal.finished()[0].Hooks)
		r.close()
	})
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.journal.onClaim = func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
			res := r.journal.grant(c)
			res.Live.Header = 3
			return res, nil
		}
		require.Empty(t, hooksOf(t, r, fails, nil), "it is a shard of a run from before an edit")
		require.Empty(t, r.journal.finished()[0].Hooks)
		r.close()
	})
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.lead(5)
		due := soon(5 * time.Second)
		r.journal.onClaim = func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
			until(due.Add(time.Hour)) // the start deadline passes meanwhile
			return r.journal.grant(c), nil
		}
		l.plan(noop(1, hooked), slot(1, due))
		until(due.Add(2 * time.Hour))
		require.Len(t, r.journal.finished(), 1)
		require.Empty(t, r.journal.finished()[0].Hooks, "its work never began")
		r.close()
	})
}

// NoteDouble implements DoubleKeeper.
func (j *journal) NoteDouble(_ context.Context, r state.DoubleReport) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.noteDouble != nil {
		return j.noteDouble(r)
	}
	return nil
}

// NoteHook implements HookKeeper.
func (j *journal) NoteHook(_ context.Context, r state.HookReport) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hooks = append(j.hooks, r)
	return nil
}

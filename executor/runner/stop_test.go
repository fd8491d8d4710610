package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

func cancellable(t testing.TB) (context.Context, context.CancelCauseFunc) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}

// stopWhen starts the task and cancels it with cause once it printed "up" n times.
func stopWhen(t testing.TB, task runner.Task, n int, cause error) runner.Outcome {
	t.Helper()
	ctx, cancel := cancellable(t)
	out := newScreen()
	done := make(chan runner.Outcome, 1)
	go func() { done <- runner.New(runner.Config{FenceGrace: time.Millisecond}).Run(ctx, task, out) }()
	out.await("up", n)
	cancel(cause)
	return <-done
}

func TestTheCauseDecidesTheOutcome(t *testing.T) {
	for _, c := range []struct {
		cause error
		state state.RunState
		text  string
	}{
		{runner.ErrCancelled, state.StateCancelled, "cancelled"},
		{fmt.Errorf("%w by ops: wrong data", runner.ErrCancelled), state.StateCancelled, "cancelled by ops: wrong data"},
		{runner.ErrDrained, state.StateInterrupted, "executor drained"},
		{runner.ErrFenced, state.StateInterrupted, "fenced"},
		{nil, state.StateInterrupted, "context canceled"},
		{errors.New("other"), state.StateInterrupted, "other"},
	} {
		// It ends well at SIGTERM: the stop decides all the same.
		o := stopWhen(t, shell("trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done"), 1, c.cause)
		require.Equal(t, c.state, o.State)
		require.Equal(t, c.text, o.Error)
		require.True(t, o.HasCode)

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(c.cause)
		o = runner.New(runner.Config{}).Run(ctx, shell("true"), nil)
		require.Equal(t, c.state, o.State, "ended before it started")
		require.False(t, o.HasCode)
	}
}

// A fenced command gets the short grace, whatever its own is.
func TestFencedCommandIsKilledSoon(t *testing.T) {
	task := shell("trap '' TERM; echo up; while :; do sleep 0.01; done")
	task.KillGrace = time.Hour
	require.Equal(t, 137, stopWhen(t, task, 1, runner.ErrFenced).ExitCode)
}

func TestKillCutsTheGraceShort(t *testing.T) {
	task := shell("trap 'echo got' TERM; echo up; while :; do sleep 0.01; done")
	kill := make(chan struct{})
	task.KillGrace, task.Kill = time.Hour, kill
	ctx, cancel := cancellable(t)
	out := newScreen()
	done := make(chan runner.Outcome, 1)
	go func() { done <- runner.New(runner.Config{}).Run(ctx, task, out) }()
	out.await("up", 1)
	cancel(runner.ErrDrained)
	out.await("got", 1)
	close(kill)
	o := <-done
	require.Equal(t, 137, o.ExitCode)
	require.Equal(t, state.StateInterrupted, o.State)
}

// Case R01, in all its forms: the whole tree is gone when Run returns.
func TestTimeoutStopsTheWholeTree(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("needs setsid")
	}
	for name, script := range map[string]string{
		"child":               "sleep ARG & sleep ARG",
		"child ignores TERM":  "(trap '' TERM; sleep ARG) & trap '' TERM; sleep ARG",
		"grandchild":          "sh -c 'sh -c \"sleep ARG; true\"; true' & wait",
		"setsid":              "setsid sleep ARG & sleep ARG",
		"setsid ignores TERM": "setsid sh -c \"trap '' TERM; sleep ARG; true\" & sleep ARG",
		"setsid orphan":       "(setsid sleep ARG &); sleep ARG",
		"setsid twice":        "(setsid sh -c '(setsid sleep ARG &); exec sleep ARG' &); exec sleep ARG",
	} {
		t.Run(name, func(t *testing.T) {
			arg := nap()
			task := shell(strings.ReplaceAll(script, "ARG", arg))
			task.Timeout, task.KillGrace = 300*time.Millisecond, 100*time.Millisecond
			o := runner.New(runner.Config{}).Run(t.Context(), task, newScreen())
			require.Equal(t, state.StateTimedOut, o.State)
			require.Equal(t, "timed out after 300ms", o.Error)
			require.Empty(t, withArgument(t, arg))
		})
	}
}

// What stays in the group when the command ends is stopped, so that nothing piles
// up.
func TestWhatIsLeftInTheGroupIsStopped(t *testing.T) {
	for _, script := range []string{
		"sleep %s & exit 5",                                 // holds the output
		"sleep %s >/dev/null 2>&1 & exit 5",                 // does not
		"(trap '' TERM; sleep %[1]s; sleep %[1]s) & exit 5", // must be killed
	} {
		arg := nap()
		task := shell(fmt.Sprintf(script, arg))
		task.KillGrace = 50 * time.Millisecond
		o, _ := run(t, task)
		require.Equal(t, 5, o.ExitCode)
		require.Equal(t, state.StateFailed, o.State)
		require.Empty(t, withArgument(t, arg))
	}
}

// A helper that still flushes gets the time to.
func TestLateOutputIsKept(t *testing.T) {
	out := newScreen()
	o := runner.New(runner.Config{Linger: time.Minute}).Run(t.Context(), shell("(sleep 0.1; echo late) & echo now"), out)
	require.Equal(t, state.StateSucceeded, o.State)
	require.Equal(t, "now\nlate\n", out.String())
}

// A daemon that left the group outlives a command that ends by itself, and does
// not hold up its end.
func TestDaemonSurvives(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("needs setsid")
	}
	arg, left := nap(), filepath.Join(t.TempDir(), "left")
	out := newScreen()
	o := runner.New(runner.Config{Linger: 50 * time.Millisecond}).Run(t.Context(), shell(fmt.Sprintf(
		"setsid sh -c 'touch %[1]s; exec sleep %[2]s' & until [ -e %[1]s ]; do sleep 0.01; done; echo done", left, arg)), out)
	require.Equal(t, state.StateSucceeded, o.State)
	require.Equal(t, "done\n", out.String())
	require.Eventually(t, func() bool { return len(withArgument(t, arg)) == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(withArgument(t, arg)[0], syscall.SIGKILL))
}

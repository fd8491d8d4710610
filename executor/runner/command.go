//go:build unix

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leaderd/leaderd/state"
)

// command runs the command of t.
func (r *Runner) command(ctx context.Context, t *Task, out io.Writer) (o Outcome) {
	s, err := r.listen(t)
	if err != nil {
		o.fail(err)
		return o
	}
	if s == nil {
		return r.process(ctx, t, out)
	}
	defer s.close()
	o = r.process(ctx, t, out)
	if o.State == state.StateSucceeded || o.State == state.StateFailed { // else it was stopped, and that decides
		o.Directive = s.directive()
	}
	return o
}

// process runs the command's processes.
func (r *Runner) process(ctx context.Context, t *Task, out io.Writer) (o Outcome) {
	env, err := r.base.of(t)
	if err != nil {
		o.fail(err)
		return o
	}
	file, argv, err := program(t.Command, env.path)
	if err != nil {
		o.fail(err)
		return o
	}
	var given *exchange
	var stdin *os.File
	if t.Submitted {
		if given, err = newExchange(r.cfg.ExchangeDir, t.Payload); err != nil {
			o.fail(err)
			return o
		}
		defer func() { o.OutputErr = errors.Join(o.OutputErr, given.close()) }()
		env.vars, stdin = append(env.vars, given.variables()...), given.in
	}
	o.Started = time.Now()
	c, pipe, err := start(file, argv, env.vars, t.Command.Dir, stdin, out != nil)
	if err != nil {
		o.fail(startError(file, t.Command.Dir, err))
		return o
	}
	s := supervisor{cfg: &r.cfg, task: t, child: c, tree: newTree(c, env.identity)}
	if pipe != nil {
		s.pump = startPump(pipe, out)
	}
	over := false
	defer func() {
		if !over { // a crash of ours: leave nothing behind
			s.kill()
			if s.pump != nil {
				_ = s.pump.finish() // the crash is what gets reported
			}
		}
	}()
	o = s.run(ctx, o)
	over = true
	if given != nil {
		given.collect(&o)
	}
	return o
}

// supervisor sees one started command to its end.
type supervisor struct {
	cfg   *Config
	task  *Task
	child *child
	tree  *tree
	pump  *pump // nil: the output is dropped
}

// run waits for the command, stops it when it must, and cleans up behind it.
func (s *supervisor) run(ctx context.Context, o Outcome) Outcome {
	var timeout <-chan time.Time
	if s.task.Timeout > 0 {
		timer := time.NewTimer(s.task.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	var cause error
	var broken *crash
	select {
	case <-s.child.exited:
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-timeout:
		cause = errTimedOut
	case broken = <-s.crashed():
	}
	select {
	case <-s.child.exited: // it was over before we could ask
		cause = nil
		s.clean()
	default:
		switch {
		case broken != nil:
			s.kill()
		case errors.Is(cause, ErrFenced):
			s.stop(min(s.grace(), s.cfg.FenceGrace))
		default:
			s.stop(s.grace())
		}
	}
	o.Ended = s.child.ended
	if s.child.err != nil {
		o.fail(s.child.err)
	} else {
		o.exited(s.child.status)
	}
	if cause != nil {
		o.stopped(s.task, cause)
	}
	if s.pump != nil {
		o.OutputErr = s.pump.finish()
		if broken == nil {
			select {
			case broken = <-s.pump.crashed:
			default:
			}
		}
	}
	if broken != nil {
		o.fail(fmt.Errorf("writing the output: %w", broken))
		o.OutputErr = broken
	}
	return o
}

// crashed is where a crash of the output's writer is reported.
func (s *supervisor) crashed() <-chan *crash {
	if s.pump == nil {
		return nil
	}
	return s.pump.crashed
}

func (s *supervisor) grace() time.Duration {
	if s.task.KillGrace == 0 {
		return state.DefaultKillGrace
	}
	return max(0, s.task.KillGrace)
}

// exited is the outcome of a command that ended by itself.
func (o *Outcome) exited(status syscall.WaitStatus) {
	o.HasCode = true
	switch {
	case status.Signaled():
		o.ExitCode, o.Crashed = 128+int(status.Signal()), true
		o.fail(errors.New("killed by signal: " + signalName(status.Signal())))
	case status.ExitStatus() != 0:
		o.ExitCode = status.ExitStatus()
		o.fail(fmt.Errorf("exit code %d", o.ExitCode))
	default:
		o.State = state.StateSucceeded
	}
}

// signalName is the name without "SIG", or the number.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); len(name) > len("SIG") {
		return name[len("SIG"):]
	}
	return fmt.Sprint(int(sig))
}

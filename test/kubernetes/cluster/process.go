package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// processes are programs that run in the background, each with a log in a folder.
type processes struct {
	tools Tools
	logs  string
	all   []*process
}

type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// start runs a program until stop. Where it ends by itself, await tells so.
func (p *processes) start(name, program string, args ...string) (*process, error) {
	path, args := p.tools.command(program, args...)
	return p.run(name, exec.Command(path, args...))
}

func (p *processes) run(name string, cmd *exec.Cmd) (*process, error) {
	if err := os.MkdirAll(p.logs, 0o755); err != nil {
		return nil, err
	}
	one := &process{name: name, cmd: cmd, log: filepath.Join(p.logs, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(one.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(one.ended)
	}()
	p.all = append(p.all, one)
	return one, nil
}

// stop ends them, the last one first.
func (p *processes) stop() {
	for _, one := range slices.Backward(p.all) {
		one.stop()
	}
	p.all = nil
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// tail is the end of its log.
func (p *process) tail() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-3000):])
}

// await asks until what is asked for is so, a process that it needs has ended, or
// ctx has.
func await(ctx context.Context, what string, ask func() error, needs ...*process) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		for _, p := range needs {
			select {
			case <-p.ended:
				return fmt.Errorf("%s: %s has ended: %s", what, p.name, p.tail())
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// output is what a program that ends says on its standard output. Its error has
// all that it said.
func output(ctx context.Context, input []byte, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.Env = bytes.NewReader(input), append(os.Environ(), env...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return out.String(), &CommandError{
			Command: filepath.Base(program) + " " + strings.Join(args, " "),
			Output:  out.String() + complaints.String(),
			err:     errors.Join(err, context.Cause(ctx)),
		}
	}
	return out.String(), nil
}

// CommandError is the failure of a program.
type CommandError struct {
	Command string
	Output  string // all of it
	err     error
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("%s: %v: %s", e.Command, e.err, strings.TrimSpace(e.Output))
}

func (e *CommandError) Unwrap() error { return e.err }

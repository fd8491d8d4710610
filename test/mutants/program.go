package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/test/sim/exact"
)

const (
	tag = "mutants"
	// work is how many seconds of CPU one process may take: a mutant may do the same
	// thing for ever, in no virtual time. How long that takes depends on what else
	// the machine does, and limit bounds it for one that hangs.
	work  = 120
	limit = 30 * time.Minute
	// memory is the address space of one process, in kilobytes. Go reserves half
	// of it without ever using that. It is bounded since nothing is collected.
	memory = 5_000_000
)

// program is the simulation, built so that guards can be turned off.
type program struct {
	path, dir string
	repeats   bool
}

// build builds it into dir, so that its runs repeat exactly or without that. root
// is the repository.
func build(ctx context.Context, root, dir string, repeats bool) (*program, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	p := &program{path: filepath.Join(dir, "sim.test"), dir: filepath.Join(root, "test", "sim"), repeats: repeats}
	args := []string{"test", "-c", "-o", p.path}
	c := exec.CommandContext(ctx, "go")
	if repeats {
		more, err := exact.BuildArgs(ctx, filepath.Join(dir, "overlay"), tag)
		if err != nil {
			return nil, err
		}
		args = append(args, more...)
		c.Env = append(os.Environ(), exact.BuildVariable)
	} else {
		args = append(args, "-tags", tag)
	}
	c.Args = append(append(c.Args, args...), "./test/sim")
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the simulation: %w\n%s", err, out)
	}
	return p, nil
}

// seed runs one seed without a guard; empty: with all of them. ok is false where
// the run failed, and out is what it said.
func (p *program) seed(ctx context.Context, off mutant.Guard, seed uint64, length time.Duration) (out string, ok bool, err error) {
	return p.run(ctx, off, "TestRandom",
		"-fresh", "0", "-seed", fmt.Sprint(seed), "-seeds", "1", "-hours", fmt.Sprint(length.Hours()))
}

// test runs a scenario without a guard, as seed does.
func (p *program) test(ctx context.Context, name string, off mutant.Guard) (out string, ok bool, err error) {
	return p.run(ctx, off, name)
}

// run runs a test. An error means that it could not be run.
func (p *program) run(ctx context.Context, off mutant.Guard, test string, more ...string) (out string, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	shell := fmt.Sprintf(`ulimit -v %d && ulimit -t %d && exec nice -n 10 "$0" "$@"`, memory, work)
	args := []string{"-c", shell, p.path, "-test.run", "^" + test + "$", "-test.v", "-test.timeout", "0"}
	c := exec.CommandContext(ctx, "sh", append(args, more...)...)
	c.Dir = p.dir
	c.Env = os.Environ()
	if p.repeats { // nothing else: the environment takes memory, and moves what comes after it
		c.Env = exact.Environment()
	}
	c.Env = append(c.Env, mutant.Env+"="+string(off))
	said, err := c.CombinedOutput()
	out = string(said)
	var failed *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return out + "\n" + hung, false, nil
	case ctx.Err() != nil:
		return out, false, ctx.Err()
	case errors.As(err, &failed) && killed(failed):
		return out + "\n" + hung, false, nil
	case errors.As(err, &failed) && strings.Contains(out, "=== RUN"):
		return out, false, nil
	case err != nil:
		return out, false, fmt.Errorf("%s did not begin: %w\n%s", test, err, out)
	case strings.Contains(out, "no tests to run"):
		return out, false, fmt.Errorf("there is no %s", test)
	}
	return out, true, nil
}

// killed tells whether a process was, as is one that has used its CPU up.
func killed(err *exec.ExitError) bool {
	status, ok := err.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

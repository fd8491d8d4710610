package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/test/sim/exact"
)

const (
	simulation = "./test/sim"
	tag        = "mutants"
	// limit is how long one process may take: a mutant may do the same thing for
	// ever, in no virtual time.
	limit = 3 * time.Minute
	// memory is the address space of one process, in kilobytes. Go reserves half
	// of it without ever using that. It is bounded since nothing is collected.
	memory = 5_000_000
)

// programs are the test programs of packages, by package, built into dir.
type programs struct {
	root    string // of the repository
	dir     string
	overlay string // of the simulation; empty: it is built as it is, and does not repeat
	built   map[string]string
}

// newPrograms answers programs that repeat exactly, or not.
func newPrograms(ctx context.Context, root, dir string, repeat bool) (*programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	p := &programs{root: root, dir: dir, built: map[string]string{}}
	if !repeat {
		return p, nil
	}
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	p.overlay, err = exact.Write(strings.TrimSpace(string(goroot)), filepath.Join(dir, "overlay"))
	return p, err
}

// build builds a package's test program, in which guards can be turned off.
func (p *programs) build(ctx context.Context, pkg string) error {
	if p.built[pkg] != "" {
		return nil
	}
	program := filepath.Join(p.dir, filepath.Base(pkg)+".test")
	args := []string{"test", "-c", "-tags", tag, "-o", program}
	if pkg == simulation && p.overlay != "" {
		args = append(args, "-overlay", p.overlay)
	}
	c := exec.CommandContext(ctx, "go", append(args, pkg)...)
	c.Dir = p.root
	if p.overlay != "" {
		c.Env = append(os.Environ(), exact.BuildEnvironment)
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	p.built[pkg] = program
	return nil
}

// buildFor builds what some mutations take.
func (p *programs) buildFor(ctx context.Context, all []mutation) error {
	if err := p.build(ctx, simulation); err != nil {
		return err
	}
	for i := range all {
		if all[i].test == "" {
			continue
		}
		if err := p.build(ctx, all[i].pkg); err != nil {
			return err
		}
	}
	return nil
}

// seed runs one seed of the simulation without a guard; empty: with all of them. ok is false where the run
// failed, and out is what it said.
func (p *programs) seed(ctx context.Context, off mutant.Guard, seed uint64, length time.Duration) (out string, ok bool, err error) {
	args := []string{
		"-test.run", "^TestRandom$", "-test.v", "-test.timeout", "0", "-fresh", "0",
		"-seed", fmt.Sprint(seed), "-seeds", "1", "-hours", fmt.Sprint(length.Hours()),
	}
	return p.run(ctx, simulation, off, seed, args)
}

// test runs one test of a package without a guard, as seed does.
func (p *programs) test(ctx context.Context, pkg, name string, off mutant.Guard) (out string, ok bool, err error) {
	return p.run(ctx, pkg, off, 1, []string{"-test.run", "^" + name + "$", "-test.v", "-test.timeout", "0"})
}

// run runs a test program in its package's directory. An error means that it
// could not be run.
func (p *programs) run(ctx context.Context, pkg string, off mutant.Guard, seed uint64, args []string) (out string, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	shell := fmt.Sprintf(`ulimit -v %d && exec nice -n 10 "$0" "$@"`, memory)
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", shell, p.built[pkg]}, args...)...)
	c.Dir = filepath.Join(p.root, pkg)
	c.Env = append(os.Environ(), mutant.Env+"="+string(off))
	if pkg == simulation && p.overlay != "" {
		c.Env = append(append(c.Env, exact.Environment()...), fmt.Sprintf("%s=%d", exact.SeedVariable, seed))
	}
	said, err := c.CombinedOutput()
	out = string(said)
	var failed *exec.ExitError
	switch {
	case context.Cause(ctx) == context.DeadlineExceeded: //nolint:errorlint // the cause is never wrapped
		return out + "\n" + hung, false, nil
	case ctx.Err() != nil:
		return out, false, ctx.Err()
	case errors.As(err, &failed) && !strings.Contains(out, "=== RUN"):
		return out, false, fmt.Errorf("%s did not begin: %w\n%s", pkg, err, out)
	case errors.As(err, &failed):
		return out, false, nil
	case err != nil:
		return out, false, fmt.Errorf("run %s: %w", pkg, err)
	case strings.Contains(out, "no tests to run"):
		return out, false, fmt.Errorf("%s has no such test: %s", pkg, strings.Join(args, " "))
	}
	return out, true, nil
}

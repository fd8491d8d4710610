package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/leaderd/leaderd/test/sim/exact"
)

// program is the simulation, built.
type program struct {
	path string
	sum  string   // of what it is
	env  []string // all of its environment
}

// build builds the simulation into a directory so that its runs repeat exactly.
func build(ctx context.Context, dir string) (*program, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	args, err := exact.BuildArgs(ctx, filepath.Join(dir, "overlay"))
	if err != nil {
		return nil, err
	}
	p := &program{path: filepath.Join(dir, "sim.test"), env: exact.Environment()}
	c := exec.CommandContext(ctx, "go", append(append([]string{"test", "-c", "-o", p.path}, args...), "./test/sim")...)
	c.Env = append(os.Environ(), exact.BuildVariable)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("build the simulation: %w", err)
	}
	text, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	p.sum = hex.EncodeToString(sum[:])
	return p, nil
}

// attempt is a run of some seeds, one after the other in one process.
type attempt struct {
	seed    uint64
	seeds   int
	hours   float64
	jobs    int
	without string
	wild    bool
}

func (a *attempt) args() []string {
	args := []string{
		"-test.run", "^TestRandom$", "-test.v", "-test.timeout", "0", "-fresh", "0", "-seed", fmt.Sprint(a.seed),
		"-seeds", fmt.Sprint(a.seeds), "-hours", fmt.Sprint(a.hours), "-jobs", fmt.Sprint(a.jobs),
	}
	if a.without != "" {
		args = append(args, "-without", a.without)
	}
	if a.wild {
		args = append(args, "-wild")
	}
	return args
}

// String is the command that repeats the run.
func (a *attempt) String() string {
	s := fmt.Sprintf("make sim SEEDS=%d SEED=%d HOURS=%g JOBS=%d", a.seeds, a.seed, a.hours, a.jobs)
	if a.without != "" {
		s += " WITHOUT=" + a.without
	}
	if a.wild {
		s += " WILD=true"
	}
	if a.seeds > 1 { // those that held are not to be left out
		s += " AGAIN=true"
	}
	return s
}

// heldSeed is a seed that broke nothing.
type heldSeed struct {
	seed   uint64
	digest string
}

// try runs an attempt. It calls each for every seed that held, answers what the
// process said since then, and whether all held. A seed that takes longer than
// limit did not.
func (p *program) try(ctx context.Context, a attempt, limit time.Duration, each func(heldSeed)) (string, bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(limit, cancel)
	defer watchdog.Stop()
	said := &listener{heard: func(h heldSeed) {
		watchdog.Reset(limit)
		if each != nil {
			each(h)
		}
	}}
	c := exec.CommandContext(ctx, p.path, a.args()...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGQUIT) } // which shows what it does
	c.WaitDelay = 10 * time.Second
	c.Env = p.env
	c.Stdout, c.Stderr = said, said
	err := c.Run()
	return said.rest.String(), err == nil
}

// held is what the simulation says of a seed that broke nothing.
var held = regexp.MustCompile(`^seed (\d+) held, digest ([0-9a-f]+)$`)

// listener hears what a process says, and keeps what came since the last seed that
// held.
type listener struct {
	heard func(heldSeed)
	line  []byte
	rest  bytes.Buffer
}

var _ io.Writer = (*listener)(nil)

// Write implements io.Writer.
func (l *listener) Write(p []byte) (int, error) {
	for _, b := range p {
		l.line = append(l.line, b)
		if b != '\n' {
			continue
		}
		if m := held.FindSubmatch(bytes.TrimSpace(l.line)); m != nil {
			if seed, err := strconv.ParseUint(string(m[1]), 10, 64); err == nil {
				l.heard(heldSeed{seed, string(m[2])})
			}
			l.rest.Reset()
		} else {
			l.rest.Write(l.line)
		}
		l.line = l.line[:0]
	}
	return len(p), nil
}

// complaint is the part of a failed run's output that says what was wrong.
func complaint(out string) string {
	const limit = 30
	var b strings.Builder
	n := 0
	for line := range strings.Lines(out) {
		if strings.Contains(line, "log of the cluster") {
			break
		}
		if strings.Contains(line, "=== RUN") {
			continue
		}
		if n++; n <= limit {
			b.WriteString("  " + line)
		}
	}
	return b.String()
}

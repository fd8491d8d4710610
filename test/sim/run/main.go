// Run runs many seeds of the simulation, each in a process of its own that
// repeats exactly (see package exact), and says which of them broke an invariant
// and how to repeat those. It is what `make sim` calls, from the repository's
// root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leaderd/leaderd/test/sim/exact"
)

type options struct {
	seeds     int
	first     uint64
	hours     float64
	jobs      int
	without   string
	processes int
	shrink    bool
	wild      bool
	dir       string
	limit     time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.seeds, "seeds", 100, "how many seeds")
	flag.Uint64Var(&o.first, "seed", 0, "the first seed; 0: by the clock")
	flag.Float64Var(&o.hours, "hours", 1, "virtual hours of each seed")
	flag.IntVar(&o.jobs, "jobs", 6, "how many jobs at a time")
	flag.StringVar(&o.without, "without", "", "kinds of faults and changes to leave out, separated by commas")
	flag.IntVar(&o.processes, "processes", runtime.NumCPU(), "how many seeds run at a time")
	flag.BoolVar(&o.wild, "wild", false, "clocks that are wrong by minutes, not by seconds")
	flag.BoolVar(&o.shrink, "shrink", true, "look for a smaller run that fails too")
	flag.StringVar(&o.dir, "dir", filepath.Join(".cache", "sim"), "where the program is built, and traces of failed seeds are left")
	flag.DurationVar(&o.limit, "limit", 15*time.Minute, "how long a seed may take; one that takes longer failed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.first == 0 {
		o.first = uint64(time.Now().UnixMilli())
	}
	program, err := build(ctx, o.dir)
	if err != nil {
		return err
	}
	r := &runner{options: o, program: program, begun: time.Now()}
	fmt.Printf("%d seeds from %d, %g virtual hours each, %d at a time\n", o.seeds, o.first, o.hours, o.processes)
	seeds := make(chan uint64)
	var workers sync.WaitGroup
	for range o.processes {
		workers.Go(func() {
			for seed := range seeds {
				r.one(ctx, seed)
			}
		})
	}
feed:
	for i := range o.seeds {
		select {
		case seeds <- o.first + uint64(i):
		case <-ctx.Done():
			break feed
		}
	}
	close(seeds)
	workers.Wait()
	r.tell()
	r.repeat(ctx)
	for _, seed := range r.failed {
		if ctx.Err() == nil && o.shrink {
			r.shrink(ctx, seed)
		}
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case len(r.failed) > 0:
		return fmt.Errorf("%d of %d seeds broke an invariant", len(r.failed), r.done)
	}
	return nil
}

// build builds the simulation with the exact runtime and answers the program.
func build(ctx context.Context, dir string) (string, error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	overlay, err := exact.Write(strings.TrimSpace(string(goroot)), filepath.Join(dir, "overlay"))
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "sim.test")
	c := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", program, "./test/sim")
	c.Env = append(os.Environ(), exact.BuildEnvironment)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("build the simulation: %w", err)
	}
	return program, nil
}

// runner runs seeds. Its methods may be called concurrently.
type runner struct {
	options

	program string
	begun   time.Time

	mu     sync.Mutex
	done   int
	failed []uint64
	told   time.Time
}

// attempt is one run of a seed.
type attempt struct {
	seed    uint64
	hours   float64
	jobs    int
	without string
	wild    bool
}

func (a *attempt) args() []string {
	args := []string{
		"-test.run", "^TestRandom$", "-test.v", "-test.timeout", "0", "-seed", fmt.Sprint(a.seed), "-seeds", "1",
		"-hours", fmt.Sprint(a.hours), "-jobs", fmt.Sprint(a.jobs),
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
	s := fmt.Sprintf("make sim SEEDS=1 SEED=%d HOURS=%g JOBS=%d", a.seed, a.hours, a.jobs)
	if a.without != "" {
		s += " WITHOUT=" + a.without
	}
	if a.wild {
		s += " WILD=true"
	}
	return s
}

// try runs a seed and answers what it said, and whether it held.
func (r *runner) try(ctx context.Context, a attempt) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	c := exec.CommandContext(ctx, r.program, a.args()...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGQUIT) } // which shows what it does
	c.WaitDelay = 10 * time.Second
	// Nothing else: the environment takes memory, and moves what comes after it.
	c.Env = append(exact.Environment(), fmt.Sprintf("%s=%d", exact.SeedVariable, a.seed))
	out, err := c.CombinedOutput()
	return string(out), err == nil
}

func (r *runner) one(ctx context.Context, seed uint64) {
	a := attempt{seed, r.hours, r.jobs, r.without, r.wild}
	out, ok := r.try(ctx, a)
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if !ok {
		r.failed = append(r.failed, seed)
		trace := filepath.Join(r.dir, fmt.Sprintf("seed-%d.log", seed))
		if err := os.WriteFile(trace, []byte(out), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "sim:", err)
		}
		fmt.Printf("seed %d FAILED (%s)\n%s  %s\n", seed, trace, complaint(out), &a)
	} else if r.seeds == 1 {
		for line := range strings.Lines(out) {
			if strings.Contains(line, "digest") {
				fmt.Print(line)
			}
		}
	}
	if time.Since(r.told) > 10*time.Second {
		r.told = time.Now()
		r.tell()
	}
}

// repeat runs the first seed twice more, and tells whether both did the same.
func (r *runner) repeat(ctx context.Context) {
	a := attempt{r.first, r.hours, r.jobs, r.without, r.wild}
	first, _ := r.try(ctx, a)
	second, _ := r.try(ctx, a)
	switch {
	case ctx.Err() != nil:
	case digest(first) == "" || digest(first) != digest(second):
		fmt.Printf("seed %d did not repeat exactly: digest %s, then %s\n", r.first, digest(first), digest(second))
	default:
		fmt.Printf("seed %d repeats exactly: digest %s\n", r.first, digest(first))
	}
}

// digest is the part of a run's output that tells it from others.
func digest(out string) string {
	_, after, _ := strings.Cut(out, "digest ")
	word, _, _ := strings.Cut(after, "\n")
	return word
}

// tell tells how far it is.
func (r *runner) tell() {
	hours, took := float64(r.done)*r.hours, time.Since(r.begun)
	fmt.Printf("%d of %d seeds, %d failed, %.1f virtual hours in %s: %.2f virtual hours a second\n",
		r.done, r.seeds, len(r.failed), hours, took.Round(time.Second), hours/took.Seconds())
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

// shrink looks for a smaller run of a seed that fails too: shorter, with fewer
// jobs, without kinds of faults. Each of them is another run, since its draws
// differ; what is left is what such a failure takes.
func (r *runner) shrink(ctx context.Context, seed uint64) {
	best := attempt{seed, r.hours, r.jobs, r.without, r.wild}
	budget := time.Now().Add(2*time.Minute + time.Duration(20*r.hours)*time.Second)
	better := func(a attempt) bool {
		if ctx.Err() != nil || time.Now().After(budget) {
			return false
		}
		if _, ok := r.try(ctx, a); ok || ctx.Err() != nil {
			return false
		}
		best = a
		return true
	}
	for a := best; a.hours > 0.05; {
		if a.hours /= 2; !better(a) {
			break
		}
	}
	for a := best; a.jobs > 1; {
		if a.jobs = (a.jobs + 1) / 2; !better(a) {
			break
		}
	}
	for _, kind := range kinds {
		a := best
		if a.without != "" {
			a.without += ","
		}
		a.without += kind
		if !strings.Contains(","+best.without+",", ","+kind+",") {
			better(a)
		}
	}
	fmt.Printf("seed %d, smaller:  %s\n", seed, &best)
}

// kinds are what can be left out. The simulation refuses one that it does not
// know.
var kinds = []string{
	"clock", "pause", "split", "oneway", "away", "outage", "flaky", "latency", "reset", "lease", "compact",
	"crash", "leave", "join", "trigger", "edit", "halt", "resume", "delete", "work",
}

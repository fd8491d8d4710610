// Run runs many seeds of the simulation (see packages sim and exact), says how far
// it is, and stops at the first seed that breaks an invariant, which it shrinks and
// whose command it prints. Seeds that held are written to a file as they end: a run
// that was stopped goes on from there when it is started again. It is what
// `make sim` calls, from the repository's root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

type options struct {
	seeds     int
	first     uint64
	hours     float64
	jobs      int
	without   string
	wild      bool
	processes int
	batch     int
	shrink    bool
	again     bool
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
	flag.BoolVar(&o.wild, "wild", false, "clocks that are wrong by minutes, not by seconds")
	flag.IntVar(&o.processes, "processes", runtime.NumCPU(), "how many processes run seeds at a time")
	flag.IntVar(&o.batch, "batch", 20, "how many seeds a process runs, one after the other")
	flag.BoolVar(&o.shrink, "shrink", true, "look for a smaller run that fails too")
	flag.BoolVar(&o.again, "again", false, "also run seeds that an earlier run of the same program finished")
	flag.StringVar(&o.dir, "dir", filepath.Join(".cache", "sim"), "where the program is built, and finished seeds and traces of failed ones are left")
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
	if o.seeds == 1 {
		o.again = true // somebody wants to see it
	}
	p, err := build(ctx, o.dir)
	if err != nil {
		return err
	}
	r := &runner{options: o, program: p, out: os.Stdout, begun: time.Now(), digests: map[uint64]string{}}
	if r.finished, err = openFinished(o.dir, p.sum, r.attempt(0)); err != nil {
		return err
	}
	defer r.finished.close()
	return r.run(ctx)
}

// runner runs seeds. Its methods may be called concurrently.
type runner struct {
	options

	program  *program
	out      io.Writer
	finished *finished
	begun    time.Time

	mu      sync.Mutex
	held    int
	digests map[uint64]string
	failed  *failure
	told    time.Time
}

// failure is the first seed that failed.
type failure struct {
	attempt attempt // as it was run: perhaps behind others in one process
	seed    uint64
	out     string
}

func (r *runner) attempt(seed uint64) attempt {
	return attempt{seed, 1, r.hours, r.jobs, r.without, r.wild}
}

// batches are the seeds that are to be run, cut into pieces for a process each.
func (r *runner) batches() (all []attempt, seeds int) {
	for i := range r.seeds {
		seed := r.first + uint64(i)
		if !r.again && r.finished.has(seed) {
			continue
		}
		seeds++
		if n := len(all) - 1; n >= 0 && all[n].seed+uint64(all[n].seeds) == seed && all[n].seeds < r.batch {
			all[n].seeds++
			continue
		}
		all = append(all, r.attempt(seed))
	}
	return all, seeds
}

func (r *runner) run(ctx context.Context) error {
	batches, seeds := r.batches()
	fmt.Fprintf(r.out, "%d seeds from %d, %g virtual hours each, in %d processes; %d were finished before\n",
		r.seeds, r.first, r.hours, r.processes, r.seeds-seeds)
	r.seeds = seeds
	work, stop := context.WithCancel(ctx)
	defer stop()
	queue := make(chan attempt)
	var workers sync.WaitGroup
	for range max(r.processes, 1) {
		workers.Go(func() {
			for a := range queue {
				if r.batchOf(work, a); r.failure() != nil {
					stop()
				}
			}
		})
	}
feed:
	for _, a := range batches {
		select {
		case queue <- a:
		case <-work.Done():
			break feed
		}
	}
	close(queue)
	workers.Wait()
	r.tell()
	if f := r.failure(); f != nil {
		r.report(ctx, f)
		return fmt.Errorf("seed %d broke an invariant", f.seed)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; the same command goes on from here")
	}
	if seeds > 0 {
		r.repeat(ctx, batches[0].seed)
	}
	return nil
}

func (r *runner) failure() *failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// batchOf runs some seeds in one process.
func (r *runner) batchOf(ctx context.Context, a attempt) {
	next := a.seed
	out, ok := r.program.try(ctx, a, r.limit, func(h heldSeed) {
		r.mu.Lock()
		defer r.mu.Unlock()
		next = h.seed + 1
		r.held++
		r.digests[h.seed] = h.digest
		if err := r.finished.add(h); err != nil {
			fmt.Fprintln(os.Stderr, "sim:", err)
		}
		if time.Since(r.told) > 10*time.Second {
			r.told = time.Now()
			r.tellHeld()
		}
	})
	if ok || ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		a.seeds = int(next-a.seed) + 1
		r.failed = &failure{a, next, out}
	}
}

// report tells of a failed seed, and of a smaller run that fails too.
func (r *runner) report(ctx context.Context, f *failure) {
	trace := filepath.Join(r.dir, fmt.Sprintf("seed-%d.log", f.seed))
	if err := os.WriteFile(trace, []byte(f.out), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
	}
	fmt.Fprintf(r.out, "seed %d FAILED (%s)\n%s", f.seed, trace, complaint(f.out))
	alone := r.attempt(f.seed)
	fails := func(a attempt) bool {
		_, ok := r.program.try(ctx, a, r.limit, nil)
		return !ok && ctx.Err() == nil
	}
	if f.attempt.seeds > 1 && !fails(alone) {
		fmt.Fprintf(r.out, "  it holds in a process of its own; to repeat it: %s\n", &f.attempt)
		return
	}
	fmt.Fprintf(r.out, "  %s\n", &alone)
	if !r.shrink || ctx.Err() != nil {
		return
	}
	budget := time.Now().Add(2*time.Minute + time.Duration(20*r.hours)*time.Second)
	small := shrink(alone, func(a attempt) bool { return time.Now().Before(budget) && fails(a) })
	fmt.Fprintf(r.out, "seed %d, smaller:  %s\n", f.seed, &small)
}

// repeat runs a seed again, alone, and tells whether it did the same.
func (r *runner) repeat(ctx context.Context, seed uint64) {
	was, is := r.digests[seed], ""
	r.program.try(ctx, r.attempt(seed), r.limit, func(h heldSeed) { is = h.digest })
	switch {
	case ctx.Err() != nil:
	case was == "" || was != is:
		fmt.Fprintf(r.out, "seed %d did not repeat exactly: digest %s, then %s\n", seed, was, is)
	default:
		fmt.Fprintf(r.out, "seed %d repeats exactly: digest %s\n", seed, is)
	}
}

// tell tells how far it is.
func (r *runner) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellHeld()
}

func (r *runner) tellHeld() {
	hours, took := float64(r.held)*r.hours, time.Since(r.begun)
	fmt.Fprintf(r.out, "%d of %d seeds held, %.1f virtual hours in %s: %.2f virtual hours a second\n",
		r.held, r.seeds, hours, took.Round(time.Second), hours/took.Seconds())
}

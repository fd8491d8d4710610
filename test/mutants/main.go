package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

type options struct {
	seeds     int
	first     uint64
	minutes   float64
	only      string
	all       bool
	repeat    bool
	verbose   bool
	processes int
	dir       string
}

func main() {
	var o options
	flag.IntVar(&o.seeds, "seeds", 40, "within how many seeds a mutant must be caught")
	flag.Uint64Var(&o.first, "seed", 1, "the first seed")
	flag.Float64Var(&o.minutes, "minutes", 15, "virtual minutes of each seed")
	flag.StringVar(&o.only, "only", "", "guards, separated by commas; empty: all")
	flag.BoolVar(&o.all, "all", false, "run all seeds, and count how many catch a mutant")
	flag.BoolVar(&o.repeat, "exact", true, "make runs that repeat exactly, which takes a build of the standard library")
	flag.BoolVar(&o.verbose, "v", false, "show what caught a mutant")
	flag.IntVar(&o.processes, "processes", 2, "how many mutants run at a time")
	flag.StringVar(&o.dir, "dir", filepath.Join(".cache", "mutants"), "where the simulation is built")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	chosen, err := mutations(o.only)
	if err != nil {
		return err
	}
	p, err := build(ctx, ".", o.dir, o.repeat)
	if err != nil {
		return err
	}
	h := &hunt{program: p, first: o.first, seeds: o.seeds, all: o.all, length: time.Duration(o.minutes * float64(time.Minute))}
	fmt.Printf("%d mutants, up to %d seeds each from %d, of %g virtual minutes\n", len(chosen), o.seeds, o.first, o.minutes)

	findings := make([]finding, len(chosen))
	wrong := make([]error, len(chosen)+1)
	slots := make(chan struct{}, max(o.processes, 1))
	var all sync.WaitGroup
	start := func(do func()) {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do()
		})
	}
	start(func() {
		if wrong[len(chosen)] = h.clean(ctx, chosen); wrong[len(chosen)] == nil {
			fmt.Println("clean with all guards in place")
		}
	})
	for i, m := range chosen {
		start(func() {
			f, err := h.run(ctx, m)
			if err != nil {
				wrong[i] = fmt.Errorf("%s: %w", m.guard, err)
				return
			}
			findings[i] = f
			fmt.Println(f.row())
			if o.verbose {
				fmt.Println(head(f.out))
			}
		})
	}
	all.Wait()
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	return tell(findings)
}

// tell prints the table of docs/verification.md. Survivors are an error.
func tell(findings []finding) error {
	fmt.Print("\n| mutant | seeds needed | invariants and rules broken |\n|---|---|---|\n")
	var survivors []string
	for i := range findings {
		f := &findings[i]
		fmt.Println(f.row())
		if f.survived() {
			survivors = append(survivors, string(f.guard))
		}
	}
	if len(survivors) > 0 {
		return fmt.Errorf("%d of %d mutants survived: %s", len(survivors), len(findings), strings.Join(survivors, ", "))
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
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
	flag.IntVar(&o.seeds, "seeds", 40, "within how many seeds each mutant must be caught")
	flag.Uint64Var(&o.first, "seed", 1, "the first seed")
	flag.Float64Var(&o.minutes, "minutes", 15, "virtual minutes of each seed")
	flag.StringVar(&o.only, "only", "", "mutants, separated by commas; a pair is joined by +; empty: all")
	flag.BoolVar(&o.all, "all", false, "run all seeds, and count how many catch a mutant")
	flag.BoolVar(&o.repeat, "exact", true, "make runs that repeat exactly, which takes a build of the standard library")
	flag.BoolVar(&o.verbose, "v", false, "show what caught a mutant")
	flag.IntVar(&o.processes, "processes", 2, "how many mutants run at a time")
	flag.StringVar(&o.dir, "dir", filepath.Join(".cache", "mutants"), "where the programs are built")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	p, err := newPrograms(ctx, o.dir, o.repeat)
	if err != nil {
		return err
	}
	if err := p.buildFor(ctx, chosen); err != nil {
		return err
	}
	h := &hunt{programs: p, first: o.first, seeds: o.seeds, all: o.all, length: time.Duration(o.minutes * float64(time.Minute))}
	fmt.Printf("%d mutants, up to %d seeds each from %d, of %g virtual minutes\n", len(chosen), o.seeds, o.first, o.minutes)

	findings := make([]finding, len(chosen))
	wrong := make([]error, len(chosen)+1)
	slots := make(chan struct{}, max(o.processes, 1))
	var tell sync.Mutex
	var all sync.WaitGroup
	start := func(do func()) {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do()
		})
	}
	start(func() {
		if err := h.clean(ctx, chosen); err != nil {
			wrong[len(chosen)] = err
		} else {
			fmt.Println("with all guards in place: clean")
		}
	})
	for i, m := range chosen {
		start(func() {
			f, err := h.run(ctx, m)
			findings[i] = f
			if err != nil {
				wrong[i] = fmt.Errorf("%s: %w", &m, err)
				return
			}
			tell.Lock()
			defer tell.Unlock()
			fmt.Println(f.line())
			if o.verbose && f.out != "" {
				fmt.Println(head(f.out))
			}
		})
	}
	all.Wait()
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	survivors := 0
	fmt.Print("\n", tableHead)
	for i := range findings {
		fmt.Println(findings[i].row())
		if findings[i].survived() {
			survivors++
		}
	}
	if survivors > 0 {
		return fmt.Errorf("%d of %d mutants survived", survivors, len(findings))
	}
	return nil
}

// buildFor builds what some mutations take.
func (p *programs) buildFor(ctx context.Context, mutations []mutation) error {
	if err := p.build(ctx, simulation); err != nil {
		return err
	}
	for i := range mutations {
		if mutations[i].test == "" {
			continue
		}
		if err := p.build(ctx, mutations[i].pkg); err != nil {
			return err
		}
	}
	return nil
}

// choose answers the mutations that are named.
func choose(only string) ([]mutation, error) {
	if only == "" {
		return mutations(), nil
	}
	var chosen []mutation
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(mutations(), func(m mutation) bool { return strings.ReplaceAll(m.String(), " ", "") == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no mutant %q; the guards are %v", name, mutant.Guards())
		}
		chosen = append(chosen, mutations()[i])
	}
	return chosen, nil
}

// tableHead begins the table of docs/verification.md.
const tableHead = "| mutant | caught by | invariants and rules broken |\n|---|---|---|\n"

// row is a finding's row in the table.
func (f *finding) row() string {
	name := ""
	for i, g := range f.off {
		if i > 0 {
			name += " with "
		}
		name += "`" + string(g) + "`"
	}
	by := "**nothing**"
	switch {
	case f.tested:
		by = "`" + f.test + "` of `" + strings.TrimPrefix(f.pkg, "./") + "`"
	case f.caught == 0:
	case f.seeds > f.first: // all were run
		by = fmt.Sprintf("seed %d; %d of %d", f.first, f.caught, f.seeds)
	default:
		by = fmt.Sprintf("seed %d", f.first)
	}
	return fmt.Sprintf("| %s | %s | %s |", name, by, strings.Join(f.sorted(), ", "))
}

// sorted are the broken rules by invariant.
func (f *finding) sorted() []string {
	b := slices.Clone(f.broken)
	slices.SortFunc(b, func(x, y string) int {
		var i, j int
		_, _ = fmt.Sscan(x, &i)
		_, _ = fmt.Sscan(y, &j)
		if i != j {
			return i - j
		}
		return strings.Compare(x, y)
	})
	return b
}

// line is what is told of a finding meanwhile.
func (f *finding) line() string { return strings.Trim(strings.ReplaceAll(f.row(), "`", ""), "| ") }

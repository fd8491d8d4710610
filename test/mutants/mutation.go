package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
)

// A mutation is the product without some of its guards.
type mutation struct {
	off []mutant.Guard
	// pkg and test name the test that catches it, for one that the seeds do not.
	pkg, test string
	// breaks is what that test sees broken, as complaints has it.
	breaks string
}

func (m *mutation) String() string {
	s := ""
	for i, g := range m.off {
		if i > 0 {
			s += " + "
		}
		s += string(g)
	}
	return s
}

// finding is what became of a mutation.
type finding struct {
	mutation

	seeds  int      // how many were tried
	first  int      // the first that caught it, counted from 1; 0: none
	caught int      // how many did
	tested bool     // its own test caught it
	broken []string // the rules, of all runs that failed
	out    string   // what the first run said that failed
}

func (f *finding) survived() bool { return f.caught == 0 && !f.tested }

// hunt runs seeds without guards until one fails, or all of them, and then the
// test that is named, unless a seed has failed.
type hunt struct {
	programs *programs
	first    uint64
	seeds    int
	all      bool
	length   time.Duration
}

func (h *hunt) run(ctx context.Context, m mutation) (finding, error) {
	f := finding{mutation: m}
	seen := map[string]bool{}
	for i := range h.seeds {
		seed := h.first + uint64(i)
		out, ok, err := h.programs.seed(ctx, m.off, seed, h.length)
		if err != nil {
			return f, err
		}
		f.seeds++
		if ok {
			continue
		}
		broken, err := complaints(out)
		if err != nil {
			return f, fmt.Errorf("seed %d: %w", seed, err)
		}
		if len(broken) == 0 {
			return f, fmt.Errorf("seed %d without %s failed, and broke no invariant:\n%s", seed, &m, head(out))
		}
		for _, b := range broken {
			if !seen[b] {
				seen[b] = true
				f.broken = append(f.broken, b)
			}
		}
		if f.caught++; f.caught == 1 {
			f.first, f.out = i+1, out
		}
		if !h.all {
			return f, nil
		}
	}
	if f.caught > 0 || m.test == "" {
		return f, nil
	}
	out, ok, err := h.programs.test(ctx, m.pkg, m.test, m.off)
	if err == nil && !ok {
		f.tested, f.out, f.broken = true, out, []string{m.breaks}
	}
	return f, err
}

// clean runs all the same with all guards in place, which must fail nowhere.
func (h *hunt) clean(ctx context.Context, mutations []mutation) error {
	for i := range h.seeds {
		seed := h.first + uint64(i)
		if out, ok, err := h.programs.seed(ctx, nil, seed, h.length); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("seed %d fails with all guards in place:\n%s", seed, head(out))
		}
	}
	for i := range mutations {
		m := &mutations[i]
		if m.test == "" {
			continue
		}
		if out, ok, err := h.programs.test(ctx, m.pkg, m.test, nil); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("%s of %s fails with all guards in place:\n%s", m.test, m.pkg, head(out))
		}
	}
	return nil
}

// head is the beginning of what a run said.
func head(out string) string {
	const most = 3000
	if len(out) > most {
		return out[:most] + "…"
	}
	return out
}

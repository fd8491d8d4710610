package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
)

// A mutation is the product without one of its guards.
type mutation struct {
	guard mutant.Guard
	// test names the scenario that catches it where no seed does. breaks is the rule
	// that this breaks where the scenario itself finds that out, not the check.
	test, breaks string
}

// scenarios are the tests for guards that random runs seldom or never need.
var scenarios = map[mutant.Guard]mutation{
	mutant.JobsChanged:  {test: "TestChangesOvertakeClaims"},
	mutant.Closed:       {test: "TestClaimBehindTheClosing"},
	mutant.History:      {test: "TestClaimComesTwice"},
	mutant.FirstVerdict: {test: "TestEndComesTwice"},
	mutant.Conflicts:    {test: "TestClaimsThatMeet"},
	mutant.ReadBack:     {test: "TestAnswerOfClaimIsLost", breaks: "6 lost"},
	mutant.SlotTrust:    {test: "TestDistrustedClaimStartsNothing", breaks: "7 outlived"},
	mutant.OwnerGone:    {test: "TestLeaderBehindTakesNoRun"},
	mutant.Checkpoint:   {test: "TestLateCheckpoint", breaks: "5 backward"},
	mutant.Hedge:        {test: "TestHedge", breaks: "9 late"},
	mutant.QueuedSlot:   {test: "TestQueueSurvivesFailovers", breaks: "2 doubled"},
	mutant.ShardsEnded:  {test: "TestVerdictMeetsShard"},
	mutant.Carried:      {test: "TestRepeatStartsSoon"},
	mutant.CancelWish:   {test: "TestCancelRunning", breaks: "4 overlap"},
}

// mutations are those that are named, separated by commas; all for none.
func mutations(only string) ([]mutation, error) {
	named := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	var all []mutation
	for _, g := range mutant.Guards() {
		if len(named) == 0 || slices.Contains(named, string(g)) {
			m := scenarios[g]
			m.guard = g
			all = append(all, m)
		}
	}
	if len(named) > 0 && len(all) != len(named) {
		return nil, fmt.Errorf("%q are not all guards, each once; there are %v", only, mutant.Guards())
	}
	return all, nil
}

// finding is what became of a mutation.
type finding struct {
	mutation

	first  int      // the first seed that caught it, counted from 1; 0: none did
	tried  int      // how many seeds were run
	caught int      // how many of them failed
	tested bool     // its test failed
	broken []string // the rules, of all runs that failed, by invariant
	out    string   // what the first of them said
}

func (f *finding) survived() bool { return f.caught == 0 && !f.tested }

// row is a finding's row in the table.
func (f *finding) row() string {
	by := "**nothing**"
	switch {
	case f.tested:
		by = "`" + f.test + "`"
	case f.tried > f.first: // all were run
		by = fmt.Sprintf("%d (%d of %d)", f.first, f.caught, f.tried)
	case f.caught > 0:
		by = fmt.Sprint(f.first)
	}
	return fmt.Sprintf("| `%s` | %s | %s |", f.guard, by, strings.Join(f.broken, ", "))
}

// hunt is how mutations are looked for.
type hunt struct {
	program *program
	first   uint64
	seeds   int
	all     bool // run all seeds, not only until one fails
	length  time.Duration
}

// run runs seeds without a guard until one fails, and if none does the test that
// is named.
func (h *hunt) run(ctx context.Context, m mutation) (finding, error) {
	f := finding{mutation: m}
	for i := range h.seeds {
		seed := h.first + uint64(i)
		out, ok, err := h.program.seed(ctx, m.guard, seed, h.length)
		if err != nil {
			return f, err
		}
		f.tried++
		if ok {
			continue
		}
		broken, err := complaints(out)
		switch {
		case err != nil:
			return f, fmt.Errorf("seed %d: %w", seed, err)
		case len(broken) == 0:
			return f, fmt.Errorf("seed %d failed, and broke no invariant:\n%s", seed, head(out))
		}
		f.broken = append(f.broken, broken...)
		if f.caught++; f.caught == 1 {
			f.first, f.out = i+1, out
		}
		if !h.all {
			break
		}
	}
	f.broken = inOrder(f.broken)
	if f.caught > 0 || m.test == "" {
		return f, nil
	}
	out, ok, err := h.program.test(ctx, m.test, m.guard)
	if err != nil || ok {
		return f, err
	}
	f.tested, f.out = true, out
	if f.broken, err = complaints(out); err == nil && len(f.broken) == 0 {
		if m.breaks == "" {
			return f, fmt.Errorf("%s failed, and broke no invariant:\n%s", m.test, head(out))
		}
		f.broken = []string{m.breaks}
	}
	return f, err
}

// clean runs all the same with all guards in place, which must fail nowhere.
func (h *hunt) clean(ctx context.Context, all []mutation) error {
	for i := range h.seeds {
		seed := h.first + uint64(i)
		if out, ok, err := h.program.seed(ctx, "", seed, h.length); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("seed %d fails with all guards in place:\n%s", seed, head(out))
		}
	}
	for i := range all {
		m := &all[i]
		if m.test == "" {
			continue
		}
		if out, ok, err := h.program.test(ctx, m.test, ""); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("%s fails with all guards in place:\n%s", m.test, head(out))
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

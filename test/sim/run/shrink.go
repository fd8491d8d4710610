package main

import (
	"slices"
	"strings"
)

// shrink looks for a smaller run than one that fails which fails too: shorter, with
// fewer jobs, without kinds of faults. Each of them is another run, since its draws
// differ; what is left is what such a failure takes. It asks fails for each, at most
// some forty times, and takes no for an answer that it may stop with.
func shrink(best attempt, fails func(attempt) bool) attempt {
	better := func(a attempt) bool {
		if !fails(a) {
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
		left := strings.FieldsFunc(best.without, func(r rune) bool { return r == ',' })
		if slices.Contains(left, kind) {
			continue
		}
		a := best
		a.without = strings.Join(append(left, kind), ",")
		better(a)
	}
	return best
}

// kinds are what can be left out. The simulation refuses one that it does not
// know, and a test holds them to each other.
var kinds = []string{
	"crash", "leave", "join", "pause", "split", "reset", "latency", "away", "oneway", "outage",
	"flaky", "lease", "compact", "clock", "trigger", "submit", "adhoc", "edit", "cancel", "halt", "backfill", "unfill",
	"nap", "resume", "delete", "calendar", "redo", "breaker", "work",
}

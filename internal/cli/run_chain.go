package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// printChain adds what tells of the runs before one.
func printChain(t *table, r *leaderdv1.Run) {
	if len(r.GetUpstream()) > 0 {
		names := make([]string, len(r.GetUpstream()))
		for i, u := range r.GetUpstream() {
			_, job := splitJob(u)
			names[i] = job + "/" + runID(u)
			if slices.Contains(r.GetLostResults(), u) {
				names[i] += " (its result had been removed)"
			}
		}
		t.row("after:", strings.Join(names, ", "))
	}
	if r.GetCorrelation() != "" {
		t.row("correlation:", r.GetCorrelation())
	}
}

// printHooks prints the hooks that were due with a run's verdict.
func printHooks(d Deps, r *leaderdv1.Run) error {
	if len(r.GetHooks()) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(d.Stdout); err != nil {
		return err
	}
	t := newTable(d.Stdout, "HOOK", "STATE", "STARTED", "TOOK", "CODE", "ERROR", "OUTPUT")
	for _, h := range r.GetHooks() {
		how, code, long := stateName(h.GetState()), "", ""
		if h.GetState() == leaderdv1.Run_STATE_PENDING {
			how = "not known"
		}
		if h.ExitCode != nil {
			code = strconv.Itoa(int(h.GetExitCode()))
		}
		if h.GetStartTime() != nil && h.GetEndTime() != nil {
			long = h.GetEndTime().AsTime().Sub(h.GetStartTime().AsTime()).String()
		}
		t.row(h.GetName(), how, instant(h.GetStartTime()), long, code, h.GetError(), lastLine(printableOutput(string(h.GetOutputTail()))))
	}
	return t.flush()
}

// lastLine is the last line of a text that has anything in it.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func printRun(d Deps, r *leaderdv1.Run) error {
	t := newTable(d.Stdout)
	t.row("job:", shortJob(r.GetName()))
	t.row("run:", runID(r.GetName()))
	t.row("state:", runState(r))
	if r.GetReason() != "" || r.GetDetail() != "" {
		t.row("reason:", strings.TrimSpace(r.GetReason()+" "+r.GetDetail()))
	}
	t.row("due:", instant(r.GetDueTime()))
	if r.GetUntilTime() != nil {
		t.row("until:", instant(r.GetUntilTime()))
	}
	t.row("late:", lateness(r))
	if n := r.GetShards(); n != nil {
		t.row("shards:", shardCounts(n))
	} else if a := lastAttempt(r); a.GetShard() == listShard {
		t.row("shards:", "none listed")
	}
	if r.GetNextAttemptTime() != nil {
		t.row("next try:", instant(r.GetNextAttemptTime()))
	}
	if r.GetOrigin() != "" {
		t.row("repeats:", runID(r.GetOrigin()))
	}
	if len(r.GetCarried()) > 0 {
		t.row("carried over:", carriedRow(r))
	}
	if key := r.GetLimitKey(); key != "" {
		t.row("limit key:", printableOutput(key))
	}
	printChain(t, r)
	if p := lastAttempt(r).GetProgress(); p != nil {
		text := strings.TrimSpace(progressText(p) + " " + printableOutput(p.GetMessage()))
		if p.GetReportTime() != nil {
			text += ", reported " + instant(p.GetReportTime())
		}
		t.row("progress:", text)
		if p.GetEstimatedEndTime() != nil {
			t.row("may end:", instant(p.GetEstimatedEndTime()))
		}
	}
	t.row("generation:", strconv.FormatInt(r.GetJobGeneration(), 10))
	if err := t.flush(); err != nil {
		return err
	}
	if err := printAttempts(d, r); err != nil {
		return err
	}
	if err := printHooks(d, r); err != nil {
		return err
	}
	tail := r.GetOutputTail()
	if len(tail) == 0 {
		return nil
	}
	text := printableOutput(string(tail))
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := fmt.Fprintf(d.Stdout, "\noutput (last %d of %d bytes):\n%s", len(tail), r.GetOutputBytes(), text)
	return err
}

func printAttempts(d Deps, r *leaderdv1.Run) error {
	if len(r.GetAttempts())+len(r.GetDoubles()) == 0 || r.GetShards() != nil {
		return nil
	}
	if _, err := fmt.Fprintln(d.Stdout); err != nil {
		return err
	}
	t := newTable(d.Stdout, "TRY", "STATE", "NODE", "CLAIMED", "STARTED", "TOOK", "CODE", "TOKEN", "TERM", "ERROR")
	for i, a := range slices.Concat(r.GetAttempts(), r.GetDoubles()) {
		code := ""
		if a.ExitCode != nil {
			code = strconv.Itoa(int(a.GetExitCode()))
		}
		one := &leaderdv1.Run{DueTime: r.GetDueTime(), Attempts: []*leaderdv1.Attempt{a}}
		how, token := stateName(a.GetState()), strconv.FormatInt(a.GetToken(), 10)
		if a.GetSnoozed() {
			how += " snoozed"
		}
		if a.GetUnclaimed() {
			token = "0" // what the work was given
		}
		switch {
		case i >= len(r.GetAttempts()):
			how += " beside, unclaimed"
		case a.GetUnclaimed():
			how += " unclaimed"
		}
		t.row(strconv.Itoa(int(a.GetNumber())), how, a.GetNode(), instant(a.GetClaimTime()),
			instant(a.GetStartTime()), took(one, time.Now()), code, token,
			strconv.FormatInt(a.GetTerm(), 10), a.GetError())
	}
	return t.flush()
}

package state

import (
	"fmt"
	"strconv"
	"strings"
)

// Conditions of Retry.RetryOn and Retry.GiveUpOn without a number.
const (
	OnFailed      = "failed"
	OnTimedOut    = "timed_out"
	OnCrashed     = "crashed"
	OnUnreachable = "unreachable"
)

const (
	exitPrefix   = "exit:"
	statusPrefix = "status:"
)

func (r *Retry) retryOn() []string {
	if len(r.RetryOn) == 0 {
		return []string{OnFailed, OnTimedOut}
	}
	return r.RetryOn
}

// matches answers the first of the conditions that the end of an attempt meets.
// Those that cannot be read are met by none.
func (s *JobSpec) matches(conditions []string, e *AttemptEnd) (condition string, ok bool) {
	for _, c := range conditions {
		if s.meets(c, e) {
			return c, true
		}
	}
	return "", false
}

func (s *JobSpec) meets(condition string, e *AttemptEnd) bool {
	a := e.Attempt
	if condition == OnTimedOut {
		return a.State == StateTimedOut
	}
	if a.State != StateFailed {
		return false
	}
	switch condition {
	case OnFailed:
		return true
	case OnCrashed:
		return e.Crashed
	case OnUnreachable:
		return s.HTTP != nil && !a.HasCode && !e.Crashed
	}
	prefix, first, last, err := parseCodes(condition)
	return err == nil && a.HasCode && !e.Crashed && (prefix == statusPrefix) == (s.HTTP != nil) && a.ExitCode >= first && a.ExitCode <= last
}

// parseCodes reads "exit:1", "exit:1-5", "status:503" and "status:5xx".
func parseCodes(condition string) (prefix string, first, last int, err error) {
	if text, ok := strings.CutPrefix(condition, exitPrefix); ok {
		from, to, span := strings.Cut(text, "-")
		if !span {
			to = from
		}
		first, last = code(from), code(to)
		if first < 1 || last > 255 || first > last {
			return "", 0, 0, fmt.Errorf("%q names no exit codes; allowed are 1–255, as in exit:75 or exit:64-78", clip(condition))
		}
		return exitPrefix, first, last, nil
	}
	if text, ok := strings.CutPrefix(condition, statusPrefix); ok {
		if class, rest := strings.CutSuffix(text, "xx"); rest {
			first = code(class) * 100
			last = first + 99
		} else {
			first = code(text)
			last = first
		}
		if first < 100 || last > 599 {
			return "", 0, 0, fmt.Errorf("%q names no status; allowed are 100–599, as in status:503 or status:5xx", clip(condition))
		}
		return statusPrefix, first, last, nil
	}
	const allowed = "failed, timed_out, crashed, unreachable, exit:75, exit:64-78, status:503 and status:5xx"
	if condition == "lost" || condition == "interrupted" {
		return "", 0, 0, fmt.Errorf("%q is not allowed; what a lost executor means, guarantee says; allowed are %s", condition, allowed)
	}
	return "", 0, 0, fmt.Errorf("%q is not allowed; %s are", clip(condition), allowed)
}

// code is a number without a sign, or -1.
func code(text string) int {
	n, err := strconv.ParseUint(text, 10, 15)
	if err != nil {
		return -1
	}
	return int(n)
}

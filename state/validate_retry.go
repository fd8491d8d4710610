package state

import (
	"fmt"
	"math"
	"time"
)

// checkRetry looks at what follows an attempt that went wrong.
func (s *JobSpec) checkRetry(v *Violations) {
	checkDuration(v, "spec.runTimeout", s.RunTimeout, time.Second, MaxRunTimeout)
	checkDuration(v, "spec.queueTimeout", s.QueueTimeout, time.Second, MaxStartDeadline)
	if gate := s.Gate(); s.QueueTimeout != 0 && !gate.Queues() && len(s.Limits) == 0 {
		v.Add("spec.queueTimeout", "is only allowed where runs wait for others: where overlap is queue, cancel or replace, not %s", s.Overlap)
	}
	if d := s.DeadLetter; d != nil && (d.Keep < 0 || d.Keep > MaxDeadLetters) {
		v.Add("spec.deadLetter.keep", "%d is outside 1–%d", d.Keep, MaxDeadLetters)
	}
	r := s.Retry
	if r == nil {
		return
	}
	switch n := r.MaxAttempts; {
	case n == 0:
		v.Add("spec.retry.maxAttempts", "is required: 1–%d, with the first attempt", MaxAttempts)
	case n < 0 || n > MaxAttempts:
		v.Add("spec.retry.maxAttempts", "%d is outside 1–%d", n, MaxAttempts)
	case n > 1 && s.Guarantee == AtMostOnce:
		v.Add("spec.retry", "is not allowed where guarantee is at_most_once: a run that has started is never started again")
	}
	checkDuration(v, "spec.retry.initialBackoff", r.InitialBackoff, MinBackoff, MaxBackoff)
	checkDuration(v, "spec.retry.maxBackoff", r.MaxBackoff, MinBackoff, MaxBackoff)
	initial := r.InitialBackoff
	if initial == 0 {
		initial = DefaultInitialBackoff
	}
	if r.MaxBackoff != 0 && r.MaxBackoff < initial {
		v.Add("spec.retry.maxBackoff", "%s is less than initialBackoff, %s", r.MaxBackoff, initial)
	}
	if f := r.Factor; f != 0 && !(f >= 1 && f <= MaxBackoffFactor) || math.IsNaN(f) {
		v.Add("spec.retry.factor", "%v is outside 1–%d", f, MaxBackoffFactor)
	}
	if j := r.Jitter; j != nil && !(*j >= 0 && *j <= 1) {
		v.Add("spec.retry.jitter", "%v is outside 0–1", *j)
	}
	s.checkConditions(v, "spec.retry.retryOn", r.RetryOn)
	s.checkConditions(v, "spec.retry.giveUpOn", r.GiveUpOn)
}

func (s *JobSpec) checkConditions(v *Violations, field string, conditions []string) {
	if n := len(conditions); n > MaxRetryConditions {
		v.Add(field, "has %d entries; at most %d are allowed", n, MaxRetryConditions)
		return
	}
	for i, c := range conditions {
		at := fmt.Sprintf("%s[%d]", field, i)
		prefix := ""
		switch c {
		case OnFailed, OnTimedOut, OnCrashed:
		case OnUnreachable:
			prefix = statusPrefix
		default:
			var err error
			if prefix, _, _, err = parseCodes(c); err != nil {
				v.Add(at, "%s", err)
				continue
			}
		}
		switch {
		case prefix == statusPrefix && s.HTTP == nil:
			v.Add(at, "%q can never hold: the job makes no request", c)
		case prefix == exitPrefix && s.Command == nil:
			v.Add(at, "%q can never hold: the job runs no command", c)
		}
	}
}

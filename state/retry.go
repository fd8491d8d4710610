package state

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Retry says when an attempt at a run is made again. The fields mean what
// leaderd.v1.Retry says; zero values stand for the defaults named there.
type Retry struct {
	MaxAttempts    int
	InitialBackoff time.Duration
	Factor         float64
	MaxBackoff     time.Duration
	// Jitter is nil for the default, since none at all is possible too.
	Jitter            *float64
	RetryOn, GiveUpOn []string
}

// Defaults of a Retry.
const (
	DefaultInitialBackoff = 10 * time.Second
	DefaultBackoffFactor  = 2
	DefaultMaxBackoff     = 10 * time.Minute
	DefaultRetryJitter    = 0.1
)

// MinBackoff is the shortest wait that a policy may have.
const MinBackoff = 100 * time.Millisecond

// Reasons of the verdicts failed, timed_out, interrupted and lost: why there was no
// further attempt. Runs of jobs without a retry policy have none of them but
// ReasonRunTimeout and ReasonAttempts.
const (
	// ReasonAttempts: there were as many attempts as there may be.
	ReasonAttempts = "attempts"
	// ReasonNotRetried: the policy does not retry what went wrong.
	ReasonNotRetried = "not_retried"
	// ReasonGivenUp: the policy gives up on what went wrong.
	ReasonGivenUp = "given_up"
	// ReasonPermanent: the work said that to try again is of no use.
	ReasonPermanent = "permanent"
	// ReasonRunTimeout: the run's time is over, or would be before its next attempt.
	ReasonRunTimeout = "run_timeout"
	// ReasonStartedOnce: the work asked to be called again, but it starts at most once.
	ReasonStartedOnce = "at_most_once"
	// ReasonQueueTimeout is of the verdict missed: it waited for others for too long.
	ReasonQueueTimeout = "queue_timeout"
)

// Directive is what work says itself of what shall follow its attempt. The zero
// value leaves that to the job's policy. Of several the first counts that is set.
type Directive struct {
	// Permanent: to try again is of no use.
	Permanent bool
	// Snooze has the work called again after that long; the attempt does not count as
	// one that failed. It is bounded by MaxSnooze, and by MaxSnoozes of a run.
	Snooze time.Duration
	// RetryAfter takes the place of the policy's wait, if the policy retries; bounded
	// by MaxRetryAfter.
	RetryAfter time.Duration
}

// AttemptEnd is all that decides what follows the end of an attempt.
type AttemptEnd struct {
	// Live is the record as claimed: its Tries and Snoozes are those before.
	Live *Live
	// Attempt is the one that ended. Its State is how the work did.
	Attempt *Attempt
	// Crashed: a signal killed the command, or the work panicked.
	Crashed   bool
	Directive Directive
}

// Next is what follows the end of an attempt.
type Next struct {
	// At is when the run is tried again, not before; zero: never, and State is the
	// verdict.
	At    time.Time
	State RunState
	// Error is set where State is not as the work ended; it says why.
	Error          string
	Reason, Detail string
	// Tries and Snoozes are the run's with this attempt; Snoozed tells that it is
	// one of the latter.
	Tries, Snoozes int
	Snoozed        bool
}

// AfterAttempt decides at now what follows the end of an attempt of a job with
// this spec, defaults filled in. It is pure.
func (s *JobSpec) AfterAttempt(e *AttemptEnd, now time.Time) Next {
	n := Next{State: e.Attempt.State, Tries: e.Live.Tries, Snoozes: e.Live.Snoozes}
	started := !e.Attempt.Started.IsZero()
	switch e.Attempt.State { //nolint:exhaustive // all else is final as it is
	case StateInterrupted:
		switch {
		case started && e.Live.AtMostOnce:
		case e.Live.Handovers() >= MaxHandovers:
			n.Reason, n.Detail = ReasonAttempts, handedOver()
		default:
			// It may start anew elsewhere, and at once.
			n.At = now
		}
	case StateSucceeded, StateFailed, StateTimedOut:
		switch {
		case e.Directive.Snooze > 0 && !e.Directive.Permanent && e.Attempt.State != StateTimedOut:
			s.snooze(e, now, &n)
		case e.Attempt.State != StateSucceeded:
			s.retry(e, now, &n)
		}
	}
	return n
}

func handedOver() string {
	return fmt.Sprintf("its executor was lost or shut down during %d attempts", MaxHandovers)
}

// snooze follows an attempt that asks to be called again later.
func (s *JobSpec) snooze(e *AttemptEnd, now time.Time, n *Next) {
	at := now.Add(min(e.Directive.Snooze, MaxSnooze))
	switch {
	case e.Live.AtMostOnce:
		n.State, n.Reason = StateFailed, ReasonStartedOnce
		n.Error = "the work snoozed, but the job's guarantee is that it starts at most once"
	case e.Live.Snoozes >= MaxSnoozes:
		n.State, n.Reason, n.Error = StateFailed, ReasonAttempts, fmt.Sprintf("the work snoozed more than %d times", MaxSnoozes)
	case s.after(e, at):
		n.State, n.Reason, n.Error = StateTimedOut, ReasonRunTimeout, "the work snoozed until after the run's time, "+s.RunTimeout.String()
	default:
		n.At, n.Snoozed = at, true
		n.Snoozes++
	}
}

// retry follows an attempt that went wrong.
func (s *JobSpec) retry(e *AttemptEnd, now time.Time, n *Next) {
	n.Tries++
	r := s.Retry
	switch {
	case s.after(e, now):
		n.Reason, n.Detail = ReasonRunTimeout, "the run's time, "+s.RunTimeout.String()+", is over"
		return
	case r == nil || e.Live.AtMostOnce:
		return
	case e.Directive.Permanent:
		n.Reason, n.Detail = ReasonPermanent, "the work said that to try again is of no use"
		return
	}
	if on, ok := s.matches(r.GiveUpOn, e); ok {
		n.Reason, n.Detail = ReasonGivenUp, "giveUpOn has "+on
		return
	}
	if _, ok := s.matches(r.retryOn(), e); !ok {
		n.Reason, n.Detail = ReasonNotRetried, "retryOn does not have what went wrong"
		return
	}
	if n.Tries >= r.MaxAttempts {
		n.Reason, n.Detail = ReasonAttempts, fmt.Sprintf("%d of %d attempts", n.Tries, r.MaxAttempts)
		return
	}
	wait := r.Wait(e.Live, n.Tries)
	if after := e.Directive.RetryAfter; after > 0 {
		wait = min(after, MaxRetryAfter)
	}
	at := now.Add(wait)
	if s.after(e, at) {
		n.Reason = ReasonRunTimeout
		n.Detail = fmt.Sprintf("the next attempt, %s later, would begin after the run's time, %s", wait.Round(time.Millisecond), s.RunTimeout)
		return
	}
	n.At = at
}

// after tells whether an instant is past the time of the run.
func (s *JobSpec) after(e *AttemptEnd, at time.Time) bool {
	if s.RunTimeout == 0 {
		return false
	}
	began := e.Live.Began()
	if len(e.Live.Attempts) == 0 && !e.Attempt.Started.IsZero() {
		began = e.Attempt.Started
	}
	return !at.Before(began.Add(s.RunTimeout))
}

// Began is when the run's first attempt started, or was claimed if it never was
// started or has not ended yet: what the run's timeout counts from.
func (l *Live) Began() time.Time {
	switch {
	case len(l.Attempts) == 0:
		return l.Claimed
	case l.Attempts[0].Started.IsZero():
		return l.Attempts[0].Claimed
	}
	return l.Attempts[0].Started
}

// Handovers is how many of the record's attempts, with this one if that is one, did
// not end by themselves: their executors were lost or shut down.
func (l *Live) Handovers() int { return l.Attempt - l.Tries - l.Snoozes }

// Wait is how long after the end of the tries-th attempt that counts the next one is
// made. Run and attempt choose how the jitter has it, the same on every node.
func (r *Retry) Wait(l *Live, tries int) time.Duration {
	initial, factor, jitter := r.InitialBackoff, r.Factor, DefaultRetryJitter
	if initial == 0 {
		initial = DefaultInitialBackoff
	}
	if factor == 0 {
		factor = DefaultBackoffFactor
	}
	if r.Jitter != nil {
		jitter = *r.Jitter
	}
	most := r.MaxBackoff
	if most == 0 {
		most = max(DefaultMaxBackoff, initial)
	}
	wait := min(float64(initial)*math.Pow(factor, float64(max(tries-1, 0))), float64(most))
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d\n%d", l.Job, l.Run, l.Shard, l.Attempt))
	part := float64(binary.BigEndian.Uint64(sum[:8])>>11) / (1 << 53) // in [0, 1)
	return time.Duration(wait * (1 + jitter*(2*part-1)))
}

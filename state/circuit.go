package state

import (
	"fmt"
	"strings"
	"time"
)

// CircuitBreaker keeps a job's runs from starting while what they call is down. The
// fields mean what leaderd.v1.CircuitBreaker says; zero values stand for the defaults
// named there.
type CircuitBreaker struct {
	// Failures is how many runs in a row open the circuit; 0: no number does.
	Failures int
	// Rate is how many percent of the last Window runs do; 0: no part does.
	Rate, Window int
	CoolDown     time.Duration
	// Target names the circuit, which jobs of a namespace share; empty: it is the job's
	// own.
	Target string
}

// Defaults of a CircuitBreaker.
const (
	DefaultCoolDown      = time.Minute
	DefaultCircuitWindow = 20
)

// Limits of a CircuitBreaker.
const (
	MaxCircuitFailures = 100
	MinCircuitWindow   = 2
	MaxCircuitWindow   = 100
	MaxCoolDown        = 24 * time.Hour
)

// ReasonCircuitOpen is of the verdict skipped: runs of the job, or of others with its
// target, had failed.
const ReasonCircuitOpen = "circuit_open"

// CircuitState is whether runs start.
type CircuitState uint8

// States of a circuit.
const (
	// CircuitClosed: they do.
	CircuitClosed CircuitState = iota
	// CircuitOpen: none does before Circuit.Until. Then one does, as a probe.
	CircuitOpen
	// CircuitHalfOpen: the probe is under way, and no other run starts.
	CircuitHalfOpen
)

// String is the state's name in metrics and logs.
func (s CircuitState) String() string {
	switch s {
	case CircuitClosed:
		return "closed"
	case CircuitOpen:
		return "open"
	case CircuitHalfOpen:
		return "half_open"
	}
	return fmt.Sprintf("circuit(%d)", uint8(s))
}

// Circuit is what a circuit breaker knows. The zero value is closed and has seen
// nothing.
//
//	         enough runs failed                 a run that starts at Until or later
//	closed ---------------------> open ----------------------------------------> half-open
//	   ^                           ^                                              |    |
//	   |                           '---- the probe failed; or ended otherwise ----'    |
//	   |                                 than by itself, then until now                |
//	   '------------------------------ the probe succeeded ----------------------------'
type Circuit struct {
	State CircuitState
	// Failures is how many runs in a row have failed; of a closed circuit.
	Failures int
	// Outcomes are the last runs, the newest last: 'x' for one that failed, '.' for one
	// that succeeded; of a closed circuit, and only where a breaker has a Rate.
	Outcomes string
	// Opened is when it opened last, and Detail why; of one that is not closed.
	Opened time.Time
	Detail string
	// Until is of an open one.
	Until time.Time
	// ProbeJob and Probe are of a half-open one.
	ProbeJob string
	Probe    RunID
	// Revision is the ModRevision of its key, 0 where there is none.
	Revision int64
}

// Admits tells whether a run starts that is to start at an instant, and whether as a
// probe.
func (c *Circuit) Admits(at time.Time) (ok, probe bool) {
	switch c.State {
	case CircuitClosed:
		return true, false
	case CircuitOpen:
		return !at.Before(c.Until), true
	case CircuitHalfOpen:
	}
	return false, false
}

// Probed is the circuit with a run as its probe.
func (c *Circuit) Probed(job string, run RunID) Circuit {
	return Circuit{State: CircuitHalfOpen, Opened: c.Opened, Detail: c.Detail, ProbeJob: job, Probe: run}
}

// After is the circuit when a run of a job with the breaker b has ended, at an instant;
// changed is false where it stays as it is. What began before it opened tells nothing
// new.
func (c *Circuit) After(b *CircuitBreaker, job string, run RunID, verdict RunState, at time.Time) (next Circuit, changed bool) {
	switch c.State {
	case CircuitClosed:
		return c.count(b, job, run, verdict, at)
	case CircuitOpen:
		return *c, false
	case CircuitHalfOpen:
	}
	switch {
	case c.ProbeJob != job || c.Probe != run:
		return *c, false
	case verdict == StateSucceeded:
		return Circuit{}, true
	case verdict.Dead():
		return Circuit{
			State: CircuitOpen, Opened: at, Until: at.Add(b.coolDown()),
			Detail: fmt.Sprintf("the probe, run %s of %s, is %s", run, job, verdict),
		}, true
	}
	return Circuit{State: CircuitOpen, Opened: c.Opened, Until: at, Detail: c.Detail}, true
}

// count takes in the end of a run of a closed circuit.
func (c *Circuit) count(b *CircuitBreaker, job string, run RunID, verdict RunState, at time.Time) (next Circuit, changed bool) {
	failed := verdict.Dead()
	if !failed && verdict != StateSucceeded {
		return *c, false
	}
	next = Circuit{Outcomes: c.Outcomes}
	mark := "."
	if failed {
		next.Failures, mark = min(c.Failures+1, MaxCircuitFailures), "x"
	}
	window := b.Window
	if window == 0 {
		window = DefaultCircuitWindow
	}
	if b.Rate > 0 {
		next.Outcomes += mark
		if over := len(next.Outcomes) - window; over > 0 {
			next.Outcomes = next.Outcomes[over:]
		}
	}
	why := ""
	bad := strings.Count(next.Outcomes, "x")
	switch {
	case failed && b.Failures > 0 && next.Failures >= b.Failures:
		why = fmt.Sprintf("%d runs in a row failed, the last of them %s of %s", next.Failures, run, job)
	case b.Rate > 0 && len(next.Outcomes) == window && bad*100 >= b.Rate*window:
		why = fmt.Sprintf("%d of the last %d runs failed, as of run %s of %s", bad, window, run, job)
	default:
		return next, next.Failures != c.Failures || next.Outcomes != c.Outcomes
	}
	return Circuit{State: CircuitOpen, Opened: at, Until: at.Add(b.coolDown()), Detail: why}, true
}

// Empty tells whether the circuit knows nothing that has to be kept.
func (c *Circuit) Empty() bool {
	return c.State == CircuitClosed && c.Failures == 0 && c.Outcomes == ""
}

func (b *CircuitBreaker) coolDown() time.Duration {
	if b.CoolDown == 0 {
		return DefaultCoolDown
	}
	return b.CoolDown
}

func (b *CircuitBreaker) check(v *Violations) {
	const field = "spec.circuitBreaker"
	if b.Failures == 0 && b.Rate == 0 {
		v.Add(field, "never opens; failures or failureRate is required")
	}
	if n := b.Failures; n < 0 || n > MaxCircuitFailures {
		v.Add(field+".failures", "%d is outside 1–%d", n, MaxCircuitFailures)
	}
	if n := b.Rate; n < 0 || n > 100 {
		v.Add(field+".failureRate", "%d is outside 1–100, percent", n)
	}
	switch n := b.Window; {
	case n != 0 && (n < MinCircuitWindow || n > MaxCircuitWindow):
		v.Add(field+".window", "%d is outside %d–%d", n, MinCircuitWindow, MaxCircuitWindow)
	case n != 0 && b.Rate == 0:
		v.Add(field+".window", "is only allowed beside failureRate, which it is for")
	}
	checkDuration(v, field+".coolDown", b.CoolDown, time.Second, MaxCoolDown)
	if b.Target != "" {
		if why := CheckName(b.Target); why != "" {
			v.Add(field+".target", "%s", why)
		}
	}
}

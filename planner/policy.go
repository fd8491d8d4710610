package planner

import (
	"sync"
	"time"

	"github.com/leaderd/leaderd/state"
)

// Policy is what a job's spec says of all its runs. Jobs that say the same share one,
// which nobody changes: of 100,000 jobs most have few.
type Policy struct {
	Deadline  time.Duration
	Exclusive bool
	// CatchUp tells which slots of an outage run: of those that are no older than
	// CatchUpAge at most CatchUpMost, the newest.
	CatchUp     state.CatchUp
	CatchUpAge  time.Duration
	CatchUpMost int
	// RunPlanned: executors begin what they have in their plan also without a claim,
	// where they cannot reach the store.
	RunPlanned bool
	// PauseAfter is how many runs in a row may fail before the job is paused; 0: any
	// number.
	PauseAfter int
	// RunTimeout bounds a run over all its attempts, QueueTimeout how long one waits
	// for others; 0: nothing does.
	RunTimeout, QueueTimeout time.Duration
	// Class and Weight are how its runs are taken when they wait for room.
	Class, Weight uint8
	// DeadLetters is how many dead letters of the job are kept; 0: it leaves none.
	DeadLetters int
	// Retention is for how long its past runs are kept, as far as it says.
	Retention state.Retention
}

// policyOf is the policy of a spec that has its defaults.
func policyOf(spec *state.JobSpec) *Policy {
	p := Policy{
		Deadline:     spec.StartDeadline,
		Exclusive:    spec.Exclusive(),
		CatchUp:      spec.CatchUp,
		CatchUpAge:   spec.StartDeadline,
		RunPlanned:   spec.StoreOutage == state.OutageRunPlanned,
		PauseAfter:   spec.PauseAfterFailures,
		RunTimeout:   spec.RunTimeout,
		QueueTimeout: spec.QueueTimeout,
		Class:        uint8(spec.Priority.Rank()),
		Weight:       uint8(spec.Weight),
		DeadLetters:  spec.DeadLettersKept(),
		Retention:    spec.Retention,
	}
	switch spec.CatchUp {
	case state.CatchUpNone:
	case state.CatchUpLatest:
		p.CatchUpMost = 1
	case state.CatchUpAll:
		p.CatchUpMost = spec.CatchUpLimit
	}
	if spec.CatchUpWindow != 0 {
		p.CatchUpAge = min(p.CatchUpAge, spec.CatchUpWindow)
	}
	return policies.share(p)
}

// policies are those that jobs share.
var policies policyTable

// maxPolicies bounds the table. When it is full it begins anew: jobs keep what they have.
const maxPolicies = 1024

type policyTable struct {
	mu  sync.Mutex
	all map[Policy]*Policy
}

func (t *policyTable) share(p Policy) *Policy {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.all[p]; have != nil {
		return have
	}
	if len(t.all) >= maxPolicies || t.all == nil {
		t.all = make(map[Policy]*Policy)
	}
	t.all[p] = &p
	return &p
}

package state

import "time"

// Overlap is what happens to a run that is due while as many others are live as
// may be.
type Overlap uint8

// Overlap policies.
const (
	// OverlapSkip gives the run the verdict skipped:overlap. The default.
	OverlapSkip Overlap = iota
	// OverlapAllow starts it all the same, up to MaxConcurrent; beyond that it is
	// skipped.
	OverlapAllow
	// OverlapQueue lets it wait, in order of due, up to QueueLimit; beyond that it
	// is skipped.
	OverlapQueue
	// OverlapCancel stops the live run, and lets this one wait for its end. Of
	// several that wait the newest stays.
	OverlapCancel
	// OverlapReplace lets it wait in the place of the one that waited before.
	OverlapReplace
)

var overlapNames = [...]string{"skip", "allow", "queue", "cancel", "replace"}

// String is the policy's name in job files.
func (o Overlap) String() string {
	if int(o) < len(overlapNames) {
		return overlapNames[o]
	}
	return "unknown"
}

// Gate is what bounds how many runs are live beside each other, and what becomes
// of one that is due while it is shut. The zero Gate bounds nothing by itself.
type Gate struct {
	Policy Overlap
	// Limit is how many places there are, of which each live run has one; 0: there
	// are none, and what bounds the job's runs, if anything, is Claim.Exclusive.
	Limit int
	// Key is the concurrency key whose places they are, which jobs of a namespace
	// share; empty: they are the job's own.
	Key string
	// QueueLimit is how many runs of the job wait at most.
	QueueLimit int
}

// Queues tells whether runs wait for the gate rather than being skipped.
func (g *Gate) Queues() bool { return g.Policy >= OverlapQueue }

// Limit is how many runs may be live at a time, of the job or of its concurrency
// key; 0: any number.
func (s *JobSpec) Limit() int {
	if s.Overlap == OverlapAllow {
		return s.MaxConcurrent
	}
	return max(1, s.MaxConcurrent)
}

// Exclusive tells whether at most one run of the job may be live at a time, so
// that its live record is its gate.
func (s *JobSpec) Exclusive() bool { return s.Limit() == 1 && s.ConcurrencyKey == "" }

// Gate is the job's gate. For an exclusive job that skips, and for one that
// bounds nothing, it is the zero Gate.
func (s *JobSpec) Gate() Gate {
	g := Gate{}
	if s.Overlap >= OverlapQueue {
		g.Policy, g.QueueLimit = s.Overlap, 1
		if s.Overlap == OverlapQueue {
			g.QueueLimit = max(1, s.QueueLimit)
		}
	}
	if !s.Exclusive() && s.Limit() > 0 {
		g.Limit, g.Key = s.Limit(), s.ConcurrencyKey
	}
	return g
}

// Cancel is the durable wish that a run that has no verdict ends.
type Cancel struct {
	Job       JobID
	Run       RunID
	Requested time.Time
	// Actor is who asked; empty for the job's overlap policy.
	Actor string
	// Reason and Detail are the verdict's.
	Reason, Detail string
	Revision       int64
}

// DefaultQueueLimit is the default of JobSpec.QueueLimit.
const DefaultQueueLimit = 1

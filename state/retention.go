package state

import "time"

// Retention is for how long the past runs of a job are kept. What is beyond either
// limit is removed, the oldest first.
type Retention struct {
	// MaxRuns is how many of the newest are kept at least; 0: as the cluster has it.
	MaxRuns int
	// MaxAge is how long ago those ended that are kept; 0: as the cluster has it.
	MaxAge time.Duration
}

// Or takes the limits that r does not set from those of the cluster.
func (r Retention) Or(cluster Retention) Retention {
	if r.MaxRuns == 0 {
		r.MaxRuns = cluster.MaxRuns
	}
	if r.MaxAge == 0 {
		r.MaxAge = cluster.MaxAge
	}
	return r
}

// Limits and defaults of a Retention.
const (
	MaxRetainedRuns     = 1_000_000
	MinRetainedAge      = 10 * time.Minute
	MaxRetainedAge      = 3660 * 24 * time.Hour
	DefaultRetainedRuns = 1000
	DefaultRetainedAge  = 30 * 24 * time.Hour
)

// RetainedAlways is for how long a verdict is kept whatever the limits say: requests
// that come late rely on it.
const RetainedAlways = 10 * time.Minute

// Floor is what retention has removed of a job's history.
type Floor struct {
	// Instant is that up to which records of runs may have been removed: a slot
	// behind it that has no record had one. Zero: none were removed.
	Instant time.Time
	// Removed is how many records have been.
	Removed int64
	// Revision is the store's ModRevision of this.
	Revision int64
}

// Space is how full the store is, in bytes.
type Space struct {
	// Used is what its keys take, with superseded revisions that were not compacted.
	Used int64
	// Quota is the limit of what it takes; 0: not known.
	Quota int64
	// Full is set where it refuses writes for want of room.
	Full bool
}

// Sweep is one bounded step of a job's retention.
type Sweep struct {
	Job JobID
	// MaxRuns is how many of the newest verdicts are kept at least.
	MaxRuns int
	// Before is when the verdicts were written that are removed whatever their number.
	Before time.Time
	// Bound is the last instant that what is removed or packed may be about: no slot
	// up to it can be claimed by a plan that does not catch it up, and all have a
	// verdict or a live record.
	Bound time.Time
	// Young keeps the verdicts that were written at this instant or later.
	Young time.Time
	// Closed is the revision of a closing of the timeline: verdicts that were written
	// later are kept. Those before it no leader catches up, whatever it closes.
	Closed int64
	// Span is how much time a segment of packed verdicts covers at most, since it goes as
	// a whole; 0: any.
	Span time.Duration
	// Frugal writes nothing but deletions, for a store that is full.
	Frugal bool
	// After and Passed continue the step before: see Swept.
	After  RunID
	Passed int
}

// Swept is what a step did.
type Swept struct {
	// Removed and Packed are how many verdicts.
	Removed, Packed int
	// More tells that there may be more to do, from After on; Passed is how many
	// records lie before that.
	More   bool
	After  RunID
	Passed int
	// Kept is how many verdicts the job had before the step.
	Kept int
	// Oldest is the time of the oldest run that has one; zero: none has.
	Oldest time.Time
}

package state

import (
	"errors"
	"time"
)

// Node is one leaderd process, as its lease-bound key describes it.
type Node struct {
	Name string
	// Control nodes campaign, serve the API and talk to the store; Executor
	// nodes run work. A node is at least one of both.
	Control  bool
	Executor bool
	// Address is where its gRPC listener is reached, empty for an executor
	// that listens nowhere.
	Address  string
	Labels   map[string]string
	Capacity int // runs at a time
	// Resources are what runs take parts of while they run.
	Resources Resources
	Version   string
	Started   time.Time
	// Revision is the CreateRevision of the node's key.
	Revision int64
}

// Registration is a node's hold on its key.
type Registration struct {
	Owner Owner
	Lease int64
	TTL   time.Duration
}

// Term is one leadership. Key is the leader's election key and Number its
// CreateRevision: unique, rising, and what every write of the leader compares.
type Term struct {
	Number int64
	Key    string
}

// ErrTermLost: the term that a write names is over; nothing was written. To be
// matched with errors.Is.
var ErrTermLost = errors.New("term lost")

// ErrNotRegistered: the registration is gone: its lease ended, it was given
// back, or another process took its name. Its node owns nothing any more. To be
// matched with errors.Is.
var ErrNotRegistered = errors.New("registration is gone")

// ErrNameTaken: a process that started later is registered under the node's name.
// To be matched with errors.Is.
var ErrNameTaken = errors.New("name is taken")

// Watermark is the instant up to which every slot has a verdict or a live
// record.
type Watermark struct {
	Instant time.Time
	// Written is the leader's wall clock at the writing. A gap longer than the
	// horizon between it and the next leader's clock is an outage.
	Written time.Time
	// Lateness is what the leader saw in the minute before Written.
	Lateness Lateness
	// Late are the runs that were due then, and that the leader knew no record of.
	Late Late
	// UnreadableGates are jobs at whose gates the leader found a record that
	// cannot be read: nothing of them starts. At most MaxUnreadableGates.
	UnreadableGates []JobID
	// Clocks are executors whose clocks differ from the leader's by more than a
	// second, by name. At most MaxClocks.
	Clocks []ClockSkew
	// Jobs is the revision up to which changes of jobs are in it: slots up to
	// Instant of versions that were stored later may be undecided, since a change
	// takes effect at an instant of the clock of who made it. 0: not known.
	Jobs     int64
	Term     int64
	Revision int64
}

// MaxUnreadableGates bounds what a Watermark names.
const MaxUnreadableGates = 100

// MaxClocks bounds what a Watermark names.
const MaxClocks = 100

// ClockSkew is an executor's clock that is Ahead of the leader's, or behind it.
type ClockSkew struct {
	Node  string
	Ahead time.Duration
}

// Late is what has not started, though it is due.
type Late struct {
	Runs int64
	// Worst is the job of the run that was due first, at Since.
	Worst JobID
	Since time.Time
	// Reason is why that one has not started, one of those of verdicts; empty where
	// the leader that wrote it did not know of reasons.
	Reason string
}

// Closed is the end of the closed part of the timeline: no slot at or before
// Instant can be claimed any more, but for catch-up (see Claim). The leader
// closes what it is about to decide in ranges after an outage, and, ten minutes
// behind the watermark, what retention may sweep.
type Closed struct {
	Instant  time.Time
	Revision int64 // 0: never closed
	// Mark is where the watermark was at the latest when this was closed, for a
	// leader that cannot read it; zero where that is not known.
	Mark time.Time
}

// ErrUnreadable: a stored value cannot be read.
var ErrUnreadable = errors.New("stored value cannot be read")

// ErrJobChanged: a job is not, or no longer, at the revision that a write names;
// nothing was written.
var ErrJobChanged = errors.New("job has changed")

// NoJob stands for the revision of a job that does not exist, where a write relies
// on that.
const NoJob int64 = -1

// Lateness is how long after they were due runs started, over a minute.
type Lateness struct {
	Starts        int64
	P50, P99, Max time.Duration
}

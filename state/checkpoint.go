package state

import (
	"errors"
	"fmt"
	"time"
)

// ErrCheckpointChanged: a checkpoint that was to be replaced is not the last one.
var ErrCheckpointChanged = errors.New("the last checkpoint is another one")

// DefaultCheckpointsKept is how many checkpoints of a shard are kept unless a job
// says otherwise.
const DefaultCheckpointsKept = 5

// CheckpointPolicy is what becomes of what runs save.
type CheckpointPolicy struct {
	Scope CheckpointScope
	// Keep is how many of the last checkpoints of a shard can be read, 1 to
	// MaxCheckpointsKept; 0 means DefaultCheckpointsKept.
	Keep int
	// Body has an HTTP target get the last checkpoint as the body of its request.
	Body bool
}

// CheckpointScope is whose checkpoints are.
type CheckpointScope uint8

// Scopes of checkpoints.
const (
	// CheckpointOfRun: each run begins without one; its further attempts go on from
	// the last. The default.
	CheckpointOfRun CheckpointScope = iota
	// CheckpointOfJob: a run goes on from the last of the runs before.
	CheckpointOfJob
)

// String is the scope's name in specs.
func (s CheckpointScope) String() string {
	switch s {
	case CheckpointOfRun:
		return "run"
	case CheckpointOfJob:
		return "job"
	}
	return fmt.Sprintf("scope(%d)", uint8(s))
}

// Drain is what becomes of a run whose executor shuts down.
type Drain uint8

// Drain policies.
const (
	// DrainWait awaits its end, for as long as the executor's grace allows. The
	// default.
	DrainWait Drain = iota
	// DrainHandover stops it at once, and starts it elsewhere.
	DrainHandover
)

// CheckpointsKept is how many checkpoints of a shard are kept.
func (s *JobSpec) CheckpointsKept() int {
	if s.Checkpoint == nil || s.Checkpoint.Keep == 0 {
		return DefaultCheckpointsKept
	}
	return s.Checkpoint.Keep
}

// CheckpointsOfJob tells whether checkpoints outlive the runs that save them.
func (s *JobSpec) CheckpointsOfJob() bool {
	return s.Checkpoint != nil && s.Checkpoint.Scope == CheckpointOfJob
}

func (s *JobSpec) checkCheckpoint(v *Violations) {
	if c := s.Checkpoint; c != nil {
		if c.Keep < 0 || c.Keep > MaxCheckpointsKept {
			v.Add("spec.checkpoint.keep", "%d is outside 1–%d", c.Keep, MaxCheckpointsKept)
		}
		if c.Scope == CheckpointOfJob && s.Limit() != 1 {
			v.Add("spec.checkpoint.scope", "job is only allowed where one run is live at a time, "+
				"for two would go on from one checkpoint: use another overlap than allow, and leave maxConcurrent out")
		}
		switch {
		case !c.Body:
		case s.HTTP == nil:
			v.Add("spec.checkpoint.body", "is only allowed for an http target; commands read LEADERD_SOCKET")
		case len(s.HTTP.Body) > 0:
			v.Add("spec.checkpoint.body", "is not allowed beside spec.http.body: a request has one body")
		}
	}
	if s.Drain == DrainHandover && s.Guarantee == AtMostOnce {
		v.Add("spec.drain", "handover is not allowed where guarantee is at_most_once: the run would have to start again")
	}
}

// Checkpoint is a request to save an attempt's progress.
type Checkpoint struct {
	Live Live
	Data []byte
	// Previous is the revision of the checkpoint before, 0 for none: a late
	// repetition of an older one changes nothing.
	Previous int64
	// Number counts the shard's checkpoints from 1: one more than that before has.
	Number int64
	// Keep is how many are kept, this one included; 0 means 1.
	Keep  int
	Saved time.Time
	// OfJob: it outlives the run. It is refused once the job is not the one that the
	// attempt was claimed for.
	OfJob bool
}

// CheckpointResult answers a Checkpoint.
type CheckpointResult struct {
	Status   TokenStatus
	Revision int64 // of the stored checkpoint
}

// CheckpointRef names the checkpoints of a shard.
type CheckpointRef struct {
	Job   JobID
	Run   RunID // not read where OfJob is set
	Shard int
	OfJob bool
}

// SavedCheckpoint is one that was accepted. The zero value stands for none.
type SavedCheckpoint struct {
	// Number counts the shard's checkpoints from 1.
	Number int64
	Data   []byte
	// Token is that of the attempt that saved it, Run that attempt's run.
	Token int64
	Run   RunID
	Saved time.Time
	// Revision is what the next one names as Previous; 0 for all but the last.
	Revision int64
}

// Progress is how far an attempt says that it has come.
type Progress struct {
	// Done of Total are done; Total is 0 where that is not known.
	Done, Total int64
	Message     string // at most MaxProgressMessage bytes
	// Reported is when it said so.
	Reported time.Time
	// Begun and BegunAt are the attempt's first report, from which its speed is
	// reckoned.
	Begun   int64
	BegunAt time.Time
}

// End estimates when all is done, from the speed so far; ok is false where that
// cannot be told.
func (p *Progress) End() (end time.Time, ok bool) {
	done, took := p.Done-p.Begun, p.Reported.Sub(p.BegunAt)
	if p.Total <= 0 || p.Done > p.Total || done <= 0 || took <= 0 {
		return time.Time{}, false
	}
	left := float64(took) / float64(done) * float64(p.Total-p.Done)
	if left > float64(MaxStartDeadline) {
		return time.Time{}, false
	}
	return p.Reported.Add(time.Duration(left)), true
}

// ProgressReport asks the store to note an attempt's progress.
type ProgressReport struct {
	Live     Live
	Progress Progress
}

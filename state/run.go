package state

import (
	"fmt"
	"strings"
	"time"
)

// RunID names a run inside its job. It sorts by time: for a slot it is the slot
// itself (20261130T020000Z), for others the time of their making and their kind
// (20261130T020000Z-trigger-5f3a9c01). A backfill's runs have the backfill's time,
// and end in their slots
// (20261130T020000Z-backfill-5f3a9c01-20261001T000000Z).
type RunID string

const slotLayout = "20060102T150405Z"

// SlotRunID is the id of the run of a slot, which is a whole second.
func SlotRunID(slot time.Time) RunID { return RunID(slot.UTC().Format(slotLayout)) }

// TriggerRunID is the id of a run that was asked for at now; nonce (8 hex
// digits) tells it from others of the same second.
func TriggerRunID(now time.Time, nonce uint32) RunID {
	return RunID(fmt.Sprintf("%s-trigger-%08x", now.UTC().Format(slotLayout), nonce))
}

// Slot is the slot of a slot's run; ok is false for all other runs.
func (id RunID) Slot() (slot time.Time, ok bool) {
	t, err := time.Parse(slotLayout, string(id))
	return t, err == nil
}

// Kind is how the run came about.
func (id RunID) Kind() RunKind {
	_, rest, found := strings.Cut(string(id), "-")
	if !found {
		return KindSlot
	}
	switch kind, _, _ := strings.Cut(rest, "-"); kind {
	case "trigger":
		return KindTrigger
	case "backfill":
		return KindBackfill
	case "submit":
		return KindSubmit
	case "after":
		return KindAfter
	}
	return KindUnknown
}

// RunKind is how a run came about.
type RunKind uint8

// Kinds of run.
const (
	KindUnknown RunKind = iota
	KindSlot
	KindTrigger
	KindBackfill
	KindSubmit
	KindAfter
)

// RunState is where a run is. Those from Succeeded on are verdicts.
type RunState uint8

// States of a run.
const (
	// StateNone: no record of the run.
	StateNone RunState = iota
	// StatePending: asked for, and not claimed yet.
	StatePending
	// StateRunning: claimed by an executor.
	StateRunning
	// StateWaiting: owned by nobody until its next try.
	StateWaiting
	// StateSucceeded: the work ended well.
	StateSucceeded
	// StateFailed: the work ended badly.
	StateFailed
	// StateTimedOut: the work was stopped at its timeout.
	StateTimedOut
	// StateCancelled: somebody asked for its end, or its job was deleted.
	StateCancelled
	// StateInterrupted: the executor drained and stopped the work.
	StateInterrupted
	// StateLost: the executor vanished and the run may not start again.
	StateLost
	// StateSkipped: by policy it did not start; the reason says which.
	StateSkipped
	// StateMissed: it could not start in time; the reason says why.
	StateMissed
)

// Verdict tells whether the state is final.
func (s RunState) Verdict() bool { return s >= StateSucceeded }

var stateNames = [...]string{
	"none", "pending", "running", "waiting", "succeeded", "failed", "timed_out",
	"cancelled", "interrupted", "lost", "skipped", "missed",
}

// String is the state's name in records and answers.
func (s RunState) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// ReasonQueued is why a pending run has not started: it waits for others.
const ReasonQueued = "queued"

// Reasons of the verdicts skipped, missed and cancelled.
const (
	ReasonOverlap = "overlap"
	// ReasonReplaced: it waited for other runs, and a newer one took its place.
	ReasonReplaced = "replaced"
	// ReasonRequested: somebody asked for its end.
	ReasonRequested      = "requested"
	ReasonPaused         = "paused"
	ReasonDeleted        = "deleted"
	ReasonSuperseded     = "superseded"
	ReasonDeadline       = "deadline"
	ReasonOutage         = "outage"
	ReasonNoCapacity     = "no_capacity"
	ReasonNoMatchingNode = "no_matching_node"
	ReasonInvalidJob     = "invalid_job"
	// ReasonCalendar: a calendar of the job's forbids the slot.
	ReasonCalendar = "calendar"
	// ReasonDST: the slot stands for a local time that the clock left out, and the
	// job skips those.
	ReasonDST = "dst"
	// ReasonUnreadable: the record at the job's gate cannot be read.
	ReasonUnreadable = "unreadable_record"
	// ReasonNoExecutor: no executor attended the leader.
	ReasonNoExecutor = "no_executor"
	// ReasonRefused: executors asked for the claim, and the store took none.
	ReasonRefused = "store_refused"
	// ReasonUnclaimed: an executor had it in its plan and did not claim it.
	ReasonUnclaimed = "unclaimed"
	// ReasonShardFailed: too many shards of the run had failed.
	ReasonShardFailed = "shard_failed"
	// ReasonNodeGone: the shard was for a node that is gone.
	ReasonNodeGone = "node_gone"
	// ReasonBackfill: the backfill that the run is of was cancelled.
	ReasonBackfill = "backfill_cancelled"
)

// Live is a live record: a shard of a run that has no verdict yet.
type Live struct {
	Job        JobID
	Run        RunID
	Shard      int
	Shards     int
	Generation int64 // of the job's version that it runs
	State      RunState
	Exclusive  bool // holds the job's overlap gate
	AtMostOnce bool
	// DeadLetter: a verdict that is Dead leaves a dead letter.
	DeadLetter bool
	Attempt    int // from 1
	Owner      Owner
	Term       int64     // the leadership that planned it
	Due        time.Time // the slot, or when it was asked for
	Claimed    time.Time // the owner's wall clock
	NextTry    time.Time // StateWaiting: not before
	// Place is the place that the run has at its gate, from 1, which is that of
	// GateKey (see Gate.Key); 0: none. Its later attempts keep it.
	Place   int
	GateKey string
	// Holds are the places that the run has at its job's limits, which its later attempts
	// keep too.
	Holds []Hold
	// Attempts are those before this one.
	Attempts []Attempt
	// Tries is how many of those before this one count against the job's retry
	// policy, Snoozes how many snoozed. The other ones were handed over: see
	// Handovers.
	Tries, Snoozes int
	// Origin is the run that this one repeats; empty for others.
	Origin RunID
	// LimitKey is the key by which it counts at limits that are per key.
	LimitKey string
	// Circuit is the breaker whose circuit counts the run's verdict; nil: none does.
	Circuit *CircuitBreaker
	// Chain tells of the runs before it.
	Chain
	// Header is set for a shard of a run that is split: the token of the run's
	// header, under which it was claimed. Such a record stays when the shard has
	// ended: State is then how, all its attempts are in Attempts, and End is set.
	Header int64
	End    *ShardEnd
	// Split is set in the header of a run that is split: the record that stands for
	// the run as a whole, holds its gate or place, and is owned by nobody. Its Shard
	// is HeaderShard.
	Split *Split
	// Listing is set in the record of a first step that is to list the shards of its run:
	// how the job has that, as of the attempt. Its Shard is ListShard.
	Listing *Shards
	// Token is the record's ModRevision: the attempt's fencing token.
	Token int64
}

// Owner is one registration of an executor: the node's name and the
// CreateRevision of its lease-bound key. The same node has another revision
// after each registration.
type Owner struct {
	Node     string
	Revision int64
}

// Attempt is one finished try at a shard.
type Attempt struct {
	Number  int
	Node    string
	Token   int64
	Term    int64
	Claimed time.Time
	Started time.Time // zero: never started
	Ended   time.Time
	State   RunState // how it ended
	// Snoozed: the work asked to be called again later.
	Snoozed bool
	// Unclaimed: it began without a claim, while its executor could not reach the store.
	// Token, Term and Claimed are then those under which it was recorded.
	Unclaimed bool
	// ExitCode is the command's, or the HTTP status; valid when HasCode.
	HasCode  bool
	ExitCode int
	Error    string
	// Done, Total and Message are what it last said of its progress.
	Done, Total int64
	Message     string
}

// Record is a run's verdict, or one verdict that a range of slots share.
type Record struct {
	Job        JobID
	Run        RunID
	Generation int64
	State      RunState
	Reason     string
	Detail     string
	Due        time.Time
	// Until and Count are set where the record stands for the Count slots from
	// Due to Until, both included.
	Until    time.Time
	Count    int64
	Recorded time.Time
	Shards   int
	Attempts []Attempt
	// Tail is the end of the output, at most MaxTailBytes; OutputBytes is the
	// size of the whole.
	Tail        []byte
	OutputBytes int64
	// Origin is the run that this one repeats; empty for others.
	Origin RunID
	// LimitKey is the key by which it counts at limits that are per key.
	LimitKey string
	// Doubles are attempts that began without a claim, and were recorded after the run
	// had been decided otherwise; at most MaxDoubles.
	Doubles []Attempt
	// Tries is how many of the attempts counted against the job's retry policy.
	Tries int
	// Chain tells of the runs before it.
	Chain
	// Hooks are those that were due with the verdict, in order, with what is known of
	// them.
	Hooks []HookRun
	// Result tells that the run left a result.
	Result bool
	// Split is what the run was split into, nil for most runs, and Ends is then how
	// each shard ended, in order. Where its shards were to be listed Attempts are those of
	// the first step.
	Split *Split
	Ends  []Live
	// Revision is the store's revision at which the verdict was written. What becomes of
	// Hooks later does not change it.
	Revision int64
}

// Covers tells whether the record is a verdict on slot.
func (r *Record) Covers(slot time.Time) bool {
	if r.Count <= 1 {
		own, ok := r.Run.Slot()
		return ok && own.Equal(slot)
	}
	return !slot.Before(r.Due) && !slot.After(r.Until)
}

// Pending is a run that was asked for, or one that waits for others.
type Pending struct {
	Job JobID
	Run RunID
	// Requested is from when on the run may start: when it was asked for, or later
	// where that was asked for; for a slot's, the slot.
	Requested time.Time
	Actor     string
	Reason    string
	// AllowOverlap starts it beside a live run of an exclusive job.
	AllowOverlap bool
	// Queued is since when it waits for other runs; zero: it was not found to
	// have to.
	Queued time.Time
	// Origin is the run that this one repeats; empty for others.
	Origin RunID
	// Split is what it is split into whatever its job says, of a run that repeats some
	// shards of another; nil for others.
	Split *Split
	// LimitKey is the key by which it counts at limits that are per key.
	LimitKey string
	// Chain tells of the runs before it.
	Chain
	Revision int64
	// Born is the revision at which it was asked for: a job that was made later is
	// another one.
	Born int64
}

package state

import "time"

// Claim asks the store to make a start real: for one live record under the
// conditions that the start relies on.
type Claim struct {
	Job JobID
	// JobRevision is the job's revision as it was planned.
	JobRevision int64
	// Live is the record as it shall be: what is known of it before it is claimed. The
	// store may make the record that it answers of it.
	Live Live
	// Gate has the places of which the run takes one, and the policy where there
	// is none to take, or where runs that are due earlier wait.
	Gate Gate
	// Limits are the job's. A first attempt takes a place, or a token, at each.
	Limits []Limit
	// Token is set for a further attempt: the waiting record's revision.
	Token int64
	// Pending is the revision of the pending key that the claim moves, 0 for a
	// slot's run.
	Pending int64
	// ClosedRevision is set for a slot in the closed part of the timeline that
	// a leader decided to catch up: the revision at which it closed that part.
	// A leader that closes the timeline again takes the decision back.
	ClosedRevision int64
	// Exclusive runs hold the job's overlap gate; they are not claimed while
	// another run of the job is live.
	Exclusive bool
	// Split is set for a shard of a run that is split. Where the run has no header
	// yet the claim makes it first, to which all of the above applies; Exclusive,
	// Gate, Pending and ClosedRevision are the run's, not the shard's.
	Split bool
	// ApplyOverlap is set when the run is due: if the gate is held, the policy is
	// applied. Before that a held gate is only reported.
	ApplyOverlap bool
}

// ClaimStatus is what became of a claim.
type ClaimStatus uint8

// Claim statuses.
const (
	// Claimed: the live record is this owner's; its token is in the result.
	Claimed ClaimStatus = iota + 1
	// ClaimLive: the run has a live record of another owner or attempt.
	ClaimLive
	// ClaimDecided: the run has a verdict, or its slot lies in the closed part
	// of the timeline.
	ClaimDecided
	// ClaimSkipped: the gate was held; skipped:overlap is stored.
	ClaimSkipped
	// ClaimHeld: the gate is held, and the claim did not ask for the policy, or
	// the run waits for it already.
	ClaimHeld
	// ClaimStale: the job, the pending run or the waiting record is not as
	// planned any more.
	ClaimStale
	// ClaimDisowned: the owner's registration is gone.
	ClaimDisowned
	// ClaimQueued: the run waits for others; its pending key says so.
	ClaimQueued
)

var claimNames = [...]string{
	"unknown", "claimed", "live", "decided", "skipped", "held", "stale", "disowned", "queued",
}

// String is the status's name in logs and metrics.
func (s ClaimStatus) String() string {
	if int(s) < len(claimNames) {
		return claimNames[s]
	}
	return claimNames[0]
}

// ClaimResult answers a Claim.
type ClaimResult struct {
	Status ClaimStatus
	// Live is the record, with its token, where Status is Claimed; nil where it is not.
	Live *Live
	// Part is what a shard of a run that is split is given.
	Part Part
	// Limit tells which of the claim's limits was reached, from 1, where the run waits
	// or is to wait for that; 0: none was. NotBefore is from when on there may be room;
	// zero: when a run ends.
	Limit     int
	NotBefore time.Time
}

// Finish asks the store to make an end real: the run's verdict, or a wait for
// another attempt.
type Finish struct {
	// Live is the record as claimed, with its token; but for Tries and Snoozes, which
	// are those with the ended attempt. It is only read.
	Live *Live
	// Attempt is the ended attempt. Its State is the run's verdict unless Retry
	// is set.
	Attempt Attempt
	// Retry is set where the run shall be tried again, not before then.
	Retry time.Time
	// Reason and Detail are the verdict's.
	Reason, Detail string
	Tail           []byte
	OutputBytes    int64
	// Result is what the run leaves for whoever asked for it, at most MaxResultBytes.
	Result []byte
	// List is what a first step that succeeded has listed: it ends with the shards that
	// run then. Without any its success is the run's.
	List []map[string]string
	// Hooks are those that follow the verdict, in order.
	Hooks []HookRun
	// Saved and Reported are set where the shard may have checkpoints, or progress,
	// of this run in the store. Checkpoints go with a success, progress with any
	// verdict.
	Saved, Reported bool
}

// TokenStatus is what became of a write that carries a token.
type TokenStatus uint8

// Token statuses.
const (
	// TokenStored: the write is durable.
	TokenStored TokenStatus = iota + 1
	// TokenFenced: the token no longer stands; nothing was changed.
	TokenFenced
)

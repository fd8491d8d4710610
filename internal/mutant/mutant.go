// Package mutant names the guards on which the invariants rest, so that the
// simulation can turn each of them off and must notice: see docs/verification.md.
// Without the build tag "mutants" nothing can be turned off, and the compiler leaves
// nothing of it in the program; a test holds release builds to that.
package mutant

// Env names the environment variable that says which guard is off. It is read by
// programs with the build tag "mutants", and by no others.
const Env = "LEADERD_MUTANT"

// A Guard is one thing that the product does or compares so that an invariant holds.
type Guard string

// The guards, each by what happens without it.
const (
	TermFence    Guard = "term-fence"    // a deposed leader's writes count
	Registration Guard = "registration"  // claims do not ask whether their owner's registration stands
	JobRevision  Guard = "job-revision"  // claims do not ask whether the job has changed
	JobsChanged  Guard = "jobs-changed"  // a batch of claims does not ask whether any job has changed
	History      Guard = "history"       // claims do not ask whether the run has a verdict
	LiveRecord   Guard = "live-record"   // claims write over live records
	GateVerdict  Guard = "gate-verdict"  // claims do not ask whether the run at the gate is over
	Closed       Guard = "closed"        // claims do not ask whether the timeline was closed
	FinishToken  Guard = "finish-token"  // ends do not compare their token
	FirstVerdict Guard = "first-verdict" // an end does not ask whether there is a verdict
	Conflicts    Guard = "conflicts"     // requests that meet go out in one batch
	ReadBack     Guard = "read-back"     // a claim whose answer was lost does not know its own record
	SelfFence    Guard = "self-fence"    // an executor works on when its registration cannot be trusted
	SlotTrust    Guard = "slot-trust"    // a claimed run starts although the trust has ended
	OwnerGone    Guard = "owner-gone"    // a leader takes runs from owners that are registered
	AtMostOnce   Guard = "at-most-once"  // lost at-most-once runs are made again
	Watermark    Guard = "watermark"     // the watermark passes slots without a record
	Replay       Guard = "replay"        // a new leader forgets the slots of the time without one
	DeletedNote  Guard = "deleted-note"  // nobody notes that a deleted job may have slots to decide
	Early        Guard = "early"         // work starts before its slot
	Checkpoint   Guard = "checkpoint"    // a checkpoint does not name the one before
	Hedge        Guard = "hedge"         // entries of a lost executor are planned nowhere else
	Terminator   Guard = "terminator"    // key prefixes do not end with a separator
	Places       Guard = "places"        // claims do not ask whether their place at the gate is free
	QueueOrder   Guard = "queue-order"   // claims do not ask whether runs that were due earlier wait
	QueuedSlot   Guard = "queued-slot"   // a slot that waits for others counts as one without a record
	ShardsEnded  Guard = "shards-ended"  // the verdict of a run that is split does not ask whether its shards have ended
	Carried      Guard = "carried"       // a shard that is carried over can be claimed all the same
	Circuit      Guard = "circuit"       // claims do not ask whether their circuit is open
	CancelWish   Guard = "cancel-wish"   // the wish that a run ends is forgotten with the leader that heard it
)

// Guards are all of them.
func Guards() []Guard {
	return []Guard{
		TermFence, Registration, JobRevision, JobsChanged, History, LiveRecord, GateVerdict, Closed, FinishToken, FirstVerdict,
		Conflicts, ReadBack, SelfFence, SlotTrust, OwnerGone, AtMostOnce, Watermark, Replay, DeletedNote, Early, Checkpoint, Hedge,
		Terminator, Places, QueueOrder, QueuedSlot, ShardsEnded, Carried, Circuit, CancelWish,
	}
}

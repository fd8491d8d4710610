// Package planner is the leader's part: it computes the timeline, places the
// runs that are coming on executors, streams them the plan, and sees to it that
// every slot ends up with a live record or a verdict.
//
// # Shape
//
// A Catalog keeps all jobs compiled on every control node, so that a new leader
// has them ready. Run is one term: one goroutine owns the timeline, the open
// entries and the sessions with executors, and never waits for the store or for
// an executor; workers do what needs the store and bring back the results. A
// Server accepts the executors' Attend streams and hands them to the running
// term. All of a term is built afresh when it begins, and none of it outlives
// the call.
//
// # What is authoritative
//
// Nothing in here. A plan may be wrong, doubled, late or stale: a claim is a
// transaction that checks everything it relies on, whoever planned it. What the
// leader alone writes (the watermark, the closed part of the timeline, verdicts
// on slots that did not start, lost owners) compares its term in the same
// transaction.
//
// An entry is open from when it is popped off the timeline until an executor
// reports that the run has a record, or the leader has given it a verdict. The
// watermark never passes an open entry, so a leader that dies leaves behind
// nothing that its successor does not look at again.
//
// # Changes
//
// A version of a job owes the slots after the instant at which it took effect, up to
// the one at which the next took effect or the job was deleted. Both are stored with
// the change, by the clock of the node that made it, and at the watermark if that was
// ahead; nobody else's clock matters. So a change may make slots due behind a
// watermark of a leader that had not heard of it. The watermark therefore names the
// revision up to which changes are in it, and a new leader looks at jobs that were
// changed later from the instant of their change on.
//
// # Late, missed, outage
//
// A slot without a record is late; it is planned onto further executors until
// one claims it. It is missed when its start deadline has passed, or when it is
// more than a horizon late, a newer slot of the job is due, and the job is
// exclusive or there are many open entries: a job that nobody can run must not
// crowd out others. If nobody led for longer than the horizon, executors had nothing
// left to claim: that is an outage, and the slots in it are caught up by the
// job's policy.
//
// # What cannot be read
//
// The keys of the timeline are the leader's alone, so it writes them anew where
// somebody else has damaged them, with values that open and skip nothing: an older
// watermark is as true, and nobody has closed anything behind now. A record at a
// job's gate is not the leader's: the job stands still, with a verdict for each
// slot, until somebody who can tell that no run of it is at work deletes the key.
//
// # Non-guarantees
//
// The leader does not know what runs: it learns of claims and ends by reports
// that may be lost. It does not decide that an executor is dead: the end of the
// executor's registration does, compared by the transaction that says so.
package planner

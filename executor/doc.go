// Package executor is the part of a node that runs work: it keeps the node's
// registration, attends the leader, holds the plan, and takes every planned
// entry from its claim over its slot to its verdict.
//
// # Lifetimes
//
//	process       Executor.Run, until its context ends (drain)
//	registration  one CreateRevision of the node's key; owns the queue and the runs
//	session       one Attend stream with one leadership; owns the specs' numbers
//	run           one goroutine, from its slot to the end of its work; the claim
//	              before that and the verdict after it are the journal's answers
//
// Each is built afresh, and what it started is waited for before the next one of
// its kind begins. The end of a registration cancels all of its runs with cause
// ErrFenced. The end of a session costs nothing but its reports: its entries
// stay, and are claimed and started while there is no leader.
//
// # An entry
//
//	planned -> queued -> claiming -> claimed, waits for its slot -> running -> finishing -> over
//	             ^          |
//	             '----------'  gate held (until due), refused (backoff)
//
// An entry is known by job, run, shard and attempt, and is here at most once
// whatever is planned: the store answers an owner that repeats a claim with
// "claimed" again, so a second goroutine for the same attempt would start it
// twice. What is over stays in memory for a while, so that a new leader that
// plans it again is answered without a claim.
//
// # What is authoritative
//
// The store is. The queue is a hint of what to claim; a claim's answer alone
// lets work start, and then only once this node's wall clock shows the slot. A
// claim whose outcome is unknown may be ours: such an entry is claimed again
// until there is an answer, even after it was revoked or its start deadline has
// passed. If it turns out to be ours after the start deadline, it is not started,
// and gets that verdict. After a revoke it starts: the claim was committed before
// the job was changed, or it would not have been.
//
// # Trust in the registration
//
// The registration is believed in until the start of the last keep-alive request
// that was answered, plus the TTL, minus a fifth of it. That fifth is the time in
// which cancelled work must stop; the runner's FenceGrace must be shorter.
//
// # The log
//
// What a registration has to say goes to its log from a goroutine beside (see
// diary): a log that blocks delays neither the end of work that is fenced, nor a
// drain, nor other runs' group commits.
//
// # Shape
//
// A registration's state is one struct under one mutex, the desk. An owning
// goroutine would cost each run several hand-overs between threads; the mutex is
// held for well under a microsecond at a time, and plans take it in small parts.
//
// # Non-guarantees
//
//   - The monotonic clock stands still while a machine is suspended: on waking,
//     work goes on until the next keep-alive is refused. What it writes compares
//     its token.
//   - Work that no signal can end (uninterruptible sleep) is left behind after a
//     bounded wait. It counts against the capacity for as long as it lasts.
//   - The leader learns of claims and ends by reports that are dropped with their
//     session. A run that ends while no session knows its entry is not reported.
package executor

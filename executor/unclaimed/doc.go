// Package unclaimed runs slots of jobs that allow it while the store cannot be reached
// (state.OutageRunPlanned), and keeps what became of them until it is recorded.
//
// Nothing here is safe in the sense of a claim: that a run begins is known to this
// node's disk and to nobody else, and where only this node was cut off another one may
// have begun the same. So a job has to ask for it, and the records say so.
//
// # A run
//
//	adopted -> waits for its slot -> on disk as begun -> at work -> on disk with its end -> recorded, forgotten
//
// Work begins only once the disk has said that it holds the fact, so that a process that
// dies leaves behind what it has begun; its successor on the same directory takes that as
// interrupted. What is on disk stays until the store has it.
//
// Starts end with the outage (Settle); what has begun goes on, since no registration of
// the node's stands behind it that could end.
package unclaimed

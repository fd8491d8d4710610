// Package journal is the executor's Journal where it has no store of its own: a
// client of leaderd.worker.v1.JournalService on any of the control nodes.
//
// # Shape
//
//	Claim, Finish, Checkpoint -> queue -> one Record stream -> answers by id
//
// Callers block, each for its own answer. All their entries go through one stream
// to one control node; what comes while a message is being sent gathers for the
// next one. Registrations and reads are unary calls, and who leads is followed on
// a stream of its own, so that none of them waits behind claims.
//
// # Failures
//
// A stream that breaks, or on which nothing is answered for Config.Patience, is
// given up, and its unanswered entries are sent again to the next control node,
// for as long as their callers wait. The first node may carry them out too, before
// or after: that is harmless, since every request of the journal is idempotent in
// the store (see state/store). So each caller gets one answer, and it is the truth
// wherever the first try got to.
//
// A node that answers UNAVAILABLE is left in the same way. All other errors are
// the caller's; they wrap the classes of package kv, as those of a store in
// the same process do.
//
// A caller whose context ends after its entry was sent does not know the outcome:
// kv.ErrUnknown.
//
// # What is authoritative
//
// The store. Nothing is cached here, and nothing is written by our clock. Who
// leads may be late; terms never go back.
//
// # Non-guarantees
//
// Entries are not ordered: one that is sent again may pass another. Nothing is
// kept across processes.
package journal

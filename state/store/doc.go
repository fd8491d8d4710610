// Package store keeps leaderd's domain in the store, by transactions that hold
// its invariants whatever leaders and executors believe.
//
// # What is authoritative
//
// A run is live while it has a live record (active/…) and no verdict
// (history/…). A claim is the transaction that makes the record, a finish the
// one that makes the verdict, and each compares all that it relies on; so at
// most one claim of an attempt commits and at most one verdict of a run. The
// ModRevision of the live record is the attempt's fencing token: every later
// write of the attempt compares it.
//
// A run that holds its job's overlap gate has its live record at one key of the
// job, which is the gate. Its finish only writes the verdict: the record stays,
// dead, until the job's next claim writes over it. That saves one write of
// three on the hot path, and is why "live" is record without verdict.
//
// # Failures
//
// All claims, finishes and checkpoints go through group commit (see batcher).
// After an unknown outcome the batcher sends the same transactions again: if
// they had been applied, their compares fail, and what is stored then tells the
// caller that it is his. Late repetitions of a request therefore change nothing,
// even one that reaches the store after everything that followed it. A revision
// of 0 in a request would compare as "is not there"; so it is refused.
//
// What writes a job's gate meets, in the batcher, what writes or removes the
// job's other live records. So the gate's record never has the revision of
// another one, and one compare of the job's whole range tells an exclusive claim
// that nothing but the dead record it knows is there.
//
// # Non-guarantees
//
// Nothing here reads a clock to decide ownership, and nothing waits for a
// leader. A caller whose context ends while its request is in flight does not
// know the outcome (kv.ErrUnknown) and must ask again or give the attempt up.
package store

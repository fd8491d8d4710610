// Package ledger answers what was due and why: it puts a job's versions, which say
// what was due when, beside the records of its slots, which say what became of them.
//
// Everything here is pure: the callers read versions, records and the watermark, and
// say what time it is. What is answered is exact over failovers since all of that is
// stored: a version with the instant from which it is in force, a record by the slot
// that it is of.
//
// # What is authoritative
//
// Whether a slot has a verdict: its record alone. A record of a slot that no version
// names is answered as well; clocks that differ may leave such.
//
// Whether a slot was due: the kept versions. A version owes the slots after its
// instant, up to the instant of the first newer version; a pause and a deletion are
// versions. What lies before the oldest kept version is answered as not known.
//
// Whether a slot's record was removed: the floor that retention leaves, if it is read
// behind the records.
//
// Whether a slot without a record is still open: the watermark, if it is read before
// the versions, and those before the records. It speaks for the versions that were
// stored at or before its Jobs.
//
// # What is not promised
//
// A version that cannot be read is passed over: its slots are answered as those of the
// version before it.
package ledger

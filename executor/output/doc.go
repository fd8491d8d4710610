// Package output keeps what runs print on the node's disk, in a ring: one file
// an attempt, the oldest deleted when the ring is over its limits.
//
// # What is kept
//
// A file takes the first MaxRunBytes of an attempt's output as it is, so that
// it can be read with any tool. When more comes, the first half of those bytes
// stays and the second half becomes a circle that always holds the newest
// bytes; the file then ends in a trailer that says where the circle starts and
// its name ends in ".cut" instead of ".out". What is between the two halves is
// lost: Reader shows it as a jump of the offset, Reader.CopyTo as a marker.
//
// The last state.MaxTailBytes are kept in memory too, for the run's record. An
// attempt that prints nothing has no file and costs no system call.
//
// # Authority and failures
//
// The ring is not the truth about a run; its record in the store is. Nothing
// is synced to disk: a crash of the process loses nothing that was written, a
// crash of the machine may. Files are found again on Open, in the order of
// their last change.
//
// A disk that refuses bytes never fails or stops a run: the Writer makes room
// once by deleting the oldest files, then keeps what it has, counts the rest
// and reports the first error from Close. Files of live attempts are never
// deleted to make room; when they alone fill the ring, growing ones stop.
//
// # Non-guarantees
//
// A file system that hangs (an unreachable network mount) holds up the writes
// of the attempts on it. One directory belongs to one process at a time; the
// package does not lock it. Names are not folded for file systems that ignore
// case.
package output

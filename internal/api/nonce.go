package api

import (
	"math/rand/v2"
	"time"
)

// The runs of a job start in the order of their ids, as long as they wait for one another.
// An id has the second in which its run is due, and a nonce after it: the microsecond comes
// first in that, and then what tells runs of one microsecond apart.
const microsecondBits = 20

func triggerNonce(due time.Time) uint32 {
	return uint32(due.Nanosecond()/1000)<<(32-microsecondBits) | rand.Uint32()>>microsecondBits //nolint:gosec // below a million
}

func submitNonce(due time.Time) uint64 {
	return uint64(due.Nanosecond()/1000)<<(64-microsecondBits) | rand.Uint64()>>microsecondBits //nolint:gosec // below a million
}

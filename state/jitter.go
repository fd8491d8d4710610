package state

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Jitter is how long after a slot of a job its run is due, at most as long as most:
// the first eight bytes of the SHA-256 of "namespace/name", a line feed and the
// run's id, as a number, modulo the whole milliseconds from 0 to most. So every node
// and every version of leaderd comes to the same.
func Jitter(id JobID, slot time.Time, most time.Duration) time.Duration {
	choices := uint64(max(most.Milliseconds(), 0)) + 1
	if choices == 1 {
		return 0
	}
	sum := sha256.Sum256([]byte(id.String() + "\n" + string(SlotRunID(slot))))
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%choices) * time.Millisecond
}

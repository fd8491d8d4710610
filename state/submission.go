package state

import (
	"fmt"
	"time"
)

// Limits of submissions.
const (
	MaxPayloadBytes    = 1 << 20
	MaxResultBytes     = 64 << 10
	MaxSubmissions     = 1000    // in one call
	MaxSubmissionBytes = 3 << 20 // of payloads in one call
	MaxKeyBytes        = 256     // of an idempotency key
	MinKeyTTL          = time.Minute
	MaxKeyTTL          = 720 * time.Hour
	DefaultKeyTTL      = 24 * time.Hour
	MaxSubmitAhead     = 366 * 24 * time.Hour
)

// SubmitRunID is the id of a run that a program asked for, due at an instant; nonce
// (16 hex digits) tells it from others.
func SubmitRunID(due time.Time, nonce uint64) RunID {
	return RunID(fmt.Sprintf("%s-submit-%016x", due.UTC().Format(slotLayout), nonce))
}

// Submission is a wish for a run that a program makes.
type Submission struct {
	// Pending is the run; it may be due later than at Now.
	Pending Pending
	// Payload is what the run is to work on.
	Payload []byte
	// Key makes wishes one: of those for a job with the same key only the first makes
	// a run while it is kept. Empty: each does.
	Key string
	// KeyTTL is for how long the key is kept at least.
	KeyTTL time.Duration
	Now    time.Time
}

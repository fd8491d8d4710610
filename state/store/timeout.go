package store

import (
	"sync/atomic"
	"time"
)

const (
	// minCommitTimeout and maxCommitTimeout bound how long a transaction of
	// group commit is waited for.
	minCommitTimeout = 500 * time.Millisecond
	maxCommitTimeout = 5 * time.Second
	// commitPatience is how many times as long as a transaction takes of late.
	commitPatience = 8
)

// commitTime is after how long a transaction's outcome counts as unknown and it
// is sent again: a member of the store that dies takes with it what it has not
// passed on, and nobody tells. It follows what transactions take, so that a slow
// store is not asked twice, and those that were given up count. Its methods may
// be called concurrently.
type commitTime struct{ average atomic.Int64 } // nanoseconds; 0: none was seen

// note takes in what a transaction took.
func (c *commitTime) note(took time.Duration) {
	was := c.average.Load()
	if was == 0 {
		was = int64(maxCommitTimeout / commitPatience / 2)
	}
	c.average.Store(was + (int64(took)-was)/8)
}

// timeout is how long the next transaction is waited for.
func (c *commitTime) timeout() time.Duration {
	average := time.Duration(c.average.Load())
	if average == 0 {
		return maxCommitTimeout / 2
	}
	return min(max(commitPatience*average, minCommitTimeout), maxCommitTimeout)
}

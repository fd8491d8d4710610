package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCommitTimeoutFollowsTheStore(t *testing.T) {
	var c commitTime
	require.Equal(t, maxCommitTimeout/2, c.timeout(), "nothing is known yet")
	for range 100 {
		c.note(time.Millisecond)
	}
	require.Equal(t, minCommitTimeout, c.timeout(), "a fast store is soon asked again")
	for range 100 {
		c.note(200 * time.Millisecond)
	}
	require.InDelta(t, commitPatience*200*time.Millisecond, c.timeout(), float64(100*time.Millisecond))
	for range 100 {
		c.note(c.timeout()) // every one is given up
	}
	require.Equal(t, maxCommitTimeout, c.timeout(), "a store that answers nothing is asked ever less often")
}

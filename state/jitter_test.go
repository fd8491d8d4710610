package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// TestJitter holds the formula to what sha256sum says, as docs/schedules.md has it.
func TestJitter(t *testing.T) {
	id := state.JobID{Namespace: "default", Name: "report"}
	slot := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	const sum = 0xed8846da2e8f794c // printf 'default/report\n20261130T020000Z' | sha256sum
	for _, most := range []time.Duration{0, time.Millisecond, 30 * time.Second, time.Hour} {
		choices := uint64(most.Milliseconds()) + 1
		require.Equal(t, time.Duration(uint64(sum)%choices)*time.Millisecond, state.Jitter(id, slot, most), "%s", most)
	}
	spread := map[time.Duration]int{}
	for i := range 1000 {
		spread[state.Jitter(id, slot.Add(time.Duration(i)*time.Minute), 9*time.Millisecond)]++
	}
	require.Len(t, spread, 10)
	for d, n := range spread {
		require.Greater(t, n, 60, "%s", d)
	}
}

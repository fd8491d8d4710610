package planner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// Runs that were asked for far ahead and are gone, such as cancelled, leave nothing behind.
func TestForgetDelayed(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	term := &term{Planner: &Planner{cfg: Config{Horizon: 15 * time.Second}}}
	id := state.JobID{Namespace: "ns", Name: "job"}
	wish := func(n int) *state.Pending {
		due := now.Add(time.Hour + time.Duration(n)*time.Second)
		return &state.Pending{Job: id, Run: state.SubmitRunID(due, uint64(n)), Requested: due, Revision: int64(n) + 1}
	}
	const all = 100_000
	for n := range all {
		require.True(t, term.delay(wish(n), now))
		if n%10 == 0 {
			continue // it stays
		}
		gone := *wish(n)
		gone.Revision--
		term.forgetDelayed([]state.Pending{gone})
		require.NotNil(t, term.delays.of[id][gone.Run], "it was asked for anew since")
		gone.Revision += 2
		term.forgetDelayed([]state.Pending{gone, gone})
		require.Nil(t, term.delays.of[id][gone.Run])
	}
	require.Len(t, term.delays.of[id], all/10)
	require.LessOrEqual(t, term.delays.heap.Len(), 2*all/10+mostVoids+1)
	for n := range all {
		term.forgetDelayed([]state.Pending{*wish(n)})
	}
	require.Empty(t, term.delays.of)
	require.LessOrEqual(t, term.delays.heap.Len(), mostVoids+1)
}

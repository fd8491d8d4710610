package planner_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// TestNoExecutorIsTheReason: nobody attends, so that is why slots are missed.
func TestNoExecutorIsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		defer s.lead("a")()
		time.Sleep(time.Minute)
		got, err := s.store.GetRun(t.Context(), tick, state.SlotRunID(time.Now().Add(-30*time.Second)))
		require.NoError(t, err)
		require.Equal(t, state.StateMissed, got.Record.State)
		require.Equal(t, state.ReasonNoExecutor, got.Record.Reason)
		mark, err := s.store.GetWatermark(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, s.looks.Load(), int64(3), "a gate that can be read is not looked at for each late run")
		require.NotZero(t, mark.Late.Runs)
		require.Equal(t, tick, mark.Late.Worst)
		require.Equal(t, state.ReasonNoExecutor, mark.Late.Reason)
		require.True(t, mark.Late.Since.Before(time.Now().Add(-5*time.Second)))
	})
}

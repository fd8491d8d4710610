package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
)

// The id of a backfill's run tells which backfill and which slot, and no other id does.
func TestBackfillRunIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := func(name string) time.Time {
			return time.Unix(rapid.Int64Range(0, 4e9).Draw(t, name), 0).UTC()
		}
		made, slot, nonce := at("made"), at("slot"), rapid.Uint32().Draw(t, "nonce")
		id := state.NewBackfillID(made, nonce)
		require.True(t, id.Valid())
		run := id.Run(slot)
		of, got, ok := run.Backfill()
		require.True(t, ok)
		require.Equal(t, id, of)
		require.Equal(t, slot, got)
		require.Equal(t, state.KindBackfill, run.Kind())
		nominal, ok := run.Nominal()
		require.True(t, ok)
		require.Equal(t, slot, nominal)
		_, isSlot := run.Slot()
		require.False(t, isSlot)
		require.Empty(t, state.CheckName(string(run)))
		for _, other := range []state.RunID{state.SlotRunID(slot), state.TriggerRunID(made, nonce), run + "-1", run[:len(run)-1]} {
			_, _, ok := other.Backfill()
			require.False(t, ok, other)
		}
	})
	for _, bad := range []state.BackfillID{"", "x", "20261130T020000Z", "20261130T020000Z-5f3a9c0", "20261130T020000Z-5F3A9C01", "20261330T020000Z-5f3a9c01"} {
		require.False(t, bad.Valid(), bad)
	}
}

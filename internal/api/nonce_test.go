package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
)

// Runs that were asked for later in a second wait behind those before.
func TestIDsAreInOrderOfDue(t *testing.T) {
	second := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.IntRange(0, 999_998).Draw(t, "a")
		b := rapid.IntRange(a+1, 999_999).Draw(t, "b")
		earlier, later := second.Add(time.Duration(a)*time.Microsecond), second.Add(time.Duration(b)*time.Microsecond)
		require.Less(t, state.TriggerRunID(earlier, triggerNonce(earlier)), state.TriggerRunID(later, triggerNonce(later)))
		require.Less(t, state.SubmitRunID(earlier, submitNonce(earlier)), state.SubmitRunID(later, submitNonce(later)))
	})
}

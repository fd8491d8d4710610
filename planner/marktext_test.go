package planner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

func TestNoWatermarkIsLoggedAsNone(t *testing.T) {
	require.Equal(t, "none", markText(state.Watermark{}))
	require.Equal(t, "2026-11-30T02:00:00Z", markText(state.Watermark{Instant: time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)}))
}

package schedule_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/planner/schedule"
)

// TestZoneDataIsNamed keeps the page that names the release of the zone data true.
func TestZoneDataIsNamed(t *testing.T) {
	page, err := os.ReadFile("../../docs/dependencies.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "as release "+schedule.ZoneData()+".")
}

package schedule

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCases runs the table of known traps. Each row gives the first slots after
// an instant, ERROR, or NEVER.
func TestCases(t *testing.T) {
	data, err := os.ReadFile("testdata/schedules.tsv")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	require.Greater(t, len(lines), 90)
	for _, line := range lines[1:] {
		cols := strings.Split(line, "\t")
		require.Len(t, cols, 6, line)
		id, zone, expected := cols[0], cols[2], cols[4]
		spec, err := strconv.Unquote(cols[1])
		require.NoError(t, err)
		t.Run(id, func(t *testing.T) {
			from := instant(t, cols[3])
			s, err := Parse(spec, Options{Zone: zone, Anchor: from})
			switch expected {
			case "ERROR":
				var refused *ParseError
				require.ErrorAs(t, err, &refused)
				t.Log(err)
			case "NEVER":
				require.NoError(t, err)
				require.True(t, s.Next(from).IsZero())
			default:
				require.NoError(t, err)
				checkSlots(t, s, from, strings.Split(expected, ","))
			}
		})
	}
}

func checkSlots(t *testing.T, s Schedule, from time.Time, expected []string) {
	t.Helper()
	at, window := from, from
	for i, text := range expected {
		want := instant(t, text)
		got := s.Next(at)
		require.Equal(t, want, got, "slot %d", i)
		require.Equal(t, got, s.Prev(got))
		require.Equal(t, got, s.Latest(at, got))
		if i > 0 {
			require.Equal(t, at, s.Prev(got.Add(-time.Nanosecond)))
		}
		require.EqualValues(t, i+1, s.Count(window, got))
		require.EqualValues(t, i, s.Count(window, got.Add(-time.Nanosecond)))
		at = got
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at.UTC()
}

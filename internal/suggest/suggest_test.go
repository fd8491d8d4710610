package suggest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	names := []string{"schedules", "timeZone", "timeout", "command"}
	for name, want := range map[string]string{
		"schedule": ", did you mean schedules?",
		"timezone": ", did you mean timeZone?",
		"comand":   ", did you mean command?",
		"xyz":      "",
		"":         "",
	} {
		require.Equal(t, want, Nearest(name, names), name)
	}
}

func TestDistance(t *testing.T) {
	require.Equal(t, 3, distance("kitten", "sitting"))
	require.Equal(t, 4, distance("", "four"))
	require.Equal(t, 4, distance("four", ""))
	require.Equal(t, 0, distance("same", "same"))
}

package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What the server says of a map is told beside an entry of it that could not be read;
// what it says of a list whose places moved is not.
func TestTouches(t *testing.T) {
	jobs, err := parse(t, "name: a\nspec:\n  labels: {team: 5, 'bad key': x}\n  schedules: [5, '@daily']\n  command: {argv: [x], env: {A: 1, LEADERD_X: a}}\n")
	require.ErrorContains(t, err, "spec.labels[team]")
	require.ErrorContains(t, err, "spec.command.env[A]")
	require.Len(t, jobs, 1)
	for field, touched := range map[string]bool{
		"spec.labels":                 false,
		"spec.labels[bad key]":        false,
		"spec.labels[team]":           true,
		"spec.command.env":            false,
		"spec.command.env[LEADERD_X]": false,
		"spec.command":                true,
		"spec.schedules":              true,
		"spec.schedules[0]":           true,
		"spec.timeZone":               false,
	} {
		require.Equal(t, touched, jobs[0].touches(field), field)
	}
	require.Equal(t, map[string]string{"bad key": "x"}, jobs[0].job.GetSpec().GetLabels())
}

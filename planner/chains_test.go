package planner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// Verdicts of a job stay where they are until all that follow it have taken them in.
func TestChainsLimitSweeps(t *testing.T) {
	a, b := state.JobID{Namespace: "ns", Name: "a"}, state.JobID{Namespace: "ns", Name: "b"}
	after := &state.After{Jobs: []string{"a"}}
	c := &chains{
		of:        map[state.JobID]*chain{b: {after: after}},
		followers: map[state.JobID]map[state.JobID]struct{}{a: {b: {}}},
		seen:      map[state.JobID]map[state.JobID]int64{a: {b: 0}},
	}
	require.EqualValues(t, 100, c.limit(b, 100), "nobody follows it")
	require.EqualValues(t, 1, c.limit(a, 100), "nothing has been looked at")
	c.note(b, &state.After{Jobs: []string{"a"}}, 50)
	require.EqualValues(t, 1, c.limit(a, 100), "as of another version")
	c.note(b, after, 50)
	require.EqualValues(t, 51, c.limit(a, 100))
	c.note(b, after, 200)
	require.EqualValues(t, 100, c.limit(a, 100))
	c.unlink(b, after)
	require.Empty(t, c.seen)
	require.Empty(t, c.followers)
}

package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

func TestTogether(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	c := NewCatalog()
	put := func(name string, spec state.JobSpec) state.JobID {
		spec.NoOp = true
		id := state.JobID{Namespace: "default", Name: name}
		c.Set(Stored{Job: state.Job{ID: id, Revision: 1, Spec: spec, Effective: noon.Add(-time.Hour)}})
		return id
	}
	for i := range 7 {
		put(fmt.Sprintf("hourly%d", i), state.JobSpec{Schedules: []string{"@hourly"}})
	}
	put("half", state.JobSpec{Schedules: []string{"*/30 * * * *"}})
	put("paused", state.JobSpec{Schedules: []string{"*/30 * * * *"}})
	c.Set(Stored{Job: state.Job{ID: state.JobID{Namespace: "default", Name: "paused"}, Revision: 2, Paused: true, Spec: state.JobSpec{Schedules: []string{"@hourly"}, NoOp: true}}})
	spread := put("spread", state.JobSpec{Schedules: []string{"@hourly"}, Jitter: 20 * time.Second})
	put("barred", state.JobSpec{Schedules: []string{"@hourly"}, ExcludedCalendars: []string{"always"}})
	c.Set(Stored{Job: state.Job{
		ID: state.JobID{Namespace: "default", Name: "barred"}, Revision: 2, Effective: noon.Add(-time.Hour),
		Spec:      state.JobSpec{Schedules: []string{"@hourly"}, ExcludedCalendars: []string{"always"}, NoOp: true},
		Calendars: []state.JobCalendar{{Name: "always", Spec: state.CalendarSpec{Entries: []state.CalendarEntry{{First: "01-01", Last: "12-31"}}}}},
	}})
	self := put("self", state.JobSpec{Schedules: []string{"*/10 * * * *"}})

	at := []time.Time{noon, noon.Add(10 * time.Minute), noon.Add(30 * time.Minute), noon.Add(time.Hour)}
	late := noon.Add(2 * time.Hour).Add(state.Jitter(spread, noon.Add(2*time.Hour), 20*time.Second))
	jobs, found := c.Together(append(at, late), self)
	require.Equal(t, 10, jobs)
	var counts []int
	for _, f := range found {
		counts = append(counts, f.Jobs)
	}
	require.Equal(t, []int{8, 0, 1, 8, 1}, counts)
	require.Equal(t, spread, found[4].Some[0])
	require.Equal(t, state.JobID{Namespace: "default", Name: "half"}, found[0].Some[0])
	require.Len(t, found[0].Some, togetherNames)
}

// A node with many jobs looks at fewer instants.
func TestTogetherIsBounded(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	c := NewCatalog()
	for i := range 3000 {
		id := state.JobID{Namespace: "default", Name: fmt.Sprint(i)}
		c.Set(Stored{Job: state.Job{ID: id, Revision: 1, Effective: noon.Add(-time.Hour), Spec: state.JobSpec{Schedules: []string{"* * * * *"}, NoOp: true}}})
	}
	at := make([]time.Time, 10_000)
	for i := range at {
		at[i] = noon.Add(time.Duration(i) * time.Minute)
	}
	jobs, found := c.Together(at, state.JobID{})
	require.Equal(t, 3000, jobs)
	require.Len(t, found, togetherWork/3000)
	require.Equal(t, 3000, found[len(found)-1].Jobs)
}

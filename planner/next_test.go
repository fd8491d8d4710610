package planner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// The next run of a job that is due each second is found beyond a night, and beyond
// months, in which a calendar bars each of its slots.
func TestNextRunBeyondACalendar(t *testing.T) {
	from := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC) // a Monday
	next := func(only bool, entries ...state.CalendarEntry) time.Time {
		j := state.Job{
			ID: state.JobID{Namespace: "default", Name: "tick"}, Effective: from.Add(-time.Hour),
			Spec:      state.JobSpec{Schedules: []string{"* * * * * *"}, NoOp: true, ExcludedCalendars: []string{"c"}},
			Calendars: []state.JobCalendar{{Name: "c", Spec: state.CalendarSpec{Entries: entries}}},
		}
		if only {
			j.Spec.ExcludedCalendars, j.Spec.OnlyCalendars = nil, j.Spec.ExcludedCalendars
		}
		c := Compile(&j)
		require.NoError(t, c.Broken)
		return c.NextRun(from)
	}
	hours := state.CalendarEntry{Days: []string{"MON-FRI"}, From: "09:00", To: "17:00"}
	require.Equal(t, time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC), next(true, hours))
	require.Equal(t, from.Add(time.Second), next(false, hours))
	require.Equal(t, time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC), next(false, state.CalendarEntry{First: "11-01", Last: "05-31"}))
	require.Equal(t, time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC), next(true, state.CalendarEntry{Date: "2027-06-01"}))
	at := time.Date(2026, 12, 24, 12, 30, 15, 0, time.UTC)
	require.Equal(t, at, next(true, state.CalendarEntry{Start: at, End: at.Add(time.Hour)}))
	require.Zero(t, next(false, state.CalendarEntry{First: "01-01", Last: "12-31"}), "never")
}

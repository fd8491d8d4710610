package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

func calendarOn(name, date string) PutCalendar {
	return PutCalendar{
		ID: state.CalendarID{Namespace: "default", Name: name}, AllowMissing: true, Actor: "anna", Now: time.Now,
		Spec: &leaderdv1.CalendarSpec{Entries: []*leaderdv1.CalendarEntry{{When: &leaderdv1.CalendarEntry_Date{Date: date}}}},
	}
}

// TestJobsFollowApart: a job that cannot follow a calendar, since another one that it
// names cannot be read, keeps no other job from following, whichever comes first.
func TestJobsFollowApart(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for _, name := range []string{"shared", "spoilt"} {
		_, err := r.s.PutCalendar(ctx, calendarOn(name, "2026-12-24"))
		require.NoError(t, err)
	}
	put := func(name string, calendars ...string) state.JobID {
		spec := specOf("@every 1m")
		spec.ExcludedCalendars = calendars
		id := state.JobID{Namespace: "default", Name: name}
		_, err := r.s.PutJob(ctx, putOf(id, spec))
		require.NoError(t, err)
		return id
	}
	bad := put("a", "shared", "spoilt")
	var good []state.JobID
	for i := range 3 * refreshes {
		good = append(good, put("job-"+string(rune('A'+i)), "shared"))
	}
	r.put(r.s.keys.calendar(state.CalendarID{Namespace: "default", Name: "spoilt"}), "\xff")

	_, err := r.s.PutCalendar(ctx, calendarOn("shared", "2026-12-31"))
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, bad.String())
	dates := func(id state.JobID) string {
		job, err := r.s.GetJob(ctx, id)
		require.NoError(t, err)
		return job.Message.GetCalendars()[0].GetSpec().GetEntries()[0].GetDate()
	}
	for _, id := range good {
		require.Equal(t, "2026-12-31", dates(id), id)
	}
	require.Equal(t, "2026-12-24", dates(bad), "it keeps what it had")
}

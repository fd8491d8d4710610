package api

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

const holidays = "namespaces/default/calendars/holidays"

func onDate(date string) *leaderdv1.CalendarSpec {
	return &leaderdv1.CalendarSpec{Entries: []*leaderdv1.CalendarEntry{{Name: "x", When: &leaderdv1.CalendarEntry_Date{Date: date}}}}
}

func TestCalendarsOfJobs(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	put := func(spec *leaderdv1.CalendarSpec, check bool) (*leaderdv1.UpdateCalendarResponse, error) {
		return s.calendars.UpdateCalendar(ctx, &leaderdv1.UpdateCalendarRequest{
			Calendar: &leaderdv1.Calendar{Name: holidays, Spec: spec}, AllowMissing: true, ValidateOnly: check,
		})
	}
	job := &leaderdv1.Job{Name: billing, Spec: &leaderdv1.JobSpec{
		Schedules: []string{"0 9 * * *"}, ExcludedCalendars: []string{"holidays"}, Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
	}}
	putJob := func() (*leaderdv1.UpdateJobResponse, error) {
		return s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{Job: job, AllowMissing: true})
	}
	_, err := putJob()
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, `spec.excludedCalendars[0]: there is no calendar "holidays" in the job's namespace`)

	created, err := put(onDate("12-25"), false)
	require.NoError(t, err)
	require.Equal(t, leaderdv1.UpdateCalendarResponse_RESULT_CREATED, created.GetResult())
	first, err := putJob()
	require.NoError(t, err)
	again, err := put(onDate("12-25"), false)
	require.NoError(t, err)
	require.Equal(t, leaderdv1.UpdateCalendarResponse_RESULT_UNCHANGED, again.GetResult())
	dry, err := put(onDate("12-26"), true)
	require.NoError(t, err)
	require.EqualValues(t, 1, dry.GetJobs())
	updated, err := put(onDate("12-26"), false)
	require.NoError(t, err)
	require.Equal(t, leaderdv1.UpdateCalendarResponse_RESULT_UPDATED, updated.GetResult())
	require.EqualValues(t, 1, updated.GetJobs())

	versions, err := s.jobs.ListJobVersions(ctx, &leaderdv1.ListJobVersionsRequest{Parent: billing})
	require.NoError(t, err)
	require.Len(t, versions.GetVersions(), 2)
	require.Equal(t, leaderdv1.JobVersion_CHANGE_CALENDAR, versions.GetVersions()[0].GetChange())
	require.Equal(t, "12-26", versions.GetVersions()[0].GetCalendars()[0].GetSpec().GetEntries()[0].GetDate())
	require.Equal(t, "12-25", versions.GetVersions()[1].GetCalendars()[0].GetSpec().GetEntries()[0].GetDate())
	got, err := s.calendars.GetCalendar(ctx, &leaderdv1.GetCalendarRequest{Name: holidays})
	require.NoError(t, err)
	require.Equal(t, []string{billing}, got.GetJobs())
	require.EqualValues(t, 2, got.GetCalendar().GetGeneration())

	_, err = s.calendars.UpdateCalendar(ctx, &leaderdv1.UpdateCalendarRequest{
		Calendar: &leaderdv1.Calendar{Name: holidays, Spec: onDate("12-24"), Etag: created.GetCalendar().GetEtag()},
	})
	require.Equal(t, codes.Aborted, status.Code(err))
	_, err = s.calendars.DeleteCalendar(ctx, &leaderdv1.DeleteCalendarRequest{Name: holidays})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.ErrorContains(t, err, "is named by jobs: billing")
	list, err := s.calendars.ListCalendars(ctx, &leaderdv1.ListCalendarsRequest{Parent: "namespaces/-"})
	require.NoError(t, err)
	require.Len(t, list.GetCalendars(), 1)

	_, err = s.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: billing, Etag: ""})
	require.NoError(t, err)
	_, err = s.calendars.DeleteCalendar(ctx, &leaderdv1.DeleteCalendarRequest{Name: holidays})
	require.NoError(t, err)
	_, err = s.calendars.GetCalendar(ctx, &leaderdv1.GetCalendarRequest{Name: holidays})
	require.Equal(t, codes.NotFound, status.Code(err))
	require.NotEmpty(t, first.GetJob().GetEtag())
}

func TestCalendarRules(t *testing.T) {
	s := serve(t, nil)
	for want, spec := range map[string]*leaderdv1.CalendarSpec{
		"spec: is required": nil,
		"spec.timeZone":     {TimeZone: "Mars/Base"},
		`spec.entries[0].date: "2026-13-01" is no date`:                                                          onDate("2026-13-01"),
		"spec.entries[0]: has 0 times; exactly one of date, range, period and weekly is required":                {Entries: []*leaderdv1.CalendarEntry{{Name: "x"}}},
		"spec.entries[0].range.last: 2026-01-01 is before the first day, 2026-02-01":                             {Entries: []*leaderdv1.CalendarEntry{{When: &leaderdv1.CalendarEntry_Range{Range: &leaderdv1.DateRange{First: "2026-02-01", Last: "2026-01-01"}}}}},
		"spec.entries[0].weekly: ends at or before it begins; for hours over midnight write two entries":         {Entries: []*leaderdv1.CalendarEntry{{When: &leaderdv1.CalendarEntry_Weekly{Weekly: &leaderdv1.WeeklyHours{Days: []string{"MON"}, From: "22:00", To: "06:00"}}}}},
		`spec.entries[0].weekly.days[0]: "MO" is no weekday; allowed are MON to SUN, and ranges such as MON-FRI`: {Entries: []*leaderdv1.CalendarEntry{{When: &leaderdv1.CalendarEntry_Weekly{Weekly: &leaderdv1.WeeklyHours{Days: []string{"MO"}}}}}},
		"spec.entries: has 501 entries; at most 500 are allowed":                                                 {Entries: make([]*leaderdv1.CalendarEntry, state.MaxCalendarEntries+1)},
	} {
		for i, e := range spec.GetEntries() {
			if e == nil {
				spec.Entries[i] = &leaderdv1.CalendarEntry{When: &leaderdv1.CalendarEntry_Date{Date: "12-25"}}
			}
		}
		_, err := s.calendars.UpdateCalendar(t.Context(), &leaderdv1.UpdateCalendarRequest{
			Calendar: &leaderdv1.Calendar{Name: holidays, Spec: spec}, AllowMissing: true,
		})
		require.Equal(t, codes.InvalidArgument, status.Code(err), want)
		require.ErrorContains(t, err, want)
	}
}

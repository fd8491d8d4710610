package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

func (s *served) simulate(t *testing.T, spec *leaderdv1.JobSpec, from, to time.Time) *leaderdv1.SimulateJobResponse {
	t.Helper()
	res, err := s.timeline.SimulateJob(t.Context(), &leaderdv1.SimulateJobRequest{
		Job: &leaderdv1.Job{Name: billing, Spec: spec}, StartTime: timestamppb.New(from), EndTime: timestamppb.New(to),
	})
	require.NoError(t, err)
	return res
}

func TestSimulate(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	nightly := spec("30 2 * * *", "0 * * * *")
	nightly.TimeZone = "Europe/Berlin"
	spring := time.Date(2027, 3, 27, 23, 0, 0, 0, time.UTC)

	res := s.simulate(t, nightly, spring, spring.Add(4*time.Hour))
	require.Nil(t, res.GetDiff(), "there is no such job")
	require.Nil(t, res.GetForecast())
	var slots []string
	for _, slot := range res.GetSlots() {
		slots = append(slots, slot.GetLocalTime())
	}
	require.Equal(t, []string{
		"2027-03-28T00:00:00+01:00", "2027-03-28T01:00:00+01:00", "2027-03-28T03:00:00+02:00", "2027-03-28T04:00:00+02:00",
	}, slots, "02:30 is left out and falls on 03:00, which is a slot already")
	require.EqualValues(t, 4, res.GetSlotCount())
	require.Len(t, res.GetClockWarnings(), 2)
	require.Equal(t, "the clock is set from 02:00:00 to 03:00:00: 2027-03-28T02:30:00 left out, run once right after", res.GetClockWarnings()[0].GetDetail())
	require.Equal(t, "skipped", res.GetClockWarnings()[1].GetEffect())
	require.EqualValues(t, 4, res.GetCollisions().GetJobs())
	require.EqualValues(t, 3, res.GetCollisions().GetWorst()[0].GetOthers())
	require.Equal(t, []string{"namespaces/default/jobs/a"}, res.GetCollisions().GetWorst()[0].GetNames())

	nightly.MissingTime = leaderdv1.MissingTime_MISSING_TIME_SKIP
	nightly.Schedules = nightly.GetSchedules()[:1]
	res = s.simulate(t, nightly, spring, spring.Add(4*time.Hour))
	require.EqualValues(t, 1, res.GetSkippedCount())
	require.Contains(t, res.GetSlots()[0].GetSkipped(), "dst: ")
	require.Equal(t, "skipped", res.GetClockWarnings()[0].GetEffect())
}

func TestSimulateComparesWithTheLiveVersion(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec("*/20 * * * *", "@every 7m"))
	for i := range 10 {
		at := minute(i)
		s.record(t, at, state.Record{State: state.StateSucceeded, Attempts: []state.Attempt{{
			Number: 1, Started: at, Ended: at.Add(time.Duration(i+1) * time.Minute), State: state.StateSucceeded,
		}}})
	}
	s.record(t, minute(11), state.Record{State: state.StateSkipped, Reason: state.ReasonOverlap})
	s.at(minute(1))

	same := s.simulate(t, spec("*/20 * * * *", "@every 7m"), noon, minute(61))
	require.Equal(t, noon, same.GetAnchorTime().AsTime(), "the schedules are the same, and so is what they count from")
	require.Zero(t, same.GetDiff().GetAdded()+same.GetDiff().GetRemoved())
	require.EqualValues(t, 12, same.GetDiff().GetUnchanged())

	res := s.simulate(t, spec("*/5 * * * *"), noon, minute(60))
	d := res.GetDiff()
	require.EqualValues(t, 1, d.GetGeneration())
	require.EqualValues(t, 12, res.GetSlotCount())
	require.EqualValues(t, 4, d.GetUnchanged(), "12:00, 12:20, 12:35 and 12:40")
	require.EqualValues(t, 8, d.GetAdded())
	require.EqualValues(t, 7, d.GetRemoved())
	require.Equal(t, minute(5), d.GetFirstAdded()[0].AsTime())
	require.Equal(t, minute(7), d.GetFirstRemoved()[0].AsTime())
	f := res.GetForecast()
	require.EqualValues(t, 10, f.GetRuns())
	require.Equal(t, 5*time.Minute, f.GetP50().AsDuration())
	require.Equal(t, 10*time.Minute, f.GetP95().AsDuration())
	require.Zero(t, f.GetOverlapsP50())
	require.EqualValues(t, 6, f.GetOverlapsP95(), "every other one")
	require.Equal(t, minute(5), f.GetFirstOverlap().AsTime())
	require.Equal(t, "skip", f.GetPolicy())
	for i, slot := range res.GetSlots() {
		require.Empty(t, slot.GetOverlapP50())
		require.Equal(t, map[bool]string{true: "skipped"}[i%2 == 1], slot.GetOverlapP95(), i)
	}
	queues := spec("*/2 * * * *")
	queues.Overlap = leaderdv1.Overlap_OVERLAP_REPLACE
	fates := map[string]int{}
	for _, slot := range s.simulate(t, queues, noon, minute(60)).GetSlots() {
		fates[slot.GetOverlapP95()]++
	}
	require.Positive(t, fates["waits, and is replaced"], "a later slot tells: %v", fates)
	require.Len(t, s.versions(t, billing, 10), 1, "nothing was stored")
}

func TestSimulateWithCalendars(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	named := spec("0 9 * * *")
	named.ExcludedCalendars = []string{"holidays"}
	_, err := s.timeline.SimulateJob(t.Context(), &leaderdv1.SimulateJobRequest{Job: &leaderdv1.Job{Name: billing, Spec: named}})
	requireBadFields(t, err, "job.spec")
	_, err = s.calendars.UpdateCalendar(t.Context(), &leaderdv1.UpdateCalendarRequest{
		Calendar: &leaderdv1.Calendar{Name: holidays, Spec: onDate("12-02")}, AllowMissing: true,
	})
	require.NoError(t, err)
	res := s.simulate(t, named, noon, noon.AddDate(0, 0, 3))
	require.EqualValues(t, 3, res.GetSlotCount())
	require.EqualValues(t, 1, res.GetSkippedCount())
	require.Contains(t, res.GetSlots()[1].GetSkipped(), "calendar: in calendar holidays")

	// The same is told of the live job, for a slot to come.
	s.put(t, billing, named)
	then := time.Date(2026, 12, 2, 9, 0, 0, 0, time.UTC)
	x := s.explain(t, then)
	require.Contains(t, x.GetSummary(), "it will be skipped:calendar: in calendar holidays")
	require.Equal(t, state.ReasonCalendar, x.GetSlot().GetExcluded())
	require.Empty(t, s.explain(t, then.AddDate(0, 0, 1)).GetSlot().GetExcluded())
	listed, err := s.timeline.ListSlots(t.Context(), &leaderdv1.ListSlotsRequest{
		Parent: billing, StartTime: timestamppb.New(then), EndTime: timestamppb.New(then.Add(time.Hour)),
	})
	require.NoError(t, err)
	require.Equal(t, state.ReasonCalendar, listed.GetSlots()[0].GetExcluded())
}

// A change does not end a pause, so nothing starts in it.
func TestSimulateAPausedJob(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec("*/5 * * * *"))
	_, err := s.jobs.PauseJob(t.Context(), &leaderdv1.PauseJobRequest{Name: billing, Until: timestamppb.New(minute(10))})
	require.NoError(t, err)
	res := s.simulate(t, spec("*/5 * * * *"), minute(1), minute(20))
	require.EqualValues(t, 3, res.GetSlotCount())
	require.EqualValues(t, 2, res.GetSkippedCount(), "12:05 and 12:10")
	require.Equal(t, "paused: the job is paused until 2026-11-30T12:10:00Z", res.GetSlots()[1].GetSkipped())
	require.Empty(t, res.GetSlots()[2].GetSkipped())
}

func TestSimulateIsBounded(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	res := s.simulate(t, spec("* * * * * *"), noon, noon.Add(366*24*time.Hour))
	require.Len(t, res.GetSlots(), 100)
	require.EqualValues(t, 100_000, res.GetSlotCount())
	require.Equal(t, noon.Add(100_000*time.Second), res.GetComputedUntil().AsTime())

	_, err := s.timeline.SimulateJob(t.Context(), &leaderdv1.SimulateJobRequest{
		Job: &leaderdv1.Job{Name: "billing", Spec: spec("*/60 * * * *")}, MaxSlots: 10_001,
		StartTime: timestamppb.New(noon), EndTime: timestamppb.New(noon.Add(367 * 24 * time.Hour)),
	})
	requireBadFields(t, err, "job.name", "spec.schedules[0]", "endTime", "maxSlots")
}

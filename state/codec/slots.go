package codec

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// slotsToProto writes what changes the slots that the schedules name.
func slotsToProto(s *state.JobSpec, p *leaderdv1.JobSpec) {
	if !s.Start.IsZero() {
		p.StartTime = timestamppb.New(s.Start)
	}
	if !s.End.IsZero() {
		p.EndTime = timestamppb.New(s.End)
	}
	if s.Jitter != 0 {
		p.Jitter = durationpb.New(s.Jitter)
	}
	if s.CatchUpWindow != 0 {
		p.CatchUpWindow = durationpb.New(s.CatchUpWindow)
	}
	switch s.MissingTime {
	case state.MissingShift:
	case state.MissingSkip:
		p.MissingTime = leaderdv1.MissingTime_MISSING_TIME_SKIP
	}
	switch s.RepeatedTime {
	case state.RepeatedFirst:
	case state.RepeatedLast:
		p.RepeatedTime = leaderdv1.RepeatedTime_REPEATED_TIME_LAST
	case state.RepeatedBoth:
		p.RepeatedTime = leaderdv1.RepeatedTime_REPEATED_TIME_BOTH
	}
}

// slotsFromProto is the inverse of slotsToProto.
func slotsFromProto(p *leaderdv1.JobSpec, s *state.JobSpec) {
	s.Start, s.End = instantOf(p.GetStartTime()), instantOf(p.GetEndTime())
	s.Jitter = p.GetJitter().AsDuration()
	if p.GetMissingTime() == leaderdv1.MissingTime_MISSING_TIME_SKIP {
		s.MissingTime = state.MissingSkip
	}
	switch p.GetRepeatedTime() {
	case leaderdv1.RepeatedTime_REPEATED_TIME_LAST:
		s.RepeatedTime = state.RepeatedLast
	case leaderdv1.RepeatedTime_REPEATED_TIME_BOTH:
		s.RepeatedTime = state.RepeatedBoth
	case leaderdv1.RepeatedTime_REPEATED_TIME_UNSPECIFIED, leaderdv1.RepeatedTime_REPEATED_TIME_FIRST:
	}
}

// instantOf is the zero time for an unset one.
func instantOf(p *timestamppb.Timestamp) time.Time {
	if p == nil {
		return time.Time{}
	}
	return p.AsTime()
}

// CalendarSpecToProto is a calendar in its API form.
func CalendarSpecToProto(s *state.CalendarSpec) *leaderdv1.CalendarSpec {
	p := &leaderdv1.CalendarSpec{Description: s.Description, TimeZone: s.TimeZone}
	for i := range s.Entries {
		e := &s.Entries[i]
		out := &leaderdv1.CalendarEntry{Name: e.Name}
		switch {
		case e.Date != "":
			out.When = &leaderdv1.CalendarEntry_Date{Date: e.Date}
		case e.First != "" || e.Last != "":
			out.When = &leaderdv1.CalendarEntry_Range{Range: &leaderdv1.DateRange{First: e.First, Last: e.Last}}
		case !e.Start.IsZero() || !e.End.IsZero():
			out.When = &leaderdv1.CalendarEntry_Period{Period: &leaderdv1.Period{Start: timestamppb.New(e.Start), End: timestamppb.New(e.End)}}
		case len(e.Days) > 0 || e.From != "" || e.To != "":
			out.When = &leaderdv1.CalendarEntry_Weekly{Weekly: &leaderdv1.WeeklyHours{Days: e.Days, From: e.From, To: e.To}}
		}
		p.Entries = append(p.Entries, out)
	}
	return p
}

// CalendarSpecFromProto is the inverse of CalendarSpecToProto. It checks nothing.
func CalendarSpecFromProto(p *leaderdv1.CalendarSpec) state.CalendarSpec {
	s := state.CalendarSpec{Description: p.GetDescription(), TimeZone: p.GetTimeZone()}
	for _, e := range p.GetEntries() {
		s.Entries = append(s.Entries, state.CalendarEntry{
			Name: e.GetName(), Date: e.GetDate(), First: e.GetRange().GetFirst(), Last: e.GetRange().GetLast(),
			Start: instantOf(e.GetPeriod().GetStart()), End: instantOf(e.GetPeriod().GetEnd()),
			Days: e.GetWeekly().GetDays(), From: e.GetWeekly().GetFrom(), To: e.GetWeekly().GetTo(),
		})
	}
	return s
}

// JobCalendarsFromProto reads the calendars of a version of a job.
func JobCalendarsFromProto(ps []*leaderdv1.JobCalendar) []state.JobCalendar {
	var all []state.JobCalendar
	for _, p := range ps {
		all = append(all, state.JobCalendar{Name: p.GetName(), Revision: p.GetRevision(), Spec: CalendarSpecFromProto(p.GetSpec())})
	}
	return all
}

package state

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CalendarID names a calendar: a name, unique inside a namespace.
type CalendarID struct {
	Namespace string
	Name      string
}

// String is "namespace/name".
func (id CalendarID) String() string { return id.Namespace + "/" + id.Name }

// Calendar is a named set of times, as the store holds it.
type Calendar struct {
	ID CalendarID
	// UID tells a calendar from an earlier one of the same name.
	UID string
	// Generation counts its changes from 1.
	Generation int64
	Spec       CalendarSpec
	Created    time.Time
	Updated    time.Time
	UpdatedBy  string
	Reason     string
	Revision   int64
}

// CalendarSpec is what a calendar says. An instant is in it if it is in any of the
// entries.
type CalendarSpec struct {
	Description string
	// TimeZone is that of dates and hours; empty: that of the job.
	TimeZone string
	Entries  []CalendarEntry
}

// JobCalendar is a calendar as a version of a job has it.
type JobCalendar struct {
	Name     string
	Revision int64
	Spec     CalendarSpec
}

// CalendarEntry is a stretch of time, or one that recurs. Exactly one of Date,
// First, Start and Days is set.
type CalendarEntry struct {
	Name string
	// Date is a whole day: YYYY-MM-DD, or MM-DD of every year.
	Date string
	// First and Last are whole days on end.
	First, Last string
	// Start and End are a period, [Start, End).
	Start, End time.Time
	// Days are weekdays, MON or MON-FRI, with hours [From, To), HH:MM.
	Days     []string
	From, To string
}

// Date is a day of one year, or of every year: then Year is 0.
type Date struct{ Year, Month, Day int }

// ParseDate reads YYYY-MM-DD or MM-DD.
func ParseDate(text string) (Date, error) {
	full, everyYear := text, len(text) == len("01-02")
	if everyYear {
		full = "2000-" + text // a leap year
	}
	t, err := time.Parse(time.DateOnly, full)
	if err != nil || t.Year() == 0 {
		return Date{}, fmt.Errorf("%q is no date; a day is written 2026-12-25, or 12-25 for every year", clip(text))
	}
	d := Date{Year: t.Year(), Month: int(t.Month()), Day: t.Day()}
	if everyYear {
		d.Year = 0
	}
	return d, nil
}

var weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

// ParseWeekdays reads MON or MON-FRI; a range may go over the end of the week. The
// answer tells of each weekday, Sunday first, whether it is among them.
func ParseWeekdays(text string) (days [7]bool, err error) {
	from, to, ranged := strings.Cut(strings.ToUpper(strings.TrimSpace(text)), "-")
	if !ranged {
		to = from
	}
	first, last := slices.Index(weekdayNames, from), slices.Index(weekdayNames, to)
	if first < 0 || last < 0 {
		return days, fmt.Errorf("%q is no weekday; allowed are MON to SUN, and ranges such as MON-FRI", clip(text))
	}
	for d := first; ; d = (d + 1) % 7 {
		days[d] = true
		if d == last {
			return days, nil
		}
	}
}

// ParseClock reads HH:MM, up to 24:00, as minutes; the empty text is otherwise.
func ParseClock(text string, otherwise int) (minutes int, err error) {
	if text == "" {
		return otherwise, nil
	}
	hours, mins, ok := strings.Cut(text, ":")
	h, errH := strconv.Atoi(hours)
	m, errM := strconv.Atoi(mins)
	if !ok || len(text) != len("00:00") || errH != nil || errM != nil || h < 0 || m < 0 || m > 59 || h*60+m > 24*60 {
		return 0, fmt.Errorf("%q is no time of day; it is written HH:MM, from 00:00 to 24:00", clip(text))
	}
	return h*60 + m, nil
}

// Validate answers Violations with everything that is wrong with the calendar, or
// nil.
func (s *CalendarSpec) Validate(checks ScheduleChecks) error {
	var v Violations
	if n := len(s.Description); n > MaxDescription {
		v.Add("spec.description", "has %d bytes; at most %d are allowed", n, MaxDescription)
	}
	if s.TimeZone != "" {
		if err := checks.Zone(s.TimeZone); err != nil {
			v.Add("spec.timeZone", "%s", err)
		}
	}
	if n := len(s.Entries); n > MaxCalendarEntries {
		v.Add("spec.entries", "has %d entries; at most %d are allowed", n, MaxCalendarEntries)
	}
	for i := range s.Entries {
		s.Entries[i].validate(&v, fmt.Sprintf("spec.entries[%d]", i))
	}
	return v.Err()
}

func (e *CalendarEntry) validate(v *Violations, field string) {
	if n := len(e.Name); n > MaxEntryName {
		v.Add(field+".name", "has %d bytes; at most %d are allowed", n, MaxEntryName)
	} else if strings.ContainsFunc(e.Name, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		v.Add(field+".name", "contains a control character; only printable text is allowed")
	}
	kinds := 0
	if e.Date != "" {
		kinds++
		if _, err := ParseDate(e.Date); err != nil {
			v.Add(field+".date", "%s", err)
		}
	}
	if e.First != "" || e.Last != "" {
		kinds++
		e.validateRange(v, field+".range")
	}
	if !e.Start.IsZero() || !e.End.IsZero() {
		kinds++
		if e.Start.IsZero() || e.End.IsZero() || !e.Start.Before(e.End) {
			v.Add(field+".period", "must have a start, and an end after it")
		}
	}
	if len(e.Days) > 0 || e.From != "" || e.To != "" {
		kinds++
		e.validateWeekly(v, field+".weekly")
	}
	if kinds != 1 {
		v.Add(field, "has %d times; exactly one of date, range, period and weekly is required", kinds)
	}
}

func (e *CalendarEntry) validateRange(v *Violations, field string) {
	first, err := ParseDate(e.First)
	if err != nil {
		v.Add(field+".first", "%s", err)
	}
	last, errLast := ParseDate(e.Last)
	if errLast != nil {
		v.Add(field+".last", "%s", errLast)
	}
	switch {
	case err != nil || errLast != nil:
	case (first.Year == 0) != (last.Year == 0):
		v.Add(field, "has one day of a year and one of every year; both must be of the same kind")
	case first.Year != 0 && e.Last < e.First:
		v.Add(field+".last", "%s is before the first day, %s", e.Last, e.First)
	}
}

func (e *CalendarEntry) validateWeekly(v *Violations, field string) {
	if len(e.Days) == 0 {
		v.Add(field+".days", "is empty; at least one weekday is required")
	}
	if n := len(e.Days); n > 7 {
		v.Add(field+".days", "has %d entries; at most 7 are allowed", n)
	}
	for i, day := range e.Days {
		if _, err := ParseWeekdays(day); err != nil {
			v.Add(fmt.Sprintf("%s.days[%d]", field, i), "%s", err)
		}
	}
	from, err := ParseClock(e.From, 0)
	if err != nil {
		v.Add(field+".from", "%s", err)
	}
	to, errTo := ParseClock(e.To, 24*60)
	if errTo != nil {
		v.Add(field+".to", "%s", errTo)
	}
	if err == nil && errTo == nil && to <= from {
		v.Add(field, "ends at or before it begins; for hours over midnight write two entries")
	}
}

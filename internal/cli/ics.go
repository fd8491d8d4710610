package cli

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/planner/schedule"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// icsLine is one line of an iCalendar file, put together where it was folded.
type icsLine struct {
	number              int // of its first part
	name, params, value string
}

func (l *icsLine) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: %s: %s", l.number, l.name, fmt.Sprintf(format, args...))
}

// param answers a parameter of the line.
func (l *icsLine) param(name string) string {
	for p := range strings.SplitSeq(l.params, ";") {
		if key, value, ok := strings.Cut(p, "="); ok && strings.EqualFold(key, name) {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// maxICS bounds an iCalendar file; what is made of it is far smaller.
const maxICS = 4 << 20

// icsLines unfolds the content.
func icsLines(content []byte) ([]icsLine, error) {
	if len(content) > maxICS {
		return nil, fmt.Errorf("has more than %d bytes; export fewer years, or fewer events", maxICS)
	}
	var out []icsLine
	var unfolded []byte
	var first int
	flush := func() error {
		text := string(unfolded)
		if strings.TrimSpace(text) == "" {
			return nil
		}
		head, value, ok := strings.Cut(text, ":")
		// A colon in quotes belongs to a parameter.
		for ok && strings.Count(head, `"`)%2 == 1 {
			var more string
			more, value, ok = strings.Cut(value, ":")
			head += ":" + more
		}
		if !ok {
			return fmt.Errorf("line %d: %q has no colon: this is no iCalendar file", first, clip(text))
		}
		name, params, _ := strings.Cut(head, ";")
		out = append(out, icsLine{first, strings.ToUpper(strings.TrimSpace(name)), params, value})
		return nil
	}
	for i, line := range strings.Split(strings.ReplaceAll(string(content), "\r\n", "\n"), "\n") {
		if i > 0 && line != "" && (line[0] == ' ' || line[0] == '\t') {
			unfolded = append(unfolded, line[1:]...)
			continue
		}
		if err := flush(); err != nil {
			return nil, err
		}
		unfolded, first = append(unfolded[:0], strings.TrimPrefix(line, "\uFEFF")...), i+1
	}
	return out, flush()
}

// event is what is read of a VEVENT.
type event struct {
	begin                        *icsLine
	summary, status              string
	start, end, duration, repeat *icsLine
	except                       []*icsLine
}

// parseICS reads the events of an iCalendar file. What it does not understand is an
// error, never left out. zone is that of whole days, and of times that bring none.
func parseICS(content []byte, zone string) (*leaderdv1.CalendarSpec, error) {
	lines, err := icsLines(content)
	if err != nil {
		return nil, err
	}
	spec := &leaderdv1.CalendarSpec{TimeZone: zone}
	if zone != "" {
		if _, err := schedule.Location(zone); err != nil {
			return nil, fmt.Errorf("--zone: %w", err)
		}
	}
	var e *event
	var inside []string
	for i := range lines {
		l := &lines[i]
		switch {
		case l.name == "BEGIN":
			inside = append(inside, strings.ToUpper(l.value))
			if l.value == "VEVENT" {
				e = &event{begin: l}
			}
		case l.name == "END":
			if len(inside) == 0 || inside[len(inside)-1] != strings.ToUpper(l.value) {
				return nil, l.fail("%q ends, which has not begun", clip(l.value))
			}
			inside = inside[:len(inside)-1]
			if strings.EqualFold(l.value, "VEVENT") {
				entries, err := e.entries(zone)
				if err != nil {
					return nil, err
				}
				spec.Entries, e = append(spec.Entries, entries...), nil
			}
		case e != nil && inside[len(inside)-1] == "VEVENT":
			if err := e.take(l); err != nil {
				return nil, err
			}
		}
	}
	if len(inside) > 0 {
		return nil, fmt.Errorf("%s has no end: the file is cut off", inside[len(inside)-1])
	}
	if len(spec.GetEntries()) == 0 {
		return nil, fmt.Errorf("there is no event in it")
	}
	return spec, nil
}

func (e *event) take(l *icsLine) error {
	switch l.name {
	case "SUMMARY":
		e.summary = icsText(l.value)
	case "STATUS":
		e.status = strings.ToUpper(l.value)
	case "DTSTART":
		e.start = l
	case "DTEND":
		e.end = l
	case "DURATION":
		e.duration = l
	case "RRULE":
		if e.repeat != nil {
			return l.fail("a second rule in one event is not supported")
		}
		e.repeat = l
	case "EXDATE":
		e.except = append(e.except, l)
	case "RDATE", "EXRULE", "RECURRENCE-ID":
		return l.fail("is not supported: write the days that it is about as events of their own")
	}
	return nil
}

// icsText undoes the escapes of text, and cuts it to what an entry's name may have.
func icsText(s string) string {
	s = strings.NewReplacer(`\n`, " ", `\N`, " ", `\,`, ",", `\;`, ";", `\\`, `\`).Replace(s)
	s = printable(s)
	for len(s) > state.MaxEntryName {
		s = strings.ToValidUTF8(s[:state.MaxEntryName], "")
	}
	return s
}

func (e *event) entries(zone string) ([]*leaderdv1.CalendarEntry, error) {
	switch {
	case e.status == "CANCELLED":
		return nil, nil
	case e.start == nil:
		return nil, e.begin.fail("the event has no DTSTART")
	case e.end != nil && e.duration != nil:
		return nil, e.duration.fail("stands beside DTEND")
	case e.repeat == nil && len(e.except) > 0:
		return nil, e.except[0].fail("stands in an event that does not recur")
	case e.wholeDays():
		return e.days(zone)
	}
	return e.hours(zone)
}

// wholeDays tells whether the event is of days, and not of hours.
func (e *event) wholeDays() bool {
	return e.start.param("VALUE") == "DATE" || len(e.start.value) == len("20060102")
}

// days are the entries of an event of whole days.
func (e *event) days(zone string) ([]*leaderdv1.CalendarEntry, error) {
	first, err := time.Parse("20060102", e.start.value)
	if err != nil {
		return nil, e.start.fail("%q is no date", clip(e.start.value))
	}
	last := first
	if e.end != nil {
		end, err := time.Parse("20060102", e.end.value)
		if err != nil || end.Before(first) {
			return nil, e.end.fail("%q is no date after DTSTART", clip(e.end.value))
		}
		if end.After(first) { // it is the day after the last
			last = end.AddDate(0, 0, -1)
		}
	}
	if e.duration != nil {
		days, long, err := e.lasts()
		if err != nil {
			return nil, err
		}
		if long != 0 || days == 0 {
			return nil, e.duration.fail("%q is not a number of days, as it must be of an event of whole days", clip(e.duration.value))
		}
		last = first.AddDate(0, 0, days-1)
	}
	if e.repeat == nil {
		return []*leaderdv1.CalendarEntry{e.day(first, last, time.DateOnly)}, nil
	}
	rule, err := e.rule()
	if err != nil {
		return nil, err
	}
	if rule.ends() {
		times, err := e.times(rule, first, zone)
		if err != nil {
			return nil, err
		}
		var out []*leaderdv1.CalendarEntry
		for _, at := range times {
			out = append(out, e.day(at, at.Add(last.Sub(first)), time.DateOnly))
		}
		return out, nil
	}
	if _, err := e.written(rule, first); err != nil {
		return nil, err
	}
	switch {
	case rule["FREQ"] != "YEARLY" || rule["INTERVAL"] != "" && rule["INTERVAL"] != "1":
		return nil, e.repeat.fail("%q is not supported without an end: of whole days only those of every year are; give it an UNTIL or a COUNT", clip(e.repeat.value))
	case last.Sub(first) >= 364*24*time.Hour:
		return nil, e.repeat.fail("the event lasts as long as its year")
	}
	return []*leaderdv1.CalendarEntry{e.day(first, last, "01-02")}, nil
}

// day is the entry of the days from first to last.
func (e *event) day(first, last time.Time, layout string) *leaderdv1.CalendarEntry {
	entry := &leaderdv1.CalendarEntry{Name: e.summary}
	if first.Equal(last) {
		entry.When = &leaderdv1.CalendarEntry_Date{Date: first.Format(layout)}
	} else {
		entry.When = &leaderdv1.CalendarEntry_Range{Range: &leaderdv1.DateRange{First: first.Format(layout), Last: last.Format(layout)}}
	}
	return entry
}

// period is the entry of the time from start to end.
func (e *event) period(start, end time.Time) *leaderdv1.CalendarEntry {
	return &leaderdv1.CalendarEntry{Name: e.summary, When: &leaderdv1.CalendarEntry_Period{
		Period: &leaderdv1.Period{Start: timestamppb.New(start), End: timestamppb.New(end)},
	}}
}

// stop is when the first time of an event that begins at start is over.
func (e *event) stop(start time.Time, zone string) (time.Time, error) {
	switch {
	case e.duration != nil:
		days, long, err := e.lasts()
		if err == nil && days == 0 && long == 0 {
			err = e.duration.fail("%q takes no time", clip(e.duration.value))
		}
		return start.AddDate(0, 0, days).Add(long), err
	case e.end == nil:
		return time.Time{}, e.start.fail("the event has neither DTEND nor DURATION, so that it takes no time")
	}
	end, _, err := e.end.instant(zone)
	if err == nil && !start.Before(end) {
		err = e.end.fail("is not after DTSTART")
	}
	return end, err
}

// hours are the entries of an event that has times.
func (e *event) hours(zone string) ([]*leaderdv1.CalendarEntry, error) {
	start, startZone, err := e.start.instant(zone)
	if err != nil {
		return nil, err
	}
	end, err := e.stop(start, zone)
	if err != nil {
		return nil, err
	}
	if e.repeat == nil {
		return []*leaderdv1.CalendarEntry{e.period(start, end)}, nil
	}
	rule, err := e.rule()
	if err != nil {
		return nil, err
	}
	if rule.ends() {
		times, err := e.times(rule, start, zone)
		if err != nil {
			return nil, err
		}
		var out []*leaderdv1.CalendarEntry
		for _, at := range times {
			out = append(out, e.period(at, at.Add(end.Sub(start))))
		}
		return out, nil
	}
	if _, err := e.written(rule, start); err != nil {
		return nil, err
	}
	end = end.In(start.Location())
	from, to := start.Format("15:04"), end.Format("15:04")
	if to == "00:00" {
		to = "24:00"
	}
	sameDay := end.Add(-1).Format(time.DateOnly) == start.Format(time.DateOnly)
	switch {
	case rule["FREQ"] != "WEEKLY" && rule["FREQ"] != "DAILY" || rule["INTERVAL"] != "" && rule["INTERVAL"] != "1":
		return nil, e.repeat.fail("%q is not supported without an end: of events with times only those of every day or week are; give it an UNTIL or a COUNT",
			clip(e.repeat.value))
	case startZone != zone:
		return nil, e.start.fail("weekly hours are meant in the calendar's zone: give --zone %s", startZone)
	case start.Second() != 0 || end.Second() != 0 || !sameDay || to <= from:
		return nil, e.start.fail("weekly hours must be whole minutes and end on the day on which they begin")
	}
	days := []string{"MON-SUN"}
	if rule["FREQ"] == "WEEKLY" {
		on, err := e.weekdays(rule, start)
		if err != nil {
			return nil, err
		}
		days = nil
		for _, d := range on {
			days = append(days, strings.ToUpper(d.String()[:3]))
		}
	}
	return []*leaderdv1.CalendarEntry{{Name: e.summary, When: &leaderdv1.CalendarEntry_Weekly{
		Weekly: &leaderdv1.WeeklyHours{Days: days, From: from, To: to},
	}}}, nil
}

// instant reads a time and the zone that it is in.
func (l *icsLine) instant(zone string) (time.Time, string, error) {
	if text, utc := strings.CutSuffix(l.value, "Z"); utc {
		t, err := time.Parse("20060102T150405", text)
		if err != nil {
			return t, "", l.fail("%q is no time", clip(l.value))
		}
		return t, "UTC", nil
	}
	if own := l.param("TZID"); own != "" {
		zone = own
	}
	if zone == "" {
		return time.Time{}, "", l.fail("%q names no zone: give --zone", clip(l.value))
	}
	loc, err := schedule.Location(zone)
	if err != nil {
		return time.Time{}, "", l.fail("%s", err)
	}
	t, err := time.ParseInLocation("20060102T150405", l.value, loc)
	if err != nil {
		return t, "", l.fail("%q is no time", clip(l.value))
	}
	return t, zone, nil
}

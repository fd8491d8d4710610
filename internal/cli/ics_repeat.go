package cli

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
)

// icsRule is a recurrence rule, by its parts.
type icsRule map[string]string

// beyond is the first part of the rule, by name, that is none of names; empty where
// all are.
func (r icsRule) beyond(names ...string) string {
	var others []string
	for name := range r {
		if !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return slices.Min(others)
}

// ends tells whether the rule has an end, so that all its times can be written out.
func (r icsRule) ends() bool { return r["UNTIL"] != "" || r["COUNT"] != "" }

func (e *event) rule() (icsRule, error) {
	r := icsRule{}
	for part := range strings.SplitSeq(strings.ToUpper(e.repeat.value), ";") {
		name, value, ok := strings.Cut(part, "=")
		if !ok || value == "" || r[name] != "" {
			return nil, e.repeat.fail("%q is no rule", clip(e.repeat.value))
		}
		r[name] = value
	}
	switch {
	case r["UNTIL"] != "" && r["COUNT"] != "":
		return nil, e.repeat.fail("has both UNTIL and COUNT")
	case !r.ends() && len(e.except) > 0:
		return nil, e.except[0].fail("exceptions from an event that recurs without an end are not supported: give it an UNTIL or a COUNT")
	}
	return r, nil
}

// number reads a part of the rule that is a number from 1; missing is that of a rule
// without it.
func (e *event) number(r icsRule, name string, missing int) (int, error) {
	if r[name] == "" {
		return missing, nil
	}
	const most = 10_000
	n, err := strconv.Atoi(r[name])
	if err != nil || n < 1 || n > most {
		return 0, e.repeat.fail("%s=%s is not a number from 1 to %d", name, clip(r[name]), most)
	}
	return n, nil
}

var icsDays = []string{"SU", "MO", "TU", "WE", "TH", "FR", "SA"}

// weekdays reads BYDAY; without it they are those of start.
func (e *event) weekdays(r icsRule, start time.Time) ([]time.Weekday, error) {
	if r["BYDAY"] == "" {
		return []time.Weekday{start.Weekday()}, nil
	}
	var days []time.Weekday
	for day := range strings.SplitSeq(r["BYDAY"], ",") {
		i := slices.Index(icsDays, day)
		if i < 0 {
			return nil, e.repeat.fail("%q is no weekday", clip(day))
		}
		days = append(days, time.Weekday(i))
	}
	return days, nil
}

// icsPeriods are FREQ's values, each with the other parts that are understood beside
// it.
var icsPeriods = map[string][]string{
	"DAILY":   {},
	"WEEKLY":  {"BYDAY"},
	"MONTHLY": {"BYMONTHDAY"},
	"YEARLY":  {"BYMONTH", "BYMONTHDAY"},
}

// written is a rule's n-th times, from 0, by the clock of start's zone: none where the
// day is not there in that month, several in a week.
func (e *event) written(r icsRule, start time.Time) (nth func(n int) []time.Time, err error) {
	also, known := icsPeriods[r["FREQ"]]
	if !known {
		return nil, e.repeat.fail("FREQ=%s is not supported: only DAILY, WEEKLY, MONTHLY and YEARLY are", clip(r["FREQ"]))
	}
	if other := r.beyond(append([]string{"FREQ", "INTERVAL", "UNTIL", "COUNT", "WKST"}, also...)...); other != "" {
		return nil, e.repeat.fail("%s is not supported beside FREQ=%s", clip(other), r["FREQ"])
	}
	for name, own := range map[string]int{"BYMONTH": int(start.Month()), "BYMONTHDAY": start.Day()} {
		if r[name] != "" && r[name] != strconv.Itoa(own) {
			return nil, e.repeat.fail("%s=%s is not supported: only that of DTSTART, %d, is", name, clip(r[name]), own)
		}
	}
	every, err := e.number(r, "INTERVAL", 1)
	if err != nil {
		return nil, err
	}
	on := func(year int, month time.Month) []time.Time {
		h, m, s := start.Clock()
		at := time.Date(year, month, start.Day(), h, m, s, 0, start.Location())
		if at.Day() != start.Day() {
			return nil
		}
		return []time.Time{at}
	}
	switch r["FREQ"] {
	case "DAILY":
		return func(n int) []time.Time { return []time.Time{start.AddDate(0, 0, n*every)} }, nil
	case "MONTHLY":
		return func(n int) []time.Time {
			month := int(start.Month()) - 1 + n*every
			return on(start.Year()+month/12, time.Month(month%12+1))
		}, nil
	case "YEARLY":
		return func(n int) []time.Time { return on(start.Year()+n*every, start.Month()) }, nil
	}
	days, err := e.weekdays(r, start)
	if err != nil {
		return nil, err
	}
	first := time.Monday
	if r["WKST"] != "" {
		i := slices.Index(icsDays, r["WKST"])
		if i < 0 {
			return nil, e.repeat.fail("WKST=%s is no weekday", clip(r["WKST"]))
		}
		first = time.Weekday(i)
	}
	sinceFirst := func(d time.Weekday) int { return (int(d-first) + 7) % 7 }
	return func(n int) (out []time.Time) {
		for i := range 7 {
			if !slices.Contains(days, (first+time.Weekday(i))%7) {
				continue
			}
			if at := start.AddDate(0, 0, 7*n*every+i-sinceFirst(start.Weekday())); !at.Before(start) {
				out = append(out, at)
			}
		}
		return out
	}, nil
}

// times are all of an event whose rule has an end, but for its exceptions.
func (e *event) times(r icsRule, start time.Time, zone string) ([]time.Time, error) {
	nth, err := e.written(r, start)
	if err != nil {
		return nil, err
	}
	count, err := e.number(r, "COUNT", 0)
	if err != nil {
		return nil, err
	}
	until, err := e.until(r, start)
	if err != nil {
		return nil, err
	}
	excepted, err := e.exceptions(start, zone)
	if err != nil {
		return nil, err
	}
	var out []time.Time
	for n, found := 0, 0; ; n++ {
		for _, at := range nth(n) {
			if count > 0 && found == count || !until.IsZero() && at.After(until) {
				return out, nil
			}
			if found++; found > state.MaxCalendarEntries {
				return nil, e.repeat.fail("the event comes more than %d times, which is more than a calendar has", state.MaxCalendarEntries)
			}
			if !excepted(at) {
				out = append(out, at)
			}
		}
		if !until.IsZero() && start.AddDate(0, 0, n).After(until) || n > maxICS {
			return out, nil // whatever the rule's period, nothing more is before the end
		}
	}
}

// until is the last instant of a rule, or the zero time.
func (e *event) until(r icsRule, start time.Time) (time.Time, error) {
	text := r["UNTIL"]
	if text == "" {
		return time.Time{}, nil
	}
	if day, err := time.ParseInLocation("20060102", text, start.Location()); err == nil {
		return day.AddDate(0, 0, 1).Add(-1), nil
	}
	loc := start.Location()
	text, utc := strings.CutSuffix(text, "Z")
	if utc {
		loc = time.UTC
	}
	at, err := time.ParseInLocation("20060102T150405", text, loc)
	if err != nil {
		return at, e.repeat.fail("UNTIL=%s is neither a date nor a time", clip(r["UNTIL"]))
	}
	return at, nil
}

// exceptions tells of a time whether it is excepted: by itself, or with its day.
func (e *event) exceptions(start time.Time, zone string) (func(time.Time) bool, error) {
	days, instants := map[string]bool{}, map[int64]bool{}
	for _, l := range e.except {
		for value := range strings.SplitSeq(l.value, ",") {
			one := *l
			one.value = value
			if _, err := time.Parse("20060102", value); err == nil {
				days[value] = true
				continue
			}
			if e.wholeDays() {
				return nil, one.fail("%q is no date, as those of the event are", clip(value))
			}
			own := zone
			if own == "" {
				own = start.Location().String()
			}
			at, _, err := one.instant(own)
			if err != nil {
				return nil, err
			}
			instants[at.Unix()] = true
		}
	}
	return func(at time.Time) bool { return days[at.Format("20060102")] || instants[at.Unix()] }, nil
}

// icsSpan is a DURATION: weeks, or days and a time.
var icsSpan = regexp.MustCompile(`^\+?P(?:(\d{1,5})W|(?:(\d{1,5})D)?(T(?:(\d{1,5})H)?(?:(\d{1,7})M)?(?:(\d{1,9})S)?)?)$`)

// lasts reads the event's DURATION: so many days by the calendar, and so long.
func (e *event) lasts() (days int, long time.Duration, err error) {
	m := icsSpan.FindStringSubmatch(e.duration.value)
	if m == nil || m[1]+m[2]+m[4]+m[5]+m[6] == "" || m[3] == "T" {
		return 0, 0, e.duration.fail("%q is no duration such as PT1H30M, P1D or P2W", clip(e.duration.value))
	}
	n := func(i int) int {
		v, _ := strconv.Atoi(m[i]) // digits, or nothing
		return v
	}
	return 7*n(1) + n(2), time.Duration(n(4))*time.Hour + time.Duration(n(5))*time.Minute + time.Duration(n(6))*time.Second, nil
}

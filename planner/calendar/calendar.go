package calendar

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/planner/schedule"
	"github.com/leaderd/leaderd/state"
)

// Calendar is a compiled calendar. It may be used by any number of goroutines.
type Calendar struct {
	loc *time.Location
	// dates have whole days: by the day itself, and by month and day alone for
	// those of every year. The value is the entry's index.
	dates  map[state.Date]int
	ranges []dayRange
	// periods are in order of their starts; latest[i] is the greatest end of those
	// up to i.
	periods []period
	latest  []time.Time
	weekly  []hours
	labels  []string
}

type dayRange struct {
	first, last int // yyyymmdd, or mmdd of every year
	entry       int
}

type period struct {
	start, end time.Time
	entry      int
}

type hours struct {
	days     [7]bool
	from, to int // minutes
	entry    int
}

// Compile makes a Calendar; zone is the job's, for one that has none itself. The
// error names the field.
func Compile(spec *state.CalendarSpec, zone string) (*Calendar, error) {
	if spec.TimeZone != "" {
		zone = spec.TimeZone
	}
	if zone == "" {
		zone = state.DefaultTimeZone
	}
	loc, err := schedule.Location(zone)
	if err != nil {
		return nil, fmt.Errorf("timeZone: %w", err)
	}
	c := &Calendar{loc: loc, dates: make(map[state.Date]int), labels: make([]string, len(spec.Entries))}
	for i := range spec.Entries {
		if err := c.add(&spec.Entries[i], i); err != nil {
			return nil, fmt.Errorf("entries[%d]: %w", i, err)
		}
	}
	slices.SortStableFunc(c.periods, func(a, b period) int { return a.start.Compare(b.start) })
	for i, p := range c.periods {
		latest := p.end
		if i > 0 && c.latest[i-1].After(latest) {
			latest = c.latest[i-1]
		}
		c.latest = append(c.latest, latest)
	}
	return c, nil
}

func (c *Calendar) add(e *state.CalendarEntry, i int) error {
	what := e.Date
	switch {
	case e.Date != "":
		d, err := state.ParseDate(e.Date)
		if err != nil {
			return err
		}
		if _, twice := c.dates[d]; !twice {
			c.dates[d] = i
		}
	case e.First != "":
		first, err := state.ParseDate(e.First)
		if err != nil {
			return err
		}
		last, err := state.ParseDate(e.Last)
		if err != nil {
			return err
		}
		c.ranges = append(c.ranges, dayRange{number(first), number(last), i})
		what = e.First + " to " + e.Last
	case !e.Start.IsZero():
		c.periods = append(c.periods, period{e.Start, e.End, i})
		what = e.Start.Format(time.RFC3339) + " to " + e.End.Format(time.RFC3339)
	default:
		h := hours{entry: i}
		for _, text := range e.Days {
			days, err := state.ParseWeekdays(text)
			if err != nil {
				return err
			}
			for d, on := range days {
				h.days[d] = h.days[d] || on
			}
		}
		var err error
		if h.from, err = state.ParseClock(e.From, 0); err != nil {
			return err
		}
		if h.to, err = state.ParseClock(e.To, 24*60); err != nil {
			return err
		}
		c.weekly = append(c.weekly, h)
		what = fmt.Sprintf("%s %02d:%02d to %02d:%02d", strings.Join(e.Days, ","), h.from/60, h.from%60, h.to/60, h.to%60)
	}
	c.labels[i] = what
	if e.Name != "" {
		c.labels[i] = e.Name + ", " + what
	}
	return nil
}

// number makes days of one kind comparable.
func number(d state.Date) int { return (d.Year*100+d.Month)*100 + d.Day }

// Covers tells whether t is in the calendar, and by which entry: its name, if it has
// one, and what it says. Where several cover t it is a date before a range, a range
// before a period and a period before weekly hours, and of one kind the first.
func (c *Calendar) Covers(t time.Time) (entry string, ok bool) {
	if i := c.find(t); i >= 0 {
		return c.labels[i], true
	}
	return "", false
}

func (c *Calendar) find(t time.Time) int {
	local := t.In(c.loc)
	if i := c.byDay(local); i >= 0 {
		return i
	}
	if i := c.inPeriod(t); i >= 0 {
		return i
	}
	minute := local.Hour()*60 + local.Minute()
	for i := range c.weekly {
		if h := &c.weekly[i]; h.days[local.Weekday()] && h.from <= minute && minute < h.to {
			return h.entry
		}
	}
	return -1
}

// byDay is the date or range that has a local time's day, or -1.
func (c *Calendar) byDay(local time.Time) int {
	year, month, day := local.Date()
	d := state.Date{Year: year, Month: int(month), Day: day}
	if i, ok := c.dates[d]; ok {
		return i
	}
	d.Year = 0
	if i, ok := c.dates[d]; ok {
		return i
	}
	inYear := number(d)
	full := year*10000 + inYear
	for i := range c.ranges {
		if r := &c.ranges[i]; r.covers(full, inYear) {
			return r.entry
		}
	}
	return -1
}

// Steady is an instant after t before which Covers says of all instants from t on that
// they are in the calendar, or of all that they are not.
func (c *Calendar) Steady(t time.Time) time.Time {
	local := t.In(c.loc)
	until := t.Add(time.Duration(60-local.Second()) * time.Second)
	if len(c.weekly) == 0 || c.byDay(local) >= 0 {
		year, month, day := local.Date()
		if midnight := time.Date(year, month, day+1, 0, 0, 0, 0, c.loc); midnight.After(until) {
			until = midnight
		}
	}
	if _, change := local.ZoneBounds(); !change.IsZero() && change.Before(until) {
		until = change
	}
	n := c.begun(t)
	if n < len(c.periods) && c.periods[n].start.Before(until) {
		until = c.periods[n].start
	}
	for i := n - 1; i >= 0 && c.latest[i].After(t); i-- {
		if end := c.periods[i].end; end.After(t) && end.Before(until) {
			until = end
		}
	}
	return until
}

func (r *dayRange) covers(full, inYear int) bool {
	switch {
	case r.first > 1231: // of one year
		return r.first <= full && full <= r.last
	case r.first <= r.last:
		return r.first <= inYear && inYear <= r.last
	}
	return inYear >= r.first || inYear <= r.last // over the end of the year
}

// begun is how many periods have begun at t.
func (c *Calendar) begun(t time.Time) int {
	n, _ := slices.BinarySearchFunc(c.periods, t, func(p period, t time.Time) int {
		if p.start.After(t) {
			return 1
		}
		return -1
	})
	return n
}

// inPeriod looks back from the last period that has begun, as far as any may last.
func (c *Calendar) inPeriod(t time.Time) int {
	found := -1
	for i := c.begun(t) - 1; i >= 0 && c.latest[i].After(t); i-- {
		if p := &c.periods[i]; p.end.After(t) && (found < 0 || p.entry < found) {
			found = p.entry
		}
	}
	return found
}

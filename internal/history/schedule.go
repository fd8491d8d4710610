package history

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ClockRules say what becomes of local times of a cron schedule whose hour field
// is neither a wildcard nor a step, when the zone's clock is set.
type ClockRules struct {
	// Missing is "shift" or "skip"; empty means shift.
	Missing string
	// Repeated is "first", "last" or "both"; empty means first.
	Repeated string
}

// longestShift is the longest gap that counts as a change of the clock and not of
// the calendar.
const longestShift = 3 * 3600

// Schedule tells of any instant whether it is a slot. It is made by ParseSchedule
// and belongs to one goroutine.
type Schedule struct {
	// Exactly one is set.
	every *every
	at    []int64
	cron  *cron
}

type every struct{ anchor, step int64 }

type cron struct {
	second, minute, hour, day, month, weekday [64]bool
	// monthDays and weekDays tell of more dates whether they are one: those of L, W
	// and #.
	monthDays, weekDays []func(date) bool
	// bothDays: a date must match day and weekday; otherwise either.
	bothDays bool
	// realTime: it goes by real time, whatever the clock does.
	realTime bool
	rules    ClockRules
	zone     *zone
}

// names are cron expressions that have a name.
var names = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// ParseSchedule reads a schedule: a cron expression of five or six fields, perhaps
// with a zone before it, a name such as @daily, "@every" or "@at". It is lenient
// where the product is strict: it judges what was accepted.
func ParseSchedule(text, zoneName string, anchor time.Time, rules ClockRules) (*Schedule, error) {
	return ParseJobSchedule("", text, zoneName, anchor, rules)
}

// ParseJobSchedule is ParseSchedule for a job, "namespace/name", which H takes its
// values from.
func ParseJobSchedule(job, text, zoneName string, anchor time.Time, rules ClockRules) (*Schedule, error) {
	s, err := parseSchedule(job, strings.TrimSpace(text), zoneName, anchor, rules)
	if err != nil {
		return nil, fmt.Errorf("schedule %q: %w", text, err)
	}
	return s, nil
}

func parseSchedule(job, text, zoneName string, anchor time.Time, rules ClockRules) (*Schedule, error) {
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			i := strings.IndexAny(rest, " \t")
			if i < 0 {
				return nil, errors.New("nothing follows the zone")
			}
			zoneName, text = rest[:i], strings.TrimSpace(rest[i:])
			break
		}
	}
	word, rest, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	rest = strings.TrimSpace(rest)
	switch {
	case word == "@every":
		d, err := time.ParseDuration(rest)
		if err != nil {
			return nil, err
		}
		if d < time.Second || d%time.Second != 0 {
			return nil, fmt.Errorf("%s is not whole seconds", d)
		}
		e := &every{step: int64(d / time.Second)}
		if !anchor.IsZero() {
			e.anchor = anchor.Unix()
		}
		return &Schedule{every: e}, nil
	case word == "@at":
		s := &Schedule{}
		for part := range strings.SplitSeq(rest, ",") {
			t, err := time.Parse(time.RFC3339, strings.TrimSpace(part))
			if err != nil {
				return nil, err
			}
			s.at = append(s.at, t.Unix())
		}
		slices.Sort(s.at)
		s.at = slices.Compact(s.at)
		return s, nil
	case names[word] != "":
		text = names[word]
	}
	c, err := parseCron(job, strings.Fields(text))
	if err != nil {
		return nil, err
	}
	if c.zone, err = loadZone(zoneName); err != nil {
		return nil, err
	}
	c.rules = rules
	return &Schedule{cron: c}, nil
}

// Due tells whether t is a slot.
func (s *Schedule) Due(t time.Time) bool { return t.Nanosecond() == 0 && s.due(t.Unix()) }

func (s *Schedule) due(t int64) bool {
	switch {
	case s.every != nil:
		return t >= s.every.anchor && (t-s.every.anchor)%s.every.step == 0
	case s.cron != nil:
		return s.cron.due(t)
	}
	return slices.Contains(s.at, t)
}

// Slots answers all slots in [from, to], by looking at every second of it, or at
// every whole minute where the schedule can have no others.
func (s *Schedule) Slots(from, to time.Time) []time.Time {
	var out []time.Time
	first, last := from.Unix(), to.Unix()
	if from.Nanosecond() > 0 {
		first++
	}
	add := func(t int64) {
		if s.due(t) {
			out = append(out, time.Unix(t, 0).UTC())
		}
	}
	if s.at != nil {
		for _, t := range s.at {
			if first <= t && t <= last {
				add(t)
			}
		}
		return out
	}
	for t := first; t <= last; {
		if s.cron != nil && s.cron.wholeMinutes(t) {
			if off := t % 60; off != 0 {
				t += 60 - off
				continue
			}
			add(t)
			t += 60
			continue
		}
		add(t)
		t++
	}
	return out
}

// wholeMinutes tells whether slots on the day of t can only be whole minutes.
func (c *cron) wholeMinutes(t int64) bool {
	for second, on := range c.second {
		if on && second > 0 {
			return false
		}
	}
	for _, offset := range c.zone.offsets(t) {
		if offset%60 != 0 {
			return false
		}
	}
	return true
}

// due is the heart of the oracle: it asks what the zone's clock shows at t.
func (c *cron) due(t int64) bool {
	offset := c.zone.offset(t)
	local := t + offset
	if c.matches(local) {
		if c.realTime || c.rules.Repeated == "both" {
			return true
		}
		before, after := c.zone.passes(t)
		if c.rules.Repeated == "last" && !after || c.rules.Repeated != "last" && !before {
			return true
		}
	}
	// What the clock left out is made up for at the first instant after it.
	gap := offset - c.zone.offset(t-1)
	if c.realTime || c.rules.Missing == "skip" || gap <= 0 || gap > longestShift {
		return false
	}
	for lost := local - gap; lost < local; lost++ {
		if c.matches(lost) {
			return true
		}
	}
	return false
}

// matches tells whether the fields name a local time, in seconds as if it were
// UTC.
func (c *cron) matches(local int64) bool {
	t := time.Unix(local, 0).UTC()
	hour, minute, second := t.Clock()
	if !c.second[second] || !c.minute[minute] || !c.hour[hour] {
		return false
	}
	d := dateOf(t)
	if !c.month[d.month] {
		return false
	}
	is := func(more func(date) bool) bool { return more(d) }
	day := c.day[d.day] || slices.ContainsFunc(c.monthDays, is)
	weekday := c.weekday[d.weekday] || slices.ContainsFunc(c.weekDays, is)
	if c.bothDays {
		return day && weekday
	}
	return day || weekday
}

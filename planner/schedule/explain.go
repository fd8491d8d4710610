package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Answer says whether an instant is a slot of a schedule, and why. Its texts are
// for people and may change from version to version.
type Answer struct {
	// Due is set for a slot: exactly where Next answers the instant.
	Due bool
	// Zone is the zone that a cron expression is read in; empty for @every and @at.
	Zone string
	// Wall is what the zone's clock shows at the instant, as 2027-03-28T03:00:00;
	// empty where Zone is.
	Wall string
	// Misses are what excludes the instant, the greatest unit first; none if Due.
	Misses []Miss
	// Note is more about a slot: which local time it stands for, or which pass of
	// one that occurs twice it is. Empty if there is nothing to say.
	Note string
}

// Miss is a part of a schedule that excludes an instant.
type Miss struct {
	// Field is its name: month, day of month, day of week, hour, minute, second,
	// day (of month and of week together), clock, interval, instants, or slot.
	Field string
	// Text is what the schedule says there; empty for clock and slot.
	Text string
	// Why says what the instant has instead, such as "minute 7 is not in */5".
	Why string
}

// Names of what excludes an instant and is no field of an expression.
const (
	missDay      = "day"
	missClock    = "clock"
	missInterval = "interval"
	missInstants = "instants"
	missSlot     = "slot"
)

// Explain says why an instant is a slot of a schedule, or what excludes it. It
// refuses what Parse refuses, with the same errors, and is as pure.
func Explain(spec string, o Options, at time.Time) (Answer, error) {
	s, err := Parse(spec, o)
	if err != nil {
		return Answer{}, err
	}
	t := at.Unix()
	switch {
	case at.Nanosecond() != 0:
		return Answer{Misses: []Miss{{Field: missSlot, Why: "a slot is a whole second"}}}, nil
	case t < minSlot || t > maxSlot:
		return Answer{Misses: []Miss{{Field: missSlot, Why: "slots lie in the years 1 to 9999"}}}, nil
	}
	switch r := s.rule.(type) {
	case *interval:
		return r.explain(t), nil
	case instants:
		return r.explain(t), nil
	case *cron:
		zone, text, err := cronText(spec, o)
		if err != nil {
			return Answer{}, err
		}
		x, err := parseExpression(text, hash{o.Job})
		if err != nil {
			return Answer{}, err
		}
		a := r.explain(x, t)
		a.Zone = zone
		return a, nil
	}
	return Answer{}, fmt.Errorf("schedule %q: %T explains nothing", clip(spec), s.rule)
}

// cronText is the zone and the fields of a text that Parse takes for a cron
// expression.
func cronText(spec string, o Options) (zone, text string, err error) {
	zone, text, _, err = splitZone(o.zone(), strings.TrimSpace(spec))
	if named, ok := descriptors[text]; ok {
		text = named
	}
	return zone, text, err
}

func (r *interval) explain(t int64) Answer {
	text := shortSpan(time.Duration(r.step) * time.Second)
	from := slotTime(r.anchor).Format(time.RFC3339)
	switch past := (t - r.anchor) % r.step; {
	case t < r.anchor:
		return Answer{Misses: []Miss{{missInterval, text, fmt.Sprintf("the interval counts from %s, which is later", from)}}}
	case past != 0:
		return Answer{Misses: []Miss{{missInterval, text, fmt.Sprintf("it is %s past the last multiple of %s from %s on",
			shortSpan(time.Duration(past)*time.Second), text, from)}}}
	}
	return Answer{Due: true}
}

func (r instants) explain(t int64) Answer {
	if _, found := slices.BinarySearch(r, t); found {
		return Answer{Due: true}
	}
	why := fmt.Sprintf("it is none of the %d instants", len(r))
	if len(r) == 1 {
		why = "it is not " + slotTime(r[0]).Format(time.RFC3339)
	}
	return Answer{Misses: []Miss{{Field: missInstants, Why: why}}}
}

// explain goes by the fields and by what the clock shows, not by next.
func (c *cron) explain(x *expression, t int64) Answer {
	p := c.zone.at(t)
	local := t + p.off
	a := Answer{Wall: wall(local)}
	a.Misses = x.misses(&c.set, local)
	floor, ceil := c.floor(p), c.ceil(p)
	switch {
	case len(a.Misses) == 0 && local >= floor && local < ceil:
		a.Due, a.Note = true, c.pass(p, local)
	case t == p.start && c.makesUp(p):
		lost := c.set.next(p.start + p.prev)
		a.Due, a.Misses = true, nil
		a.Note = fmt.Sprintf("it stands for the local time %s, which does not exist that day", clockOf(lost))
	case len(a.Misses) > 0:
	case local < floor:
		a.Misses = []Miss{{Field: missClock, Why: fmt.Sprintf("the local time %s occurs twice that day, and only the first time counts", clockOf(local))}}
	default:
		a.Misses = []Miss{{Field: missClock, Why: fmt.Sprintf("the local time %s occurs twice that day, and only the second time counts", clockOf(local))}}
	}
	return a
}

// pass says which of two passes of a local time a slot is in.
func (c *cron) pass(p period, local int64) string {
	switch {
	case p.prev > p.off && local < p.start+p.prev:
		return fmt.Sprintf("the local time %s occurs twice that day; this is the second time", clockOf(local))
	case p.next < p.off && local >= p.end+p.next:
		return fmt.Sprintf("the local time %s occurs twice that day; this is the first time", clockOf(local))
	}
	return ""
}

// misses are the fields that exclude a local time.
func (x *expression) misses(set *fieldSet, local int64) []Miss {
	day := floorDiv(local, daySeconds)
	second := int(local - day*daySeconds)
	year, month, dom := civil(day)
	first := day - int64(dom-1)
	length := monthLength(year, month)
	var out []Miss
	add := func(at, value int, has bool) {
		if !has {
			f := fields[at]
			out = append(out, Miss{f.name, x.texts[at], fmt.Sprintf("%s %s is not in %s", f.name, f.shown(value), x.shown(at))})
		}
	}
	add(atMonth, month, set.month>>month&1 != 0)
	byMonth, byWeek := set.byMonth(weekday(first), length)>>dom&1 != 0, set.byWeek(weekday(first), length)>>dom&1 != 0
	switch {
	case set.bothDays:
		add(atDom, dom, byMonth)
		add(atDow, weekday(day), byWeek)
	case !byMonth && !byWeek:
		out = append(out, Miss{
			missDay, x.texts[atDom] + " " + x.texts[atDow],
			fmt.Sprintf("day %d is not in %s, and %s is not in %s", dom, x.shown(atDom), dowField.shown(weekday(day)), x.shown(atDow)),
		})
	}
	add(atHour, second/3600, set.hour>>(second/3600)&1 != 0)
	add(atMinute, second/60%60, set.minute>>(second/60%60)&1 != 0)
	add(atSecond, second%60, set.second>>(second%60)&1 != 0)
	return out
}

// byMonth are the days that the day-of-month field has in a month that begins on a
// weekday, day n as bit n, and byWeek those of the day-of-week field.
func (f *fieldSet) byMonth(w, length int) uint32 {
	alone := fieldSet{dom: f.dom, dow: everyWeekday, bothDays: true}
	if f.relative != nil {
		alone.relative = &relative{fromEnd: f.relative.fromEnd, nearest: f.relative.nearest}
	}
	return alone.daysOf(w, length)
}

func (f *fieldSet) byWeek(w, length int) uint32 {
	alone := fieldSet{dom: everyDay, dow: f.dow, bothDays: true}
	if f.relative != nil {
		alone.relative = &relative{nth: f.relative.nth}
	}
	return alone.daysOf(w, length)
}

const (
	everyDay     = 1<<32 - 2
	everyWeekday = 1<<7 - 1
)

// shown is a value as it is written.
func (f *field) shown(value int) string {
	if f.names == nil {
		return fmt.Sprint(value)
	}
	return f.names[value-f.min]
}

// shown is a field's text and, where H chose, what that is.
func (x *expression) shown(at int) string {
	text := x.texts[at]
	const most = 6
	var chosen []string
	for _, e := range x.elements[at] {
		if !e.hashed {
			continue
		}
		for v := e.lo; v <= e.hi; v += e.step {
			chosen = append(chosen, fields[at].shown(v))
		}
	}
	switch {
	case len(chosen) == 0:
		return text
	case len(chosen) > most:
		chosen = append(chosen[:most-1], "…")
	}
	return fmt.Sprintf("%s (of this job: %s)", text, strings.Join(chosen, ","))
}

const wallLayout = "2006-01-02T15:04:05"

// wall is a local time in full.
func wall(local int64) string { return time.Unix(local, 0).UTC().Format(wallLayout) }

// clockOf is the time of day of a local time.
func clockOf(local int64) string {
	t := time.Unix(local, 0).UTC()
	if t.Second() == 0 {
		return t.Format("15:04")
	}
	return t.Format("15:04:05")
}

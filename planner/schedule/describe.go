package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Description says what a schedule means, for people. Its texts may change from
// version to version.
type Description struct {
	// When is a phrase such as "at 02:30, on Monday to Friday".
	When string
	// Zone is the zone that When is read in; empty for @every and @at, which depend
	// on none.
	Zone string
	// RealTime tells whether the schedule keeps to real time when the zone's clock
	// is set; otherwise each local time counts once.
	RealTime bool
	// Hashed tells whether the text has an H. Without Options.Job, When says what H
	// chooses from; otherwise what it chose.
	Hashed bool
}

// Describe says in words what Parse makes of a text. It refuses what Parse refuses,
// with the same errors.
func Describe(spec string, o Options) (Description, error) {
	s, err := Parse(spec, o)
	if err != nil {
		return Description{}, err
	}
	switch r := s.rule.(type) {
	case *interval:
		d := time.Duration(r.step) * time.Second
		return Description{When: fmt.Sprintf("every %s, counted from %s", shortSpan(d), slotTime(r.anchor).Format(time.RFC3339)), RealTime: true}, nil
	case instants:
		return Description{When: r.words(), RealTime: true}, nil
	}
	// What Parse accepted is a cron expression, or stands for one.
	zone, text, _, err := splitZone(o.zone(), strings.TrimSpace(spec))
	if err != nil {
		return Description{}, err
	}
	if named, ok := descriptors[text]; ok {
		text = named
	}
	x, err := parseExpression(text, hash{o.Job})
	if err != nil {
		return Description{}, err
	}
	d := Description{Zone: zone, RealTime: x.realTime()}
	for i := range x.elements {
		for _, e := range x.elements[i] {
			d.Hashed = d.Hashed || e.hashed
		}
	}
	w := words{x: x, unknown: o.Job == ""}
	d.When = w.time()
	if days := w.days(); days != "" {
		d.When += ", " + days
	}
	return d, nil
}

// shortSpan is a duration without its zero parts: 1h30m, not 1h30m0s.
func shortSpan(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (r instants) words() string {
	const most = 5
	var at []string
	for _, t := range r[:min(len(r), most)] {
		at = append(at, slotTime(t).Format(time.RFC3339))
	}
	if more := len(r) - most; more > 0 {
		at = append(at, fmt.Sprintf("%d more", more))
	}
	return "once at " + and(at)
}

// and joins a list as a sentence does.
func and(list []string) string {
	if n := len(list) - 1; n > 0 {
		return strings.Join(list[:n], ", ") + " and " + list[n]
	}
	return strings.Join(list, "")
}

// words puts the fields of an expression into words.
type words struct {
	x *expression
	// unknown: H has no job to choose for.
	unknown bool
}

// all tells whether a field has every value.
func (w *words) all(at int) bool {
	for _, e := range w.x.elements[at] {
		if e.form == formSpan && !w.open(e) && e.step == 1 && e.lo == fields[at].min && e.hi >= fields[at].max {
			return true
		}
	}
	return false
}

// open tells whether H has yet to choose.
func (w *words) open(e element) bool { return e.hashed && w.unknown }

// one is the value of a field that has just one.
func (w *words) one(at int) (int, bool) {
	e := w.x.elements[at]
	return e[0].lo, len(e) == 1 && e[0].form == formSpan && !w.open(e[0]) && e[0].lo == e[0].hi
}

// some are the values of a field of a few, in order of the text.
func (w *words) some(at, most int) (values []int, ok bool) {
	for _, e := range w.x.elements[at] {
		if w.open(e) || e.lo != e.hi || len(values) == most {
			return nil, false
		}
		values = append(values, e.lo)
	}
	return values, true
}

// even is the step of a field that goes in equal steps all the time, from a first
// value on.
func (w *words) even(at int) (first, step int, ok bool) {
	e := w.x.elements[at]
	if len(e) != 1 || w.open(e[0]) || e[0].step == 1 || fields[at].size()%e[0].step != 0 {
		return 0, 0, false
	}
	first, step = e[0].lo, e[0].step
	return first, step, first < fields[at].min+step && e[0].hi > fields[at].max-step
}

// time is when on a day.
func (w *words) time() string {
	second, oneSecond := w.one(atSecond)
	minute, oneMinute := w.one(atMinute)
	hours, fewHours := w.some(atHour, 4)
	clock := func(hour, minute int) string {
		if second != 0 {
			return fmt.Sprintf("%02d:%02d:%02d", hour, minute, second)
		}
		return fmt.Sprintf("%02d:%02d", hour, minute)
	}
	if minutes, few := w.some(atMinute, 4); few && fewHours && oneSecond && len(hours)*len(minutes) <= 6 {
		var at []string
		for _, h := range hours {
			for _, m := range minutes {
				at = append(at, clock(h, m))
			}
		}
		if w.all(atDom) && w.all(atDow) && w.all(atMonth) {
			return "at " + and(at) + ", every day"
		}
		return "at " + and(at)
	}
	if oneSecond && oneMinute {
		_, step, even := w.even(atHour)
		hour := w.x.elements[atHour]
		past := "at minute " + clock(0, minute)[3:] + " of "
		switch {
		case w.all(atHour) && minute == 0 && second == 0:
			return "every hour"
		case w.all(atHour):
			return past + "every hour"
		case even:
			return fmt.Sprintf("every %d hours, at %s and so on", step, clock(hour[0].lo, minute))
		case len(hour) == 1 && !w.open(hour[0]):
			last := hour[0].lo + (hour[0].hi-hour[0].lo)/hour[0].step*hour[0].step
			return fmt.Sprintf("%s from %s to %s", every(hour[0].step, "hour"), clock(hour[0].lo, minute), clock(last, minute))
		}
		return past + w.list(atHour)
	}
	var parts []string
	if second != 0 || !oneSecond {
		parts = append(parts, w.phrase(atSecond))
	}
	if !w.all(atMinute) || oneSecond {
		parts = append(parts, w.phrase(atMinute))
	}
	if !w.all(atHour) {
		if e := w.x.elements[atHour]; len(e) == 1 && e[0].step == 1 && !w.open(e[0]) {
			parts = append(parts, fmt.Sprintf("from %02d:00 to %02d:59", e[0].lo, e[0].hi))
		} else {
			parts = append(parts, "in "+w.list(atHour))
		}
	}
	return strings.Join(parts, ", ")
}

func every(step int, noun string) string {
	if step == 1 {
		return "every " + noun
	}
	return fmt.Sprintf("every %d %ss", step, noun)
}

// phrase is when in the next larger unit a field is due.
func (w *words) phrase(at int) string {
	name := fields[at].name
	first, step, even := w.even(at)
	switch {
	case w.all(at):
		return "every " + name
	case even && first == 0:
		return every(step, name)
	case even:
		return fmt.Sprintf("%s from %s %d on", every(step, name), name, first)
	}
	return "at " + w.list(at)
}

// list is all elements of a field that has no other words.
func (w *words) list(at int) string {
	f := fields[at]
	var out []string
	for _, e := range w.x.elements[at] {
		out = append(out, w.span(e, numeral))
	}
	if _, one := w.one(at); one || len(out) == 1 && w.open(w.x.elements[at][0]) {
		return f.name + " " + out[0]
	}
	return f.name + "s " + and(out)
}

func numeral(n int) string { return fmt.Sprint(n) }

// span is the values of one element.
func (w *words) span(e element, value func(int) string) string {
	switch {
	case w.open(e) && e.spread:
		return fmt.Sprintf("%s to %s in steps of %d, the first being one of %s to %s by the job's name", value(e.from), value(e.hi), e.step, value(e.from), value(e.to))
	case w.open(e):
		return fmt.Sprintf("one of %s to %s by the job's name", value(e.from), value(e.to))
	case e.lo == e.hi:
		return value(e.lo)
	case e.step == 1:
		return value(e.lo) + " to " + value(e.hi)
	}
	var values []string
	for v := e.lo; v <= e.hi; v += e.step {
		values = append(values, value(v))
	}
	if len(values) > 6 {
		return fmt.Sprintf("%s to %s in steps of %d", values[0], values[len(values)-1], e.step)
	}
	return and(values)
}

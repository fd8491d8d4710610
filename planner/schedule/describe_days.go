package schedule

import (
	"fmt"
	"strings"
	"time"
)

var ordinals = [...]string{1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}

// days is on which days; empty for all.
func (w *words) days() string {
	month := "the month"
	var in string
	if !w.all(atMonth) {
		var names []string
		for _, e := range w.x.elements[atMonth] {
			names = append(names, w.span(e, func(n int) string { return time.Month(n).String() }))
		}
		month, in = and(names), "in "+and(names)
	}
	both := isStar(w.x.texts[atDom]) || isStar(w.x.texts[atDow])
	dom, dow := w.all(atDom), w.all(atDow)
	switch {
	case dom && dow, !both && (dom || dow):
		return in
	case dow:
		return "on " + w.dom() + " of " + month
	case dom && in == "":
		return "on " + w.dow("")
	case dom && w.monthly():
		return "on " + w.dow(" of "+month)
	case dom:
		return "on " + w.dow("") + ", " + in
	case both:
		return "on " + w.dom() + " of " + month + " if that is " + w.dow("")
	}
	days := "on " + w.dom() + " of the month, and also on " + w.dow("")
	if in != "" {
		days += ", both " + in
	}
	return days
}

// monthly tells whether all weekdays are counted from the begin or end of a month.
func (w *words) monthly() bool {
	for _, e := range w.x.elements[atDow] {
		if e.form == formSpan {
			return false
		}
	}
	return true
}

func (w *words) dom() string {
	var days, special []string
	single := true
	for _, e := range w.x.elements[atDom] {
		switch e.form {
		case formLast:
			switch e.lo {
			case 0:
				special = append(special, "the last day")
			case 1:
				special = append(special, "the last day but one")
			default:
				special = append(special, fmt.Sprintf("the day %d days before the last", e.lo))
			}
		case formLastWork:
			special = append(special, "the last working day")
		case formWorkday:
			special = append(special, fmt.Sprintf("the working day nearest to day %d", e.lo))
		case formSpan, formNth, formLastDow:
			days = append(days, w.span(e, numeral))
			single = single && (e.lo == e.hi || w.open(e) && !e.spread)
		}
	}
	switch {
	case len(days) == 1 && single:
		special = append([]string{"day " + days[0]}, special...)
	case len(days) > 0:
		special = append([]string{"days " + and(days)}, special...)
	}
	return and(special)
}

func (w *words) dow(of string) string {
	weekday := func(n int) string { return time.Weekday(n % 7).String() }
	var out []string
	for _, e := range w.x.elements[atDow] {
		switch e.form {
		case formNth:
			out = append(out, "the "+ordinals[e.hi]+" "+weekday(e.lo))
		case formLastDow:
			out = append(out, "the last "+weekday(e.lo))
		case formSpan, formLast, formWorkday, formLastWork:
			out = append(out, w.span(e, weekday))
		}
	}
	s := and(out)
	if w.monthly() && of == "" {
		of = " of the month"
	}
	return strings.TrimSpace(s + of)
}

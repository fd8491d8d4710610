package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	robfig "github.com/robfig/cron/v3"
)

// Indices of an expression's fields.
const (
	atSecond = iota
	atMinute
	atHour
	atDom
	atMonth
	atDow
	fieldCount
)

var fields = [fieldCount]*field{&secondField, &minuteField, &hourField, &domField, &monthField, &dowField}

// expression is the fields of a cron expression, checked.
type expression struct {
	texts    [fieldCount]string
	elements [fieldCount][]element
}

// parseExpression splits a text into fields and checks each.
func parseExpression(text string, hash hash) (*expression, error) {
	texts := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	sixFields := false
	switch len(texts) {
	case 5:
		texts = slices.Insert(texts, 0, "0")
	case 6:
		sixFields = true
	case 7:
		return nil, sevenFields(texts)
	default:
		return nil, fault("", "", fmt.Sprintf("%s, expected 5 (minute, hour, day of month, month, day of week), or 6 with leading seconds", counted(len(texts))), "")
	}
	x := &expression{texts: [fieldCount]string(texts)}
	for i, f := range fields {
		var err error
		if x.elements[i], err = f.parse(texts[i], hash); err != nil {
			return nil, err
		}
	}
	if sixFields {
		if err := refuseQuartz(texts[atDom], texts[atDow]); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func counted(n int) string {
	if n == 1 {
		return "1 field"
	}
	return fmt.Sprintf("%d fields", n)
}

// sevenFields is what is wrong with an expression that has a year.
func sevenFields(texts []string) error {
	hint := "leave it out, or use @at"
	if year := texts[6]; year == "*" || year == "?" {
		hint = fmt.Sprintf("write %q", clip(strings.Join(texts[:6], " ")))
		if refuseQuartz(texts[atDom], texts[atDow]) != nil {
			hint = "leave it out, and write weekdays as names, since Quartz counts them from 1 for Sunday"
		}
	}
	e := fault("", "", "7 fields, expected 5, or 6 with leading seconds; Quartz's trailing year is unsupported", hint)
	e.Err = ErrUnsupported
	return e
}

// refuseQuartz refuses what is nearly certainly a Quartz expression and would run
// a day off: Quartz demands ? in a day field and counts weekdays from 1, Sunday.
func refuseQuartz(dom, dow string) error {
	if dom != "?" {
		return nil
	}
	for elem := range strings.SplitSeq(dow, ",") {
		// Steps and the k of n#k are no weekdays; names have no digits.
		weekdays, _, _ := strings.Cut(elem, "/")
		weekdays, _, _ = strings.Cut(weekdays, "#")
		if strings.ContainsAny(weekdays, "01234567") {
			return fault(dowField.name, dow, "ambiguous after ? in six fields: 1 is Sunday in Quartz and Monday in crontab", "write names such as MON-FRI, or * for the ?")
		}
	}
	return nil
}

// fieldParser turns checked fields into bit sets. It gets nothing but the plain
// text that field.plain writes.
var fieldParser = robfig.NewParser(robfig.Second | robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow)

// set is what the expression matches.
func (x *expression) set() (fieldSet, error) {
	var plain [fieldCount]string
	var empty [fieldCount]bool
	var r relative
	for i, f := range fields {
		var spans []string
		for _, e := range x.elements[i] {
			if e.form == formSpan {
				spans = append(spans, f.plain(e))
			} else {
				r.add(e)
			}
		}
		if empty[i] = len(spans) == 0; empty[i] {
			spans = []string{f.plain(element{lo: f.min, hi: f.min, step: 1})} // the parser takes no empty field
		}
		plain[i] = strings.Join(spans, ",")
	}
	parsed, err := fieldParser.Parse(strings.Join(plain[:], " "))
	if err != nil {
		return fieldSet{}, err
	}
	sets, ok := parsed.(*robfig.SpecSchedule)
	if !ok {
		return fieldSet{}, fmt.Errorf("field parser returned %T", parsed)
	}
	set := fieldSet{
		second: sets.Second, minute: sets.Minute,
		hour: uint32(sets.Hour), dom: uint32(sets.Dom), month: uint16(sets.Month), dow: uint8(sets.Dow),
		bothDays: isStar(x.texts[atDom]) || isStar(x.texts[atDow]),
	}
	if empty[atDom] {
		set.dom = 0
	}
	if empty[atDow] {
		set.dow = 0
	}
	if r != (relative{}) {
		set.relative = &r
	}
	return set, nil
}

func isStar(text string) bool { return text[0] == '*' || text[0] == '?' }

// realTime tells whether the expression keeps to real time when clocks change: it
// is due in every hour, or in hours at even steps.
func (x *expression) realTime() bool {
	hour := x.texts[atHour]
	return hour[0] == '*' || isHashed(hour) && strings.HasPrefix(hour[1:], "/")
}

// fires returns an error if there is no date that the expression matches, or none
// if H chooses certain months: whether a text is refused depends on nobody's name.
func (x *expression) fires(set fieldSet) error {
	months := set.months()
	if slices.ContainsFunc(x.elements[atMonth], func(e element) bool { return e.canFire(months) }) {
		return nil
	}
	dom, month, dow := x.texts[atDom], x.texts[atMonth], x.texts[atDow]
	if months != 0 && slices.ContainsFunc(x.elements[atMonth], func(e element) bool { return e.hashed }) {
		var good []string
		for m := 1; m <= 12; m++ {
			if months>>m&1 != 0 {
				good = append(good, strconv.Itoa(m))
			}
		}
		return fault(monthField.name, month, "might never fire: H may choose a month that has no such day", "those that have it are "+strings.Join(good, ","))
	}
	longest := 0
	for _, e := range x.elements[atMonth] {
		for m := e.lo; m <= e.hi; m += e.step {
			longest = max(longest, monthLength(2000, m))
		}
	}
	switch {
	case set.relative == nil && bits.TrailingZeros32(set.dom) > longest:
		return fault(domField.name, dom, fmt.Sprintf("never fires: month %s has at most %d days", clip(month), longest), "L is the last day of a month")
	case isStar(dow) && !strings.Contains(dow, "/"):
		return fault(domField.name, dom, fmt.Sprintf("never fires: month %s has no such day", clip(month)), "L is the last day of a month")
	}
	in := ""
	if !isStar(month) {
		in = "in month " + clip(month) + " "
	}
	return fault(domField.name, dom, fmt.Sprintf("never fires: %sno such day is a day of week %s as well", in, clip(dow)), "")
}

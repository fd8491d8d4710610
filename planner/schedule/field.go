package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// field describes one field of a cron expression.
type field struct {
	name     string
	min, max int // of values as stored; a weekday may also be written 7
	names    []string
	noun     string // how often a step as large as the field fires
}

var (
	secondField = field{name: "second", max: 59, noun: "minute"}
	minuteField = field{name: "minute", max: 59, noun: "hour"}
	hourField   = field{name: "hour", max: 23, noun: "day"}
	domField    = field{name: "day of month", min: 1, max: 31, noun: "month"}
	monthField  = field{
		name: "month", min: 1, max: 12, noun: "year",
		names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"},
	}
	dowField = field{
		name: "day of week", max: 6, noun: "week",
		names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"},
	}
)

func (f *field) isDay() bool { return f.name == domField.name || f.name == dowField.name }

// limit is the largest value that may be written.
func (f *field) limit() int {
	if f.name == dowField.name {
		return 7
	}
	return f.max
}

// allowed describes the values of the field.
func (f *field) allowed() string {
	s := fmt.Sprintf("%d-%d", f.min, f.limit())
	if f.names != nil {
		s += " or " + f.names[0] + "-" + f.names[len(f.names)-1]
	}
	return s
}

// check verifies the text of one field against the strict grammar and returns
// the same set of values written so plainly that no parser can misread it: a
// list of a-b and a-b/n within the field's bounds.
func (f *field) check(text string) (plain string, err error) {
	if text == "?" {
		if !f.isDay() {
			return "", fault(f.name, text, "? is allowed only in the day fields", "write *")
		}
		return f.span(f.min, f.max, 1), nil
	}
	var spans []string
	for elem := range strings.SplitSeq(text, ",") {
		if elem == "" {
			return "", fault(f.name, text, "empty element in the list", f.withoutGaps(text))
		}
		span, err := f.element(elem)
		if err != nil {
			return "", err
		}
		spans = append(spans, span)
	}
	return strings.Join(spans, ","), nil
}

func (f *field) withoutGaps(text string) string {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
	if len(parts) == 0 {
		return "write * for every " + f.name
	}
	return fmt.Sprintf("write %q", strings.Join(parts, ","))
}

// element checks one element of a list.
func (f *field) element(elem string) (string, error) {
	if what := f.dialect(elem); what != "" {
		return "", unsupported(f.name, elem, what)
	}
	base, stepText, stepped := strings.Cut(elem, "/")
	step := 1
	if stepped {
		n, ok := number(stepText)
		if !ok || n == 0 {
			return "", fault(f.name, elem, "a step must be a whole number from 1", "")
		}
		step = n
	}
	lo, hi := f.min, f.max
	switch loText, hiText, ranged := strings.Cut(base, "-"); {
	case base == "":
		return "", fault(f.name, elem, "nothing stands before the step", fmt.Sprintf("write \"*/%s\"", stepText))
	case base == "*":
	case strings.HasPrefix(base, "*"):
		return "", fault(f.name, elem, "only a step such as */5 may follow *", "")
	case strings.Contains(base, "?"):
		return "", fault(f.name, elem, "? must stand alone, and only in the day fields", "write *")
	default:
		var err error
		if lo, err = f.value(elem, loText); err != nil {
			return "", err
		}
		switch {
		case ranged:
			if hi, err = f.value(elem, hiText); err != nil {
				return "", err
			}
			// A range may end in SUN: the week goes from Monday to Sunday as well.
			if strings.EqualFold(hiText, dowField.names[0]) && lo > 0 {
				hi = 7
			}
		case !stepped:
			hi = lo
		default:
			hi = max(lo, f.max)
		}
	}
	if size := f.max - f.min + 1; step >= size {
		return "", fault(f.name, elem, fmt.Sprintf("the step must be less than %d", size), f.largeStep(lo, step))
	}
	if lo > hi {
		return "", fault(f.name, elem, "the range runs backward", fmt.Sprintf("write %q", f.wrapped(lo, hi, step)))
	}
	return f.span(lo, hi, step), nil
}

// span writes a checked element; a Sunday written 7 becomes 0.
func (f *field) span(lo, hi, step int) string {
	if hi <= f.max {
		return fmt.Sprintf("%d-%d/%d", lo, hi, step)
	}
	var values []string
	for v := lo; v <= hi; v += step {
		values = append(values, strconv.Itoa(v%7))
	}
	return strings.Join(values, ",")
}

// wrapped writes a backward range as it was probably meant.
func (f *field) wrapped(lo, hi, step int) string {
	part := func(a, b int) string {
		if a == b {
			return strconv.Itoa(a)
		}
		return fmt.Sprintf("%d-%d", a, b)
	}
	if lo > f.max { // Sunday as 7
		return part(f.min, hi)
	}
	if step == 1 {
		return part(lo, f.max) + "," + part(f.min, hi)
	}
	size := f.max - f.min + 1
	var values []string
	for v := lo; v <= hi+size; v += step {
		values = append(values, strconv.Itoa((v-f.min)%size+f.min))
	}
	return strings.Join(values, ",")
}

// largeStep says what to write instead of a step that leaves the field.
func (f *field) largeStep(lo, step int) string {
	once := fmt.Sprintf("write %d to run once a %s", lo, f.noun)
	switch f.name {
	case secondField.name:
		return fmt.Sprintf("%s, or @every %ds for an interval", once, step)
	case minuteField.name:
		return fmt.Sprintf("%s, or @every %dm for an interval", once, step)
	case hourField.name:
		return fmt.Sprintf("%s, or @every %dh for an interval", once, step)
	}
	return once
}

// value reads a number or a name.
func (f *field) value(elem, text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	n, ok := number(text)
	switch {
	case !ok:
		hint := ""
		for _, name := range f.names {
			if len(text) > 3 && strings.EqualFold(text[:3], name) {
				hint = "names have three letters: write " + name
			}
		}
		return 0, fault(f.name, elem, fmt.Sprintf("%q is not %s", clip(text), f.allowed()), hint)
	case n < f.min || n > f.limit():
		return 0, fault(f.name, elem, fmt.Sprintf("%s is out of range, allowed are %s", clip(text), f.allowed()), f.outside(n))
	}
	return n, nil
}

func (f *field) outside(n int) string {
	switch {
	case f.name == hourField.name && n == 24:
		return "midnight is 0"
	case (f.name == minuteField.name || f.name == secondField.name) && n == 60:
		return "the full " + f.noun + " is 0"
	case f.name == dowField.name:
		return "0 and 7 are Sunday"
	}
	return ""
}

// dialect names the element of another cron dialect that the text is, if any.
func (f *field) dialect(elem string) string {
	up := strings.ToUpper(elem)
	digits := strings.TrimLeft(up, "0123456789")
	switch {
	case up == "H", strings.HasPrefix(up, "H/"), strings.HasPrefix(up, "H("):
		return "H (spread by hash)"
	case f.name == domField.name && (up == "L" || up == "LW" || strings.HasPrefix(up, "L-")):
		return "L (last day of the month)"
	case f.name == domField.name && digits == "W" && up != "W":
		return "nW (nearest working day)"
	case f.name == dowField.name && strings.Contains(up, "#"):
		return "n#k (k-th weekday of the month)"
	case f.name == dowField.name && (digits == "L" || len(up) == 4 && up[3] == 'L' && f.isName(up[:3])):
		return "nL (last weekday of the month)"
	}
	return ""
}

func (f *field) isName(s string) bool {
	return slices.Contains(f.names, s)
}

// number reads an unsigned decimal number; larger ones than any field holds
// come back as a value that is out of range everywhere.
func number(text string) (n int, ok bool) {
	if text == "" {
		return 0, false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int(c-'0'), 1_000_000)
	}
	return n, true
}

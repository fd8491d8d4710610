package schedule

import (
	"fmt"
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

func (f *field) isDom() bool { return f.name == domField.name }
func (f *field) isDow() bool { return f.name == dowField.name }
func (f *field) isDay() bool { return f.isDom() || f.isDow() }

// limit is the largest value that may be written.
func (f *field) limit() int {
	if f.isDow() {
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

// element is one element of a field's list, checked.
type element struct {
	form form
	// lo, hi and step are the values of a span, hi included; of other forms, what
	// the form says.
	lo, hi, step int
	// hashed: H chose lo, in [from, to]. spread: in steps from there on.
	hashed, spread bool
	from, to       int
}

// form tells what an element stands for.
type form uint8

const (
	// formSpan is values from lo to hi in steps: also *, one value, and H.
	formSpan     form = iota
	formLast          // L-n: n days before the last of the month, n = lo
	formWorkday       // nW: the working day nearest to day n = lo
	formLastWork      // LW: the last working day of the month
	formNth           // n#k: the k-th weekday n of the month, n = lo, k = hi
	formLastDow       // nL: the last weekday n of the month, n = lo
)

// parse reads the text of one field. H takes its values from hash.
func (f *field) parse(text string, hash hash) ([]element, error) {
	if text == "?" {
		if !f.isDay() {
			return nil, fault(f.name, text, "? is allowed only in the day fields", "write *")
		}
		return []element{{lo: f.min, hi: f.max, step: 1}}, nil
	}
	var out []element
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			return nil, fault(f.name, text, "empty element in the list", f.withoutGaps(text))
		}
		e, err := f.element(part, hash)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (f *field) withoutGaps(text string) string {
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
	if len(parts) == 0 {
		return "write * for every " + f.name
	}
	return fmt.Sprintf("write %q", strings.Join(parts, ","))
}

// element reads one element of a list.
func (f *field) element(text string, hash hash) (element, error) {
	if e, ok, err := f.relative(text); ok || err != nil {
		return e, err
	}
	if isHashed(text) {
		return f.hashed(text, hash)
	}
	base, stepText, stepped := strings.Cut(text, "/")
	step, err := f.step(text, stepText, stepped)
	if err != nil {
		return element{}, err
	}
	lo, hi := f.min, f.max
	switch loText, hiText, ranged := strings.Cut(base, "-"); {
	case base == "":
		return element{}, fault(f.name, text, "nothing stands before the step", fmt.Sprintf("write \"*/%s\"", stepText))
	case base == "*":
	case strings.HasPrefix(base, "*"):
		return element{}, fault(f.name, text, "only a step such as */5 may follow *", "")
	case strings.Contains(base, "?"):
		return element{}, fault(f.name, text, "? must stand alone, and only in the day fields", "write *")
	case ranged:
		if lo, hi, err = f.span(text, loText, hiText); err != nil {
			return element{}, err
		}
	default:
		if lo, err = f.value(text, base); err != nil {
			return element{}, err
		}
		if hi = lo; stepped {
			hi = max(lo, f.max)
		}
	}
	if size := f.size(); step >= size {
		return element{}, fault(f.name, text, fmt.Sprintf("the step must be less than %d", size), f.largeStep(strconv.Itoa(lo), step))
	}
	if lo > hi {
		return element{}, fault(f.name, text, "the range runs backward", fmt.Sprintf("write %q", f.wrapped(lo, hi, step)))
	}
	return element{lo: lo, hi: hi, step: step}, nil
}

// size is the number of values.
func (f *field) size() int { return f.max - f.min + 1 }

// step reads what stands after the slash; 1 where there is none.
func (f *field) step(elem, text string, stepped bool) (int, error) {
	if !stepped {
		return 1, nil
	}
	n, ok := number(text)
	if !ok || n == 0 {
		return 0, fault(f.name, elem, "a step must be a whole number from 1", "")
	}
	return n, nil
}

// span reads both ends of a range, which may still run backward.
func (f *field) span(elem, loText, hiText string) (lo, hi int, err error) {
	if lo, err = f.value(elem, loText); err != nil {
		return 0, 0, err
	}
	if hi, err = f.value(elem, hiText); err != nil {
		return 0, 0, err
	}
	// A range may end in SUN: the week goes from Monday to Sunday as well.
	if f.isDow() && strings.EqualFold(hiText, f.names[0]) && lo > 0 {
		hi = 7
	}
	return lo, hi, nil
}

// plain writes a span so that no parser can misread it: as a list of values and
// ranges within the field's bounds, a Sunday written 7 as 0.
func (f *field) plain(e element) string {
	if e.hi <= f.max {
		return fmt.Sprintf("%d-%d/%d", e.lo, e.hi, e.step)
	}
	var values []string
	for v := e.lo; v <= e.hi; v += e.step {
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
	var values []string
	for v := lo; v <= hi+f.size(); v += step {
		values = append(values, strconv.Itoa((v-f.min)%f.size()+f.min))
	}
	return strings.Join(values, ",")
}

// largeStep says what to write instead of a step that leaves the field.
func (f *field) largeStep(first string, step int) string {
	once := fmt.Sprintf("write %s to run once %s %s", first, article(f.noun), f.noun)
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

func article(noun string) string {
	if strings.HasPrefix(noun, "h") { // hour
		return "an"
	}
	return "a"
}

// value reads a number or a name.
func (f *field) value(elem, text string) (int, error) {
	if v := f.named(text); v >= 0 {
		return v, nil
	}
	n, ok := number(text)
	switch {
	case !ok:
		return 0, fault(f.name, elem, fmt.Sprintf("%q is not %s", clip(text), f.allowed()), f.strange(elem, text))
	case n < f.min || n > f.limit():
		return 0, fault(f.name, elem, fmt.Sprintf("%s is out of range, allowed are %s", clip(text), f.allowed()), f.outside(n))
	}
	return n, nil
}

// named is the value of a name, or -1.
func (f *field) named(text string) int {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i
		}
	}
	return -1
}

// strange guesses what was meant by a text that is no value.
func (f *field) strange(elem, text string) string {
	for _, name := range f.names {
		if len(text) > 3 && strings.EqualFold(text[:3], name) {
			return "names have three letters: write " + name
		}
	}
	if a, b, ok := strings.Cut(elem, "~"); ok {
		if f.number(a) && f.number(b) {
			return fmt.Sprintf("for a value that differs from job to job write H(%s-%s)", a, b)
		}
	}
	switch up := strings.ToUpper(text); {
	case up == "":
	case up == "W":
		return "W follows a day of month: 15W is the working day nearest to the 15th, LW the last of the month"
	case f.isDom() && strings.Contains(up, "#"):
		return "n#k belongs in the day of week"
	case !f.isDay() && strings.Trim(up, "0123456789LW#") == "":
		return "L, W and # belong in the day fields"
	}
	for _, other := range []*field{&monthField, &dowField} {
		if other.named(text) >= 0 {
			return fmt.Sprintf("%s belongs in the %s", text, other.name)
		}
	}
	return ""
}

func (f *field) number(text string) bool {
	n, ok := number(text)
	return ok && n >= f.min && n <= f.limit()
}

func (f *field) outside(n int) string {
	switch {
	case f.name == hourField.name && n == 24:
		return "midnight is 0"
	case (f.name == minuteField.name || f.name == secondField.name) && n == 60:
		return "the full " + f.noun + " is 0"
	case f.isDow() && n >= 1970 && n < 10_000:
		return "there is no field for the year: leave it out, or use @at"
	case f.isDow():
		return "0 and 7 are Sunday"
	}
	return ""
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

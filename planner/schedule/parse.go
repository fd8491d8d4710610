package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	robfig "github.com/robfig/cron/v3"
)

// maxText bounds the length of a text in bytes; the longest @at fits.
const maxText = 32 << 10

var descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// fieldParser turns checked fields into bit sets. It gets nothing but the plain
// text that field.check writes.
var fieldParser = robfig.NewParser(robfig.Second | robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow)

// Parse compiles the text of a schedule; the package comment gives the grammar.
// A refused text yields a *ParseError. The first use of a zone reads its data
// from the zone database of the machine or of the program; other calls do no
// input or output.
func Parse(spec string, o Options) (Schedule, error) {
	if err := o.validate(); err != nil {
		return Schedule{}, fmt.Errorf("schedule options: %w", err)
	}
	r, err := parse(spec, o)
	if err != nil {
		if e, ok := errors.AsType[*ParseError](err); ok {
			e.Spec = clip(spec)
			return Schedule{}, e
		}
		return Schedule{}, fmt.Errorf("schedule %q: %w", clip(spec), err)
	}
	return Schedule{rule: r}, nil
}

func parse(spec string, o Options) (rule, error) {
	if len(spec) > maxText {
		return nil, fault("", "", fmt.Sprintf("%d bytes, at most %d are allowed", len(spec), maxText), "")
	}
	text := strings.TrimSpace(spec)
	zoneName := o.Zone
	if zoneName == "" {
		zoneName = "UTC"
	}
	zoneName, text, prefixed, err := splitZone(zoneName, text)
	if err != nil {
		return nil, err
	}
	zone, err := zoneOf(zoneName)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, fault("", "", "empty, expected a cron expression of 5 or 6 fields, a descriptor, @every or @at", "")
	}
	if !strings.HasPrefix(text, "@") {
		return parseCron(text, zone, o)
	}

	word, rest, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	rest = strings.TrimSpace(rest)
	switch {
	case word == "@every" || word == "@at":
		if prefixed {
			return nil, fault("zone", zoneName, "a zone has no effect on "+word, "leave it out")
		}
		if word == "@every" {
			return ruleOrError(parseInterval(rest, o.Anchor))
		}
		return ruleOrError(parseInstants(rest))
	case word == "@reboot":
		return nil, fault("", "", "@reboot has no meaning for a fleet: jobs are not bound to the start of a machine", "")
	case descriptors[word] != "":
		if rest != "" {
			return nil, fault("", "", fmt.Sprintf("nothing may follow %s, got %q", word, clip(rest)), "")
		}
		return parseCron(descriptors[word], zone, o)
	}
	hint := ""
	if lower := strings.ToLower(word); lower != word && (descriptors[lower] != "" || lower == "@every" || lower == "@at") {
		hint = "write " + lower
	}
	return nil, fault("", "", fmt.Sprintf("unknown descriptor %q, known are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @every and @at", clip(word)), hint)
}

// ruleOrError keeps a nil pointer of a concrete rule out of the interface.
func ruleOrError[R rule](r R, err error) (rule, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// splitZone takes a zone prefix off the text.
func splitZone(zone, text string) (name, rest string, prefixed bool, err error) {
	after, ok := strings.CutPrefix(text, "CRON_TZ=")
	if !ok {
		if after, ok = strings.CutPrefix(text, "TZ="); !ok {
			return zone, text, false, nil
		}
	}
	end := strings.IndexAny(after, " \t")
	if end < 0 {
		return "", "", false, fault("zone", after, "nothing follows the zone", "write the fields after it")
	}
	if zone != "UTC" {
		return "", "", false, fault("zone", after[:end], "the zone is set twice, in the text and as "+clip(zone), "leave one out")
	}
	return after[:end], strings.Trim(after[end:], " \t"), true, nil
}

func parseCron(text string, z *zone, o Options) (rule, error) {
	texts := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	sixFields := false
	switch len(texts) {
	case 5:
		texts = slices.Insert(texts, 0, "0")
	case 6:
		sixFields = true
	case 7:
		return nil, fault("", "", "7 fields, expected 5, or 6 with leading seconds", "Quartz's trailing year is unsupported: leave it out, or use @at")
	default:
		return nil, fault("", "", fmt.Sprintf("%d fields, expected 5 (minute, hour, day of month, month, day of week), or 6 with leading seconds", len(texts)), "")
	}
	fields := [...]*field{&secondField, &minuteField, &hourField, &domField, &monthField, &dowField}
	plain := make([]string, len(fields))
	for i, f := range fields {
		p, err := f.check(texts[i])
		if err != nil {
			return nil, err
		}
		plain[i] = p
	}
	if sixFields {
		if err := refuseQuartz(texts[3], texts[5]); err != nil {
			return nil, err
		}
	}
	parsed, err := fieldParser.Parse(strings.Join(plain, " "))
	if err != nil {
		return nil, err
	}
	sets, ok := parsed.(*robfig.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("field parser returned %T", parsed)
	}
	c := &cron{
		set: fieldSet{
			second: sets.Second, minute: sets.Minute,
			hour: uint32(sets.Hour), dom: uint32(sets.Dom), month: uint16(sets.Month), dow: uint8(sets.Dow),
			bothDays: isStar(texts[3]) || isStar(texts[5]),
		},
		missing: o.Missing, repeated: o.Repeated, zone: z,
	}
	if strings.HasPrefix(texts[2], "*") {
		c.missing, c.repeated = MissingSkip, RepeatedBoth
	}
	// Dates repeat after 400 years, so a search from any year ends if there is one.
	if c.set.next(0) == far {
		return nil, neverFires(&c.set, texts[3], texts[4], texts[5])
	}
	return c, nil
}

func isStar(text string) bool { return text[0] == '*' || text[0] == '?' }

// refuseQuartz refuses what is nearly certainly a Quartz expression and would run
// a day off: Quartz demands ? in a day field and counts weekdays from 1, Sunday.
func refuseQuartz(dom, dow string) error {
	weekday, _, _ := strings.Cut(dow, "/")
	if dom != "?" || !strings.ContainsAny(weekday, "01234567") {
		return nil
	}
	return fault(dowField.name, dow, "ambiguous after ? in six fields: 1 is Sunday in Quartz and Monday in crontab", "write names such as MON-FRI, or * for the ?")
}

func neverFires(s *fieldSet, dom, month, dow string) error {
	longest := 0
	for m := 1; m <= 12; m++ {
		if s.month>>m&1 != 0 {
			longest = max(longest, monthLength(2000, m))
		}
	}
	if bits.TrailingZeros32(s.dom) > longest {
		return fault(domField.name, dom, fmt.Sprintf("never fires: month %s has at most %d days", clip(month), longest), "")
	}
	return fault(domField.name, dom, fmt.Sprintf("never fires: no such day of month %s is a day of week %s", clip(month), clip(dow)), "")
}

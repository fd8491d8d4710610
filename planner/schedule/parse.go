package schedule

import (
	"errors"
	"fmt"
	"strings"
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

// Parse compiles the text of a schedule; the package comment gives the grammar.
// A refused text yields a *ParseError. It does no input or output; the first use
// of a zone unpacks its data, which takes some hundred microseconds.
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
	zoneName, text, prefixed, err := splitZone(o.zone(), text)
	if err != nil {
		return nil, err
	}
	zone, err := o.table(zoneName)
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
	x, err := parseExpression(text, hash{o.Job})
	if err != nil {
		return nil, err
	}
	set, err := x.set()
	if err != nil {
		return nil, err
	}
	if err := x.fires(set); err != nil {
		return nil, err
	}
	set.clock = clock{missing: o.Missing, repeated: o.Repeated}
	if x.realTime() {
		set.clock = clock{missing: MissingSkip, repeated: RepeatedBoth}
	}
	return &cron{set: set, zone: z}, nil
}

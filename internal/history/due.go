package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Due tells whether a schedule names the instant t. It knows "@every" and cron
// expressions of five or six fields, of numbers, ranges, lists, * and steps, in
// UTC. Of day of month and day of week only one may be restricted.
func Due(schedule string, anchor, t time.Time) (bool, error) {
	t = t.UTC()
	if t.Nanosecond() != 0 {
		return false, nil
	}
	if text, ok := strings.CutPrefix(schedule, "@every "); ok {
		every, err := time.ParseDuration(text)
		if err != nil {
			return false, fmt.Errorf("schedule %q: %w", schedule, err)
		}
		since := t.Unix() - anchor.Unix()
		return since >= 0 && since%int64(every/time.Second) == 0, nil
	}
	fields := strings.Fields(schedule)
	if len(fields) == 5 {
		fields = append([]string{"0"}, fields...)
	}
	if len(fields) != 6 {
		return false, fmt.Errorf("schedule %q: has %d fields", schedule, len(fields))
	}
	if fields[3] != "*" && fields[5] != "*" {
		return false, fmt.Errorf("schedule %q: restricts day of month and day of week", schedule)
	}
	values := [6]int{t.Second(), t.Minute(), t.Hour(), t.Day(), int(t.Month()), int(t.Weekday())}
	lows := [6]int{0, 0, 0, 1, 1, 0}
	for i, field := range fields {
		ok, err := matches(field, values[i], lows[i])
		if err != nil {
			return false, fmt.Errorf("schedule %q: %w", schedule, err)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

func matches(field string, value, low int) (bool, error) {
	for item := range strings.SplitSeq(field, ",") {
		span, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			var err error
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return false, fmt.Errorf("step %q", stepText)
			}
		}
		from, to := low, 1<<30
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			var err error
			if from, err = strconv.Atoi(first); err != nil {
				return false, fmt.Errorf("number %q", first)
			}
			switch {
			case ranged:
				if to, err = strconv.Atoi(last); err != nil {
					return false, fmt.Errorf("number %q", last)
				}
			case !stepped:
				to = from
			}
		}
		if value >= from && value <= to && (value-from)%step == 0 {
			return true, nil
		}
	}
	return false, nil
}

// due tells whether any schedule of v names t.
func (v *Version) due(t time.Time) (bool, error) {
	for _, s := range v.Schedules {
		if ok, err := Due(s, v.Anchor, t); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

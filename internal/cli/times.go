package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leaderd/leaderd/planner/schedule"
)

// localForms are the times without an offset that flags take, by the zone of the
// command or else of the machine that it runs on.
var localForms = []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05"}

// clockForms are times of the day that it is now.
var clockForms = []string{"15:04", "15:04:05"}

// readTime reads the time of a flag, of which docs/cli.md tells the forms: with an
// offset, without one by zone, or as a time of the day that now is there. Where away
// is given the text may also be a span, as parseSpan reads it, and away says which
// time is so far away. A local time that the zone's clocks leave out is an error.
func readTime(flag, text string, now time.Time, zone *time.Location, away func(time.Duration) time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	for i, form := range append(append([]string{}, localForms...), clockForms...) {
		written := text
		if i >= len(localForms) {
			form, written = localForms[0]+"T"+form, now.In(zone).Format(localForms[0])+"T"+text
		}
		at, err := time.ParseInLocation(form, written, zone)
		if err != nil {
			continue
		}
		if at.Format(form) != written {
			return time.Time{}, usagef("%s: %q is left out by the clocks of %s", flag, text, zone)
		}
		return first(at).UTC(), nil
	}
	const forms = "such as 2026-11-30T02:00:00Z, 2026-11-30T02:00, 2026-11-30 or 18:00"
	if away == nil {
		return time.Time{}, usagef("%s: %q is no instant %s", flag, clip(text), forms)
	}
	span, err := parseSpan(text)
	if err != nil || span < 0 {
		return time.Time{}, usagef("%s: %q is neither a duration such as 90m, 24h or 7d, nor a time %s", flag, clip(text), forms)
	}
	return away(span), nil
}

// first is the first of the instants with at's local time, of which time.Parse
// promises neither.
func first(at time.Time) time.Time {
	const form = "2006-01-02T15:04:05"
	_, offset := at.Zone()
	_, before := at.Add(-3 * time.Hour).Zone()
	if earlier := at.Add(time.Duration(offset-before) * time.Second); earlier.Before(at) && earlier.Format(form) == at.Format(form) {
		return earlier
	}
	return at
}

// zonedTime reads a time of a command whose --zone is given.
func zonedTime(flag, text, zone string) (time.Time, error) {
	loc, err := schedule.Location(zone)
	if err != nil {
		return time.Time{}, usageError{fmt.Errorf("--zone: %w", err)}
	}
	return readTime(flag, text, time.Now(), loc, nil)
}

// ago is for flags whose spans lie in the past.
func ago(now time.Time) func(time.Duration) time.Time {
	return func(d time.Duration) time.Time { return now.Add(-d) }
}

// parseSpan reads a duration of Go's, or a whole number of days (7d) or weeks (2w) of
// 24 hours a day.
func parseSpan(text string) (time.Duration, error) {
	for unit, size := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		digits, ok := strings.CutSuffix(text, unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 31)
		const most = 100 * 366 * 24 * time.Hour
		if err != nil || time.Duration(n) > most/size {
			return 0, fmt.Errorf("%q is no number of days or weeks up to a hundred years", clip(text))
		}
		return time.Duration(n) * size, nil
	}
	return time.ParseDuration(text)
}

// spanValue is a flag that takes a span.
type spanValue time.Duration

func (s *spanValue) String() string { return time.Duration(*s).String() }

// Type is that of flags with a duration, for flagError and the help.
func (s *spanValue) Type() string { return "duration" }

func (s *spanValue) Set(text string) error {
	d, err := parseSpan(text)
	*s = spanValue(d)
	return err
}

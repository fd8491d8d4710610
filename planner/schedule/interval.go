package schedule

import (
	"fmt"
	"strings"
	"time"
)

// interval is @every: anchor + k*step for k >= 0. It depends on nothing but the
// two numbers, so an outage or a change of leader cannot make it drift.
type interval struct {
	anchor, step int64
}

func (r *interval) next(t int64) int64 {
	if t < r.anchor {
		return r.anchor
	}
	return r.anchor + ((t-r.anchor)/r.step+1)*r.step
}

func (r *interval) prev(t int64) int64 {
	if t < r.anchor {
		return none
	}
	return t - (t-r.anchor)%r.step
}

func (r *interval) count(after, until int64) int64 {
	return r.upTo(until) - r.upTo(after)
}

// upTo returns the number of slots <= t.
func (r *interval) upTo(t int64) int64 {
	if t < r.anchor {
		return 0
	}
	return (t-r.anchor)/r.step + 1
}

func parseInterval(text string, anchor time.Time) (*interval, error) {
	const field = "interval"
	if text == "" {
		return nil, fault(field, text, "@every needs a duration", `write "@every 1h30m"`)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		hint := ""
		if strings.ContainsAny(text, "dw") {
			hint = "days and weeks vary with the clock: write 24h for a fixed interval, or a cron expression"
		}
		e := fault(field, text, "not a duration such as 90s, 15m or 1h30m", hint)
		e.Err = err
		return nil, e
	}
	switch {
	case d <= 0:
		return nil, fault(field, text, "the interval must be positive", "")
	case d < time.Second:
		return nil, fault(field, text, "the shortest interval is 1s", "")
	case d%time.Second != 0:
		return nil, fault(field, text, "the interval must be whole seconds", fmt.Sprintf("write %s", d.Truncate(time.Second)))
	}
	r := &interval{step: int64(d / time.Second)}
	if !anchor.IsZero() {
		r.anchor = anchor.Unix()
	}
	if r.anchor < minSlot || r.anchor > maxSlot {
		return nil, fault("anchor", "", "the anchor must lie in the years 1 to 9999", "")
	}
	return r, nil
}

package schedule

import (
	"fmt"
	"time"
)

// Effect is what a change of a zone's clock does to the local times of a schedule
// that it leaves out or repeats.
type Effect uint8

// Effects.
const (
	// EffectShifted: those left out run once, together, right after the gap.
	EffectShifted Effect = iota + 1
	// EffectSkipped: those left out do not run.
	EffectSkipped
	// EffectFirst: those that come twice run the first time.
	EffectFirst
	// EffectLast: those that come twice run the second time.
	EffectLast
	// EffectBoth: those that come twice run both times.
	EffectBoth
)

var effectNames = [...]string{
	EffectShifted: "shifted", EffectSkipped: "skipped", EffectFirst: "first", EffectLast: "last", EffectBoth: "both",
}

// String is the effect's name.
func (e Effect) String() string {
	if int(e) >= len(effectNames) {
		return fmt.Sprintf("unknown(%d)", e)
	}
	return effectNames[e]
}

// ClockChange is a change of a zone's clock that leaves out or repeats local times
// of a schedule.
type ClockChange struct {
	// At is the first instant after the change.
	At time.Time
	// Before and After are how far the clock is ahead of UTC.
	Before, After time.Duration
	// First is the first local time of the schedule that is concerned, as
	// 2027-03-28T02:30:00, and Times how many they are.
	First string
	Times int64
	// Effect says what becomes of them.
	Effect Effect
}

// ClockChanges answers the changes in (after, until] that leave out or repeat local
// times of the schedule, the earliest first and at most most of them. @every and
// @at have none. Its cost grows with the number of changes of the zone's clock.
func (s Schedule) ClockChanges(after, until time.Time, most int) []ClockChange {
	c, ok := s.rule.(*cron)
	if !ok {
		return nil
	}
	lo, hi := max(after.Unix(), minSlot-1), min(until.Unix(), maxSlot)
	var out []ClockChange
	if lo >= hi {
		return nil
	}
	for p := c.zone.at(c.zone.at(lo).end); p.start <= hi && len(out) < most; p = c.zone.at(p.end) {
		from, to := p.start+min(p.prev, p.off), p.start+max(p.prev, p.off)
		if n := c.set.count(from, to); n > 0 {
			out = append(out, ClockChange{
				At:     slotTime(p.start),
				Before: time.Duration(p.prev) * time.Second,
				After:  time.Duration(p.off) * time.Second,
				First:  wall(c.set.next(from)),
				Times:  n,
				Effect: c.effect(p),
			})
		}
		if p.end == far {
			break
		}
	}
	return out
}

// effect is that of the change at the period's start.
func (c *cron) effect(p period) Effect {
	switch {
	case p.off > p.prev && c.makesUp(p):
		return EffectShifted
	case p.off > p.prev:
		return EffectSkipped
	case c.set.clock.repeated == RepeatedFirst:
		return EffectFirst
	case c.set.clock.repeated == RepeatedLast:
		return EffectLast
	}
	return EffectBoth
}

// Showing is when a zone's clock shows a local time.
type Showing struct {
	// At are the instants: one, two where the clock is set back over it, none where
	// it is left out.
	At []time.Time
	// Gap is the first instant after the change that leaves the local time out; the
	// zero time where none does.
	Gap time.Time
}

// Show answers when the clock of a zone, spelled exactly, shows a local time such
// as 2027-03-28T02:30 or 2027-03-28T02:30:00. An unknown zone yields a *ParseError,
// as in Parse.
func Show(zone, local string) (Showing, error) {
	z, err := zoneOf(Options{Zone: zone}.zone())
	if err != nil {
		return Showing{}, err
	}
	t, err := time.Parse(wallLayout, local)
	if err != nil {
		if t, err = time.Parse("2006-01-02T15:04", local); err != nil {
			return Showing{}, fmt.Errorf("%q is no local time such as 2027-03-28T02:30", clip(local))
		}
	}
	var out Showing
	l := t.Unix()
	for p := z.at(l - longestOffset); ; p = z.at(p.end) {
		if at := l - p.off; at >= p.start && at < p.end {
			out.At = append(out.At, slotTime(at))
		}
		if p.next > p.off && l >= p.end+p.off && l < p.end+p.next {
			out.Gap = slotTime(p.end)
		}
		if p.end > l+longestOffset {
			return out, nil
		}
	}
}

package schedule

import "time"

// Limits of slots in Unix seconds, see the package comment.
const (
	minSlot int64 = -62135596800 + 1
	maxSlot int64 = 253402300799
	// none lies outside the limits and stands for "no such slot".
	none int64 = -1 << 62
)

// Schedule is a compiled schedule. It is an immutable value of two words, safe
// for concurrent use; the rule behind it takes at most 48 bytes (@at: 8 bytes an
// instant), and the zone table is shared by all schedules of a zone. The zero
// Schedule never fires. No method blocks or allocates.
type Schedule struct {
	rule rule
}

// rule is one kind of schedule, in Unix seconds. Callers keep arguments within
// [minSlot-1, maxSlot].
type rule interface {
	// next returns the first slot > t, or none.
	next(t int64) int64
	// prev returns the last slot <= t, or none.
	prev(t int64) int64
	// count returns the number of slots s with after < s <= until.
	count(after, until int64) int64
}

// Next returns the first slot strictly after the given instant, in UTC, or the
// zero time if there is none.
func (s Schedule) Next(after time.Time) time.Time {
	if s.rule == nil {
		return time.Time{}
	}
	t := max(after.Unix(), minSlot-1)
	if t >= maxSlot {
		return time.Time{}
	}
	return slotTime(s.rule.next(t))
}

// Prev returns the last slot at or before the given instant, in UTC, or the zero
// time if there is none. Its cost does not depend on how often the schedule fires.
func (s Schedule) Prev(atOrBefore time.Time) time.Time {
	if s.rule == nil {
		return time.Time{}
	}
	t := min(atOrBefore.Unix(), maxSlot)
	if t < minSlot {
		return time.Time{}
	}
	return slotTime(s.rule.prev(t))
}

// Latest returns the last slot in (after, until], in UTC, or the zero time if
// there is none. Its cost does not depend on the number of slots in the window.
func (s Schedule) Latest(after, until time.Time) time.Time {
	p := s.Prev(until)
	if p.IsZero() || !p.After(after) {
		return time.Time{}
	}
	return p
}

// Count returns the number of slots in (after, until]; 0 if the window is empty.
// It counts by months and clock changes, not by slots: a window of ten years of
// an every-second schedule takes microseconds.
func (s Schedule) Count(after, until time.Time) int64 {
	if s.rule == nil {
		return 0
	}
	lo, hi := max(after.Unix(), minSlot-1), min(until.Unix(), maxSlot)
	if lo >= hi {
		return 0
	}
	return s.rule.count(lo, hi)
}

func slotTime(t int64) time.Time {
	if t < minSlot || t > maxSlot {
		return time.Time{}
	}
	return time.Unix(t, 0).UTC()
}

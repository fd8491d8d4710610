package history

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Calendar is a calendar as a version of a job had it.
type Calendar struct {
	Name string
	// Zone is that of dates and hours; empty: the job's.
	Zone    string
	Entries []CalendarEntry
}

// CalendarEntry is a stretch of time: a day or days (2026-12-25, or 12-25 of every
// year), a period, or hours of weekdays. What is empty is not there.
type CalendarEntry struct {
	First, Last string
	Start, End  time.Time
	Days        []string
	From, To    string
}

// Covers tells whether t is in the calendar, by what a clock shows, as text; jobZone
// is for one without a zone.
func (c *Calendar) Covers(t time.Time, jobZone string) (bool, error) {
	name := c.Zone
	if name == "" {
		name = jobZone
	}
	z, err := loadZone(name)
	if err != nil {
		return false, fmt.Errorf("calendar %s: %w", c.Name, err)
	}
	local := t.In(z.loc)
	return slices.ContainsFunc(c.Entries, func(e CalendarEntry) bool { return e.covers(t, local) }), nil
}

func (e *CalendarEntry) covers(t, local time.Time) bool {
	switch {
	case e.First != "":
		day := local.Format("2006-01-02")
		if len(e.First) == 5 {
			day = day[5:]
		}
		if e.First <= e.Last {
			return e.First <= day && day <= e.Last
		}
		return day >= e.First || day <= e.Last
	case !e.Start.IsZero():
		return !t.Before(e.Start) && t.Before(e.End)
	}
	clock := local.Format("15:04")
	if e.From != "" && clock < e.From || e.To != "" && clock >= e.To {
		return false
	}
	for _, days := range e.Days {
		from, to, ranged := strings.Cut(strings.ToUpper(days), "-")
		if !ranged {
			to = from
		}
		for w, end := slices.Index(weekdays, from), slices.Index(weekdays, to); ; w = (w + 1) % 7 {
			if w == int(local.Weekday()) {
				return true
			}
			if w == end {
				break
			}
		}
	}
	return false
}

// bars answers the reason for which the version does not run a slot that it names;
// empty: it runs.
func (v *version) bars(slot time.Time) string {
	if v.Clock.Missing == "skip" && !slices.ContainsFunc(v.regular, func(s *Schedule) bool { return s.Due(slot) }) {
		return "dst"
	}
	in := func(c Calendar) bool {
		covered, err := c.Covers(slot, v.Zone)
		return covered && err == nil // an error was told when the version was read
	}
	if slices.ContainsFunc(v.Excluded, in) || len(v.Only) > 0 && !slices.ContainsFunc(v.Only, in) {
		return "calendar"
	}
	return ""
}

// dueAt is when a slot of the job is due by the version.
func (v *version) dueAt(job string, slot time.Time) time.Time {
	most := v.Jitter.Milliseconds()
	if most <= 0 {
		return slot
	}
	sum := sha256.Sum256([]byte(job + "\n" + slot.UTC().Format(slotLayout)))
	n := new(big.Int).Mod(new(big.Int).SetBytes(sum[:8]), big.NewInt(most+1))
	return slot.Add(time.Duration(n.Int64()) * time.Millisecond)
}

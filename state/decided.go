package state

import "time"

// Decided are the slots of a job, in a window, that have a record.
type Decided struct {
	// Slots are the single ones, with a verdict or live.
	Slots map[time.Time]struct{}
	// Ranges are verdicts on ranges of slots.
	Ranges []Record
	// Floor is the instant up to which records may have been removed by retention:
	// no slot up to there is undecided. Zero: none were.
	Floor time.Time
}

// Has tells whether slot has a record, or had one that retention removed.
func (d *Decided) Has(slot time.Time) bool {
	if _, ok := d.Slots[slot]; ok || !slot.After(d.Floor) {
		return true
	}
	for i := range d.Ranges {
		if d.Ranges[i].Covers(slot) {
			return true
		}
	}
	return false
}

package history

import (
	"maps"
	"slices"
	"time"
)

// Owed is a slot that the versions of a job make due without doubt.
type Owed struct {
	Job  string
	Slot time.Time
	// At is when it is due: the slot, and its jitter.
	At time.Time
	// Deadline is how long after At it may start; 0: not known.
	Deadline time.Duration
	// Decided is the revision of its first record; 0: it has none, or that is not known.
	Decided int64
}

// Owes answers what the facts owe of the slots in [from, to], by job and slot. It
// is pure. Jobs with a schedule that cannot be read are left out.
func Owes(f *Facts, from, to time.Time) []Owed {
	c := &checker{f: f, jobs: map[string]*job{}, owners: map[Owner]*Registration{}}
	c.index()
	var all []Owed
	for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[name]
		if j.unjudged {
			continue
		}
		for _, t := range j.due(from, to) {
			want, by := c.needed(j, t)
			if want != required {
				continue
			}
			o := Owed{Job: name, Slot: t, At: by.dueAt(name, t), Deadline: by.Deadline}
			o.Decided, _ = j.decidedAt(t)
			all = append(all, o)
		}
	}
	return all
}

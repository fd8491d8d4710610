package history

import (
	"slices"
	"time"
)

// version is a Version with what is around it.
type version struct {
	*Version
	// schedules have all slots: what the clock leaves out is one in any case, and
	// regular are those without it, where the version skips that.
	schedules, regular []*Schedule
	// next is the one after it, nil for the newest; end is that of the newer ones
	// that took effect first, by which it ended. That may be another one, where the
	// clocks of those who made them differed.
	next, end *version
}

// compile reads the schedules of a job's versions.
func (c *checker) compile(j *job, versions []Version) {
	for i := range versions {
		v := &version{Version: &versions[i]}
		if v.live() {
			for _, text := range v.Schedules {
				if err := v.add(j.name, text); err != nil {
					c.unchecked(2, j.name, "what was due: %v", err)
					j.unjudged = true
					break
				}
			}
			for _, cal := range slices.Concat(v.Excluded, v.Only) {
				if _, err := cal.Covers(v.Effective, v.Zone); err != nil {
					c.unchecked(2, j.name, "what was due: %v", err)
					j.unjudged = true
				}
			}
		}
		j.versions = append(j.versions, v)
	}
	slices.SortStableFunc(j.versions, func(a, b *version) int { return int(a.Revision - b.Revision) })
	for i, v := range j.versions[:max(len(j.versions)-1, 0)] {
		v.next = j.versions[i+1]
	}
	for _, v := range slices.Backward(j.versions) {
		if v.end = v.next; v.end != nil && v.next.end != nil && v.next.end.Effective.Before(v.next.Effective) {
			v.end = v.next.end
		}
	}
}

// add takes a schedule in.
func (v *version) add(job, text string) error {
	rules := v.Clock
	rules.Missing = "shift"
	s, err := ParseJobSchedule(job, text, v.Zone, v.Anchor, rules)
	if err != nil {
		return err
	}
	v.schedules = append(v.schedules, s)
	if v.Clock.Missing == "skip" {
		if s, err = ParseJobSchedule(job, text, v.Zone, v.Anchor, v.Clock); err != nil {
			return err
		}
		v.regular = append(v.regular, s)
	}
	return nil
}

// within tells whether t lies in [Start, End).
func (v *version) within(t time.Time) bool {
	return !t.Before(v.Start) && (v.End.IsZero() || t.Before(v.End))
}

// names tells whether t is a slot of the version, whenever it was in force.
func (v *version) names(t time.Time) bool {
	return v.within(t) && slices.ContainsFunc(v.schedules, func(s *Schedule) bool { return s.Due(t) })
}

// slots are all that the version names in [from, to], in order, each once.
func (v *version) slots(from, to time.Time) []time.Time {
	var all []time.Time
	for _, s := range v.schedules {
		all = append(all, s.Slots(from, to)...)
	}
	if len(v.schedules) > 1 {
		slices.SortFunc(all, time.Time.Compare)
		all = slices.CompactFunc(all, time.Time.Equal)
	}
	return slices.DeleteFunc(all, func(t time.Time) bool { return !v.within(t) })
}

// certain tells whether t lies in the version's window without doubt, possible
// whether it may.
func (v *version) certain(t time.Time) bool {
	return t.After(v.Effective.Add(v.Slack)) && (v.end == nil || !t.After(v.end.Effective.Add(-v.end.Slack)))
}

func (v *version) possible(t time.Time) bool {
	return t.After(v.Effective.Add(-v.Slack)) && (v.end == nil || !t.After(v.end.Effective.Add(v.end.Slack)))
}

// need is whether a slot must have a record.
type need int

const (
	forbidden need = iota
	optional
	required
)

// needed tells whether the versions make t due.
func (c *checker) needed(j *job, t time.Time) (need, *version) {
	best, by := forbidden, (*version)(nil)
	if !t.After(j.since) {
		return optional, nil
	}
	for _, v := range j.versions {
		if !v.live() || !v.possible(t) || !v.names(t) {
			continue
		}
		if v.certain(t) && !c.unsettled(v) {
			return required, v
		}
		best, by = optional, v
	}
	return best, by
}

// unsettled tells whether a version, or the end of it, is so new that the leader
// may not know of it.
func (c *checker) unsettled(v *version) bool {
	return c.f.Settle > 0 && v.Effective.Add(c.f.Settle).After(c.f.Now)
}

// inForce is the version that a claim of that token relied on; nil if that is not
// known.
func (j *job) inForce(token int64) *version {
	for _, v := range slices.Backward(j.versions) {
		if v.Revision < token {
			return v
		}
	}
	return nil
}

// of is the version of a generation, nil if that is not known.
func (j *job) of(generation int64) *version {
	if generation == 0 {
		return nil
	}
	for _, v := range j.versions {
		if v.Generation == generation && !v.Deleted {
			return v
		}
	}
	return nil
}

// partial tells whether older versions of the job are not known.
func (j *job) partial() bool { return !j.since.IsZero() }

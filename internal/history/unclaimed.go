package history

import "slices"

// unclaimed checks a start without a token, which says that it was by no claim: its job
// must allow that, and some record must own up to it.
func (c *checker) unclaimed(j *job, s *Start) {
	slot, isSlot := Slot(s.Run)
	at := s.At
	if !s.Local.IsZero() {
		at = s.Local
	}
	if isSlot && at.Before(slot) {
		c.fail(Early, j.name, s.Run, "began without a claim %s before it was due", slot.Sub(at))
	}
	allowed := slices.ContainsFunc(j.versions, func(v *version) bool {
		return v.RunPlanned && v.live() && slot.After(v.Effective.Add(-v.Slack)) && v.names(slot)
	})
	if !isSlot || s.Attempt != 1 || !allowed && !j.partial() {
		c.fail(Unclaimed, j.name, s.Run, "began without a claim, and no version of its job lets that slot do so")
		return
	}
	began, known := 0, 0
	for _, o := range j.byRun[s.Run] {
		if o.Token == 0 {
			began++
		}
		if o == s {
			break
		}
	}
	if r := j.byID[s.Run]; r != nil {
		known = r.Doubles
		if len(r.Attempts) >= maxAttempts {
			return // it may be one of those that are left out
		}
		for i := range r.Attempts {
			if r.Attempts[i].Unclaimed {
				known++
			}
		}
	}
	if began > known {
		c.fail(Unclaimed, j.name, s.Run, "began %d times without a claim, and its record has %d of them", began, known)
	}
}

package history

import "time"

// losses checks that a lost leader made no slot late, and a lost executor none
// later than its limit: invariant 9.
func (c *checker) losses() {
	if !c.has(LossLog | WorkLog) {
		return
	}
	for i := range c.f.Losses {
		l := &c.f.Losses[i]
		for _, s := range c.f.Starts {
			slot, ok := Slot(s.Run)
			if !ok || slot.Before(l.At.Add(-time.Second)) || slot.After(l.Until) {
				continue
			}
			from := slot
			if l.Executor != "" {
				if c.nodeOf(&s) == l.Executor {
					continue // it may have been asleep
				}
				if l.Noticed.After(from) {
					from = l.Noticed
				}
			} else if s.Attempt > 1 {
				continue
			}
			if late := s.At.Sub(from); late > l.Limit {
				c.fail(Late, s.Job, s.Run, "attempt %d started %s late, more than %s, after this: %s", s.Attempt, late, l.Limit, l.What)
			}
		}
		for k := range c.f.Runs {
			r := &c.f.Runs[k]
			slot, ok := Slot(r.ID)
			if ok && r.State == "missed" && !slot.Before(l.At) && !slot.After(l.Until) {
				c.fail(Late, r.Job, r.ID, "was missed (%s) after this: %s", r.Reason, l.What)
			}
		}
	}
}

// nodeOf is the executor of a start.
func (c *checker) nodeOf(s *Start) string {
	if cl := c.jobs[s.Job].byToken[tokenKey{s.Run, s.Shard, s.Token}]; cl != nil {
		return cl.Owner.Node
	}
	return ""
}

// waits checks that nothing waited for running work, and that nothing ended that
// should not: invariants 10 and 8.
func (c *checker) waits() {
	if c.has(WaitLog) {
		for _, w := range c.f.Waits {
			if w.Done.IsZero() {
				c.fail(Held, "", "", "%s was asked for at %s and never done", w.What, w.Asked.Format(timeLayout))
			} else if took := w.Done.Sub(w.Asked); took > w.Limit {
				c.fail(Held, "", "", "%s took %s, more than %s", w.What, took, w.Limit)
			}
		}
	}
	if c.has(IncidentLog) {
		for _, x := range c.f.Incidents {
			c.fail(Harm, "", "", "%s: %s", x.Node, x.Text)
		}
	}
}

package sim

import (
	"fmt"
	"time"

	"github.com/leaderd/leaderd/state"
)

// gateOf names the places of which a run takes one.
func gateOf(l *state.Live) string {
	if l.GateKey != "" {
		return fmt.Sprintf("key %s/%s", l.Job.Namespace, l.GateKey)
	}
	return "job " + l.Job.String()
}

// wait takes in a pending key.
func (c *checker) wait(e *event) {
	p, err := e.pending()
	k := runKey{p.Job, p.Run}
	if e.Deleted {
		c.gone = append(c.gone, k)
		delete(c.pending, k)
		return
	}
	if err != nil {
		c.fail("rev %d: %s: %v", e.revision, e.KV.Key, err)
	}
	if _, slot := p.Run.Slot(); slot {
		if p.Queued.IsZero() {
			c.fail("rev %d: the pending slot %s %s does not wait", e.revision, p.Job, p.Run)
		}
		if _, ok := c.decided[k]; ok {
			c.fail("rev %d: the slot %s %s waits although it had a record", e.revision, p.Job, p.Run)
		}
		c.decided[k] = e.revision
	}
	if q := c.queueing(p.Job, e.revision); !p.Queued.IsZero() && !q.Queues() {
		c.fail("rev %d: %s %s waits although the job's policy is %s", e.revision, p.Job, p.Run, q.Policy)
	}
	c.pending[k], c.asked[k] = p, p
}

// queueing is a job's gate at a revision.
func (c *checker) queueing(id state.JobID, revision int64) state.Gate {
	v := c.oracle.at(id, revision)
	if v == nil {
		return state.Gate{}
	}
	spec := v.Spec.WithDefaults()
	return spec.Gate()
}

// dropped checks that the pending keys that vanished at the revision before were
// those of runs with another record: no waiting run is dropped silently.
func (c *checker) dropped(revision int64) {
	for _, k := range c.gone {
		_, live := c.live[k]
		if _, over := c.records[k]; !live && !over {
			c.fail("before rev %d: the pending key of %s %s vanished, and it has no other record", revision, k.job, k.run)
		}
	}
	c.gone = c.gone[:0]
}

// gated checks a first claim against the job's policy: invariant 4.
func (c *checker) gated(name string, l *state.Live, v *version) {
	k := runKey{l.Job, l.Run}
	beside := c.asked[k].AllowOverlap
	spec := v.Spec.WithDefaults()
	g := spec.Gate()
	if limit := g.Limit; limit > 0 && !beside {
		if l.Place < 1 || l.Place > limit || l.GateKey != g.Key {
			c.fail("%s: place %d of key %q, while there are %d of %q", name, l.Place, l.GateKey, limit, g.Key)
		}
		n := 1
		for other, held := range c.live {
			switch {
			case other == k || held.Place == 0 && (!held.Exclusive || held.Job != l.Job):
			case held.Exclusive:
				c.fail("%s: %s holds the job's gate", name, other.run)
			case gateOf(&held) == gateOf(l):
				if n++; held.Place == l.Place {
					c.fail("%s: %s %s has place %d", name, other.job, other.run, l.Place)
				}
			}
		}
		if n > limit {
			c.fail("%s: it is the %d. of at most %d", name, n, limit)
		}
	} else if l.Place != 0 {
		c.fail("%s: it has place %d of none", name, l.Place)
	}
	if g.Queues() && !beside {
		for other := range c.pending {
			if other.job == l.Job && other.run < l.Run {
				c.fail("%s: %s, which was due earlier, waits", name, other.run)
			}
		}
	}
}

// leftovers checks, once all is quiet, that each place is taken by a live run, and
// that no wish is left for a run that is over.
func (c *checker) leftovers() {
	places, wishes := map[string]bool{}, map[string]bool{}
	for i := range c.audit {
		e := &c.audit[i]
		switch kind, rest := e.part(); kind {
		case "gates":
			places[rest] = !e.Deleted
		case "cancels":
			wishes[rest] = !e.Deleted
		}
	}
	for _, l := range c.live {
		if l.Place == 0 {
			continue
		}
		key := fmt.Sprintf("%s/job/%s/%04d", l.Job.Namespace, l.Job.Name, l.Place)
		if l.GateKey != "" {
			key = fmt.Sprintf("%s/key/%s/%04d", l.Job.Namespace, l.GateKey, l.Place)
		}
		if !places[key] {
			c.fail("%s %s is live, and its place %s is free", l.Job, l.Run, key)
		}
		delete(places, key)
	}
	for key, taken := range places {
		if taken {
			c.fail("place %s is taken by no live run", key)
		}
	}
	for key, stands := range wishes {
		id, run := jobOf(key)
		// That it is over may be news to the leader.
		if r, over := c.records[runKey{id, state.RunID(run)}]; stands && over && time.Since(r.Recorded) > 10*time.Second {
			c.fail("the wish that %s %s ends is left, and it is over", id, run)
		}
	}
}

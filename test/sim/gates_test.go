package sim

import (
	"fmt"
	"time"

	past "github.com/leaderd/leaderd/internal/history"
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
		c.fail(past.Unreadable, k, "%s at revision %d: %v", e.KV.Key, e.revision, err)
	}
	if _, slot := p.Run.Slot(); slot {
		if p.Queued.IsZero() {
			c.fail(past.Overlap, k, "is a pending slot at revision %d, and does not wait", e.revision)
		}
		if _, ok := c.decided[k]; ok {
			c.fail(past.Doubled, k, "waits at revision %d, though it had a record", e.revision)
		}
		c.decided[k] = e.revision
	}
	if q, limited := c.queueing(p.Job, e.revision); !p.Queued.IsZero() && !q.Queues() && !limited {
		c.fail(past.Overlap, k, "waits at revision %d, though the job's policy is %s", e.revision, q.Policy)
	}
	c.pending[k], c.asked[k] = p, p
}

// queueing is a job's gate at a revision, and whether it has limits.
func (c *checker) queueing(id state.JobID, revision int64) (g state.Gate, limited bool) {
	v := c.inForce(id, revision)
	if v == nil {
		return state.Gate{}, false
	}
	spec := v.Spec.WithDefaults()
	return spec.Gate(), len(spec.Limits) > 0
}

// dropped checks that the pending keys that vanished at the revision before were
// those of runs with another record: no waiting run is dropped silently.
func (c *checker) dropped(revision int64) {
	for _, k := range c.gone {
		_, live := c.live[k]
		if _, over := c.records[k]; !live && !over {
			c.fail(past.Unaccounted, k, "its pending key vanished before revision %d, and it has no other record", revision)
		}
	}
	c.gone = c.gone[:0]
}

// gated checks a first claim against the job's policy: invariant 4.
func (c *checker) gated(l *state.Live, v *version) {
	k := runKey{l.Job, l.Run}
	fail := func(format string, args ...any) {
		c.fail(past.Overlap, k, "was claimed with token %d by %s, "+format, append([]any{l.Token, l.Owner.Node}, args...)...)
	}
	beside := c.asked[k].AllowOverlap
	spec := v.Spec.WithDefaults()
	g := spec.Gate()
	if limit := g.Limit; limit > 0 && !beside {
		if l.Place < 1 || l.Place > limit || l.GateKey != g.Key {
			fail("with place %d of key %q, while there are %d of %q", l.Place, l.GateKey, limit, g.Key)
		}
		n := 1
		for other, held := range c.live {
			switch {
			case other == k || held.Place == 0 && (!held.Exclusive || held.Job != l.Job):
			case held.Exclusive:
				fail("while %s held the job's gate", other.run)
			case gateOf(&held) == gateOf(l):
				if n++; held.Place == l.Place {
					fail("while %s of %s had its place %d", other.run, other.job, l.Place)
				}
			}
		}
		if n > limit {
			fail("and is number %d of at most %d", n, limit)
		}
	} else if l.Place != 0 {
		fail("with place %d, and there is none", l.Place)
	}
	c.limited(l, spec.Limits, fail)
	if g.Queues() && !beside {
		for other := range c.pending {
			if other.job == l.Job && other.run < l.Run {
				fail("while %s, which was due earlier, waited", other.run)
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
	c.heldLimits()
	for _, l := range c.live {
		if l.Place == 0 {
			continue
		}
		key := fmt.Sprintf("%s/job/%s/%04d", l.Job.Namespace, l.Job.Name, l.Place)
		if l.GateKey != "" {
			key = fmt.Sprintf("%s/key/%s/%04d", l.Job.Namespace, l.GateKey, l.Place)
		}
		if !places[key] {
			c.fail(past.Overlap, runKey{l.Job, l.Run}, "is live, and its place %s is free", key)
		}
		delete(places, key)
	}
	for key, taken := range places {
		if taken {
			c.fail(past.Overlap, runKey{}, "place %s is taken by no live run", key)
		}
	}
	for key, stands := range wishes {
		id, run := jobOf(key)
		// That it is over may be news to the leader.
		if r, over := c.records[runKey{id, state.RunID(run)}]; stands && over && time.Since(r.Recorded) > 10*time.Second {
			c.fail(past.Overlap, runKey{id, state.RunID(run)}, "is over, and the wish that it ends is left")
		}
	}
}

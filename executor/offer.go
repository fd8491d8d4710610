package executor

import (
	"fmt"
	"math"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
)

// take adds a plan's entries, and answers from memory those that need no claim.
func (d *desk) take(s *session, entries []*workerv1.Entry) error {
	var ids slotIDs
	for len(entries) > 0 {
		n := min(len(entries), offerPart)
		d.mu.Lock()
		now := d.wall()
		for _, p := range entries[:n] {
			sp := s.specs[p.GetRef()]
			if sp == nil {
				d.mu.Unlock()
				return fmt.Errorf("plan refers to spec %d, which the session does not have", p.GetRef())
			}
			pl, k, err := newPlan(sp, p, &ids)
			if err != nil {
				d.mu.Unlock()
				return err
			}
			d.offer(k, &pl, now)
		}
		d.mu.Unlock()
		entries = entries[n:]
	}
	signal(d.wake)
	return nil
}

// offer adds an entry, or brings the one that is here up to date. What it keeps of the
// plan is a copy.
func (d *desk) offer(k key, told *plan, now int64) {
	if d.closed {
		return
	}
	e := d.entries[k]
	if e != nil && e.place == over {
		if e.ended.answers(told) {
			d.reportEnd(e, told)
			return
		}
		e = nil // the fifo's one stays void
	}
	until, left := told.until(k.attempt, now), d.recall(k, told)
	if left != nil {
		until = math.MaxInt64 // it has begun
	}
	if e == nil && now > until {
		return // the leader gives it its verdict
	}
	pl := new(*told)
	if e == nil {
		e = &entry{key: k, plan: pl, until: until, left: left}
		d.entries[k] = e
		d.enqueue(e, ahead, pl.start)
		return
	}
	e.plan, e.until, e.refused = pl, until, false
	if left != nil {
		e.left = left
	}
	switch e.place {
	case ahead:
		if e.at != pl.start {
			d.unqueue(e)
			d.enqueue(e, ahead, pl.start)
		}
	case full:
		d.noRoom(e)
	case claimed:
		d.report(e, workerv1.Progress_STEP_CLAIMED)
	case later:
		d.hurry(e)
	case nowhere, behind, claiming, over:
	}
}

// heldRuns answers the runs that are claimed, as far as they take no more than so many
// bytes.
func (d *desk) heldRuns(most int) []*workerv1.Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	var held []*workerv1.Held
	for _, e := range d.entries {
		if e.place != claimed {
			continue
		}
		const numbers = 32
		if most -= numbers + len(e.key.job.Namespace) + len(e.key.job.Name) + len(e.key.run); most < 0 {
			break
		}
		held = append(held, &workerv1.Held{
			Namespace: e.key.job.Namespace, Job: e.key.job.Name, Run: string(e.key.run),
			Shard: e.key.shard, Token: e.token,
		})
	}
	return held
}

// attach makes s the session that reports go to.
func (d *desk) attach(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session = s
}

// detach ends reporting to s. Its entries stay.
func (d *desk) detach(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == s {
		d.session = nil
	}
}

// revoke forgets specs of a session. Their entries go when they come up.
func (d *desk) revoke(s *session, refs []uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ref := range refs {
		if sp := s.specs[ref]; sp != nil {
			sp.revoked = true
			delete(s.specs, ref)
		}
	}
}

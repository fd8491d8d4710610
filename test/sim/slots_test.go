package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
)

const clockLayout = "15:04:05"

// staleWatch is how long after a change a leader may yet give verdicts to slots
// of the version before: a silent watch is begun anew after that.
const staleWatch = 45 * time.Second

// watermarks checks that the watermark rises, and never passes a slot that nobody
// has decided, of a version that it speaks for: invariant 2 at every instant.
func (c *checker) watermarks() {
	var last mark
	for i := range c.marks {
		m := &c.marks[i]
		switch {
		case m.instant.Before(last.instant):
			c.fail("rev %d: the watermark went back from %s to %s", m.revision,
				last.instant.Format("15:04:05.000"), m.instant.Format("15:04:05.000"))
		case m.term < last.term:
			c.fail("rev %d: the watermark of term %d was written in term %d", m.revision, m.term, last.term)
		case m.jobs < last.jobs:
			c.fail("rev %d: the watermark went back from the jobs of rev %d to those of rev %d", m.revision, last.jobs, m.jobs)
		}
		// How far it has ever been.
		m.instant, m.term, m.jobs = later(last.instant, m.instant), max(last.term, m.term), max(last.jobs, m.jobs)
		last = *m
	}
	for id := range c.oracle.versions {
		for _, d := range c.oracle.due(id, last.instant) {
			i, _ := slices.BinarySearchFunc(c.marks, d, func(m mark, d due) int {
				if m.jobs < d.by.revision {
					return -1
				}
				return m.instant.Compare(d.at)
			})
			if i == len(c.marks) {
				continue
			}
			if at := c.decidedAt(id, d.slot); at == 0 || at > c.marks[i].revision {
				c.fail("rev %d: the watermark %s passed slot %s of %s, which was decided at rev %d", c.marks[i].revision,
					c.marks[i].instant.Format("15:04:05.000"), d.slot.Format(clockLayout), id, at)
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// decidedAt is the revision at which a slot got its first record, 0 for none.
func (c *checker) decidedAt(id state.JobID, slot time.Time) int64 {
	at := c.decided[runKey{id, state.SlotRunID(slot)}]
	for i := range c.ranges[id] {
		if r := &c.ranges[id][i]; r.Covers(slot) && (at == 0 || r.Revision < at) {
			at = r.Revision
		}
	}
	return at
}

// slots checks that each due slot up to an instant has exactly one verdict or a
// live record, and that no slot has one that was not due: invariant 2.
func (c *checker) slots(until time.Time) {
	for id := range c.oracle.versions {
		isDue := map[time.Time]bool{}
		for _, d := range c.oracle.due(id, until) {
			isDue[d.slot] = true
			k := runKey{id, state.SlotRunID(d.slot)}
			verdicts := 0
			if r, ok := c.records[k]; ok && r.Count <= 1 {
				verdicts++
			}
			for i := range c.ranges[id] {
				if c.ranges[id][i].Covers(d.slot) {
					verdicts++
				}
			}
			_, live := c.live[k]
			if !c.pending[k].Queued.IsZero() {
				live = true
			}
			switch {
			case verdicts == 0 && !live && d.at.After(until):
			case verdicts == 0 && !live:
				c.fail("%s: slot %s has no record (generation %d)", id, d.slot.Format(clockLayout), d.by.Generation)
			case verdicts > 1:
				c.fail("%s: slot %s has %d verdicts: %s", id, d.slot.Format(clockLayout), verdicts, c.verdicts(id, d.slot))
			}
		}
		for k, r := range c.records {
			if k.job == id && r.State >= state.StateSkipped {
				c.excuse(&r, isDue, until)
			}
		}
	}
}

// excuse checks a verdict on slots that did not start.
func (c *checker) excuse(r *state.Record, isDue map[time.Time]bool, until time.Time) {
	slot, ok := r.Run.Slot()
	if !ok || r.Due.After(until) || c.asked[runKey{r.Job, r.Run}].Revision != 0 {
		return // or it waited, and was under the newest version since
	}
	v := c.oracle.of(r.Job, r.Generation)
	if v == nil {
		c.fail("%s %s: verdict of generation %d, which never was", r.Job, r.Run, r.Generation)
		return
	}
	if r.Reason == "" {
		c.fail("%s %s: %s without a reason", r.Job, r.Run, r.State)
	}
	if r.Count <= 1 {
		late := !slot.After(v.to.Add(staleWatch + c.skewed)) // the leader heard of the change late
		if !isDue[slot] && (!late || !v.names(slot)) {
			c.fail("%s %s: %s:%s, but it was not due", r.Job, r.Run, r.State, r.Reason)
		}
		return
	}
	n := int64(0)
	for t := v.next(r.Due.Add(-time.Second)); !t.IsZero() && !t.After(r.Until); t = v.next(t) {
		n++
	}
	if n != r.Count || !v.names(r.Due) || !v.names(r.Until) {
		c.fail("%s %s: a range to %s of %d slots, which has %d", r.Job, r.Run, r.Until.Format(clockLayout), r.Count, n)
	}
}

// verdicts tells of all records that cover a slot.
func (c *checker) verdicts(id state.JobID, slot time.Time) string {
	var all []string
	for k, r := range c.records {
		if k.job == id && (r.Covers(slot) || k.run == state.SlotRunID(slot)) {
			all = append(all, fmt.Sprintf("%s:%s of generation %d, %s, %d from %s, at rev %d", r.State, r.Reason, r.Generation,
				k.run, r.Count, r.Due.Format(clockLayout), r.Revision))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// lag checks that the watermark is behind only where a slot that may yet start
// holds it.
func (c *checker) lag(mark, now time.Time) {
	first := now.Add(-time.Second) // that is due and has no record
	// What was decided just before the last mark may be news to the leader that wrote it.
	var heard int64
	if n := len(c.marks); n > 1 {
		heard = c.marks[n-2].revision
	}
	for id := range c.oracle.versions {
		for _, d := range c.oracle.due(id, first) {
			if at := c.decidedAt(id, d.slot); d.at.After(mark) && (at == 0 || at > heard) {
				if d.at.Before(first) {
					first = d.at
				}
				spec := d.by.Spec.WithDefaults()
				if now.Sub(d.at) > spec.StartDeadline+10*time.Second {
					c.fail("%s: slot %s has no record although its start deadline is long over", id, d.slot.Format(clockLayout))
				}
				if d.by.Spec.Jitter == 0 {
					break
				}
			}
		}
	}
	if first.Sub(mark) > 3*time.Second {
		c.fail("the watermark is at %s, while the first slot without a record is %s", mark.Format(clockLayout), first.Format(clockLayout))
	}
}

package history

import (
	"maps"
	"slices"
	"time"
)

const (
	// overdueAfter is how long after a slot's start deadline it must have its
	// verdict.
	overdueAfter = time.Minute
	// freshChange is how long before a slot its version must have been stored, for
	// a watermark to wait for it that does not tell which jobs it speaks for: the
	// leader's watch may be late.
	freshChange = 10 * time.Second
	// longestRange is the longest range of slots that is counted anew.
	longestRange = 5 * 366 * 24 * time.Hour
)

// due are the slots in [from, to] that any version may make due, in order.
func (j *job) due(from, to time.Time) []time.Time {
	var all []time.Time
	for _, v := range j.versions {
		if !v.live() {
			continue
		}
		first, last := from, to
		if begin := v.Effective.Add(-v.Slack); begin.After(first) {
			first = begin
		}
		if v.end != nil {
			if end := v.end.Effective.Add(v.end.Slack); end.Before(last) {
				last = end
			}
		}
		if !last.Before(first) {
			all = append(all, v.slots(first, last)...)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// slots checks that each due slot has exactly one record: invariant 2.
func (c *checker) slots(j *job) {
	if c.f.From.IsZero() || j.unjudged {
		return
	}
	end := c.f.To
	if c.f.Overdue.After(end) {
		end = c.f.Overdue
	}
	ranges := newCover(j.ranges)
	for _, t := range j.due(c.f.From, end) {
		want, by := c.needed(j, t)
		if want == forbidden {
			continue
		}
		id := t.Format(slotLayout)
		n := ranges.count(t)
		if j.byID[id] != nil {
			n++
		}
		if n > 1 {
			c.fail(Doubled, j.name, id, "has %d verdicts or records", n)
		}
		dueAt := t
		if by != nil {
			dueAt = by.dueAt(j.name, t)
		}
		behind := dueAt.After(c.f.To)
		if !behind && want == required {
			c.report.Slots++
		}
		if n > 0 || want != required {
			continue
		}
		if !behind {
			c.fail(Unaccounted, j.name, id, "was due and has neither verdict nor record")
		} else if late := c.f.Now.Sub(dueAt); by.Deadline > 0 && late > by.Deadline+overdueAfter {
			c.fail(Overdue, j.name, id, "was due %s ago, might start for %s, and has neither verdict nor record",
				late.Round(time.Second), by.Deadline)
		}
	}
}

// cover finds the ranges that cover a slot, for slots in rising order.
type cover struct {
	ranges []*Run
	open   []*Run
}

func newCover(ranges []*Run) *cover {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b *Run) int { return a.Due.Compare(b.Due) })
	return &cover{ranges: sorted}
}

func (v *cover) count(t time.Time) int {
	for len(v.ranges) > 0 && !v.ranges[0].Due.After(t) {
		v.open = append(v.open, v.ranges[0])
		v.ranges = v.ranges[1:]
	}
	v.open = slices.DeleteFunc(v.open, func(r *Run) bool { return r.Until.Before(t) })
	return len(v.open)
}

// records checks each run against what was due.
func (c *checker) records(j *job) {
	for _, r := range slices.Concat(j.runs, j.ranges) {
		if r.Unreadable != "" {
			c.fail(Unreadable, j.name, r.ID, "%s", r.Unreadable)
			continue
		}
		if (r.State == "skipped" || r.State == "missed") && r.Reason == "" {
			c.fail(Reasonless, j.name, r.ID, "is %s without a reason", r.State)
		}
		slot, ok := Slot(r.ID)
		if c.has(VerdictLog) && r.Generation != 0 && (r.State == "skipped" || r.State == "missed") && j.of(r.Generation) == nil && !j.partial() {
			c.fail(Undue, j.name, r.ID, "is %s:%s of generation %d, which never was", r.State, r.Reason, r.Generation)
		}
		if !ok || j.unjudged || j.partial() && !slot.After(j.since.Add(c.stale())) {
			continue // or it may be of a version that is not known
		}
		switch {
		case r.Count > 1:
			c.window(j, r)
		case !r.Due.IsZero() && !r.Due.Equal(slot) && !j.dueAt(r, slot):
			c.fail(Undue, j.name, r.ID, "says that it was due at %s", r.Due.Format(timeLayout))
		default:
			c.slotRun(j, r, slot)
		}
		c.barred(j, r)
	}
}

// dueAt tells whether a version's jitter makes the slot due when the record says.
func (j *job) dueAt(r *Run, slot time.Time) bool {
	return slices.ContainsFunc(j.versions, func(v *version) bool { return v.dueAt(j.name, slot).Equal(r.Due) })
}

// barred checks verdicts that tell of the clock or a calendar.
func (c *checker) barred(j *job, r *Run) {
	v := j.of(r.Generation)
	first, ok := Slot(r.ID)
	if v == nil || !v.live() || !ok || r.State != "skipped" || r.Reason != "calendar" && r.Reason != "dst" {
		return
	}
	last := first
	if r.Count > 1 {
		last = r.Until
	}
	if last.Sub(first) > longestRange {
		return // window says so
	}
	for _, t := range v.slots(first, last) {
		if why := v.bars(t); why != r.Reason {
			c.fail(Barred, j.name, r.ID, "is skipped:%s, but the slot %s is not barred by that (%q)", r.Reason, t.Format(slotLayout), why)
			return
		}
	}
}

// window checks a verdict on several slots.
func (c *checker) window(j *job, r *Run) {
	if r.Until.Sub(r.Due) > longestRange {
		c.unchecked(2, j.name, "whether %s, from %s to %s, stands for %d slots: it is too long to count", r.ID,
			r.Due.Format(slotLayout), r.Until.Format(slotLayout), r.Count)
		return
	}
	var least, most int64
	if v := j.of(r.Generation); v != nil {
		for _, t := range v.slots(r.Due, r.Until) {
			if v.possible(t) || t.After(v.Effective) && !t.After(v.end.Effective.Add(c.stale())) {
				most++
			}
		}
		least = most
	} else {
		for _, t := range j.due(r.Due, r.Until) {
			switch want, _ := c.needed(j, t); want {
			case required:
				least, most = least+1, most+1
			case optional:
				most++
			case forbidden:
			}
		}
	}
	if r.Count < least || r.Count > most {
		c.fail(Undue, j.name, r.ID, "%s:%s stands for %d slots to %s, but %d were due", r.State, r.Reason, r.Count,
			r.Until.Format(slotLayout), most)
	}
}

// begun is the revision at which a run was claimed, of one that is split as a whole; 0:
// never, or that is not known.
func (j *job) begun(r *Run) int64 {
	switch {
	case len(r.Attempts) == 0:
		return 0
	case !r.split():
		return r.Attempts[0].Token
	}
	for _, cl := range j.claims {
		if cl.Run == r.ID && whole(cl.Shard) {
			return cl.Token
		}
	}
	return 0
}

// slotRun checks that a slot's run was due, or was claimed or decided by those who
// had not heard of the change that made it not so, or waited for others since before
// that change.
func (c *checker) slotRun(j *job, r *Run, slot time.Time) {
	if want, _ := c.needed(j, slot); want != forbidden {
		return
	}
	for _, v := range j.versions {
		if v.next == nil || !v.live() || !slot.After(v.Effective) || slot.Sub(v.end.Effective) > c.stale() || !v.names(slot) {
			continue
		}
		if j.begun(r) < v.next.Revision || v.Queues && (!c.f.KnowsWaits || !r.Asked.IsZero()) {
			return
		}
	}
	state := r.State
	if r.Reason != "" {
		state += ":" + r.Reason
	}
	c.fail(Undue, j.name, r.ID, "is %s, though nothing was due then", state)
}

// marks checks that the watermark only rises, and never passed a slot that nobody
// had decided.
func (c *checker) marks() {
	if !c.has(MarkLog) {
		return
	}
	marks := slices.Clone(c.f.Marks)
	slices.SortStableFunc(marks, func(a, b Mark) int { return int(a.Revision - b.Revision) })
	for i := 1; i < len(marks); i++ {
		was, is := marks[i-1], marks[i]
		if is.Instant.Before(was.Instant) {
			c.fail(Watermark, "", "", "the watermark went back from %s to %s at revision %d",
				was.Instant.Format(time.RFC3339Nano), is.Instant.Format(time.RFC3339Nano), is.Revision)
		}
		if is.Jobs != 0 && is.Jobs < was.Jobs {
			c.fail(Watermark, "", "", "the watermark went back from the jobs of revision %d to those of revision %d, at revision %d",
				was.Jobs, is.Jobs, is.Revision)
		}
		if is.Term < was.Term {
			c.fail(Watermark, "", "", "term %d moved the watermark after term %d had, at revision %d", is.Term, was.Term, is.Revision)
		}
	}
	if len(marks) == 0 || c.f.From.IsZero() {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
		if j := c.jobs[name]; !j.unjudged {
			c.passed(j, marks)
		}
	}
}

// passed checks a job's slots against the marks.
func (c *checker) passed(j *job, marks []Mark) {
	passed := 0
	for _, t := range j.due(c.f.From, marks[len(marks)-1].Instant) {
		want, by := c.needed(j, t)
		for passed < len(marks) && marks[passed].Instant.Before(t) {
			passed++
		}
		if passed == len(marks) {
			return
		}
		if want != required {
			continue
		}
		i := passed
		for dueAt := by.dueAt(j.name, t); i < len(marks) && marks[i].Instant.Before(dueAt); {
			i++
		}
		for i < len(marks) && marks[i].Jobs != 0 && marks[i].Jobs < by.Revision {
			i++
		}
		if i == len(marks) || marks[i].Jobs == 0 && by.Effective.Add(freshChange).After(t) {
			continue
		}
		if at, ok := j.decidedAt(t); ok && at > marks[i].Revision {
			c.fail(Watermark, j.name, t.Format(slotLayout), "the watermark passed it at revision %d, but it was decided at revision %d",
				marks[i].Revision, at)
		}
	}
}

// decidedAt is the revision at which a slot got its first record; ok is false if
// that is not known.
func (j *job) decidedAt(slot time.Time) (at int64, ok bool) {
	if r := j.byID[slot.Format(slotLayout)]; r != nil && r.Decided != 0 {
		at = r.Decided
	}
	for _, r := range j.ranges {
		if r.Decided != 0 && !slot.Before(r.Due) && !slot.After(r.Until) && (at == 0 || r.Decided < at) {
			at = r.Decided
		}
	}
	return at, at != 0
}

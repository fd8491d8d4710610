package history

import (
	"fmt"
	"sort"
	"time"
)

// Kinds of violation.
const (
	Unaccounted = "unaccounted"
	Doubled     = "doubled"
	Undue       = "undue"
	Twice       = "twice"
	Again       = "again"
	Early       = "early"
	Unknown     = "unknown"
	Silent      = "silent"
	Unfenced    = "unfenced"
	Overlap     = "overlap"
	// Broken is a history that cannot be judged.
	Broken = "broken"
)

// claimAhead is how long before its slot a run may be claimed, or be given the
// verdict of its overlap policy: until a claim's deadline, generously.
const claimAhead = 20 * time.Second

// Violation is one broken rule.
type Violation struct {
	Kind, Job, Run, Text string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: job %s run %s: %s", v.Kind, v.Job, v.Run, v.Text)
}

// Check answers what is wrong in h. That every due slot is accounted for is
// checked of the slots in [from, to], which must be behind the watermark; all
// other rules of everything. It takes time in the order of jobs times seconds.
func (h *Facts) Check(from, to time.Time) []Violation {
	c := checker{h: h, runs: map[runKey]*Run{}, ranges: map[string][]*Run{}, starts: map[runKey][]*Start{}}
	c.index()
	for job, versions := range h.Jobs {
		c.slots(job, versions, from, to)
	}
	for i := range h.Runs {
		c.run(&h.Runs[i])
	}
	for i := range h.Starts {
		c.start(&h.Starts[i])
	}
	c.overlaps()
	sort.SliceStable(c.found, func(a, b int) bool { return c.found[a].Kind < c.found[b].Kind })
	return c.found
}

type runKey struct{ job, run string }

type checker struct {
	h      *Facts
	runs   map[runKey]*Run
	ranges map[string][]*Run // verdicts on several slots, by job
	starts map[runKey][]*Start
	found  []Violation
}

func (c *checker) report(kind, job, run, format string, args ...any) {
	c.found = append(c.found, Violation{kind, job, run, fmt.Sprintf(format, args...)})
}

func (c *checker) index() {
	for i := range c.h.Runs {
		r := &c.h.Runs[i]
		if r.Count > 1 {
			c.ranges[r.Job] = append(c.ranges[r.Job], r)
			continue
		}
		key := runKey{r.Job, r.ID}
		if c.runs[key] != nil {
			c.report(Doubled, r.Job, r.ID, "is listed twice")
		}
		c.runs[key] = r
	}
	for i := range c.h.Starts {
		s := &c.h.Starts[i]
		key := runKey{s.Job, s.Run}
		c.starts[key] = append(c.starts[key], s)
	}
}

// need is whether a slot must have a run.
type need int

const (
	forbidden need = iota
	optional
	required
)

// needed tells whether the versions make t due.
func needed(versions []Version, t time.Time) (need, error) {
	best := forbidden
	for i := range versions {
		v := &versions[i]
		if !v.live() {
			continue
		}
		due, err := v.due(t)
		if err != nil {
			return forbidden, err
		}
		if !due {
			continue
		}
		begin, end := v.Effective, time.Time{}
		var slack time.Duration
		if i+1 < len(versions) {
			end, slack = versions[i+1].Effective, versions[i+1].Slack
		}
		switch {
		case t.After(begin.Add(v.Slack)) && (end.IsZero() || !t.After(end.Add(-slack))):
			return required, nil
		case t.After(begin.Add(-v.Slack)) && (end.IsZero() || !t.After(end.Add(slack))):
			best = optional
		}
	}
	return best, nil
}

// slots checks that each due slot has exactly one record.
func (c *checker) slots(job string, versions []Version, from, to time.Time) {
	for t := from.UTC().Truncate(time.Second); !t.After(to); t = t.Add(time.Second) {
		if t.Before(from) {
			continue
		}
		want, err := needed(versions, t)
		if err != nil {
			c.report(Broken, job, "", "%v", err)
			return
		}
		id := t.Format(slotLayout)
		n := 0
		if c.runs[runKey{job, id}] != nil {
			n++
		}
		if want != forbidden {
			for _, r := range c.ranges[job] {
				if !t.Before(r.Due) && !t.After(r.Until) {
					n++
				}
			}
		}
		switch {
		case n == 0 && want == required:
			c.report(Unaccounted, job, id, "was due and has neither verdict nor record")
		case n > 1:
			c.report(Doubled, job, id, "has %d verdicts or records", n)
		}
	}
}

// run checks one run against what was due and what the work wrote down.
func (c *checker) run(r *Run) {
	versions := c.h.Jobs[r.Job]
	if r.Count > 1 {
		c.window(r, versions)
		return
	}
	if slot, ok := Slot(r.ID); ok {
		c.slotRun(r, slot, versions)
	}
	for _, a := range r.Attempts {
		if a.State != "succeeded" {
			continue
		}
		if v := inForce(versions, a.Token); v == nil || v.NoWork {
			continue
		}
		if !c.wroteDown(r, a.Token) {
			c.report(Silent, r.Job, r.ID, "attempt %d (token %d) succeeded on %s, but no work wrote it down", a.Number, a.Token, a.Node)
		}
	}
}

func (c *checker) wroteDown(r *Run, token int64) bool {
	for _, s := range c.starts[runKey{r.Job, r.ID}] {
		if s.Token == token {
			return true
		}
	}
	return false
}

// window checks a verdict on several slots.
func (c *checker) window(r *Run, versions []Version) {
	var n int64
	for t := r.Due; !t.After(r.Until); t = t.Add(time.Second) {
		want, err := needed(versions, t)
		if err != nil {
			c.report(Broken, r.Job, r.ID, "%v", err)
			return
		}
		if want != forbidden {
			n++
		}
	}
	if n != r.Count {
		c.report(Undue, r.Job, r.ID, "%s stands for %d slots to %s, but %d were due", r.State, r.Count, r.Until.Format(slotLayout), n)
	}
}

// slotRun checks that a slot's run was due, or was claimed before the change
// that made it not so.
func (c *checker) slotRun(r *Run, slot time.Time, versions []Version) {
	want, err := needed(versions, slot)
	if err != nil {
		c.report(Broken, r.Job, r.ID, "%v", err)
		return
	}
	if want != forbidden {
		return
	}
	for i := range versions {
		v := &versions[i]
		if due, _ := v.due(slot); !due || !v.live() || !slot.After(v.Effective) || i+1 == len(versions) {
			continue
		}
		next := &versions[i+1]
		if slot.Sub(next.Effective) > claimAhead {
			continue
		}
		if len(r.Attempts) == 0 || r.Attempts[0].Token < next.Revision {
			return
		}
	}
	c.report(Undue, r.Job, r.ID, "%s:%s, though nothing was due then", r.State, r.Reason)
}

// inForce is the version that a claim of that token relied on.
func inForce(versions []Version, token int64) *Version {
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].Revision < token {
			return &versions[i]
		}
	}
	return nil
}

// start checks one start.
func (c *checker) start(s *Start) {
	slot, isSlot := Slot(s.Run)
	if isSlot && s.At.Before(slot) {
		c.report(Early, s.Job, s.Run, "started %s before its slot", slot.Sub(s.At))
	}
	v := inForce(c.h.Jobs[s.Job], s.Token)
	switch {
	case v == nil:
		c.report(Unfenced, s.Job, s.Run, "token %d is older than the job", s.Token)
	case !v.live():
		c.report(Unfenced, s.Job, s.Run, "token %d is newer than the pause or delete at revision %d", s.Token, v.Revision)
	case v.Mark != s.Mark:
		c.report(Unfenced, s.Job, s.Run, "token %d is newer than revision %d (%q), but the work was of %q", s.Token, v.Revision, v.Mark, s.Mark)
	case isSlot && s.Attempt == 1 && !slot.After(v.Effective.Add(-v.Slack)):
		c.report(Unfenced, s.Job, s.Run, "its slot is before the version at revision %d that it ran", v.Revision)
	}
	for _, o := range c.starts[runKey{s.Job, s.Run}] {
		if o == s {
			break
		}
		switch {
		case o.Attempt == s.Attempt:
			c.report(Twice, s.Job, s.Run, "attempt %d started twice, %s apart (tokens %d and %d)", s.Attempt, s.At.Sub(o.At), o.Token, s.Token)
		case v != nil && v.AtMostOnce:
			c.report(Twice, s.Job, s.Run, "is at-most-once and started as attempts %d and %d", o.Attempt, s.Attempt)
		case (o.Attempt < s.Attempt) != (o.Token < s.Token):
			c.report(Unknown, s.Job, s.Run, "tokens of attempts %d and %d do not rise", o.Attempt, s.Attempt)
		}
	}
	c.known(s)
}

// known checks that the run has the attempt that started, and what came before.
func (c *checker) known(s *Start) {
	r := c.runs[runKey{s.Job, s.Run}]
	if r == nil {
		c.report(Unknown, s.Job, s.Run, "started with token %d, but there is no such run", s.Token)
		return
	}
	found := false
	for _, a := range r.Attempts {
		if a.Number < s.Attempt && (a.State == "succeeded" || a.State == "running") {
			c.report(Again, s.Job, s.Run, "attempt %d started though attempt %d is %s", s.Attempt, a.Number, a.State)
		}
		found = found || a.Number == s.Attempt && a.Token == s.Token
	}
	if !found {
		c.report(Unknown, s.Job, s.Run, "has no attempt %d with token %d (it is %s with %d attempts)", s.Attempt, s.Token, r.State, len(r.Attempts))
	}
}

// overlaps checks that the attempts of an exclusive job follow each other. Lost
// ones have no known end.
func (c *checker) overlaps() {
	type span struct {
		run        string
		begin, end time.Time
	}
	spans := map[string][]span{}
	for i := range c.h.Runs {
		r := &c.h.Runs[i]
		for _, a := range r.Attempts {
			if v := inForce(c.h.Jobs[r.Job], a.Token); v == nil || !v.Exclusive || a.Started.IsZero() || a.State == "lost" {
				continue
			}
			spans[r.Job] = append(spans[r.Job], span{r.ID, a.Started, a.Ended})
		}
	}
	for job, all := range spans {
		sort.Slice(all, func(i, j int) bool { return all[i].begin.Before(all[j].begin) })
		for i := 1; i < len(all); i++ {
			if end := all[i-1].end; end.IsZero() || end.After(all[i].begin) {
				c.report(Overlap, job, all[i].run, "started at %s while %s ran until %s",
					all[i].begin.Format(time.RFC3339Nano), all[i-1].run, end.Format(time.RFC3339Nano))
			}
		}
	}
}

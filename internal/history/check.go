package history

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Check judges the facts. It is pure. It takes time in the order of jobs times the
// seconds from From to To, for the oracle looks at each.
func Check(f *Facts) Report {
	c := &checker{f: f, jobs: map[string]*job{}, owners: map[Owner]*Registration{}}
	for i := range needs {
		if n := &needs[i]; f.Sources&n.sources != n.sources {
			c.report.Unchecked = append(c.report.Unchecked, Unchecked{Invariant: n.invariant, Why: n.why, Whole: n.whole})
		}
	}
	c.index()
	for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[name]
		c.slots(j)
		c.records(j)
		c.claims(j)
		c.starts(j)
		c.overlaps(j)
		c.pauses(j)
		c.checkpoints(j)
		c.ends(j)
		if over := len(c.found) - maxPerJob; over > 0 {
			c.report.More += over
			c.found = c.found[:maxPerJob]
		}
		c.report.Violations = append(c.report.Violations, c.found...)
		c.found = nil
	}
	c.backfills()
	c.places()
	c.report.Held = c.held()
	c.found = append(c.found, Crowded(c.report.Held)...)
	c.marks()
	c.losses()
	c.waits()
	c.report.Violations = append(c.report.Violations, c.found...)
	c.report.sort()
	return c.report
}

type checker struct {
	f      *Facts
	jobs   map[string]*job
	owners map[Owner]*Registration
	found  []Violation
	report Report
}

func (c *checker) fail(rule Rule, job, run, format string, args ...any) {
	c.found = append(c.found, Violation{rule.Invariant(), rule, job, run, fmt.Sprintf(format, args...)})
}

func (c *checker) unchecked(invariant int, job, format string, args ...any) {
	c.report.Unchecked = append(c.report.Unchecked, Unchecked{Invariant: invariant, Job: job, Why: fmt.Sprintf(format, args...)})
}

func (c *checker) has(s Sources) bool { return c.f.Sources&s == s }

func (c *checker) logClock() bool { return c.f.OneClock || c.f.LogClock }

func (c *checker) stale() time.Duration {
	if c.f.Stale != 0 {
		return c.f.Stale
	}
	return DefaultStale
}

// job is all that is known of one.
type job struct {
	name     string
	versions []*version
	// unjudged is set where a schedule cannot be read: then nobody knows what was
	// due.
	unjudged bool
	since    time.Time

	runs        []*Run // those that are no range
	ranges      []*Run
	byID        map[string]*Run
	starts      []*Start
	byRun       map[string][]*Start
	claims      []*claim
	byToken     map[tokenKey]*claim
	checkpoints []*Checkpoint
	ends        []*End
	verdicts    []*Verdict
}

// tokenKey tells claims apart: those of one transaction share a token.
type tokenKey struct {
	run   string
	shard int
	token int64
}

// claim is what the log of claims or the run's record says of one.
type claim struct {
	Claim
	logged bool
	run    *Run
}

func (c *checker) job(name string) *job {
	j := c.jobs[name]
	if j == nil {
		j = &job{
			name: name, since: c.f.Since[name], byID: map[string]*Run{}, byRun: map[string][]*Start{},
			byToken: map[tokenKey]*claim{},
		}
		c.jobs[name] = j
	}
	return j
}

func (c *checker) index() {
	f := c.f
	for name, versions := range f.Jobs {
		c.compile(c.job(name), versions)
	}
	for i := range f.Registrations {
		c.owners[f.Registrations[i].Owner] = &f.Registrations[i]
	}
	for i := range f.Runs {
		r := &f.Runs[i]
		j := c.job(r.Job)
		if r.Count > 1 {
			j.ranges = append(j.ranges, r)
			continue
		}
		if j.byID[r.ID] != nil {
			c.fail(Doubled, r.Job, r.ID, "is there twice")
			continue
		}
		j.byID[r.ID] = r
		j.runs = append(j.runs, r)
	}
	for i := range f.Claims {
		j := c.job(f.Claims[i].Job)
		cl := &claim{Claim: f.Claims[i], logged: true, run: j.byID[f.Claims[i].Run]}
		key := tokenKey{cl.Run, cl.Shard, cl.Token}
		j.byToken[key] = cl
		j.claims = append(j.claims, cl)
	}
	for i := range f.Starts {
		s := &f.Starts[i]
		j := c.job(s.Job)
		j.starts = append(j.starts, s)
		j.byRun[s.Run] = append(j.byRun[s.Run], s)
	}
	for i := range f.Checkpoints {
		j := c.job(f.Checkpoints[i].Job)
		j.checkpoints = append(j.checkpoints, &f.Checkpoints[i])
	}
	for i := range f.Ends {
		j := c.job(f.Ends[i].Job)
		j.ends = append(j.ends, &f.Ends[i])
	}
	for i := range f.Verdicts {
		j := c.job(f.Verdicts[i].Job)
		j.verdicts = append(j.verdicts, &f.Verdicts[i])
	}
	for _, j := range c.jobs {
		c.claimsOfRecords(j)
	}
}

// claimsOfRecords makes claims of the attempts in the runs' records, where the log
// of claims does not have them.
func (c *checker) claimsOfRecords(j *job) {
	for _, r := range j.runs {
		exclusive, placed := c.exclusive(j, r), c.placedBy(j, r)
		for i := range r.Attempts {
			a := &r.Attempts[i]
			key := tokenKey{r.ID, a.Shard, a.Token}
			if cl := j.byToken[key]; cl != nil {
				if cl.Attempt == a.Number {
					continue
				}
				c.fail(Tokens, j.name, r.ID, "attempts %d and %d have the same token %d", cl.Attempt, a.Number, a.Token)
				continue
			}
			cl := &claim{run: r, Claim: Claim{
				Job: j.name, Run: r.ID, Shard: a.Shard, Attempt: a.Number, Token: a.Token,
				Owner: Owner{Node: a.Node}, Exclusive: exclusive, Placed: placed,
			}}
			if v := j.inForce(a.Token); v != nil {
				cl.AtMostOnce = v.AtMostOnce
			}
			if i == len(r.Attempts)-1 {
				cl.Generation = r.Generation
			}
			j.byToken[key] = cl
			j.claims = append(j.claims, cl)
		}
	}
	slices.SortStableFunc(j.claims, func(a, b *claim) int { return int(a.Token - b.Token) })
}

// exclusive tells whether the attempts of a run were claimed as exclusive ones:
// that goes by its first. False also where it is not known.
func (c *checker) exclusive(j *job, r *Run) bool {
	begun := j.begun(r)
	if begun == 0 {
		return false
	}
	v := j.inForce(begun)
	if _, slot := Slot(r.ID); !slot && !c.f.KnowsOverrides {
		return false
	}
	return v != nil && v.Exclusive && !r.Override
}

package history

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// overlaps checks that runs of an exclusive job follow each other: by the store's
// revisions, and where there is one clock by attempts' times and by what the work
// wrote down. Invariant 4.
func (c *checker) overlaps(j *job) {
	c.byRevision(j)
	if c.f.OneClock {
		c.byTime(j)
	}
	if c.logClock() {
		c.byWork(j)
	}
}

// lived is the time in revisions in which a run was live.
type lived struct {
	run        string
	exclusive  bool
	begin, end int64
}

// byRevision checks at each claim of an exclusive run that no other run was live.
// A further attempt may go on beside runs that were allowed to overlap it.
func (c *checker) byRevision(j *job) {
	spans := map[string]*lived{}
	var all []*lived
	for _, cl := range j.claims { // by token
		if cl.run == nil || spans[cl.Run] != nil || cl.run.Ended == 0 && !cl.run.alive() {
			continue // or when it ended is not known
		}
		l := &lived{run: cl.Run, exclusive: cl.Exclusive, begin: cl.Token, end: math.MaxInt64}
		if cl.run.Ended != 0 {
			l.end = cl.run.Ended
		}
		spans[cl.Run] = l
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *lived) int { return cmp.Compare(a.begin, b.begin) })
	var live []*lived
	for _, cl := range j.claims {
		for len(all) > 0 && all[0].begin <= cl.Token { // claims of a job that meet never share a revision
			live, all = append(live, all[0]), all[1:]
		}
		live = slices.DeleteFunc(live, func(o *lived) bool { return o.end <= cl.Token })
		if !cl.Exclusive {
			continue
		}
		for _, o := range live {
			if o.run != cl.Run && (o.exclusive || cl.Attempt == 1) {
				c.fail(Overlap, j.name, cl.Run, "attempt %d was claimed with token %d while %s was live, from revision %d on",
					cl.Attempt, cl.Token, o.run, o.begin)
				break
			}
		}
	}
}

// span is a time in which a run ran.
type span struct {
	run        string
	begin, end time.Time
}

// side reports spans that lie side by side. An end of zero is none.
func (c *checker) side(j *job, all []span, what string) {
	slices.SortStableFunc(all, func(a, b span) int { return a.begin.Compare(b.begin) })
	for i := 1; i < len(all); i++ {
		was, is := all[i-1], all[i]
		if was.end.IsZero() {
			c.fail(Overlap, j.name, is.run, "%s began at %s while %s ran", what, is.begin.Format(timeLayout), was.run)
		} else if was.end.After(is.begin) {
			c.fail(Overlap, j.name, is.run, "%s began at %s while %s ran until %s", what, is.begin.Format(timeLayout), was.run, was.end.Format(timeLayout))
		}
	}
}

// parts are the times of the shards of runs, each as one span of its run: they lie side
// by side among themselves.
func parts(all []span, split func(run string) bool) []span {
	out, at := all[:0:0], map[string]int{}
	for _, s := range all {
		i, ok := at[s.run]
		if !split(s.run) || !ok {
			at[s.run] = len(out)
			out = append(out, s)
			continue
		}
		whole := &out[i]
		if s.begin.Before(whole.begin) {
			whole.begin = s.begin
		}
		if s.end.IsZero() || !whole.end.IsZero() && s.end.After(whole.end) {
			whole.end = s.end
		}
	}
	return out
}

// alone tells whether an attempt was claimed as one of an exclusive run: a shard's by the
// claim of its run as a whole, where that is logged.
func (j *job) alone(cl *claim) bool {
	if cl == nil || !cl.run.split() {
		return cl != nil && cl.Exclusive
	}
	for _, o := range j.claims {
		if o.Run == cl.Run && whole(o.Shard) {
			return o.Exclusive
		}
	}
	return cl.Exclusive
}

func (j *job) split(run string) bool { return j.byID[run].split() }

// byTime checks the attempts as records have them. Lost ones have no known end.
func (c *checker) byTime(j *job) {
	var all []span
	for _, r := range j.runs {
		for i := range r.Attempts {
			a := &r.Attempts[i]
			if cl := j.byToken[tokenKey{r.ID, a.Shard, a.Token}]; !j.alone(cl) || a.Started.IsZero() || a.State == "lost" {
				continue
			}
			all = append(all, span{r.ID, a.Started, a.Ended})
		}
	}
	c.side(j, parts(all, j.split), "an attempt")
}

// byWork checks what the work wrote down. Owners whose registration was ended
// behind their back are left out: they could not know.
func (c *checker) byWork(j *job) {
	if !c.has(WorkLog | WorkEnds) {
		return
	}
	var all []span
	for _, s := range j.starts {
		cl := j.byToken[tokenKey{s.Run, s.Shard, s.Token}]
		if !j.alone(cl) {
			continue
		}
		if reg := c.owners[cl.Owner]; reg != nil && reg.Forced {
			continue
		}
		all = append(all, span{s.Run, s.At, s.Ended})
	}
	c.side(j, parts(all, j.split), "work")
}

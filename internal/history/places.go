package history

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

// placed is a run that took a place among those that a limit counts.
type placed struct {
	job, run   string
	limit      int
	begin, end int64
}

// places checks that no run began while as many runs of its job, or of its
// concurrency key, were live as its own job's limit allows beside it: invariant 4.
// Runs that had begun before their job was limited have no place. Of a key only
// those jobs count that the facts have.
func (c *checker) places() {
	groups := map[string][]placed{}
	for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[name]
		split := map[string]bool{} // runs whose first claim counts for all shards
		for _, cl := range j.claims {
			if cl.run.split() {
				if split[cl.Run] {
					continue
				}
				split[cl.Run] = true
			}
			v := j.inForce(cl.Token)
			if cl.Attempt != 1 || !cl.Placed || v == nil || v.Limit == 0 || cl.run == nil || cl.run.Ended == 0 && !cl.run.alive() {
				continue // or when it ended is not known
			}
			p := placed{name, cl.Run, v.Limit, cl.Token, math.MaxInt64}
			if cl.run.Ended != 0 {
				p.end = cl.run.Ended
			}
			group := "job " + name
			if v.Key != "" {
				namespace, _, _ := strings.Cut(name, "/")
				group = "key " + namespace + "/" + v.Key
			}
			groups[group] = append(groups[group], p)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		all := groups[group]
		slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.begin, b.begin) })
		var live []placed
		for _, p := range all {
			live = slices.DeleteFunc(live, func(o placed) bool { return o.end <= p.begin })
			if len(live) >= p.limit {
				c.fail(Overlap, p.job, p.run, "was claimed with token %d while %d runs of %s were live, of at most %d, the first of them %s of %s",
					p.begin, len(live), group, p.limit, live[0].run, live[0].job)
			}
			live = append(live, p)
		}
	}
}

// placedBy tells whether the attempts of a run that has no logged claim were
// claimed with a place: that goes by its first. False also where it is not known.
func (c *checker) placedBy(j *job, r *Run) bool {
	begun := j.begun(r)
	if begun == 0 {
		return false
	}
	v := j.inForce(begun)
	if _, slot := Slot(r.ID); !slot && !c.f.KnowsOverrides {
		return false
	}
	return v != nil && v.Limit > 0 && !r.Override
}

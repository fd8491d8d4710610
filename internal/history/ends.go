package history

import (
	"cmp"
	"slices"
)

// checkpoints checks that those of a shard only go forward, and that attempts
// resume from the last: invariant 5.
func (c *checker) checkpoints(j *job) {
	if !c.has(CheckpointLog) {
		return
	}
	type shard struct {
		run   string
		shard int
	}
	all := map[shard][]*Checkpoint{}
	slices.SortStableFunc(j.checkpoints, func(a, b *Checkpoint) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, p := range j.checkpoints {
		key := shard{p.Run, p.Shard}
		if before := all[key]; len(before) > 0 {
			was := before[len(before)-1]
			if p.Token < was.Token {
				c.fail(Backward, j.name, p.Run, "the checkpoint at revision %d is of token %d, and one of token %d was accepted before it",
					p.Revision, p.Token, was.Token)
			} else if p.Sequence < was.Sequence {
				c.fail(Backward, j.name, p.Run, "the checkpoint went back from %d to %d at revision %d", was.Sequence, p.Sequence, p.Revision)
			}
		}
		all[key] = append(all[key], p)
	}
	c.copied(j)
	if !c.has(WorkLog) {
		return
	}
	for _, s := range j.starts {
		if s.Resumed < 0 {
			continue
		}
		var last int64
		for _, p := range all[shard{s.Run, s.Shard}] {
			if p.Token < s.Token {
				last = p.Sequence
			}
		}
		if s.Resumed != last {
			c.fail(Resumed, j.name, s.Run, "attempt %d resumed from %d, and the last accepted checkpoint was %d", s.Attempt, s.Resumed, last)
		}
	}
}

// ends checks that what was acknowledged stands, and that verdicts are written
// once: invariant 6.
func (c *checker) ends(j *job) {
	for _, e := range j.ends {
		r := j.byID[e.Run]
		has := r != nil && slices.ContainsFunc(r.Attempts, func(a Attempt) bool {
			return a.Token == e.Token && a.Shard == e.Shard && a.State == e.State
		})
		switch {
		case r == nil:
			c.fail(Lost, j.name, e.Run, "the end of token %d as %s was acknowledged, and there is no such run", e.Token, e.State)
		case r.Unreadable != "":
		case !e.Retry && r.alive() && !r.split():
			c.fail(Lost, j.name, e.Run, "the verdict %s was acknowledged to token %d, and the run is %s", e.State, e.Token, r.State)
		case !has && len(r.Attempts) < maxAttempts:
			c.fail(Lost, j.name, e.Run, "the end of token %d as %s was acknowledged, and is not in the record", e.Token, e.State)
		}
	}
	written := map[string]*Verdict{}
	slices.SortStableFunc(j.verdicts, func(a, b *Verdict) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, v := range j.verdicts {
		was := written[v.Run]
		written[v.Run] = v
		switch {
		case v.State == "":
			c.fail(Changed, j.name, v.Run, "its verdict was removed at revision %d", v.Revision)
		case was != nil:
			c.fail(Changed, j.name, v.Run, "its verdict %s of revision %d was overwritten with %s at revision %d", was.State, was.Revision, v.State, v.Revision)
		}
	}
}

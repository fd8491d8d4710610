package history

// Carried are shards that a run does not make again, since they succeeded in an earlier
// run of the job.
type Carried struct {
	// Run is the one in which they succeeded.
	Run    string
	Shards []int
}

// carried checks the shards that a run has carried over: each succeeded in the run that is
// named, which is over, and has no attempt in this one. It answers how many there are. Of
// a run that is not known, since its record was removed, nothing can be said.
func (c *checker) carried(j *job, r *Run) int {
	seen := map[int]bool{}
	for i := range r.Carried {
		from := j.byID[r.Carried[i].Run]
		for _, shard := range r.Carried[i].Shards {
			switch {
			case shard < 0 || shard >= r.Shards || seen[shard]:
				c.fail(Changed, j.name, r.ID, "has %d shards, and carries over shard %d, or that twice", r.Shards, shard)
			case from == nil || from.Unreadable != "":
			case from.alive():
				c.fail(Changed, j.name, r.ID, "carries over shard %d of run %s, which is %s", shard, from.ID, from.State)
			case !from.succeeded(shard):
				c.fail(Changed, j.name, r.ID, "carries over shard %d of run %s, where that has not succeeded", shard, from.ID)
			}
			seen[shard] = true
		}
	}
	if len(seen) == 0 {
		return 0
	}
	for _, cl := range j.claims {
		if cl.Run == r.ID && seen[cl.Shard] {
			c.fail(Again, j.name, r.ID, "carries over shard %d, and has attempt %d at it with token %d", cl.Shard, cl.Attempt, cl.Token)
		}
	}
	return len(seen)
}

// succeeded tells whether a shard's last attempt in the run did.
func (r *Run) succeeded(shard int) bool {
	var last *Attempt
	for i := range r.Attempts {
		if r.Attempts[i].Shard == shard {
			last = &r.Attempts[i]
		}
	}
	return last != nil && last.State == "succeeded" && !last.Snoozed
}

// copied checks the checkpoints that runs have from those that they repeat: each was the
// last one of the same shard there. They are in order of their revisions.
func (c *checker) copied(j *job) {
	if !c.has(ClaimLog) {
		return
	}
	type shard struct {
		run   string
		shard int
	}
	last := map[shard]*Checkpoint{}
	for _, p := range j.checkpoints {
		if j.byToken[tokenKey{p.Run, p.Shard, p.Token}] == nil {
			known := false
			for at, o := range last {
				known = known || at.run != p.Run && at.shard == p.Shard && o.Token == p.Token && o.Sequence == p.Sequence
			}
			if !known {
				c.fail(Resumed, j.name, p.Run, "shard %d has a checkpoint of token %d, which is neither its own nor the last of another run",
					p.Shard, p.Token)
			}
		}
		last[shard{p.Run, p.Shard}] = p
	}
}

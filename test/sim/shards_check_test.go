package sim

import (
	"maps"

	past "github.com/leaderd/leaderd/internal/history"
	"github.com/leaderd/leaderd/state"
)

// shard takes in a record of a shard: its claim, its wait for another attempt, or its
// end.
func (c *checker) shard(e *event, l state.Live) {
	k := runKey{l.Job, l.Run}
	header, ok := c.live[k]
	switch {
	case !ok || !header.IsHeader():
		c.fail(past.Unclaimed, k, "shard %d has a record at revision %d, and the run no header", l.Shard, e.revision)
		return
	case header.Token != l.Header:
		c.fail(past.Unclaimed, k, "shard %d is under header %d at revision %d, while %d is stored", l.Shard, l.Header, e.revision, header.Token)
	case l.Shard < 0 || l.Shard >= header.Split.Total():
		c.fail(past.Unclaimed, k, "has shard %d of %d at revision %d", l.Shard, header.Split.Total(), e.revision)
	case header.Split.CarriedFrom(l.Shard) != "":
		c.fail(past.Again, k, "shard %d, which is carried over, has a record at revision %d", l.Shard, e.revision)
	}
	was, had := c.shards[k][l.Shard]
	switch {
	case l.State != state.StateRunning:
		if !had || was.State == l.State || state.CheckTransition(was.State, l.State) != nil {
			c.fail(past.Changed, k, "shard %d is %s after %s at revision %d", l.Shard, l.State, was.State, e.revision)
		}
	case had && was.State != state.StateWaiting:
		c.fail(past.Twice, k, "shard %d was claimed with token %d while it was %s", l.Shard, e.revision, was.State)
	case had && l.Attempt != was.Attempt+1 || !had && l.Attempt != 1:
		c.fail(past.Tokens, k, "shard %d was claimed for attempt %d after attempt %d", l.Shard, l.Attempt, was.Attempt)
	default:
		if node := header.Split.Part(l.Shard).Node; node != "" && node != l.Owner.Node {
			c.fail(past.Unfenced, k, "shard %d, which is for %s, was claimed by %s", l.Shard, node, l.Owner.Node)
		}
	}
	if l.State == state.StateRunning {
		c.claims = append(c.claims, claimed{l, e.at})
	}
	c.again(e, was, l)
	if c.shards[k] == nil {
		c.shards[k] = map[int]state.Live{}
	}
	c.shards[k][l.Shard] = l
}

// noted checks that a record which is written again says the same of its run.
func (c *checker) noted(k runKey, was, now *state.Record) {
	if was.State != now.State || was.Reason != now.Reason || len(was.Attempts) != len(now.Attempts) || len(was.Ends) != len(now.Ends) ||
		!was.Recorded.Equal(now.Recorded) || (was.Split == nil) != (now.Split == nil) {
		c.fail(past.Changed, k, "has the verdict %s:%s, and had %s:%s", now.State, now.Reason, was.State, was.Reason)
	}
}

// concluded checks the verdict of a run that was split: all its shards have ended, and
// are in it as they ended.
func (c *checker) concluded(k runKey, r *state.Record) {
	header, ok := c.live[k]
	if !ok || !header.IsHeader() {
		if ok && header.Shard == state.ListShard {
			if r.Split == nil || !r.Split.Listed() || r.Split.Total() != 0 || len(r.Ends) != 0 {
				c.fail(past.Changed, k, "has a verdict on %d shards, and its first step has listed none", len(r.Ends))
			}
			return
		}
		if r.Split != nil {
			c.fail(past.Unclaimed, k, "has a verdict on shards, and no header")
		}
		return
	}
	if len(r.Ends) != header.Split.Total() {
		c.fail(past.Changed, k, "has a verdict on %d shards of %d", len(r.Ends), header.Split.Total())
		return
	}
	succeeded := 0
	for i := range r.Ends {
		l, claimed := c.shards[k][i]
		to := r.Ends[i].State
		if claimed && (l.State != to || len(l.Attempts) != len(r.Ends[i].Attempts)) {
			c.fail(past.Changed, k, "has a verdict with shard %d as %s, which is %s", i, to, l.State)
		}
		if carried := header.Split.CarriedFrom(i) != ""; !claimed && (carried && to != state.StateSucceeded ||
			!carried && to != state.StateCancelled && to != state.StateMissed) {
			c.fail(past.Changed, k, "has a verdict with shard %d as %s, which was never claimed", i, to)
		}
		if to == state.StateSucceeded {
			succeeded++
		}
	}
	if (r.State == state.StateSucceeded) != (succeeded >= header.Split.Needed()) {
		c.fail(past.Changed, k, "is %s with %d of %d shards, of which %d were needed", r.State, succeeded, len(r.Ends), header.Split.Needed())
	}
}

// list takes in that the record of a first step becomes the header of what it has listed,
// and tells whether it is that: once, by the attempt that had it, and then for good.
func (c *checker) list(e *event, l state.Live) bool {
	k := runKey{l.Job, l.Run}
	was, had := c.live[k]
	switch {
	case !l.IsHeader():
		return false
	case had && was.IsHeader():
		c.fail(past.Changed, k, "has another header at revision %d, after that of revision %d", e.revision, was.Token)
	case !l.Split.Listed():
		c.repeats(&l)
		return false
	case !had || was.Shard != state.ListShard || was.State != state.StateRunning:
		c.fail(past.Unclaimed, k, "has a list of shards at revision %d, and no first step was at work", e.revision)
	case len(l.Attempts) == 0 || l.Attempts[len(l.Attempts)-1].Token != was.Token:
		c.fail(past.Unfenced, k, "has a list of shards at revision %d that is not of its first step of token %d", e.revision, was.Token)
	case l.Split.Total() == 0 || l.Split.Total() > l.Split.Dynamic.Most() || l.Shards != l.Split.Total():
		c.fail(past.Changed, k, "has a list of %d shards at revision %d", l.Split.Total(), e.revision)
	case l.Exclusive != was.Exclusive || l.Place != was.Place || len(l.Holds) != len(was.Holds):
		c.fail(past.Overlap, k, "has another place since its shards are listed, at revision %d", e.revision)
	}
	c.listed[k] = l.Split
	return true
}

// becameHeader tells whether the record that a key held became a header in the same
// transaction.
func (c *checker) becameHeader(deleted *event, k runKey) bool {
	for i := range c.audit {
		e := &c.audit[i]
		if kind, _ := e.part(); e.revision != deleted.revision || kind != "active" || e.Deleted {
			continue
		}
		if l, err := e.live(); err == nil && l.IsHeader() && (runKey{l.Job, l.Run}) == k {
			return true
		}
	}
	return false
}

// given checks that shards were given what was listed.
func (c *checker) given() {
	for i := range c.spans {
		s := &c.spans[i]
		split := c.listed[runKey{s.job, s.run}]
		if split != nil && s.shard >= 0 && !maps.Equal(s.given, split.Part(s.shard).Params) {
			c.fail(past.Changed, runKey{s.job, s.run}, "shard %d was given %v, and %v was listed", s.shard, s.given, split.Part(s.shard).Params)
		}
	}
}

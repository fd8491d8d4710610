package history

import (
	"slices"
	"time"
)

// maxAttempts is how many attempts a record keeps: of more, those after the first
// are left out.
const maxAttempts = 20

// claims checks every claim: invariants 1 and 3, and 7 where registrations are
// known.
func (c *checker) claims(j *job) {
	type attempt struct {
		run           string
		shard, number int
	}
	first := map[attempt]*claim{}
	for _, cl := range j.claims {
		key := attempt{cl.Run, cl.Shard, cl.Attempt}
		if was := first[key]; was != nil {
			c.fail(Twice, j.name, cl.Run, "attempt %d was claimed twice, with tokens %d and %d", cl.Attempt, was.Token, cl.Token)
		}
		first[key] = cl
		if cl.run == nil {
			c.fail(Lost, j.name, cl.Run, "attempt %d was claimed with token %d, and there is neither verdict nor record", cl.Attempt, cl.Token)
		} else if cl.run.Ended != 0 && cl.Token > cl.run.Ended {
			c.fail(Again, j.name, cl.Run, "attempt %d was claimed with token %d after the verdict at revision %d", cl.Attempt, cl.Token, cl.run.Ended)
		}
		c.fenced(j, cl)
		c.registered(j, cl)
	}
	for _, r := range j.runs {
		c.attempts(j, r)
	}
}

// fenced checks that the claim relied on a version that stood and made it due.
func (c *checker) fenced(j *job, cl *claim) {
	v := j.inForce(cl.Token)
	slot, isSlot := Slot(cl.Run)
	if !whole(cl.Shard) && cl.run.split() {
		// The run was due when it was claimed as a whole, by that version or one before.
		if isSlot && !j.unjudged && !j.wasDue(slot, cl.Token) {
			c.fail(Unfenced, j.name, cl.Run, "shard %d was claimed with token %d, and is of no slot of a version before", cl.Shard, cl.Token)
		}
		isSlot = false
	}
	switch {
	case v == nil && j.partial():
	case v == nil:
		c.fail(Unfenced, j.name, cl.Run, "token %d is older than the job", cl.Token)
	case v.Deleted:
		c.fail(Unfenced, j.name, cl.Run, "was claimed with token %d after the job was deleted at revision %d", cl.Token, v.Revision)
	case v.Paused && !IsBackfill(cl.Run):
		c.fail(Unfenced, j.name, cl.Run, "was claimed with token %d after the job was paused at revision %d", cl.Token, v.Revision)
	case v.Broken:
		c.fail(Unfenced, j.name, cl.Run, "was claimed with token %d after the job was quarantined at revision %d", cl.Token, v.Revision)
	case cl.Generation != 0 && v.Generation != 0 && cl.Generation != v.Generation:
		c.fail(Unfenced, j.name, cl.Run, "was claimed with token %d for generation %d after generation %d was stored at revision %d",
			cl.Token, cl.Generation, v.Generation, v.Revision)
	case isSlot && cl.Attempt == 1 && !j.unjudged && (!slot.After(v.Effective.Add(-v.Slack)) || !v.names(slot)) && !c.waited(j, cl.Run, slot, cl.Token):
		// That it was due by another version is no excuse.
		c.fail(Unfenced, j.name, cl.Run, "is no slot of the version at revision %d that its claim, token %d, relied on", v.Revision, cl.Token)
	case isSlot && cl.Attempt == 1 && !j.unjudged:
		if why := v.bars(slot); why != "" && !c.waited(j, cl.Run, slot, v.Revision) {
			c.fail(Barred, j.name, cl.Run, "was claimed with token %d, though the version at revision %d skips it (%s)", cl.Token, v.Revision, why)
		}
	}
}

// wasDue tells whether a version that was stored before a claim made a slot due.
func (j *job) wasDue(slot time.Time, token int64) bool {
	for _, v := range j.versions {
		if v.Revision < token && v.live() && slot.After(v.Effective.Add(-v.Slack)) && v.names(slot) {
			return true
		}
	}
	return j.partial()
}

// waited tells whether a slot may have waited for other runs before a revision, by a
// version that made it due: then it goes on with whatever version is in force.
func (c *checker) waited(j *job, run string, slot time.Time, revision int64) bool {
	if r := j.byID[run]; c.f.KnowsWaits && (r == nil || r.Asked.IsZero()) {
		return false
	}
	for _, v := range j.versions {
		if v.Revision < revision && v.Queues && v.live() && slot.After(v.Effective.Add(-v.Slack)) && v.names(slot) {
			return true
		}
	}
	return false
}

// earliest is when an attempt at a slot's run may begin.
func (c *checker) earliest(j *job, run string, slot time.Time, attempt int, token int64) time.Time {
	if !c.waited(j, run, slot, token) {
		if v := j.inForce(token); v != nil && attempt == 1 && !j.split(run) {
			return v.dueAt(j.name, slot)
		}
		return slot
	}
	if r := j.byID[run]; r != nil && r.Asked.After(slot) {
		return r.Asked // by the version that made it due
	}
	return slot
}

// registered checks that the owner's registration stood when it claimed.
func (c *checker) registered(j *job, cl *claim) {
	if !cl.logged || !c.has(RegistrationLog) || cl.Shard == HeaderShard { // which nobody owns
		return
	}
	reg := c.owners[cl.Owner]
	if reg == nil || reg.EndRevision != 0 && reg.EndRevision < cl.Token {
		c.fail(Disowned, j.name, cl.Run, "attempt %d was claimed with token %d by %s, whose registration %d was gone",
			cl.Attempt, cl.Token, cl.Owner.Node, cl.Owner.Revision)
	}
}

// attempts checks what the record of a run says of its attempts.
func (c *checker) attempts(j *job, r *Run) {
	last := map[int]*Attempt{} // by shard
	for i := range r.Attempts {
		a := &r.Attempts[i]
		was := last[a.Shard]
		last[a.Shard] = a
		if slot, ok := Slot(r.ID); ok && !a.Started.IsZero() {
			if due := c.earliest(j, r.ID, slot, a.Number, a.Token); a.Started.Before(due) {
				c.fail(Early, j.name, r.ID, "attempt %d started %s before it was due, by the clock of %s", a.Number, due.Sub(a.Started), a.Node)
			}
		}
		if a.Term != 0 && a.Term > a.Token {
			c.fail(Tokens, j.name, r.ID, "attempt %d has token %d, and was planned in term %d that came after it", a.Number, a.Token, a.Term)
		}
		if was == nil {
			if a.Number != 1 && r.Unreadable == "" {
				c.fail(Tokens, j.name, r.ID, "its first attempt is number %d", a.Number)
			}
			continue
		}
		gap := len(r.Attempts) >= maxAttempts && was.Number == 1
		if a.Number != was.Number+1 && !gap || a.Token <= was.Token {
			c.fail(Tokens, j.name, r.ID, "attempt %d has token %d, and attempt %d after it token %d", was.Number, was.Token, a.Number, a.Token)
		}
		if was.State == "succeeded" && !was.Snoozed || was.State == "running" {
			c.fail(Again, j.name, r.ID, "has attempt %d though attempt %d is %s", a.Number, was.Number, was.State)
		}
		// Of a lost attempt nobody knows whether it had started.
		if cl := j.byToken[tokenKey{r.ID, a.Shard, was.Token}]; cl != nil && cl.AtMostOnce && (!was.Started.IsZero() || was.State == "lost") {
			c.fail(Twice, j.name, r.ID, "is at-most-once and has attempt %d after attempt %d, which is %s", a.Number, was.Number, was.State)
		}
	}
	if r.split() {
		c.shards(j, r, last)
		return
	}
	if r.State != "succeeded" && r.State != "failed" && r.State != "timed_out" {
		return
	}
	if len(last) == 0 {
		c.fail(Changed, j.name, r.ID, "is %s, and has no attempt", r.State)
	}
	for _, a := range last {
		ranOut := r.State == "timed_out" && r.Reason == "run_timeout" // while it waited for its next attempt
		if len(last) == 1 && a.State != r.State && !ranOut {
			c.fail(Changed, j.name, r.ID, "is %s, but its last attempt is %s", r.State, a.State)
		}
	}
}

// shards checks the verdict of a run that was split against the last attempts of its
// shards.
func (c *checker) shards(j *job, r *Run, last map[int]*Attempt) {
	succeeded := c.carried(j, r)
	for shard, a := range last {
		if shard == ListShard {
			if a.State != "succeeded" || a.Snoozed {
				c.fail(Changed, j.name, r.ID, "has %d shards, and the attempt that was to list them is %s", r.Shards, a.State)
			}
			continue
		}
		if shard < 0 || shard >= r.Shards {
			c.fail(Changed, j.name, r.ID, "has %d shards, and an attempt at shard %d", r.Shards, shard)
		}
		if a.State == "succeeded" && !a.Snoozed {
			succeeded++
		}
		if !r.alive() && (a.State == "running" || a.State == "waiting") {
			c.fail(Changed, j.name, r.ID, "is %s, and shard %d is %s", r.State, shard, a.State)
		}
	}
	if !r.alive() && (r.State == "succeeded") != (succeeded >= r.Needed) {
		c.fail(Changed, j.name, r.ID, "is %s, and %d shards of %d succeeded, of which %d were needed", r.State, succeeded, r.Shards, r.Needed)
	}
}

// starts checks what the work wrote down: invariants 1, 3 and 7.
func (c *checker) starts(j *job) {
	if !c.has(WorkLog) {
		return
	}
	for _, s := range j.starts {
		if s.Token == 0 {
			c.unclaimed(j, s)
			continue
		}
		at := s.At
		if !s.Local.IsZero() {
			at = s.Local
		}
		if slot, ok := Slot(s.Run); ok {
			if due := c.earliest(j, s.Run, slot, s.Attempt, s.Token); at.Before(due) {
				c.fail(Early, j.name, s.Run, "attempt %d started %s before it was due", s.Attempt, due.Sub(at))
			}
		}
		cl := c.claimOf(j, s)
		if v := j.inForce(s.Token); v != nil && v.Mark != s.Mark {
			c.fail(Unfenced, j.name, s.Run, "token %d is newer than revision %d (%q), but the work was of %q", s.Token, v.Revision, v.Mark, s.Mark)
		}
		c.once(j, s)
		if cl == nil {
			continue
		}
		if c.logClock() && !cl.At.IsZero() && s.At.Before(cl.At) {
			c.fail(Unclaimed, j.name, s.Run, "attempt %d started %s before its claim", s.Attempt, cl.At.Sub(s.At))
		}
		reg := c.owners[cl.Owner]
		if c.has(WorkEnds|RegistrationLog) && reg != nil && !reg.Forced && !reg.Ended.IsZero() && (s.Ended.IsZero() || s.Ended.After(reg.Ended)) {
			c.fail(Outlived, j.name, s.Run, "attempt %d went on after the registration of %s had ended at %s", s.Attempt, cl.Owner.Node,
				reg.Ended.Format(timeLayout))
		}
	}
	for _, r := range j.runs {
		for i := range r.Attempts {
			a := &r.Attempts[i]
			if v := j.inForce(a.Token); a.State != "succeeded" || v == nil || v.NoWork {
				continue
			}
			token := a.Token
			if a.Unclaimed {
				token = 0
			}
			if !slices.ContainsFunc(j.byRun[r.ID], func(s *Start) bool { return s.Token == token && s.Shard == a.Shard }) {
				c.fail(Silent, j.name, r.ID, "attempt %d (token %d) succeeded on %s, but no work wrote it down", a.Number, a.Token, a.Node)
			}
		}
	}
}

const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// claimOf finds the claim that a start was by.
func (c *checker) claimOf(j *job, s *Start) *claim {
	cl := j.byToken[tokenKey{s.Run, s.Shard, s.Token}]
	if cl != nil && cl.Attempt == s.Attempt {
		return cl
	}
	r := j.byID[s.Run]
	switch {
	case r == nil && !c.has(ClaimLog):
		c.fail(Unclaimed, j.name, s.Run, "started with token %d, but there is no such run", s.Token)
	case r != nil && len(r.Attempts) >= maxAttempts && s.Attempt > 1 && !c.has(ClaimLog):
		// It is one of those that are left out.
	case r != nil && r.Unreadable != "" && !c.has(ClaimLog):
	case r != nil:
		c.fail(Unclaimed, j.name, s.Run, "started as attempt %d with token %d, which nobody claimed (it is %s with %d attempts)",
			s.Attempt, s.Token, r.State, len(r.Attempts))
	default:
		c.fail(Unclaimed, j.name, s.Run, "started as attempt %d with token %d, which nobody claimed", s.Attempt, s.Token)
	}
	return nil
}

// once checks a start against those of the same run that were written down before
// it.
func (c *checker) once(j *job, s *Start) {
	for _, o := range j.byRun[s.Run] {
		if o == s {
			return
		}
		if o.Shard != s.Shard || o.Token == 0 {
			continue
		}
		earlier, later := o, s
		if later.Token < earlier.Token {
			earlier, later = later, earlier
		}
		v := j.inForce(earlier.Token)
		switch {
		case o.Attempt == s.Attempt:
			c.fail(Twice, j.name, s.Run, "attempt %d started twice, %s apart (tokens %d and %d)", s.Attempt, s.At.Sub(o.At).Abs(), o.Token, s.Token)
		case v != nil && v.AtMostOnce:
			c.fail(Twice, j.name, s.Run, "is at-most-once and started as attempts %d and %d", earlier.Attempt, later.Attempt)
		case earlier.Attempt > later.Attempt:
			c.fail(Tokens, j.name, s.Run, "tokens of attempts %d and %d do not rise", later.Attempt, earlier.Attempt)
		}
	}
}

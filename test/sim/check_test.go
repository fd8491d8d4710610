package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

type runKey struct {
	job state.JobID
	run state.RunID
}

// claimed is a claim that was committed.
type claimed struct {
	state.Live
	at time.Time
}

// checker replays the audit and gathers what is wrong.
type checker struct {
	oracle  *oracle
	audit   []event
	revoked map[state.Owner]bool
	skewed  time.Duration // the greatest error of a clock
	spans   []span
	acks    []state.Finish
	wrong   []string
	gone    []runKey // whose pending keys vanished at the revision before

	claims   []claimed
	byToken  map[string]*claimed // see tokenKey
	live     map[runKey]state.Live
	pending  map[runKey]state.Pending
	asked    map[runKey]state.Pending // of all that ever were
	holds    map[string]runKey        // the run whose live record a key holds
	records  map[runKey]state.Record
	decided  map[runKey]int64 // revision of the first record, live or verdict
	ranges   map[state.JobID][]state.Record
	swept    []removal // verdicts that went from where they were written
	marks    []mark
	nodeEnds map[state.Owner]time.Time
	nodes    map[string]int64 // registered at the end
}

type mark struct {
	instant  time.Time
	revision int64
	term     int64
	jobs     int64
}

// check answers all violations of the invariants, so far. With settled every
// due slot up to now must be decided, and nothing may be without an owner.
func (w *world) check(settled bool) []string {
	w.t.Helper()
	o, err := newOracle(w.audit)
	require.NoError(w.t, err)
	c := &checker{
		oracle: o, skewed: w.skewed, audit: w.audit.all(), spans: w.history.all(), revoked: map[state.Owner]bool{},
		byToken:  map[string]*claimed{},
		live:     map[runKey]state.Live{},
		pending:  map[runKey]state.Pending{},
		asked:    map[runKey]state.Pending{},
		holds:    map[string]runKey{},
		records:  map[runKey]state.Record{},
		decided:  map[runKey]int64{},
		ranges:   map[state.JobID][]state.Record{},
		nodeEnds: map[state.Owner]time.Time{},
		nodes:    map[string]int64{},
	}
	w.audit.mu.Lock()
	for owner := range w.audit.revoked {
		c.revoked[owner] = true
	}
	w.audit.mu.Unlock()
	w.history.mu.Lock()
	c.acks = slices.Clone(w.history.acks)
	w.history.mu.Unlock()
	c.replay()
	c.retention()
	c.starts()
	c.overlaps()
	c.finishes()
	c.watermarks()
	cutoff := time.Time{}
	if len(c.marks) > 0 {
		cutoff = c.marks[len(c.marks)-1].instant
	}
	if now := time.Now(); cutoff.After(now) {
		cutoff = now // the leader's clock was fast
	}
	if settled {
		c.leftovers()
		c.lag(cutoff, time.Now())
		c.owners()
		c.wrong = append(c.wrong, w.ghosts()...)
		c.wrong = append(c.wrong, w.readable(c)...)
	}
	c.slots(cutoff)
	c.judge(cutoff, settled)
	return c.wrong
}

// verify fails the test on violations.
func (w *world) verify(settled bool) {
	w.t.Helper()
	if wrong := w.check(settled); len(wrong) > 0 {
		more := ""
		if len(wrong) > 25 {
			wrong, more = wrong[:25], fmt.Sprintf("\n… and %d more", len(wrong)-25)
		}
		require.FailNow(w.t, "invariants are broken", "%s%s", strings.Join(wrong, "\n"), more)
	}
}

func (c *checker) fail(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// tokenKey tells claims apart: those of one transaction share a token.
func tokenKey(job state.JobID, run state.RunID, token int64) string {
	return fmt.Sprint(job, run, token)
}

// replay goes through the store's events in order: invariants 1, 3, 4 and 6 as
// the transactions keep them.
func (c *checker) replay() {
	attempts := map[string]bool{}
	for i := range c.audit {
		e := &c.audit[i]
		if i > 0 && e.revision != c.audit[i-1].revision {
			c.dropped(e.revision)
		}
		kind, rest := e.part()
		switch kind {
		case "active":
			if e.Deleted {
				c.deleteLive(e)
				continue
			}
			l, err := e.live()
			if err != nil {
				c.fail("rev %d: %s: %v", e.revision, e.KV.Key, err)
				continue
			}
			k := runKey{l.Job, l.Run}
			if _, ok := c.decided[k]; !ok {
				c.decided[k] = e.revision
			}
			if l.State == state.StateRunning {
				c.claim(e, l, attempts)
			}
			c.again(e, c.live[k], l)
			c.live[k] = l
			c.holds[e.KV.Key] = k
		case "history":
			if e.Deleted {
				c.sweptAway(e, rest)
				continue
			}
			if e.KV.Version > 1 {
				c.fail("rev %d: verdict %s was changed", e.revision, e.KV.Key)
				continue
			}
			r, err := e.record()
			if err != nil {
				c.fail("rev %d: %s: %v", e.revision, e.KV.Key, err)
				continue
			}
			k := runKey{r.Job, r.Run}
			if _, twice := c.records[k]; twice {
				c.fail("rev %d: run %s %s has had a verdict before, which was swept", e.revision, k.job, k.run)
			}
			if _, ok := c.decided[k]; !ok {
				c.decided[k] = e.revision
			}
			c.records[k] = r
			if r.Count > 1 {
				c.ranges[r.Job] = append(c.ranges[r.Job], r)
			}
			if was, ok := c.live[k]; ok && (was.DeadLetter && r.State.Dead()) != c.buried(i, rest) {
				c.fail("rev %d: verdict %s of %s %s, dead letter %v: it was claimed with %v", e.revision, r.State, k.job, k.run,
					c.buried(i, rest), was.DeadLetter)
			}
			delete(c.live, k)
		case "pending":
			c.wait(e)
		case "nodes":
			if e.Deleted {
				if rev, ok := c.nodes[rest]; ok {
					c.nodeEnds[state.Owner{Node: rest, Revision: rev}] = e.at
					delete(c.nodes, rest)
				}
			} else {
				c.nodes[rest] = e.KV.CreateRevision
			}
		case "timeline":
			if rest == "watermark" && !e.Deleted {
				m, err := e.watermark()
				if err != nil {
					c.fail("rev %d: watermark: %v", e.revision, err)
				}
				c.marks = append(c.marks, m)
			}
		}
	}
}

func (c *checker) deleteLive(e *event) {
	k := c.holds[e.KV.Key]
	delete(c.holds, e.KV.Key)
	if _, ok := c.records[k]; !ok {
		// The verdict of the same transaction may come behind it.
		for i := range c.audit {
			o := &c.audit[i]
			if kind, rest := o.part(); o.revision == e.revision && kind == "history" && rest == k.job.Namespace+"/"+k.job.Name+"/"+string(k.run) {
				return
			}
		}
		c.fail("rev %d: live record of %s %s vanished without a verdict", e.revision, k.job, k.run)
	}
}

// again checks what follows one record of a run: a further attempt is not claimed
// before its time, and what counts against the job's policy is counted one by one.
func (c *checker) again(e *event, was, l state.Live) {
	if was.Run == "" || was.Shard != l.Shard {
		return
	}
	name := fmt.Sprintf("rev %d: attempt %d of %s %s", e.revision, l.Attempt, l.Job, l.Run)
	// The owner of the one before has set the time, and a leader has looked at it,
	// each by its own clock.
	if l.State == state.StateRunning && e.at.Before(was.NextTry.Add(-2*c.skewed)) {
		c.fail("%s: claimed at %s, before its time, %s", name, e.at.UTC().Format(time.RFC3339Nano), was.NextTry.Format(time.RFC3339Nano))
	}
	used := l.Tries + l.Snoozes - was.Tries - was.Snoozes
	if used < 0 || used > 1 || used == 1 && l.State == state.StateRunning || l.Handovers() < 0 {
		c.fail("%s: %d tries and %d snoozes after %d and %d", name, l.Tries, l.Snoozes, was.Tries, was.Snoozes)
	}
	if v := c.oracle.of(l.Job, l.Generation); v != nil && l.State == state.StateWaiting && l.Tries > was.Tries &&
		(v.Spec.Retry == nil || l.Tries >= v.Spec.Retry.MaxAttempts) {
		c.fail("%s: waits after %d tries, though its job's policy is %+v", name, l.Tries, v.Spec.Retry)
	}
}

// claim checks one committed claim.
func (c *checker) claim(e *event, l state.Live, attempts map[string]bool) {
	k := runKey{l.Job, l.Run}
	name := fmt.Sprintf("rev %d: claim of %s %s attempt %d by %s", e.revision, l.Job, l.Run, l.Attempt, l.Owner.Node)
	id := fmt.Sprint(l.Job, l.Run, l.Shard, l.Attempt)
	if attempts[id] {
		c.fail("%s: the attempt was claimed before", name)
	}
	attempts[id] = true
	if _, ok := c.records[k]; ok {
		c.fail("%s: the run has a verdict", name)
	}
	v := c.oracle.at(l.Job, e.revision)
	switch {
	case v == nil:
		c.fail("%s: the job does not exist", name)
	case v.Paused && l.Run.Kind() != state.KindBackfill:
		c.fail("%s: the job is paused", name)
	case v.Generation != l.Generation:
		c.fail("%s: of generation %d, while %d is stored", name, l.Generation, v.Generation)
	default:
		// A slot that waits goes on with the newest version.
		if slot, ok := l.Run.Slot(); ok && l.Attempt == 1 && c.asked[k].Revision == 0 && (!v.names(slot) || !slot.After(v.from)) {
			c.fail("%s: the slot is not due", name)
		} else if bar, barred := v.plan.Bar(slot); ok && l.Attempt == 1 && c.asked[k].Revision == 0 && barred {
			c.fail("%s: the slot is barred (%s)", name, bar.Detail)
		}
	}
	if c.nodes[l.Owner.Node] != l.Owner.Revision {
		c.fail("%s: the owner is not registered", name)
	}
	if l.Exclusive {
		for other, held := range c.live {
			// A retry goes on beside runs that were allowed to overlap it.
			if other.job == l.Job && other.run != l.Run && (held.Exclusive || l.Attempt == 1) {
				c.fail("%s: run %s is %s", name, other.run, held.State)
			}
		}
	}
	if v != nil && l.Attempt == 1 {
		c.gated(name, &l, v)
	}
	c.claims = append(c.claims, claimed{l, e.at})
}

// starts checks what really ran: invariants 1, 3 and 7.
func (c *checker) starts() {
	for i := range c.claims {
		c.byToken[tokenKey(c.claims[i].Job, c.claims[i].Run, c.claims[i].Token)] = &c.claims[i]
	}
	started, attempts := map[string][]*claimed{}, map[string]int{}
	for i := range c.spans {
		s := &c.spans[i]
		name := fmt.Sprintf("start of %s %s attempt %d on %s at %s", s.job, s.run, s.attempt, s.node, s.begun.UTC().Format("15:04:05.000"))
		cl := c.byToken[tokenKey(s.job, s.run, s.token)]
		if cl == nil || cl.Run != s.run || cl.Attempt != s.attempt || cl.Owner.Node != s.node {
			c.fail("%s: there is no such claim", name)
			continue
		}
		if slot, ok := s.run.Slot(); ok {
			if v := c.oracle.of(s.job, cl.Generation); v != nil && s.attempt == 1 {
				slot = v.plan.Due(slot)
			}
			if p, waited := c.asked[runKey{s.job, s.run}]; waited {
				slot = p.Requested // by the version that made it due
			}
			if s.wall.Before(slot) {
				c.fail("%s: before its slot", name)
			}
		}
		if s.begun.Before(cl.at) {
			c.fail("%s: before its claim", name)
		}
		id := fmt.Sprint(s.job, s.run, s.shard)
		for _, other := range started[id] {
			// An owner that lost its registration may start late, after the next attempt.
			if other.Token < cl.Token && other.AtMostOnce || cl.Token < other.Token && cl.AtMostOnce {
				c.fail("%s: an attempt before it was at most once", name)
			}
		}
		started[id] = append(started[id], cl)
		if attempts[id+fmt.Sprint(s.attempt)]++; attempts[id+fmt.Sprint(s.attempt)] > 1 {
			c.fail("%s: the attempt started before", name)
		}
		if end, over := c.nodeEnds[cl.Owner]; over && !c.revoked[cl.Owner] && (s.ended.IsZero() || s.ended.After(end)) {
			c.fail("%s: went on after its owner's registration ended at %s", name, end.UTC().Format("15:04:05.000"))
		}
	}
}

// overlaps checks that exclusive jobs' work never ran side by side: invariant 4.
// Owners whose registration was ended behind their back are left out: they
// cannot know.
func (c *checker) overlaps() {
	last := map[state.JobID]*span{}
	for i := range c.spans {
		s := &c.spans[i]
		cl := c.byToken[tokenKey(s.job, s.run, s.token)]
		if cl == nil || !cl.Exclusive || c.revoked[cl.Owner] {
			continue
		}
		if before := last[s.job]; before != nil && (before.ended.IsZero() || before.ended.After(s.begun)) {
			c.fail("%s: run %s on %s began at %s while %s ran on %s", s.job, s.run, s.node,
				s.begun.UTC().Format("15:04:05.000"), before.run, before.node)
		}
		last[s.job] = s
	}
}

// finishes checks that what was acknowledged stands: invariant 6.
func (c *checker) finishes() {
	for i := range c.acks {
		f := &c.acks[i]
		k := runKey{f.Live.Job, f.Live.Run}
		has := func(as []state.Attempt) bool {
			return slices.ContainsFunc(as, func(a state.Attempt) bool {
				return a.Token == f.Live.Token && a.State == f.Attempt.State
			})
		}
		rec, over := c.records[k]
		switch {
		case max(len(rec.Attempts), len(c.live[k].Attempts)) >= state.MaxAttemptRecords: // some are left out
		case over && has(rec.Attempts):
		case !over && !f.Retry.IsZero() && has(c.live[k].Attempts):
		case !over && f.Retry.IsZero():
			c.fail("%s %s: the verdict %s was acknowledged and is not there", k.job, k.run, f.Attempt.State)
		default:
			c.fail("%s %s: the end of attempt %d was acknowledged and is not in the record", k.job, k.run, f.Attempt.Number)
		}
	}
}

// owners checks that nothing is left to an owner that is gone.
func (c *checker) owners() {
	for k, l := range c.live {
		if l.State == state.StateRunning && c.nodes[l.Owner.Node] != l.Owner.Revision {
			c.fail("%s %s: is running on %s, which is gone", k.job, k.run, l.Owner.Node)
		}
	}
}

package planner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leaderd/leaderd/state"
)

const (
	// auditChains is how often all jobs that run after others are looked at without news
	// of those, and chainsAgain the least time between two looks at one.
	auditChains = 10 * time.Second
	chainsAgain = 100 * time.Millisecond
)

// chains are the jobs that run after others. What they are to start is found in the
// others' history, where each job's cursor tells how far that was done: reports only tell
// when a look is worth it, and a new leader looks at all.
type chains struct {
	of map[state.JobID]*chain
	// followers are the jobs that run after one.
	followers map[state.JobID]map[state.JobID]struct{}
	audit     bool
	audited   time.Time

	// mu guards seen, which sweeps of history read.
	mu sync.Mutex
	// seen is, of each job that others run after, the revision up to which each of them
	// has taken its ends in.
	seen map[state.JobID]map[state.JobID]int64
}

// chain is one of them.
type chain struct {
	after          *state.After
	looking, again bool
}

// watchChain takes a job's newest version in.
func (t *term) watchChain(j *timed) {
	id := j.job.ID
	was := t.chains.of[id]
	if j.job.After == nil || j.job.Broken != nil {
		if was != nil {
			t.dropChain(id)
		}
		return
	}
	c := &t.chains
	if was != nil {
		c.unlink(id, was.after)
	} else {
		was = &chain{}
		if c.of == nil {
			c.of = make(map[state.JobID]*chain)
			c.followers = make(map[state.JobID]map[state.JobID]struct{})
		}
		c.of[id] = was
	}
	was.after = j.job.After
	c.mu.Lock()
	for _, upstream := range upstreamOf(id, was.after) {
		if c.followers[upstream] == nil {
			c.followers[upstream] = make(map[state.JobID]struct{})
		}
		c.followers[upstream][id] = struct{}{}
		if c.seen == nil {
			c.seen = make(map[state.JobID]map[state.JobID]int64)
		}
		if c.seen[upstream] == nil {
			c.seen[upstream] = make(map[state.JobID]int64)
		}
		c.seen[upstream][id] = 0
	}
	c.mu.Unlock()
	t.advance(id)
}

func upstreamOf(id state.JobID, a *state.After) []state.JobID {
	all := make([]state.JobID, len(a.Jobs))
	for i, name := range a.Jobs {
		all[i] = state.JobID{Namespace: id.Namespace, Name: name}
	}
	return all
}

func (t *term) dropChain(id state.JobID) {
	if c := t.chains.of[id]; c != nil {
		t.chains.unlink(id, c.after)
		delete(t.chains.of, id)
	}
}

func (c *chains) unlink(id state.JobID, after *state.After) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, upstream := range upstreamOf(id, after) {
		if delete(c.followers[upstream], id); len(c.followers[upstream]) == 0 {
			delete(c.followers, upstream)
		}
		if delete(c.seen[upstream], id); len(c.seen[upstream]) == 0 {
			delete(c.seen, upstream)
		}
	}
}

// limit is the revision from which on verdicts of a job are kept where they are, at most
// the given one: those that a job has not taken in which runs after it. Any goroutine may
// call it.
func (c *chains) limit(id state.JobID, most int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, seen := range c.seen[id] {
		most = min(most, seen+1)
	}
	return most
}

// advanceAfter looks at the jobs that run after one of which a run has ended.
func (t *term) advanceAfter(id state.JobID) {
	for follower := range t.chains.followers[id] {
		t.advance(follower)
	}
}

// auditChains looks at all of them now and then, and where reports may have been lost.
func (t *term) auditChains(now time.Time) {
	c := &t.chains
	since := now.Sub(c.audited).Abs()
	if len(c.of) == 0 || since < chainsAgain || since < auditChains && !c.audit {
		return
	}
	c.audit, c.audited = false, now
	for id := range c.of {
		t.advance(id)
	}
}

// advance makes the runs of a job that are due after others, and looks once more for
// what is asked meanwhile.
func (t *term) advance(id state.JobID) {
	c, j := t.chains.of[id], t.jobs[id]
	if c == nil || j == nil {
		return
	}
	if c.looking {
		c.again = true
		return
	}
	c.looking, c.again = true, false
	a := state.Advance{
		Job: id, JobRevision: j.job.Revision, Generation: j.job.Generation, After: c.after, Paused: j.job.Paused, Now: t.now(),
	}
	t.task(func(ctx context.Context) func() {
		done, err := t.store.AdvanceChain(ctx, t.leadership, a)
		return func() {
			wait := chainsAgain
			switch {
			case errors.Is(err, state.ErrJobChanged): // its change is on its way here
				wait = time.Second
			case err != nil:
				t.checkErr("look what "+id.String()+" runs after", err)
				c.again, wait = true, time.Second
			case done.More && len(done.Runs) == 0 && done.Seen == 0:
				c.again, wait = true, time.Second
			case done.More:
				c.again = true
			default:
				t.chains.note(id, a.After, done.Seen)
			}
			t.metrics.chained.Add(float64(len(done.Runs)))
			t.later(wait, func() {
				if c.looking = false; c.again && t.chains.of[id] == c {
					t.advance(id)
				}
			})
		}
	})
}

// note remembers how far a job has taken in the ends of those that it runs after.
func (c *chains) note(id state.JobID, after *state.After, seen int64) {
	if known := c.of[id]; known == nil || known.after != after {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, upstream := range upstreamOf(id, after) {
		if c.seen[upstream] != nil {
			c.seen[upstream][id] = seen
		}
	}
}

package planner

import (
	"sync"

	"github.com/leaderd/leaderd/state"
)

// Catalog holds all jobs, compiled. Every control node feeds one from its watch
// cache (see Reset, Set and Delete), so that it could lead at any moment.
// Its methods may be called concurrently and never block for long.
type Catalog struct {
	mu     sync.Mutex
	jobs   map[state.JobID]*Job
	broken int
	adhoc  int
	ready  chan struct{}
	synced bool
	subs   map[*Changes]struct{}
}

// NewCatalog makes an empty Catalog.
func NewCatalog() *Catalog {
	return &Catalog{
		jobs:  make(map[state.JobID]*Job),
		ready: make(chan struct{}),
		subs:  make(map[*Changes]struct{}),
	}
}

// Ready is closed when the first Reset has been applied.
func (c *Catalog) Ready() <-chan struct{} { return c.ready }

// Len answers how many jobs there are, and how many of them are broken.
func (c *Catalog) Len() (jobs, broken int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jobs), c.broken
}

// Adhoc answers how many of the jobs were made by submissions.
func (c *Catalog) Adhoc() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.adhoc
}

// Has tells whether there is a job of a name.
func (c *Catalog) Has(id state.JobID) bool { return c.Get(id) != nil }

// Get answers a job, or nil.
func (c *Catalog) Get(id state.JobID) *Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jobs[id]
}

// Stored is a job as the store has it: decoded, or with the error that says why
// it cannot be read.
type Stored struct {
	Job   state.Job // ID and Revision are always set
	Value []byte
	Err   error
}

func (c *Catalog) compile(s *Stored) *Job {
	if s.Err != nil {
		return broken(s.Job.ID, s.Job.Revision, s.Err)
	}
	j := compile(&s.Job, s.Value)
	j.catalog = c
	return j
}

// Reset replaces all jobs. Versions that are the same are kept as they are.
func (c *Catalog) Reset(all func(yield func(Stored) bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := make(map[state.JobID]struct{}, len(c.jobs))
	for id := range c.jobs {
		gone[id] = struct{}{}
	}
	for sub := range c.subs {
		sub.changed = append(sub.changed, change{reset: true})
	}
	for s := range all {
		delete(gone, s.Job.ID)
		if have := c.jobs[s.Job.ID]; have == nil || have.Revision != s.Job.Revision {
			c.set(c.compile(&s))
		}
	}
	for id := range gone {
		c.delete(id, 0)
	}
	if !c.synced {
		c.synced = true
		close(c.ready)
	}
	c.wake()
}

// Set puts one job's newest version.
func (c *Catalog) Set(s Stored) {
	j := c.compile(&s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(j)
	c.wake()
}

// Delete removes a job that was deleted at a revision.
func (c *Catalog) Delete(id state.JobID, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delete(id, revision)
	c.wake()
}

func (c *Catalog) set(j *Job) {
	if have := c.jobs[j.ID]; have != nil {
		c.count(have, -1)
	}
	c.count(j, 1)
	c.jobs[j.ID] = j
	c.tell(change{id: j.ID, job: j, revision: j.Revision})
}

func (c *Catalog) delete(id state.JobID, revision int64) {
	have, ok := c.jobs[id]
	if !ok {
		return
	}
	c.count(have, -1)
	delete(c.jobs, id)
	c.tell(change{id: id, revision: revision})
}

// count counts a job that comes (1) or goes (-1).
func (c *Catalog) count(j *Job, by int) {
	if j.Broken != nil {
		c.broken += by
	}
	if j.Adhoc {
		c.adhoc += by
	}
}

func (c *Catalog) tell(ch change) {
	for sub := range c.subs {
		sub.changed = append(sub.changed, ch)
	}
}

func (c *Catalog) wake() {
	for sub := range c.subs {
		if len(sub.changed) > 0 {
			select {
			case sub.wake <- struct{}{}:
			default:
			}
		}
	}
}

// change is a job's newest version; nil: it was deleted.
type change struct {
	id  state.JobID
	job *Job
	// revision is that of the change: with it all that was stored up to there has
	// been told. 0: not known.
	revision int64
	// reset is a change of no job: those behind it, up to here, may leave out
	// versions that came and went.
	reset bool
}

// Changes are what has happened to the catalog since it was followed.
type Changes struct {
	c       *Catalog
	changed []change // guarded by c.mu
	wake    chan struct{}
}

// follow answers all jobs, and the changes from then on. Close the changes.
func (c *Catalog) follow() ([]*Job, *Changes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*Job, 0, len(c.jobs))
	for _, j := range c.jobs {
		all = append(all, j)
	}
	sub := &Changes{c: c, wake: make(chan struct{}, 1)}
	c.subs[sub] = struct{}{}
	return all, sub
}

// take answers and forgets the changes so far, in order.
func (s *Changes) take() []change {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	taken := s.changed
	s.changed = nil
	return taken
}

func (s *Changes) close() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	delete(s.c.subs, s)
}

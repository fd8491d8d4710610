package planner

import (
	"fmt"
	"time"

	"github.com/leaderd/leaderd/state"
)

// One bad job harms no other: where to compile a job, or to compute its slots, panics,
// it is quarantined as one whose spec cannot be read.

// compile makes the planned form of a job.
func compile(j *state.Job, stored []byte) *Job {
	return compileSafely(j.ID, j.Revision, func() *Job { return compileSpec(j, stored) })
}

func compileSafely(id state.JobID, revision int64, do func() *Job) (c *Job) {
	if err := safely(func() error { c = do(); return nil }); err != nil {
		return broken(id, revision, err)
	}
	return c
}

// guarded is next, but where that panics: then there is no slot.
func (j *Job) guarded(next func(time.Time) time.Time, after time.Time) (slot time.Time) {
	err := safely(func() error { slot = next(after); return nil })
	if err == nil {
		return slot
	}
	if j.catalog != nil {
		j.catalog.quarantine(j, fmt.Errorf("slot after %s: %w", after.UTC().Format(time.RFC3339), err))
	}
	return time.Time{}
}

// quarantine replaces a version of a job, if it is still the newest, by one that is
// due never.
func (c *Catalog) quarantine(j *Job, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs[j.ID] != j {
		return
	}
	b := broken(j.ID, j.Revision, err)
	b.Generation, b.Paused, b.Exclusive, b.Selector, b.stored = j.Generation, j.Paused, j.Exclusive, j.Selector, j.stored
	c.set(b)
	c.wake()
}

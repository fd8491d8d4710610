package planner

import (
	"cmp"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

const (
	// togetherWork bounds the work of one Together: jobs times instants.
	togetherWork = 2_000_000
	// togetherNames is how many jobs it names for each instant.
	togetherNames = 5
	// togetherJitter is how many slots of a job with jitter are looked at for one
	// instant.
	togetherJitter = 64
)

// Together is an instant and how many jobs are due in its second.
type Together struct {
	At   time.Time
	Jobs int
	// Some of them.
	Some []state.JobID
}

// Together answers how many jobs other than one run in the seconds of some
// instants, which are in order. It looks at no more instants, from the first on, than it
// has time for, which with 100,000 jobs are 20; the answer has one entry for each that
// it looked at. It may take a second, and holds nothing up meanwhile.
func (c *Catalog) Together(instants []time.Time, except state.JobID) (jobs int, out []Together) {
	c.mu.Lock()
	all := make([]*Job, 0, len(c.jobs))
	for id, j := range c.jobs {
		if id != except && j.due() {
			all = append(all, j)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b *Job) int {
		return cmp.Or(cmp.Compare(a.ID.Namespace, b.ID.Namespace), cmp.Compare(a.ID.Name, b.ID.Name))
	})
	most := len(instants)
	if len(all) > 0 {
		most = min(most, max(1, togetherWork/len(all)))
	}
	out = make([]Together, most)
	for i := range out {
		out[i].At = instants[i].Truncate(time.Second)
	}
	for _, j := range all {
		for i := 0; i < len(out); i++ {
			at := out[i].At
			next := j.NextSlot(at.Add(-j.jitter() - time.Second))
			if next.IsZero() {
				break
			}
			if next.After(at) { // go to the first instant that it may be due in
				n, _ := slices.BinarySearchFunc(out, next, func(t Together, at time.Time) int { return t.At.Compare(at) })
				i = max(i, n-1)
				continue
			}
			for range togetherJitter {
				if _, barred := j.Bar(next); !barred && j.Due(next).Truncate(time.Second).Equal(at) {
					if out[i].Jobs++; len(out[i].Some) < togetherNames {
						out[i].Some = append(out[i].Some, j.ID)
					}
					break
				}
				if next = j.NextSlot(next); next.IsZero() || next.After(at) {
					break
				}
			}
		}
	}
	return len(all), out
}

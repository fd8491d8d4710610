package sim

import (
	"fmt"
	"strings"

	past "github.com/leaderd/leaderd/internal/history"
	"github.com/leaderd/leaderd/state"
)

// limited checks a first claim against its job's limits: it has a place at each that has
// places, nobody else has it, there are not more than may be, and each rate had a token.
func (c *checker) limited(l *state.Live, limits []state.Limit, fail func(string, ...any)) {
	holds := l.Holds
	for i := range limits {
		limit := &limits[i]
		id := limit.ID(l.Job.Namespace, l.LimitKey)
		if limit.Max == 0 {
			at := l.Claimed
			if l.Due.After(at) {
				at = l.Due
			}
			after, next, ok := limit.Rate.Take(c.buckets[id], at)
			if !ok {
				fail("for %s, when %s had no token until %s", at.Format(clockLayout), id, next.Format(clockLayout))
			}
			c.buckets[id] = after
			continue
		}
		if len(holds) == 0 || holds[0].Limit != id || holds[0].Place < 1 || holds[0].Place > limit.Max {
			fail("with the places %+v, and without one at %s", l.Holds, id)
			return
		}
		hold, n := holds[0], 1
		holds = holds[1:]
		for other, held := range c.live {
			for _, h := range held.Holds {
				if other == (runKey{l.Job, l.Run}) || h.Limit != id {
					continue
				}
				if n++; h == hold {
					fail("while %s of %s had its place %d at %s", other.run, other.job, h.Place, id)
				}
			}
		}
		if n > limit.Max {
			fail("and is number %d of at most %d at %s", n, limit.Max, id)
		}
	}
	if len(holds) > 0 {
		fail("with places at limits that its job does not have: %+v", holds)
	}
}

// heldLimits checks, once all is quiet, that each place at a limit is taken by a live run.
func (c *checker) heldLimits() {
	taken := map[string]bool{}
	for i := range c.audit {
		e := &c.audit[i]
		if kind, rest := e.part(); kind == "limits" {
			taken[rest] = !e.Deleted
		}
	}
	for _, l := range c.live {
		for _, h := range l.Holds {
			parts := []string{"cluster", h.Limit.Name}
			if h.Limit.Namespace != "" {
				parts = []string{"namespace", h.Limit.Namespace, h.Limit.Name}
			}
			if h.Limit.Key != "" {
				parts = append(append([]string{"keyed"}, parts...), h.Limit.Key)
			}
			key := strings.Join(append(parts, fmt.Sprintf("%04d", h.Place)), "/")
			if !taken[key] {
				c.fail(past.Overlap, runKey{l.Job, l.Run}, "is live, and its place %s is free", key)
			}
			delete(taken, key)
		}
	}
	for key, still := range taken {
		if still {
			c.fail(past.Overlap, runKey{}, "place %s is taken by no live run", key)
		}
	}
}

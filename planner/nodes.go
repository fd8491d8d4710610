package planner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/planner/placement"
	"github.com/leaderd/leaderd/state"
)

// sweepEvery is how often the live records are looked through for owners whose
// end was not noticed when it came.
const sweepEvery = time.Minute

// setNodes takes in the registered nodes. The end of a registration ends its
// session, and what its owner had claimed is lost.
func (t *term) setNodes(all []state.Node) {
	was := t.nodes
	t.nodes = make(map[string]state.Node, len(all))
	for _, n := range all {
		t.nodes[n.Name] = n
	}
	first := !t.gotNodes
	t.gotNodes = true
	ended := make(map[state.Owner]bool)
	for name, n := range was {
		if t.nodes[name].Revision == n.Revision {
			continue
		}
		owner := state.Owner{Node: name, Revision: n.Revision}
		ended[owner] = true
		t.awaitReturn(name)
		if s := t.sessions[name]; s != nil && s.owner == owner {
			t.end(s, errDeregistered)
		}
	}
	if len(ended) > 0 {
		t.moved = true
		t.findLost(func(o state.Owner) bool { return ended[o] })
		t.lookForWaiting() // what the owners handed back
	}
	if first {
		t.sweep()
	}
}

// sweep looks for live records whose owner is not registered, at once and then
// every minute. A record of an owner that is newer than what is known here is
// safe: MarkLost compares the registration itself.
func (t *term) sweep() {
	known := maps.Clone(t.nodes)
	t.findLost(func(o state.Owner) bool { return known[o.Node].Revision != o.Revision })
	t.lookForWaiting()
	t.forgetDeleted()
	t.later(sweepEvery, t.sweep)
}

// findLost marks the running records of owners that gone says yes to as lost,
// and plans their next attempts.
func (t *term) findLost(gone func(state.Owner) bool) {
	t.task(func(ctx context.Context) func() {
		live, err := t.store.ListLive(ctx, func(l *state.Live) bool {
			return l.State == state.StateRunning && !l.IsHeader() && gone(l.Owner)
		})
		return func() {
			if err != nil {
				t.checkErr("list the runs of lost executors", err)
				t.later(time.Second, func() { t.findLost(gone) })
				return
			}
			for i := range live {
				t.markLost(live[i])
			}
		}
	})
}

func (t *term) markLost(l state.Live) {
	now := t.now()
	t.task(func(ctx context.Context) func() {
		next, ok, err := t.store.MarkLost(ctx, t.leadership, l, now)
		return func() {
			if err != nil {
				t.checkErr("mark a run lost", err)
				t.later(time.Second, func() { t.markLost(l) })
				return
			}
			if !ok {
				t.lookForWaiting() // perhaps its owner handed it back
				return
			}
			t.metrics.lost.Inc()
			t.cfg.Logger.Warn("run lost its executor", "job", l.Job, "run", l.Run, "node", l.Owner.Node,
				"again", next.State == state.StateWaiting)
			if next.State == state.StateWaiting {
				t.addWaiting(&next, t.now())
			} else {
				t.endedOf(l.Job, l.LimitKey)
				if j := t.jobs[l.Job]; j != nil {
					t.trimDead(j)
				}
			}
			if l.Header != 0 {
				t.muster(l.Job, l.Run)
			}
		}
	})
}

// rebalance adapts placement to the executors that attend.
func (t *term) rebalance() error {
	nodes := make([]placement.Node, 0, len(t.sessions))
	for _, name := range slices.Sorted(maps.Keys(t.sessions)) {
		n := t.nodes[name]
		nodes = append(nodes, placement.Node{ID: name, Capacity: max(0, n.Capacity), Labels: n.Labels, Resources: n.Resources})
	}
	table, err := placement.New(nodes)
	if err != nil {
		return fmt.Errorf("place: %w", err)
	}
	t.table, t.spread = table, spread{}
	if t.balancer == nil {
		t.balancer, err = placement.NewBalancer(table, placement.DefaultEpsilon)
		return err
	}
	t.balancer.Rebuild(table)
	for id, j := range t.jobs {
		// One that could not be where it is preferred may be able to now.
		if first := t.preferred(j.job); !j.job.Preferred().All() {
			if node, ok := t.balancer.Node(jobKey(id)); ok && !table.Fits(node, first) {
				t.balancer.Release(jobKey(id))
			}
		}
	}
	return nil
}

// placeAnew is rebalance inside the loop, where an error ends the term. It plans what
// nobody has, or what those had who attend no more: once for all who came and went.
func (t *term) placeAnew() {
	t.moved = false
	if err := t.rebalance(); err != nil {
		t.fail(err)
		return
	}
	for _, e := range t.open {
		had := len(e.holders)
		if !mutant.Off(mutant.Hedge) {
			e.holders = slices.DeleteFunc(e.holders, func(s *session) bool { return s.ended && !t.mayHaveBegun(e, s) })
		}
		if (len(e.holders) == 0 || len(e.holders) < had) && !e.deciding {
			t.place(e)
		}
	}
}

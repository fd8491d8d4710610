package planner

import (
	"context"
	"time"
)

const (
	// defaultBudget is what the store may use whose quota is not known.
	defaultBudget = 1 << 30
	// leastCut is the least part of the time that history reaches back which goes in a
	// round for want of room.
	leastCut = 0.1
	// reclaimWait is how long after its room was reclaimed a store is measured again.
	reclaimWait = 10 * time.Second
)

// measure looks how full the store is. Beyond the budget the round has a cut, so that
// the oldest history of all jobs goes: as a first guess the part of the time that is
// the part of the room which is wanted.
func (t *term) measure(ctx context.Context, r, last *round) {
	if t.sources.Space == nil {
		return
	}
	space, err := t.sources.Space(ctx)
	if err != nil {
		if ctx.Err() == nil {
			t.cfg.Logger.Warn("how full the store is cannot be told; history is kept by the limits of its jobs", "err", err)
		}
		return
	}
	budget := t.cfg.Retention.Budget
	if budget == 0 {
		budget = defaultBudget
		if space.Quota > 0 {
			budget = space.Quota / 2
		}
	}
	t.metrics.storeUsed.Set(float64(space.Used))
	t.metrics.storeBudget.Set(float64(budget))
	t.metrics.storeFull.Set(0)
	if r.frugal = space.Full; r.frugal {
		t.metrics.storeFull.Set(1)
		t.cfg.Logger.Error("etcd is full and refuses writes (NOSPACE): no job can start until it has room; the oldest history is removed now",
			"used", space.Used, "quota", space.Quota)
	}
	r.over = space.Full || space.Used > budget
	if !r.over || last == nil || last.oldest.IsZero() {
		return
	}
	share := max(leastCut, float64(space.Used-budget)/float64(max(space.Used, 1)))
	reach := t.now().Sub(last.oldest)
	if r.cut = last.oldest.Add(time.Duration(float64(reach) * share)); reach < 2*t.cfg.ClosedBehind {
		t.cfg.Logger.Error("the store is beyond its budget, and there is no history left to remove: raise the budget and etcd's quota, or have less else in it",
			"used", space.Used, "budget", budget)
		return
	}
	t.metrics.cuts.Inc()
	t.cfg.Logger.Warn("the store is beyond its budget: history is removed before the limits of its jobs",
		"used", space.Used, "budget", budget, "before", r.cut)
}

// reclaim makes room of what a round removed, and answers when to measure anew.
func (t *term) reclaim(ctx context.Context) time.Duration {
	if t.sources.Reclaim == nil {
		return t.cfg.Retention.Period // etcd's own compaction takes its time
	}
	if err := t.sources.Reclaim(ctx); err != nil && ctx.Err() == nil {
		t.cfg.Logger.Warn("the room of what was removed could not be reclaimed; trying again", "err", err)
	}
	return reclaimWait
}

package executor

import (
	"fmt"
	"slices"

	"github.com/leaderd/leaderd/executor/runner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// claimGates are the exclusive jobs of which a claim is under way, each with the
// entries that wait for its answer. A second claim would only be refused for the
// first one's sake, and hold capacity meanwhile. The desk's mutex guards them.
type claimGates map[state.JobID]*claimGate

type claimGate struct {
	// claiming is set while the answer is out.
	claiming bool
	waiting  fifo[*entry]
}

// shut lets an entry wait if a claim of its exclusive job is under way.
func (d *desk) shut(e *entry) bool {
	if !e.plan.alone() {
		return false
	}
	g := d.gates[e.key.job]
	if g == nil || !g.claiming {
		return false
	}
	e.place = behind
	g.waiting.push(e)
	d.metrics.queued.Inc()
	return true
}

// claiming notes that the claim of an exclusive job is under way.
func (d *desk) claiming(job state.JobID) {
	g := d.gates[job]
	if g == nil {
		g = &claimGate{}
		d.gates[job] = g
	}
	g.claiming = true
}

// admit lets the next entry that waits for the answer to a claim of its job be
// claimed: now that there is one, or that the entry before it was dropped.
func (d *desk) admit(job state.JobID, now int64) {
	g := d.gates[job]
	if g == nil {
		return
	}
	g.claiming = false
	for g.waiting.len() > 0 {
		e := g.waiting.pop()
		if e.place != behind {
			continue // dropped meanwhile
		}
		d.unqueue(e)
		if e.expired(now) {
			delete(d.entries, e.key)
			continue
		}
		d.enqueue(e, later, now)
		signal(d.wake)
		if g.waiting.len() > 0 {
			return
		}
		break
	}
	delete(d.gates, job)
}

// relent is for an entry that was dropped: others may wait behind it.
func (d *desk) relent(e *entry, now int64) {
	if g := d.gates[e.key.job]; g != nil && !g.claiming {
		d.admit(e.key.job, now)
	}
}

// park lets an entry that was found to have to wait for other runs be claimed
// again when one of them ends here, when the leader says so, or after a while,
// since the leader may be away.
func (d *desk) park(e *entry, now int64) {
	wait := min(minRefused<<min(e.refusals, 5), maxRefused)
	if e.refusals < 255 {
		e.refusals++
	}
	d.enqueue(e, later, now+int64(jittered(wait)))
	if scope := e.plan.spec.scope; scope != "" {
		e.parked = scope
		d.parked[scope] = append(d.parked[scope], e)
	}
	signal(d.wake)
}

// wait follows the claim of a run that waits and was not let go. Where one of the job's
// limits is reached, the leader plans it anew when its turn has come: of all that wait
// there, on whichever node, it knows whose turn that is. Without a leader, and for other
// runs of its job, it is claimed again by itself.
func (d *desk) wait(r *run, res *state.ClaimResult, now int64) {
	e := r.entry
	limited := len(r.plan.spec.policy.Limits) > 0
	attended := r.plan.spec.session == d.session && d.session != nil
	switch {
	case !limited:
	case res.Limit != 0 && !e.plan.same(r.plan):
		d.enqueue(e, later, now)
		signal(d.wake)
		return
	case res.Limit != 0 && attended:
		delete(d.entries, e.key)
		d.reportLimit(e, r.plan, workerv1.Progress_STEP_HELD, res)
		return
	default:
		d.reportLimit(e, r.plan, workerv1.Progress_STEP_HELD, &state.ClaimResult{})
	}
	d.park(e, now)
}

// unpark has all entries that wait for the end of a run claimed now.
func (d *desk) unpark(scope string) {
	parked := d.parked[scope]
	if len(parked) == 0 {
		return
	}
	delete(d.parked, scope)
	for _, e := range parked {
		e.parked = ""
		d.hurry(e)
	}
}

// leavePark is for an entry that leaves the queue.
func (d *desk) leavePark(e *entry) {
	if e.parked == "" {
		return
	}
	left := slices.DeleteFunc(d.parked[e.parked], func(o *entry) bool { return o == e })
	if d.parked[e.parked] = left; len(left) == 0 {
		delete(d.parked, e.parked)
	}
	e.parked = ""
}

// hurry has an entry that waits for its next claim claimed now.
func (d *desk) hurry(e *entry) {
	if e.place != later || !e.plan.queued {
		return
	}
	e.refusals = 0
	d.unqueue(e)
	d.enqueue(e, later, d.wall())
	signal(d.wake)
}

// stopped is the wish that a run ends, and why. As a cause it stops the work.
type stopped struct{ reason, detail string }

func (s *stopped) Error() string {
	if s.detail == "" {
		return fmt.Sprintf("%v: %s", runner.ErrCancelled, s.reason)
	}
	return fmt.Sprintf("%v: %s: %s", runner.ErrCancelled, s.reason, s.detail)
}

func (s *stopped) Unwrap() error { return runner.ErrCancelled }

// cancel stops a run of this desk, or keeps it from starting. It is told again
// and again until the run is over.
func (d *desk) cancel(c *workerv1.Cancel) {
	k := key{
		job: state.JobID{Namespace: c.GetNamespace(), Name: c.GetJob()}, run: state.RunID(c.GetRun()),
		shard: c.GetShard(), attempt: c.GetAttempt(),
	}
	d.mu.Lock()
	e := d.entries[k]
	var r *run
	if e != nil && e.place == claimed {
		r = e.run
	}
	d.mu.Unlock()
	if r == nil || !r.wish.CompareAndSwap(nil, &stopped{c.GetReason(), c.GetDetail()}) {
		return
	}
	d.log.Info("run is stopped", "job", k.job, "run", k.run, "shard", k.shard, "reason", c.GetReason(), "detail", c.GetDetail())
	if stop := r.stop.Load(); stop != nil {
		(*stop)(r.wish.Load())
	}
}

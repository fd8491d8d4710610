package planner

import (
	"context"
	"slices"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// Runs that wait for others are pending ones: the claim that found the gate shut
// has stored that. Of each job the first is planned onto an executor, for the store
// lets no later one pass it; that executor asks again when a run ends there, and
// when the leader tells it again, which hears of the ends elsewhere. Nothing rests
// on that: at worst the executor or the next check asks a few seconds later.

// scope names the runs whose ends a job's waiting runs wait for.
type scope struct{ namespace, job, key string }

func (j *Job) scope() scope {
	if j.ConcurrencyKey != "" {
		return scope{namespace: j.ID.Namespace, key: j.ConcurrencyKey}
	}
	return scope{namespace: j.ID.Namespace, job: j.ID.Name}
}

// queues are the jobs with runs that wait.
type queues map[scope][]*timed

// enqueue notes an open entry of a run that waits.
func (t *term) enqueue(e *entry) {
	j := e.job
	if len(j.queue) == 0 {
		to := e.version.scope()
		j.scope = &to
		t.queues[to] = append(t.queues[to], j)
	}
	e.waits = true
	i, _ := slices.BinarySearchFunc(j.queue, e, func(a, b *entry) int { return compareRuns(a.run, b.run) })
	if i == 0 && len(j.queue) > 0 && e.version.ordered() {
		t.leaveLine(j.queue[0]) // it is not the first any more
	}
	j.queue = slices.Insert(j.queue, i, e)
	t.queued++
}

func compareRuns(a, b state.RunID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// dequeue forgets it, and plans the next one.
func (t *term) dequeue(e *entry) {
	j := e.job
	i := slices.Index(j.queue, e)
	if i < 0 {
		return
	}
	j.queue = slices.Delete(j.queue, i, i+1)
	t.queued--
	if len(j.queue) > 0 {
		if i == 0 && t.ctx.Err() == nil {
			t.place(j.queue[0])
		}
		return
	}
	t.leaveQueues(j)
}

// leaveQueues takes a job out of those with runs that wait.
func (t *term) leaveQueues(j *timed) {
	of := slices.DeleteFunc(t.queues[*j.scope], func(o *timed) bool { return o == j })
	if len(of) == 0 {
		delete(t.queues, *j.scope)
	} else {
		t.queues[*j.scope] = of
	}
}

// rescope is for a job that was changed: its runs may wait for others now.
func (t *term) rescope(j *timed) {
	if to := j.job.scope(); len(j.queue) > 0 && to != *j.scope {
		t.leaveQueues(j)
		j.scope = &to
		t.queues[to] = append(t.queues[to], j)
	}
}

// waitsSince is since when an entry's run waits for others.
func (e *entry) waitsSince() time.Time {
	if e.pending.Queued.IsZero() {
		return micros(e.start)
	}
	return e.pending.Queued
}

// ended tells the executors of the runs that wait for such a run as has ended,
// those first that were due first.
func (t *term) ended(j *Job, key string) {
	if len(t.queues) == 0 {
		return
	}
	t.freed(j, key)
	waiting := t.queues[j.scope()]
	heads := make([]*entry, 0, len(waiting))
	for _, w := range waiting {
		heads = append(heads, w.queue[0])
	}
	slices.SortStableFunc(heads, func(a, b *entry) int { return compareRuns(a.run, b.run) })
	for _, e := range heads {
		t.tellAgain(e)
	}
}

// endedOf is ended for a run of the job, if that is known.
func (t *term) endedOf(id state.JobID, key string) {
	if j := t.jobs[id]; j != nil {
		t.ended(j.job, key)
	}
	t.advanceAfter(id)
}

// tellAgain has the executors ask again that have an entry of a run that waits.
func (t *term) tellAgain(e *entry) {
	if len(e.holders) == 0 {
		t.place(e)
		return
	}
	if e.verdict != state.StateNone || e.version.Paused {
		return
	}
	for _, s := range e.holders {
		s.plan(e)
	}
}

// checkQueued looks again at an entry of a run that waits.
func (t *term) checkQueued(e *entry, now time.Time) {
	deadline := micros(e.due).Add(e.version.Deadline)
	if now.After(deadline) {
		t.missDeadline(e, whyQueued(e), now)
		return
	}
	most := e.version.QueueTimeout
	if most != 0 {
		end := e.waitsSince().Add(most)
		if !now.Before(end) {
			t.decideAt(e, state.StateMissed, state.ReasonQueueTimeout, whyQueued(e)+" for "+most.String(), e.version.Revision, now)
			return
		}
		if end.Before(deadline) {
			deadline = end
		}
	}
	if e == e.job.queue[0] || e.let {
		if e.busy {
			t.place(e)
			e.busy = false
		}
		t.tellAgain(e)
	}
	again := now.Add(maxRecheck)
	if after := deadline.Add(time.Millisecond); after.Before(again) {
		again = after
	}
	t.lookAt(e, again.UnixMicro())
}

// sweepPending deletes a pending key whose run turned out to have another record:
// while it is there later runs of the job would wait for it.
func (t *term) sweepPending(p *state.Pending) {
	t.task(func(ctx context.Context) func() {
		gone, err := t.store.SweepPending(ctx, t.leadership, p)
		return func() {
			switch {
			case err != nil:
				t.checkErr("sweep the pending key of "+p.Job.String(), err)
				t.later(time.Second, func() { t.sweepPending(p) })
			case !gone:
				t.addPending([]state.Pending{*p})
			}
		}
	})
}

// cancelKey names a run that is to end.
type cancelKey struct {
	job state.JobID
	run state.RunID
}

// cancelAgain is how often an executor is told to stop a run that goes on.
const cancelAgain = time.Second

// addCancels takes in wishes that runs end.
func (t *term) addCancels(wishes []state.Cancel) {
	if mutant.Off(mutant.CancelWish) {
		return
	}
	for i := range wishes {
		c := &wishes[i]
		k := cancelKey{c.Job, c.Run}
		if was := t.cancels[k]; was != nil {
			*was = *c
			continue
		}
		t.cancels[k] = c
		t.cancelRun(k)
	}
}

// cancelRun sees to one of them, again and again until the run is over; then it
// drops the wish.
func (t *term) cancelRun(k cancelKey) {
	c := *t.cancels[k]
	t.task(func(ctx context.Context) func() {
		now := t.now()
		live, over, err := t.store.FindLive(ctx, c.Job, c.Run)
		split := len(live) > 0 && live[0].IsHeader()
		running := live[:0]
		for i := range live {
			l := live[i]
			if l.IsHeader() || l.State.Verdict() {
				continue
			}
			if err == nil && l.State == state.StateWaiting {
				_, err = t.store.CancelWaiting(ctx, t.leadership, l, &c, now)
				continue
			}
			running = append(running, l)
		}
		if err == nil && over {
			err = t.store.DropCancel(ctx, t.leadership, &c)
		}
		return func() {
			t.checkErr("cancel a run of "+c.Job.String(), err)
			if err == nil && over {
				delete(t.cancels, k)
				t.endedOf(c.Job, "")
				return
			}
			if split {
				t.muster(c.Job, c.Run)
			}
			for i := range running {
				t.tellCancel(&running[i], &c)
			}
			t.later(cancelAgain, func() { t.cancelRun(k) })
		}
	})
}

// tellCancel tells the executor of a run to stop it, if it attends.
func (t *term) tellCancel(l *state.Live, c *state.Cancel) {
	s := t.sessions[l.Owner.Node]
	if s == nil || s.owner != l.Owner {
		return
	}
	s.cancels = append(s.cancels, &workerv1.Cancel{
		Namespace: l.Job.Namespace, Job: l.Job.Name, Run: string(l.Run), Shard: int32(l.Shard),
		Attempt: int32(l.Attempt), Reason: c.Reason, Detail: c.Detail,
	})
}

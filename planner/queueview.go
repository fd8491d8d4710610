package planner

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

const (
	// maxListed bounds an answer of ListWaiting.
	maxListed = 1000
	// startsSoon is how long a run may be on its way to its start before it counts as
	// one that waits.
	startsSoon = time.Second
)

// waiter is what is listed of an entry. It is copied in the loop, and put into words
// outside.
type waiter struct {
	job        *Job
	run        state.RunID
	shard      int
	attempt    int
	due, since time.Time
	why        leaderdv1.WaitsFor
	limit      state.LimitID
	most       int
	until      time.Time
	lack       string
	ahead      state.RunID // that waits, too, and is before it
	detail     string
	nobody     bool
}

// ListWaiting implements workerv1.LeaderServiceServer.
func (srv *Server) ListWaiting(ctx context.Context, req *workerv1.ListWaitingRequest) (*workerv1.ListWaitingResponse, error) {
	t := srv.planner.current()
	if t == nil {
		return nil, notLeader()
	}
	got := make(chan []waiter, 1)
	ask := state.JobID{Namespace: req.GetNamespace(), Name: req.GetJob()}
	if !t.post(ctx, func() { got <- t.waiters(ask, t.now()) }) {
		return nil, notLeader()
	}
	var all []waiter
	select {
	case all = <-got:
	case <-t.over:
		return nil, notLeader()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	slices.SortFunc(all, func(a, b waiter) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(jobKey(a.job.ID), jobKey(b.job.ID)), compareRuns(a.run, b.run), cmp.Compare(a.shard, b.shard))
	})
	most := int(req.GetLimit())
	if most <= 0 || most > maxListed {
		most = maxListed
	}
	res := &workerv1.ListWaitingResponse{Total: int64(len(all))}
	for i := range all[:min(len(all), most)] {
		res.Waiting = append(res.Waiting, all[i].message())
	}
	return res, nil
}

// waiters are the entries that wait, in no order: of one job, of a namespace, or all.
func (t *term) waiters(of state.JobID, now time.Time) []waiter {
	var all []waiter
	add := func(e *entry) {
		if of.Namespace != "" && e.version.ID.Namespace != of.Namespace {
			return
		}
		if w, ok := t.waiterOf(e, now); ok {
			all = append(all, w)
		}
	}
	if of.Name != "" {
		if j := t.jobs[of]; j != nil {
			for _, e := range j.open {
				add(e)
			}
		}
	} else {
		for _, e := range t.open {
			add(e)
		}
	}
	for id, runs := range t.delays.of {
		j := t.jobs[id]
		if j == nil || of.Namespace != "" && id.Namespace != of.Namespace || of.Name != "" && id != of {
			continue
		}
		for _, d := range runs {
			if p := d.pending; p != nil {
				all = append(all, waiter{
					job: j.job, run: p.Run, attempt: 1, due: p.Requested, since: p.Requested, until: p.Requested,
					why: leaderdv1.WaitsFor_WAITS_FOR_TIME,
				})
			}
		}
	}
	return all
}

// waiterOf tells what an entry waits for; ok is false where it is not due, or waits for
// nothing.
func (t *term) waiterOf(e *entry, now time.Time) (w waiter, ok bool) {
	if e.done || e.deciding || e.verdict != state.StateNone || e.bar != nil || e.helper() {
		return w, false
	}
	v := e.version
	w = waiter{job: v, run: e.runID(), shard: e.shard, attempt: e.attempt(), due: micros(e.start), since: micros(e.start)}
	if e.waiting != nil {
		w.since = e.waiting.Claimed
		if n := len(e.waiting.Attempts); n > 0 {
			w.since = e.waiting.Attempts[n-1].Ended
		}
	}
	switch {
	case e.waiting != nil && e.waiting.NextTry.After(now):
		w.why, w.until = leaderdv1.WaitsFor_WAITS_FOR_RETRY, e.waiting.NextTry
		return w, true
	case w.due.After(now) && e.pending != nil:
		w.why, w.until = leaderdv1.WaitsFor_WAITS_FOR_TIME, w.due
		return w, true
	case w.due.After(now):
		return w, false
	}
	if e.waits && !e.pending.Queued.IsZero() {
		w.since = e.pending.Queued
	}
	t.obstacle(e, &w)
	return w, w.why != leaderdv1.WaitsFor_WAITS_FOR_START || now.Sub(w.since) > startsSoon
}

// obstacle tells what keeps an entry that is due from starting.
func (t *term) obstacle(e *entry, w *waiter) {
	v := e.version
	switch {
	case v.Broken != nil || t.gates.bad[v.ID] != nil:
		w.why, w.detail = leaderdv1.WaitsFor_WAITS_FOR_STORE, "the stored job, or the record of its last run, cannot be read"
		return
	case v.Paused && !e.backfill():
		w.why = leaderdv1.WaitsFor_WAITS_FOR_RESUME
		return
	case e.behind != nil:
		w.why, w.detail = leaderdv1.WaitsFor_WAITS_FOR_RUNS, "it comes after an earlier slot of an outage"
		return
	case e.waits && !e.mayStart():
		w.why, w.ahead = leaderdv1.WaitsFor_WAITS_FOR_RUNS, e.job.queue[0].run
		if len(v.Limits()) > 0 && (e.job.queue[0].line != nil || e.job.queue[0].let) {
			t.atLimit(e.job.queue[0], w)
		}
		return
	case e.line != nil, e.let && e.from != nil:
		t.atLimit(e, w)
		return
	case e.waits && !e.let, e.waits && e.from == nil:
		w.why = leaderdv1.WaitsFor_WAITS_FOR_RUNS
		return
	}
	switch {
	case len(t.sessions) == 0:
		w.why, w.nobody = leaderdv1.WaitsFor_WAITS_FOR_NODE, true
	case !t.table.Any(v.Selector):
		w.why = leaderdv1.WaitsFor_WAITS_FOR_NODE
	case e.last == workerv1.Progress_STEP_BUSY && e.lack != "":
		w.why, w.lack = leaderdv1.WaitsFor_WAITS_FOR_RESOURCE, e.lack
	case e.last == workerv1.Progress_STEP_BUSY:
		w.why = leaderdv1.WaitsFor_WAITS_FOR_CAPACITY
	case e.last == workerv1.Progress_STEP_REFUSED:
		w.why, w.detail = leaderdv1.WaitsFor_WAITS_FOR_STORE, "executors asked for the claim, and the store took none"
	default:
		w.why = leaderdv1.WaitsFor_WAITS_FOR_START
	}
}

// atLimit tells at which limit the first waiting run of a job waits.
func (t *term) atLimit(head *entry, w *waiter) {
	key := limitOf(head)
	w.limit = key.id
	ln := t.lines.of[key]
	switch {
	case ln == nil:
	case ln.rated:
		w.why, w.until = leaderdv1.WaitsFor_WAITS_FOR_RATE, ln.next
	default:
		w.why, w.most = leaderdv1.WaitsFor_WAITS_FOR_LIMIT, ln.limit.Max
	}
}

// message is the waiter as it is answered, but for what only the store knows.
func (w *waiter) message() *workerv1.Waiting {
	r := &leaderdv1.QueuedRun{
		Run: string(w.run), Shard: int32(w.shard), Attempt: int32(w.attempt),
		DueTime: timestamppb.New(w.due), Since: timestamppb.New(w.since),
		Priority: priorityOf(w.job.Class), Weight: int32(w.job.Weight),
		WaitsFor: w.why, Detail: w.words(), Limit: w.limit.Name, Max: int32(w.most), Resource: w.lack,
	}
	if !w.until.IsZero() {
		r.Until = timestamppb.New(w.until)
	}
	return &workerv1.Waiting{Namespace: w.job.ID.Namespace, Job: w.job.ID.Name, Run: r, LimitNamespace: w.limit.Namespace, LimitKey: w.limit.Key}
}

func priorityOf(class uint8) leaderdv1.Priority {
	return [...]leaderdv1.Priority{
		leaderdv1.Priority_PRIORITY_CRITICAL, leaderdv1.Priority_PRIORITY_HIGH, leaderdv1.Priority_PRIORITY_NORMAL, leaderdv1.Priority_PRIORITY_LOW,
	}[class]
}

// words says what a run waits for.
func (w *waiter) words() string {
	if w.detail != "" {
		return w.detail
	}
	switch w.why {
	case leaderdv1.WaitsFor_WAITS_FOR_RUNS:
		if w.ahead != "" {
			return "run " + string(w.ahead) + " of the job waits before it"
		}
		if key := w.job.ConcurrencyKey; key != "" {
			return "other runs of the concurrencyKey " + key
		}
		return "other runs of the job"
	case leaderdv1.WaitsFor_WAITS_FOR_LIMIT:
		return w.limit.String()
	case leaderdv1.WaitsFor_WAITS_FOR_RATE:
		return "a token of the rate of " + w.limit.String()
	case leaderdv1.WaitsFor_WAITS_FOR_CAPACITY:
		return "the executors that may run it are full"
	case leaderdv1.WaitsFor_WAITS_FOR_RESOURCE:
		return "too little " + w.lack + " is free on the executors that may run it"
	case leaderdv1.WaitsFor_WAITS_FOR_NODE:
		if w.nobody {
			return "no executor attends the leader"
		}
		return "no executor matches the nodeSelector and the resources"
	case leaderdv1.WaitsFor_WAITS_FOR_RETRY:
		return "the time of its next attempt"
	case leaderdv1.WaitsFor_WAITS_FOR_TIME:
		return "the time for which it was asked"
	case leaderdv1.WaitsFor_WAITS_FOR_RESUME:
		return "the job is paused"
	case leaderdv1.WaitsFor_WAITS_FOR_START:
		return "an executor has it and has not claimed it yet"
	case leaderdv1.WaitsFor_WAITS_FOR_STORE, leaderdv1.WaitsFor_WAITS_FOR_CIRCUIT, leaderdv1.WaitsFor_WAITS_FOR_UNSPECIFIED:
	}
	return ""
}

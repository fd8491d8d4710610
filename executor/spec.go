package executor

import (
	"fmt"
	"math"
	"time"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/internal/fair"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// spec is a version of a job as a session's entries refer to it. It never
// changes, but for revoked.
type spec struct {
	ref     uint32
	session *session

	job        state.JobID
	revision   int64
	generation int64
	exclusive  bool
	gate       state.Gate
	// scope names whose ends the job's waiting runs wait for; empty where none
	// wait for this job's, nor its own for others'.
	scope      string
	atMostOnce bool
	deadline   time.Duration // to start, counted from when it is due
	jitter     time.Duration
	// flow is how its runs are taken when they wait for room.
	flow fair.Flow[state.JobID]
	// needs are what each run takes of the executor's resources.
	needs state.Resources
	// patient runs that are caught up wait for the one before them.
	patient bool
	// policy is what follows the end of an attempt.
	policy *state.JobSpec
	// handover: a drain does not await the job's runs.
	handover bool
	// runPlanned: what is planned starts also where the store cannot be reached.
	runPlanned bool
	// checkpointOfJob: what runs save outlives them; checkpointsKept is how many of
	// the last are kept.
	checkpointOfJob bool
	checkpointsKept int
	// task is what an attempt runs, but for its identity.
	task runner.Task

	// revoked entries are not to be claimed. The desk's mutex guards it.
	revoked bool
}

func newSpec(s *session, p *workerv1.Spec) *spec {
	js := codec.SpecFromProto(p.GetSpec()).WithDefaults()
	job := state.JobID{Namespace: p.GetNamespace(), Name: p.GetJob()}
	gate := js.Gate()
	scope := ""
	switch {
	case gate.Key != "":
		scope = "key " + job.Namespace + "/" + gate.Key
	case gate.Queues():
		scope = "job " + job.String()
	}
	return &spec{
		policy:     &js,
		gate:       gate,
		scope:      scope,
		ref:        p.GetRef(),
		session:    s,
		job:        job,
		revision:   p.GetJobRevision(),
		generation: p.GetGeneration(),
		exclusive:  js.Exclusive(),
		atMostOnce: js.Guarantee == state.AtMostOnce,
		deadline:   js.StartDeadline,
		jitter:     js.Jitter,
		patient:    js.CatchUp == state.CatchUpAll && js.Overlap == state.OverlapSkip,
		handover:   js.Drain == state.DrainHandover,
		runPlanned: js.StoreOutage == state.OutageRunPlanned,
		needs:      js.Resources,
		flow: fair.Flow[state.JobID]{
			Key: job, Class: js.Priority.Rank(), Weight: js.Weight, Lane: js.Resources.String(),
		},

		checkpointOfJob: js.CheckpointsOfJob(),
		checkpointsKept: js.CheckpointsKept(),

		task: runner.Task{
			Job:       job,
			Timeout:   js.Timeout,
			KillGrace: js.KillGrace,
			Command:   js.Command,
			HTTP:      js.HTTP,
			NoOp:      js.NoOp,

			Checkpoint: js.Checkpoint,
		},
	}
}

// slotIDs writes the ids of slots. Neighbours in a plan often share one.
type slotIDs struct {
	due int64 // microseconds
	id  state.RunID
}

func (s *slotIDs) of(due int64) state.RunID {
	if s.id == "" || s.due != due {
		s.due, s.id = due, state.SlotRunID(time.UnixMicro(due))
	}
	return s.id
}

// gated tells whether the run is to hold its job's overlap gate.
func (p *plan) gated() bool { return p.spec.exclusive && !p.allowOverlap }

// alone tells whether only one claim of its job is to be under way at a time. Shards of a
// run do not keep one another from being claimed.
func (p *plan) alone() bool { return p.gated() && !p.split }

// newPlan reads an entry, and its key.
func newPlan(sp *spec, p *workerv1.Entry, ids *slotIDs) (plan, key, error) {
	due := p.GetDue()
	if due < 0 || due > math.MaxInt64/int64(time.Microsecond)-state.MaxStartDeadline.Microseconds() || p.GetShard() < 0 && p.GetShard() != state.ListShard || p.GetAttempt() < 0 {
		return plan{}, key{}, fmt.Errorf("entry of %s has due %d, shard %d, attempt %d", sp.job, due, p.GetShard(), p.GetAttempt())
	}
	pl := plan{
		spec:         sp,
		run:          state.RunID(p.GetRun()),
		due:          due * int64(time.Microsecond),
		shards:       max(p.GetShards(), 1),
		allowOverlap: p.GetAllowOverlap(),
		token:        p.GetToken(),
		pending:      p.GetPending(),
		closed:       p.GetClosedRevision(),
		queued:       p.GetQueued(),
		origin:       state.RunID(p.GetOrigin()),
		limitKey:     p.GetLimitKey(),
		split:        p.GetSplit(),
		begun:        p.GetBegun(),
		hedge:        p.GetHedge(),
	}
	if p.GetCorrelation() != "" {
		chain := codec.ChainFromProto(p)
		pl.chain = &chain
	}
	pl.backfill = pl.run != "" && pl.run.Kind() == state.KindBackfill
	k := key{job: sp.job, run: pl.run, shard: p.GetShard(), attempt: max(p.GetAttempt(), 1)}
	if p.GetList() {
		k.shard = state.ListShard
	}
	pl.start = pl.due
	if k.run == "" {
		k.run = ids.of(due)
		if sp.jitter != 0 {
			pl.start += int64(state.Jitter(sp.job, time.UnixMicro(due), sp.jitter))
		}
	}
	return pl, k, nil
}

// waits tells whether a run that is caught up, or a backfill's, is to wait while another
// run of its job is live, for as long as its start deadline allows.
func (p *plan) waits() bool { return p.backfill || p.closed != 0 && p.spec.patient }

// until is when an entry that was planned at now has missed its start deadline.
// A slot's counts from when it is due, also while it waits for other runs. For all
// else the leader decided to start it
// although its instant may be long past: it counts from then.
// A backfill's run has no deadline: it may have to wait for others of its job. Nor has a
// shard of a run that has begun.
func (p *plan) until(attempt int32, now int64) int64 {
	if p.backfill || p.begun {
		return math.MaxInt64
	}
	from := p.start
	if attempt > 1 || p.closed != 0 || p.pending != 0 && !p.queued {
		from = max(from, now)
	}
	if left := math.MaxInt64 - from; left < int64(p.spec.deadline) {
		return math.MaxInt64
	}
	return from + int64(p.spec.deadline)
}

package api

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// queue is a leader that tells what it is told to.
type queue struct {
	asked   *workerv1.ListWaitingRequest
	waiting []*workerv1.Waiting
	err     error
}

// ListWaiting implements LeaderQueue.
func (q *queue) ListWaiting(_ context.Context, req *workerv1.ListWaitingRequest) (*workerv1.ListWaitingResponse, error) {
	q.asked = req
	return &workerv1.ListWaitingResponse{Waiting: q.waiting, Total: int64(len(q.waiting))}, q.err
}

// What waits is told with the runs that it waits for.
func TestListQueue(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	limits := []*leaderdv1.Limit{{Name: "db", Max: 1}}
	noop := &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}
	for name, spec := range map[string]*leaderdv1.JobSpec{
		"holder":  {Limits: limits, Overlap: leaderdv1.Overlap_OVERLAP_QUEUE, Target: noop},
		"waiting": {Limits: limits, Target: noop},
	} {
		_, err := s.store.PutJob(ctx, store.PutJob{
			ID: state.JobID{Namespace: "default", Name: name}, Spec: spec, AllowMissing: true, Now: time.Now(),
		})
		require.NoError(t, err)
	}
	reg, err := s.store.Register(ctx, state.Node{Name: "x", Executor: true, Capacity: 1, Started: time.Now()}, time.Hour)
	require.NoError(t, err)
	holder := state.JobID{Namespace: "default", Name: "holder"}
	job, err := s.store.GetJob(ctx, holder)
	require.NoError(t, err)
	due := time.Now().Truncate(time.Second)
	claimed, err := s.store.Claim(ctx, state.Claim{
		Job: holder, JobRevision: job.Job.Revision, Exclusive: true, Gate: job.Job.Spec.Gate(), Limits: job.Job.Spec.Limits,
		Live: state.Live{Run: state.SlotRunID(due), Shards: 1, Attempt: 1, Owner: reg.Owner, Due: due, Claimed: due},
	})
	require.NoError(t, err)
	require.Equal(t, state.Claimed, claimed.Status)

	s.queue.waiting = []*workerv1.Waiting{
		{Namespace: "default", Job: "waiting", LimitNamespace: "default", Run: &leaderdv1.QueuedRun{
			Run: "20260101T000000Z", Since: timestamppb.New(due), WaitsFor: leaderdv1.WaitsFor_WAITS_FOR_LIMIT, Detail: "limit db", Limit: "db", Max: 1,
		}},
		{Namespace: "default", Job: "holder", Run: &leaderdv1.QueuedRun{
			Run: "20260101T000001Z", WaitsFor: leaderdv1.WaitsFor_WAITS_FOR_RUNS, Detail: "other runs of the job",
		}},
		{Namespace: "default", Job: "waiting", Run: &leaderdv1.QueuedRun{Run: "20260101T000002Z", WaitsFor: leaderdv1.WaitsFor_WAITS_FOR_CAPACITY}},
		{Namespace: "default", Job: "gone", Run: &leaderdv1.QueuedRun{Run: "20260101T000003Z", WaitsFor: leaderdv1.WaitsFor_WAITS_FOR_RUNS}},
	}
	res, err := s.queued.ListQueue(ctx, &leaderdv1.ListQueueRequest{Parent: "namespaces/default"})
	require.NoError(t, err)
	require.EqualValues(t, 4, res.GetTotal())
	require.Equal(t, "default", s.queue.asked.GetNamespace())
	held := []string{"namespaces/default/jobs/holder/runs/" + string(state.SlotRunID(due))}
	first := res.GetRuns()[0]
	require.Equal(t, "namespaces/default/jobs/waiting/runs/20260101T000000Z", first.GetRun())
	require.Equal(t, held, first.GetHeldBy())
	require.Equal(t, "limit db: 1 of 1", first.GetDetail())
	require.Equal(t, held, res.GetRuns()[1].GetHeldBy())
	require.Empty(t, res.GetRuns()[2].GetHeldBy())
	require.Empty(t, res.GetRuns()[3].GetHeldBy())

	// A place that cannot be read is told, and keeps nobody from listing the others.
	stray := s.store.Prefix() + "limits/namespace/default/db/x"
	_, err = s.db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(stray, nil, 0)}})
	require.NoError(t, err)
	s.queue.waiting = []*workerv1.Waiting{{Namespace: "default", Job: "waiting", LimitNamespace: "default", Run: &leaderdv1.QueuedRun{
		Run: "20260101T000000Z", WaitsFor: leaderdv1.WaitsFor_WAITS_FOR_LIMIT, Detail: "limit db", Limit: "db", Max: 1,
	}}}
	res, err = s.queued.ListQueue(ctx, &leaderdv1.ListQueueRequest{Parent: "namespaces/default"})
	require.NoError(t, err)
	require.Equal(t, "limit db: 2 of 1, the place "+stray+" cannot be read", res.GetRuns()[0].GetDetail())
	require.Equal(t, held, res.GetRuns()[0].GetHeldBy())

	_, err = s.queued.ListQueue(ctx, &leaderdv1.ListQueueRequest{Parent: "namespaces/default/jobs/waiting", PageSize: 7})
	require.NoError(t, err)
	require.Equal(t, "waiting", s.queue.asked.GetJob())
	require.EqualValues(t, 7, s.queue.asked.GetLimit())
	_, err = s.queued.ListQueue(ctx, &leaderdv1.ListQueueRequest{Parent: "namespaces/-/jobs/waiting"})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	s.queue.err = ErrNoLeader
	_, err = s.queued.ListQueue(ctx, &leaderdv1.ListQueueRequest{Parent: "namespaces/-"})
	require.Equal(t, codes.Unavailable, status.Code(err))
}

package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

func noopSpec(change func(*leaderdv1.JobSpec)) *leaderdv1.JobSpec {
	s := &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}}
	if change != nil {
		change(s)
	}
	return s
}

func TestCircuits(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	name := "namespaces/default/jobs/a"
	_, err := s.circuits.GetCircuit(ctx, &leaderdv1.GetCircuitRequest{Name: name})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND)
	put := func(spec *leaderdv1.JobSpec) error {
		_, err := s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Name: name, Spec: spec}, AllowMissing: true})
		return err
	}
	require.NoError(t, put(noopSpec(nil)))
	_, err = s.circuits.ResetCircuit(ctx, &leaderdv1.ResetCircuitRequest{Name: name})
	requireFailure(t, err, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_NO_CIRCUIT)
	require.NoError(t, put(noopSpec(func(s *leaderdv1.JobSpec) { s.CircuitBreaker = &leaderdv1.CircuitBreaker{Failures: 3, Target: "t"} })))
	got, err := s.circuits.GetCircuit(ctx, &leaderdv1.GetCircuitRequest{Name: name})
	require.NoError(t, err)
	require.Equal(t, leaderdv1.Circuit_STATE_CLOSED, got.GetCircuit().GetState())

	opened := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	s.write(t, "circuits/default/target/t", &statev1.Circuit{
		State: uint32(state.CircuitHalfOpen), Opened: codec.Micros(opened), ProbeJob: "b", ProbeRun: "20261130T020500Z", Detail: "3 runs in a row failed",
	})
	got, err = s.circuits.GetCircuit(ctx, &leaderdv1.GetCircuitRequest{Name: name})
	require.NoError(t, err)
	require.Equal(t, leaderdv1.Circuit_STATE_HALF_OPEN, got.GetCircuit().GetState())
	require.Equal(t, "namespaces/default/jobs/b/runs/20261130T020500Z", got.GetCircuit().GetProbe())
	require.Equal(t, "t", got.GetCircuit().GetTarget())
	require.Equal(t, opened, got.GetCircuit().GetOpenTime().AsTime())
	reset, err := s.circuits.ResetCircuit(ctx, &leaderdv1.ResetCircuitRequest{Name: name})
	require.NoError(t, err)
	require.Equal(t, leaderdv1.Circuit_STATE_HALF_OPEN, reset.GetBefore().GetState())
	got, err = s.circuits.GetCircuit(ctx, &leaderdv1.GetCircuitRequest{Name: name})
	require.NoError(t, err)
	require.Equal(t, leaderdv1.Circuit_STATE_CLOSED, got.GetCircuit().GetState())
	_, err = s.circuits.GetCircuit(ctx, &leaderdv1.GetCircuitRequest{Name: "a"})
	requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
}

// What only the store knows of a chain is told as the field's fault.
func TestChainsAreRefused(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	put := func(job string, check bool, after ...string) error {
		spec := noopSpec(func(s *leaderdv1.JobSpec) {
			if len(after) > 0 {
				s.After = &leaderdv1.After{Jobs: after}
			}
		})
		_, err := s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{
			Job: &leaderdv1.Job{Name: "namespaces/default/jobs/" + job, Spec: spec}, AllowMissing: true, ValidateOnly: check,
		})
		return err
	}
	require.NoError(t, put("a", false))
	require.NoError(t, put("b", true, "a", "nobody"))
	err := put("b", false, "a", "nobody")
	requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
	require.ErrorContains(t, err, `spec.after.jobs[1]: there is no job "nobody" in the namespace`)
	require.NoError(t, put("b", false, "a"))
	err = put("a", true, "b")
	requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
	require.ErrorContains(t, err, "spec.after.jobs: the jobs run in a circle: a -> b -> a")
	_, err = s.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: "namespaces/default/jobs/a"})
	requireFailure(t, err, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_JOB_FOLLOWED)
	require.ErrorContains(t, err, "other jobs run after it: b")
}

// A whole chain is listed by its correlation, the first run among it.
func TestListRunsOfChain(t *testing.T) {
	s := serve(t, nil)
	first, second := "20261130T020000Z", "20261130T020001Z-after-0123456789abcdef"
	s.write(t, "history/default/a/"+first, codec.RecordToProto(&state.Record{State: state.StateSucceeded, Shards: 1}))
	s.write(t, "history/default/a/20261130T030000Z", codec.RecordToProto(&state.Record{State: state.StateSucceeded, Shards: 1}))
	s.write(t, "history/default/b/"+second, codec.RecordToProto(&state.Record{
		State: state.StateFailed, Shards: 1, Hooks: []state.HookRun{{Name: state.HookOnFailure}},
		Chain: state.Chain{Correlation: "a/" + first, Upstream: []state.Upstream{{Job: "a", Run: state.RunID(first), State: state.StateSucceeded}}},
	}))
	got, err := s.runs.ListRuns(t.Context(), &leaderdv1.ListRunsRequest{Parent: "namespaces/default/jobs/-", Correlation: "a/" + first})
	require.NoError(t, err)
	require.Len(t, got.GetRuns(), 2)
	require.Equal(t, "namespaces/default/jobs/a/runs/"+first, got.GetRuns()[0].GetName())
	b := got.GetRuns()[1]
	require.Equal(t, []string{"namespaces/default/jobs/a/runs/" + first}, b.GetUpstream())
	require.Equal(t, "onFailure", b.GetHooks()[0].GetName())
	require.Equal(t, leaderdv1.Run_STATE_PENDING, b.GetHooks()[0].GetState())
}

// A run that its job's circuit lets not start is listed with that.
func TestQueueOfACircuit(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	for _, name := range []string{"a", "b"} {
		_, err := s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{AllowMissing: true, Job: &leaderdv1.Job{
			Name: "namespaces/default/jobs/" + name, Spec: noopSpec(func(s *leaderdv1.JobSpec) {
				if name == "a" {
					s.CircuitBreaker = &leaderdv1.CircuitBreaker{Failures: 3}
				}
			}),
		}})
		require.NoError(t, err)
	}
	first := func(circuit *statev1.Circuit, attempt int32) *leaderdv1.QueuedRun {
		s.write(t, "circuits/default/job/a", circuit)
		s.queue.waiting = nil
		for _, job := range []string{"a", "b", "gone"} {
			s.queue.waiting = append(s.queue.waiting, &workerv1.Waiting{Namespace: "default", Job: job, Run: &leaderdv1.QueuedRun{
				Run: "20260101T000000Z", Attempt: attempt, WaitsFor: leaderdv1.WaitsFor_WAITS_FOR_START, Detail: "soon",
			}})
		}
		res, err := s.queued.ListQueue(ctx, &leaderdv1.ListQueueRequest{Parent: "namespaces/default"})
		require.NoError(t, err)
		for _, r := range res.GetRuns()[1:] {
			require.Equal(t, leaderdv1.WaitsFor_WAITS_FOR_START, r.GetWaitsFor(), r.GetRun())
		}
		return res.GetRuns()[0]
	}
	now := s.wall()
	open := &statev1.Circuit{State: uint32(state.CircuitOpen), Until: codec.Micros(now.Add(time.Hour)), Detail: "3 runs in a row failed"}
	r := first(open, 1)
	require.Equal(t, leaderdv1.WaitsFor_WAITS_FOR_CIRCUIT, r.GetWaitsFor())
	require.Equal(t, "the circuit is open: 3 runs in a row failed", r.GetDetail())
	require.WithinDuration(t, now.Add(time.Hour), r.GetUntil().AsTime(), time.Millisecond)
	require.Equal(t, leaderdv1.WaitsFor_WAITS_FOR_START, first(open, 2).GetWaitsFor(), "what has begun is not asked")
	r = first(&statev1.Circuit{State: uint32(state.CircuitHalfOpen), ProbeJob: "b", ProbeRun: "20261130T020500Z", Detail: "x"}, 1)
	require.Equal(t, leaderdv1.WaitsFor_WAITS_FOR_CIRCUIT, r.GetWaitsFor())
	require.Equal(t, []string{"namespaces/default/jobs/b/runs/20261130T020500Z"}, r.GetHeldBy())
	open.Until = codec.Micros(now.Add(-time.Second))
	require.Equal(t, leaderdv1.WaitsFor_WAITS_FOR_START, first(open, 1).GetWaitsFor(), "it is the probe")
}

package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

func TestProgressOfTriesThatRun(t *testing.T) {
	at := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	id := state.JobID{Namespace: "default", Name: "a"}
	e := &store.RunEntry{Job: id, Run: "r", Live: []state.Live{{
		Job: id, Run: "r", State: state.StateRunning, Attempt: 2, Token: 9, Owner: state.Owner{Node: "n1"},
		Attempts: []state.Attempt{{Number: 1, Token: 4, Node: "n2", State: state.StateLost, Done: 3, Total: 40}},
	}}}
	p := state.Progress{Done: 30, Total: 40, Message: "half", Reported: at, Begun: 10, BegunAt: at.Add(-20 * time.Second)}
	for token, want := range map[int64]*leaderdv1.Progress{
		4: nil, // of the attempt before
		9: {
			Done: 30, Total: 40, Message: "half", ReportTime: timestamppb.New(at),
			EstimatedEndTime: timestamppb.New(at.Add(10 * time.Second)),
		},
	} {
		run := runOf(e)
		addProgress(run, e, map[store.ProgressKey]store.Reported{{Job: id, Run: "r"}: {Progress: p, Token: token}})
		require.Equal(t, want, run.GetAttempts()[1].GetProgress())
		require.Equal(t, &leaderdv1.Progress{Done: 3, Total: 40}, run.GetAttempts()[0].GetProgress())
	}
}

func TestCheckpointRequests(t *testing.T) {
	saved := serve(t, nil).saved
	_, err := saved.GetCheckpoint(t.Context(), &leaderdv1.GetCheckpointRequest{Name: "namespaces/default/jobs/a"})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_CHECKPOINT_NOT_FOUND)
	for _, bad := range []*leaderdv1.GetCheckpointRequest{
		{},
		{Name: "namespaces/default/jobs/a/runs/x"},
		{Name: "namespaces/default/jobs/a", Shard: -1},
		{Name: "namespaces/default/jobs/a", Number: -1},
	} {
		_, err := saved.GetCheckpoint(t.Context(), bad)
		requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
	}
	_, err = saved.DeleteCheckpoints(t.Context(), &leaderdv1.DeleteCheckpointsRequest{Name: "namespaces/default/jobs/a"})
	require.NoError(t, err)
}

// Checkpoints that outlive runs are put and listed by the API alone, as a restore does.
func TestJobCheckpointsOverTheAPI(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	spec := &leaderdv1.JobSpec{
		Target:     &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
		Checkpoint: &leaderdv1.CheckpointPolicy{Scope: leaderdv1.CheckpointPolicy_SCOPE_JOB},
	}
	set := func(req *leaderdv1.SetCheckpointRequest) (*leaderdv1.SetCheckpointResponse, error) {
		req.Name = billing
		return s.saved.SetCheckpoint(ctx, req)
	}
	_, err := set(&leaderdv1.SetCheckpointRequest{})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND)
	plain := &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}}
	_, err = s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Name: billing, Spec: plain}, AllowMissing: true})
	require.NoError(t, err)
	_, err = set(&leaderdv1.SetCheckpointRequest{})
	requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
	require.ErrorContains(t, err, "spec.checkpoint.scope is not job")
	_, err = s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Name: billing, Spec: spec}})
	require.NoError(t, err)

	for field, bad := range map[string]*leaderdv1.SetCheckpointRequest{
		"shard":    {Shard: 1000},
		"data":     {Data: make([]byte, state.MaxCheckpoint+1)},
		"number":   {Number: -1},
		"run":      {Run: "a/b"},
		"saveTime": {SaveTime: &timestamppb.Timestamp{Nanos: -1}},
	} {
		_, err := set(bad)
		requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
		require.ErrorContains(t, err, field+": ")
	}

	at := timestamppb.New(noon)
	for _, want := range []struct {
		req    *leaderdv1.SetCheckpointRequest
		result leaderdv1.SetCheckpointResponse_Result
		number int64
	}{
		{&leaderdv1.SetCheckpointRequest{Data: []byte("a"), ValidateOnly: true}, leaderdv1.SetCheckpointResponse_RESULT_CREATED, 1},
		{&leaderdv1.SetCheckpointRequest{Data: []byte("a"), Number: 4, Run: "20261130T120000Z", SaveTime: at}, leaderdv1.SetCheckpointResponse_RESULT_CREATED, 4},
		{&leaderdv1.SetCheckpointRequest{Data: []byte("a")}, leaderdv1.SetCheckpointResponse_RESULT_UNCHANGED, 4},
		{&leaderdv1.SetCheckpointRequest{Data: []byte("b")}, leaderdv1.SetCheckpointResponse_RESULT_CONFLICT, 4},
		{&leaderdv1.SetCheckpointRequest{Data: []byte("b"), Replace: true}, leaderdv1.SetCheckpointResponse_RESULT_REPLACED, 5},
		{&leaderdv1.SetCheckpointRequest{Data: []byte("c"), Shard: 999, SaveTime: at}, leaderdv1.SetCheckpointResponse_RESULT_CREATED, 1},
		{&leaderdv1.SetCheckpointRequest{Data: []byte("list"), Shard: state.ListShard}, leaderdv1.SetCheckpointResponse_RESULT_CREATED, 1},
	} {
		res, err := set(want.req)
		require.NoError(t, err)
		require.Equal(t, want.result, res.GetResult())
		require.Equal(t, want.number, res.GetCheckpoint().GetNumber())
		require.Empty(t, res.GetCheckpoint().GetData())
	}

	var got []string
	token := ""
	for {
		page, err := s.saved.ListCheckpoints(ctx, &leaderdv1.ListCheckpointsRequest{Parent: "namespaces/-", PageSize: 1, PageToken: token})
		require.NoError(t, err)
		for _, c := range page.GetCheckpoints() {
			require.Equal(t, billing, c.GetJob())
			got = append(got, string(c.GetCheckpoint().GetData()))
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Equal(t, []string{"list", "b", "c"}, got)
	for _, bad := range []*leaderdv1.ListCheckpointsRequest{{}, {Parent: "namespaces/-", PageSize: -1}, {Parent: "namespaces/-", PageToken: "x"}} {
		_, err := s.saved.ListCheckpoints(ctx, bad)
		requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
	}
}

// A job that is made paused was never anything else, and one that is there stays as it is.
func TestJobsAreMadePaused(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	req := func() *leaderdv1.UpdateJobRequest {
		return &leaderdv1.UpdateJobRequest{
			Job: &leaderdv1.Job{Name: billing, Spec: &leaderdv1.JobSpec{
				Schedules: []string{"@hourly"}, Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
			}},
			AllowMissing: true,
		}
	}
	for field, change := range map[string]func(*leaderdv1.UpdateJobRequest){
		"paused":      func(r *leaderdv1.UpdateJobRequest) { r.PauseReason = "holiday" },
		"pauseReason": func(r *leaderdv1.UpdateJobRequest) { r.Paused, r.PauseReason = true, strings.Repeat("x", 513) },
		"pauseUntil":  func(r *leaderdv1.UpdateJobRequest) { r.Paused, r.PauseUntil = true, timestamppb.New(time.Unix(1, 0)) },
	} {
		r := req()
		change(r)
		_, err := s.jobs.UpdateJob(ctx, r)
		requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
		require.ErrorContains(t, err, field+": ")
	}
	r := req()
	until := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Second))
	r.Paused, r.PauseReason, r.PauseUntil = true, "holiday", until
	res, err := s.jobs.UpdateJob(ctx, r)
	require.NoError(t, err)
	require.Equal(t, leaderdv1.UpdateJobResponse_RESULT_CREATED, res.GetResult())
	job := res.GetJob()
	require.True(t, job.GetPaused())
	require.EqualValues(t, 1, job.GetGeneration())
	require.Equal(t, "holiday", job.GetPauseReason())
	require.Equal(t, until.AsTime(), job.GetPausedUntil().AsTime())

	_, err = s.jobs.ResumeJob(ctx, &leaderdv1.ResumeJobRequest{Name: billing})
	require.NoError(t, err)
	r.Job.Spec.Schedules = []string{"@daily"}
	res, err = s.jobs.UpdateJob(ctx, r)
	require.NoError(t, err)
	require.False(t, res.GetJob().GetPaused())
}

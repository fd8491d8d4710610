package api

import (
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

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
	"github.com/leaderd/leaderd/state/codec"
)

func TestRunsAreSelected(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for i, r := range []struct {
		job, node string
		state     state.RunState
	}{
		{"x", "n1", state.StateSucceeded},
		{"y", "n2", state.StateFailed},
		{"x", "n2", state.StateFailed},
		{"y", "n1", state.StateSucceeded},
	} {
		due := noon.Add(time.Duration(i) * time.Minute)
		s.write(t, "history/default/"+r.job+"/"+string(state.SlotRunID(due)), codec.RecordToProto(&state.Record{
			State: r.state, Due: due, Attempts: []state.Attempt{{Number: 1, Node: r.node, State: r.state}},
		}))
	}
	list := func(req *leaderdv1.ListRunsRequest) (got []string) {
		req.Parent = "namespaces/-/jobs/-"
		for {
			res, err := s.runs.ListRuns(ctx, req)
			require.NoError(t, err)
			for _, r := range res.GetRuns() {
				parts := strings.Split(r.GetName(), "/")
				got = append(got, parts[3]+" "+parts[5][9:13])
			}
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				return got
			}
		}
	}
	newest := leaderdv1.ListRunsRequest_ORDER_NEWEST
	failed := []leaderdv1.Run_State{leaderdv1.Run_STATE_FAILED}
	require.Equal(t, []string{"x 1202", "x 1200", "y 1203", "y 1201"}, list(&leaderdv1.ListRunsRequest{PageSize: 1}))
	require.Equal(t, []string{"y 1203", "x 1202", "y 1201", "x 1200"}, list(&leaderdv1.ListRunsRequest{PageSize: 1, Order: newest}))
	require.Equal(t, []string{"x 1202", "y 1201"}, list(&leaderdv1.ListRunsRequest{PageSize: 1, States: failed}))
	require.Equal(t, []string{"x 1202", "y 1201"}, list(&leaderdv1.ListRunsRequest{PageSize: 1, Order: newest, Node: "n2"}))
	require.Equal(t, []string{"y 1203", "x 1202"}, list(&leaderdv1.ListRunsRequest{
		Order: newest, SinceTime: timestamppb.New(noon.Add(time.Minute + time.Millisecond)),
	}))
	require.Equal(t, []string{"x 1202"}, list(&leaderdv1.ListRunsRequest{
		States: failed, SinceTime: timestamppb.New(noon.Add(2 * time.Minute)),
	}))

	res, err := s.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: "namespaces/-/jobs/-", PageSize: 1, Order: newest})
	require.NoError(t, err)
	_, err = s.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: "namespaces/-/jobs/-", PageToken: res.GetNextPageToken()})
	requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
	_, err = s.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: "namespaces/-/jobs/-", Order: 9, Node: "a/b", States: []leaderdv1.Run_State{99}})
	requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
}

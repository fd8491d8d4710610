package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

func TestSubmitRuns(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	ctx := t.Context()
	s.put(t, billing, spec())
	one, err := s.submissions.SubmitRun(ctx, &leaderdv1.SubmitRunRequest{Job: billing, Payload: []byte("p"), IdempotencyKey: "k"})
	require.NoError(t, err)
	require.Contains(t, one.GetRun(), billing+"/runs/20261130T120000Z-submit-")
	later := noon.Add(time.Hour)
	res, err := s.submissions.SubmitRuns(ctx, &leaderdv1.SubmitRunsRequest{Requests: []*leaderdv1.SubmitRunRequest{
		{Job: billing, Payload: []byte("p"), IdempotencyKey: "k"},
		{Job: billing, Payload: []byte("q"), IdempotencyKey: "k"},
		{Job: "namespaces/default/jobs/none"},
		{Job: billing, When: &leaderdv1.SubmitRunRequest_StartTime{StartTime: timestamppb.New(later)}},
		{Job: billing, When: &leaderdv1.SubmitRunRequest_Delay{Delay: durationpb.New(time.Minute)}},
		{Job: billing, When: &leaderdv1.SubmitRunRequest_StartTime{StartTime: timestamppb.New(noon.Add(-time.Hour))}},
		{Job: billing, Reason: strings.Repeat("x", state.MaxReasonBytes+1)},
	}})
	require.NoError(t, err)
	r := res.GetResults()
	require.Equal(t, one.GetRun(), r[0].GetRun())
	require.True(t, r[0].GetDuplicate())
	require.EqualValues(t, codes.FailedPrecondition, r[1].GetError().GetCode())
	require.Contains(t, r[1].GetError().GetMessage(), "another payload")
	require.EqualValues(t, codes.NotFound, r[2].GetError().GetCode())
	for i, due := range map[int]time.Time{3: later, 4: noon.Add(time.Minute), 5: noon} {
		got, err := s.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: r[i].GetRun()})
		require.NoError(t, err)
		require.Equal(t, due, got.GetRun().GetDueTime().AsTime())
		require.Equal(t, leaderdv1.Run_STATE_PENDING, got.GetRun().GetState())
	}
	require.EqualValues(t, codes.InvalidArgument, r[6].GetError().GetCode())
	require.Contains(t, r[6].GetError().GetMessage(), "reason: ")

	wait, err := s.submissions.WaitRun(ctx, &leaderdv1.WaitRunRequest{Name: one.GetRun(), Timeout: durationpb.New(0)})
	require.NoError(t, err)
	require.False(t, wait.GetDone())
	_, err = s.submissions.GetRunResult(ctx, &leaderdv1.GetRunResultRequest{Name: one.GetRun()})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_RESULT_NOT_FOUND)
	_, err = s.submissions.GetRunResult(ctx, &leaderdv1.GetRunResultRequest{Name: billing + "/runs/20261130T110000Z"})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND)
	_, err = s.runs.CancelRun(ctx, &leaderdv1.CancelRunRequest{Name: one.GetRun()})
	require.NoError(t, err)
	wait, err = s.submissions.WaitRun(ctx, &leaderdv1.WaitRunRequest{Name: one.GetRun()})
	require.NoError(t, err)
	require.True(t, wait.GetDone())
	require.Equal(t, leaderdv1.Run_STATE_CANCELLED, wait.GetRun().GetState())
}

// Each limit is told with the field, what was wrong and what is allowed.
func TestSubmitLimits(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	s.put(t, billing, spec())
	for field, c := range map[string]struct {
		req  *leaderdv1.SubmitRunRequest
		says string
	}{
		"job":            {&leaderdv1.SubmitRunRequest{Job: "billing"}, "namespaces/{namespace}/jobs/{job}"},
		"payload":        {&leaderdv1.SubmitRunRequest{Job: billing, Payload: make([]byte, state.MaxPayloadBytes+1)}, "1048577 bytes, at most 1048576"},
		"idempotencyKey": {&leaderdv1.SubmitRunRequest{Job: billing, IdempotencyKey: strings.Repeat("k", 257)}, "257 bytes, at most 256"},
		"idempotencyTtl": {&leaderdv1.SubmitRunRequest{Job: billing, IdempotencyKey: "k", IdempotencyTtl: durationpb.New(time.Second)}, "1s is outside 1m0s–720h0m0s"},
		"startTime": {&leaderdv1.SubmitRunRequest{Job: billing, When: &leaderdv1.SubmitRunRequest_StartTime{
			StartTime: timestamppb.New(noon.Add(367 * 24 * time.Hour)),
		}}, "more than 366 days ahead"},
		"delay": {&leaderdv1.SubmitRunRequest{Job: billing, When: &leaderdv1.SubmitRunRequest_Delay{Delay: durationpb.New(-time.Second)}}, "-1s is outside 0s–"},
	} {
		_, err := s.submissions.SubmitRun(t.Context(), c.req)
		requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
		require.ErrorContains(t, err, field+": ")
		require.ErrorContains(t, err, c.says, field)
	}
	_, err := s.submissions.SubmitRuns(t.Context(), &leaderdv1.SubmitRunsRequest{})
	require.ErrorContains(t, err, "requests: has 0 entries, 1–1000 are allowed")
	many := &leaderdv1.SubmitRunsRequest{}
	for i := range 1001 {
		many.Requests = append(many.Requests, &leaderdv1.SubmitRunRequest{Job: billing, IdempotencyKey: fmt.Sprint(i)})
	}
	_, err = s.submissions.SubmitRuns(t.Context(), many)
	require.ErrorContains(t, err, "requests: has 1001 entries")
	many.Requests = many.GetRequests()[:4]
	for _, r := range many.GetRequests() {
		r.Payload = make([]byte, state.MaxPayloadBytes*4/5)
	}
	_, err = s.submissions.SubmitRuns(t.Context(), many)
	require.ErrorContains(t, err, "payloads and specs of 3355440 bytes in all, at most 3145728")
	_, err = s.submissions.WaitRun(t.Context(), &leaderdv1.WaitRunRequest{Name: billing + "/runs/20261130T110000Z", Timeout: durationpb.New(time.Hour)})
	require.ErrorContains(t, err, "timeout: 3600 s is outside 0s–1m0s")
}

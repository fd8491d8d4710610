package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

func TestRetryRun(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	_, err := s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Name: billing, Spec: spec()}, AllowMissing: true})
	require.NoError(t, err)
	record := func(run string, rec *state.Record) string {
		t.Helper()
		rec.Due, rec.Recorded = noon, noon
		s.write(t, "history/default/billing/"+run, codec.RecordToProto(rec))
		return billing + "/runs/" + run
	}
	tried := []state.Attempt{{Number: 1, Node: "n1", Token: 4, State: state.StateFailed}}
	failed := record("20261130T120000Z", &state.Record{
		State: state.StateFailed, Shards: 3, Split: &state.Split{Shards: state.Shards{Params: []map[string]string{{"region": "eu"}, {"region": "us"}, {"region": "asia"}}}},
		Ends: []state.Live{
			{Shard: 0, State: state.StateSucceeded, Attempts: []state.Attempt{{Number: 1, Node: "n1", Token: 4, State: state.StateSucceeded}}},
			{Shard: 1, State: state.StateFailed, Attempts: tried},
			{Shard: 2, State: state.StateCancelled},
		},
	})
	resp, err := s.runs.RetryRun(ctx, &leaderdv1.RetryRunRequest{Name: failed, FailedOnly: true, IdempotencyKey: "k", Reason: "mended"})
	require.NoError(t, err)
	require.False(t, resp.GetDuplicate())
	again, err := s.runs.RetryRun(ctx, &leaderdv1.RetryRunRequest{Name: failed, FailedOnly: true, IdempotencyKey: "k"})
	require.NoError(t, err)
	require.True(t, again.GetDuplicate())
	require.Equal(t, resp.GetRun(), again.GetRun())

	got, err := s.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: resp.GetRun()})
	require.NoError(t, err)
	run := got.GetRun()
	require.Equal(t, leaderdv1.Run_STATE_PENDING, run.GetState())
	require.Equal(t, failed, run.GetOrigin())
	require.EqualValues(t, 3, run.GetShards().GetTotal())
	require.EqualValues(t, 1, run.GetShards().GetSucceeded())
	require.EqualValues(t, 1, run.GetShards().GetCarried())
	require.EqualValues(t, 2, run.GetShards().GetPending())
	require.Len(t, run.GetCarried(), 1)
	require.Equal(t, failed, run.GetCarried()[0].GetRun())
	require.Equal(t, []int32{0}, run.GetCarried()[0].GetShards())
	shards, err := s.runs.ListShards(ctx, &leaderdv1.ListShardsRequest{Name: resp.GetRun()})
	require.NoError(t, err)
	require.Len(t, shards.GetShards(), 3)
	for i, shard := range shards.GetShards() {
		require.Equal(t, []string{"eu", "us", "asia"}[i], shard.GetParams()["region"])
		require.Equal(t, i == 0, shard.GetCarriedFrom() == failed)
		require.Equal(t, i == 0, shard.GetState() == leaderdv1.Run_STATE_SUCCEEDED)
		require.Empty(t, shard.GetAttempts())
	}

	// A submitted one is repeated by a submitted one.
	given := record("20261130T120000Z-submit-0000000000000007", &state.Record{State: state.StateFailed, Attempts: tried})
	s.writeRaw(t, "payloads/default/billing/20261130T120000Z-submit-0000000000000007", "seven")
	resp, err = s.runs.RetryRun(ctx, &leaderdv1.RetryRunRequest{Name: given})
	require.NoError(t, err)
	require.Contains(t, resp.GetRun(), "-submit-")

	succeeded := record("20261130T120100Z", &state.Record{State: state.StateSucceeded, Attempts: tried})
	skipped := record("20261130T120200Z", &state.Record{State: state.StateSkipped, Reason: state.ReasonOverlap})
	for name, c := range map[string]struct {
		req    *leaderdv1.RetryRunRequest
		code   codes.Code
		reason leaderdv1.ErrorReason
		text   string
	}{
		"no run": {
			&leaderdv1.RetryRunRequest{Name: billing + "/runs/20261130T130000Z"},
			codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, "does not exist",
		},
		"pending": {
			&leaderdv1.RetryRunRequest{Name: again.GetRun()},
			codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_OVER, "is not over",
		},
		"succeeded": {
			&leaderdv1.RetryRunRequest{Name: succeeded},
			codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_RUN_SUCCEEDED, "nothing to retry",
		},
		"no shards": {
			&leaderdv1.RetryRunRequest{Name: skipped, FailedOnly: true},
			codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_NO_SHARDS, "retry it as a whole",
		},
		"another wish": {
			&leaderdv1.RetryRunRequest{Name: failed, IdempotencyKey: "k"},
			codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_KEY_REUSED, "idempotency key",
		},
		"name": {&leaderdv1.RetryRunRequest{Name: billing}, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD, "name"},
		"key": {
			&leaderdv1.RetryRunRequest{Name: failed, IdempotencyKey: strings.Repeat("k", 257)},
			codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD, "idempotencyKey",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.runs.RetryRun(ctx, c.req)
			requireFailure(t, err, c.code, c.reason)
			require.ErrorContains(t, err, c.text)
		})
	}
	_, err = s.runs.RetryRun(ctx, &leaderdv1.RetryRunRequest{Name: skipped})
	require.NoError(t, err, "all of it can be")

	_, err = s.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: billing})
	require.NoError(t, err)
	_, err = s.runs.RetryRun(ctx, &leaderdv1.RetryRunRequest{Name: failed})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND)
}

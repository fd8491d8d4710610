package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/store"
)

func TestErrorsOfTheStore(t *testing.T) {
	const missing = leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND
	for _, tc := range []struct {
		err    error
		kind   callKind
		code   codes.Code
		reason leaderdv1.ErrorReason
	}{
		{store.ErrNotFound, reads, codes.NotFound, missing},
		{store.ErrChanged, writes, codes.Aborted, leaderdv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH},
		{store.ErrContended, writes, codes.Aborted, leaderdv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH},
		{store.ErrPaused, writes, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_JOB_PAUSED},
		{store.ErrCorrupt, writes, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_JOB_QUARANTINED},
		{store.ErrClosed, writes, codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_NODE_UNAVAILABLE},
		{kv.ErrUnavailable, writes, codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE},
		{kv.ErrTooManyRequests, writes, codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE},
		{kv.ErrPermission, writes, codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE},
		{kv.ErrNoSpace, writes, codes.ResourceExhausted, leaderdv1.ErrorReason_ERROR_REASON_STORE_FULL},
		{kv.ErrUnknown, writes, codes.Unknown, leaderdv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN},
		{fmt.Errorf("%w: %w", kv.ErrUnknown, kv.ErrUnavailable), writes, codes.Unknown, leaderdv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN},
		{kv.ErrUnknown, reads, codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE},
	} {
		err := fmt.Errorf("get job x: %w: rpc error: 10.0.0.1 secret", tc.err)
		got := failOf(t.Context(), hclog.NewNullLogger(), tc.kind, missing, billing, err)
		requireFailure(t, got, tc.code, tc.reason)
		require.NotContains(t, got.Error(), "secret", "the driver's text stays inside")
		require.NotContains(t, got.Error(), "%!")
		require.Contains(t, got.Error(), billing)
	}
	for _, err := range []error{kv.ErrInvalid, kv.ErrCompacted, errors.New("anything")} {
		got := failOf(t.Context(), hclog.NewNullLogger(), writes, missing, billing, fmt.Errorf("secret: %w", err))
		require.Equal(t, codes.Internal, status.Code(got))
		require.NotContains(t, got.Error(), "secret")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, codes.Canceled, status.Code(failOf(gone, hclog.NewNullLogger(), reads, missing, billing, kv.ErrUnavailable)))
	require.Equal(t, codes.Unknown, status.Code(failOf(gone, hclog.NewNullLogger(), writes, missing, billing, kv.ErrUnknown)))
}

func TestViolationsAreBounded(t *testing.T) {
	var v state.Violations
	for i := range 1000 {
		v.Add(fmt.Sprintf("f%d", i), "is bad")
	}
	for _, d := range status.Convert(refuse(v)).Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			require.Len(t, bad.GetFieldViolations(), maxViolations+1)
			require.Contains(t, bad.GetFieldViolations()[maxViolations].GetDescription(), "950 more")
		}
	}
	require.NoError(t, refuse(nil))
}

// TestStoreTroubleIsTold has a store that refuses writes, over the API.
func TestStoreTroubleIsTold(t *testing.T) {
	for trouble, want := range map[error]leaderdv1.ErrorReason{
		kv.ErrNoSpace:    leaderdv1.ErrorReason_ERROR_REASON_STORE_FULL,
		kv.ErrPermission: leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE,
	} {
		s := serve(t, func(db kv.KV) kv.KV {
			return faulty.New(db, func(_ context.Context, c faulty.Call) faulty.Fault {
				if c.Op == faulty.OpTxn && len(c.Txn.If) > 0 {
					return faulty.Fault{Before: trouble}
				}
				return faulty.Fault{}
			})
		})
		_, err := s.jobs.UpdateJob(t.Context(), &leaderdv1.UpdateJobRequest{
			Job: &leaderdv1.Job{Name: billing, Spec: spec("@daily")}, AllowMissing: true,
		})
		require.Equal(t, want.String(), reasonOf(err), "%v", err)
	}
}

func TestTokens(t *testing.T) {
	var v state.Violations
	for _, rev := range []int64{1, 7, 1 << 40} {
		require.Equal(t, rev, parseEtag(&v, etagOf(rev)))
	}
	require.Zero(t, parseEtag(&v, ""))
	token := pageToken("runs", "a/b", "c", "")
	require.Equal(t, []string{"a/b", "c", ""}, parsePageToken(&v, "runs", token, 3))
	require.Empty(t, v)
	for _, bad := range []string{"x", "AQ", "====", token + "A", token[:4]} {
		v = nil
		require.Zero(t, parseEtag(&v, bad))
		require.Len(t, v, 1, bad)
	}
	for _, bad := range []string{"x", "AQ", "====", token[:4]} {
		v = nil
		require.Nil(t, parsePageToken(&v, "runs", bad, 3))
		require.Len(t, v, 1, bad)
	}
	v = nil
	require.Nil(t, parsePageToken(&v, "jobs", token, 3))
	require.Len(t, v, 1)
}

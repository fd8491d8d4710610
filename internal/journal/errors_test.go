package journal

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// Every error that the store documents has its code, and none tells what the
// driver said.
func TestClassify(t *testing.T) {
	for _, test := range []struct {
		err  error
		code codes.Code
	}{
		{state.Violations{{Field: "a", Description: "b"}}, codes.InvalidArgument},
		{state.ErrNotRegistered, codes.NotFound},
		{store.ErrTooLarge, codes.InvalidArgument},
		{store.ErrChanged, codes.FailedPrecondition},
		{store.ErrContended, codes.Aborted},
		{store.ErrClosed, codes.Unavailable},
		{store.ErrCorrupt, codes.DataLoss},
		{kv.ErrNoSpace, codes.ResourceExhausted},
		{kv.ErrPermission, codes.PermissionDenied},
		{kv.ErrUnknown, codes.Unavailable},
		{kv.ErrUnavailable, codes.Unavailable},
		{kv.ErrTooManyRequests, codes.Unavailable},
		{kv.ErrInvalid, codes.InvalidArgument},
		{context.Canceled, codes.Unavailable},
		{context.DeadlineExceeded, codes.Unavailable},
		{fmt.Errorf("%w: %w", state.ErrNotRegistered, kv.ErrLeaseNotFound), codes.NotFound},
		{fmt.Errorf("%w: %w", kv.ErrUnknown, context.Canceled), codes.Unavailable},
		{errors.New("etcdserver: secret"), codes.Internal},
	} {
		got := classify(fmt.Errorf("claim a/b: %w", test.err))
		require.Equal(t, test.code, got.code, test.err)
		require.NotEmpty(t, got.text)
		require.NotContains(t, got.text, "secret")
	}
}

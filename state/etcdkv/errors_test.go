package etcdkv

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/state/kv"
)

func TestClasses(t *testing.T) {
	small, large := &pb.PutRequest{}, &pb.PutRequest{Value: make([]byte, 2*kv.MaxRequestBytes)}
	sized := status.Error(codes.ResourceExhausted, "grpc: received message larger than max (3 vs. 2)")
	for _, c := range []struct {
		err         error
		write, read error // classes
	}{
		{rpctypes.ErrGRPCDuplicateKey, kv.ErrInvalid, kv.ErrInvalid},
		{rpctypes.ErrDuplicateKey, kv.ErrInvalid, kv.ErrInvalid},
		{rpctypes.ErrGRPCTooManyOps, kv.ErrInvalid, kv.ErrInvalid},
		{rpctypes.ErrGRPCRequestTooLarge, kv.ErrInvalid, kv.ErrInvalid},
		{rpctypes.ErrGRPCFutureRev, kv.ErrInvalid, kv.ErrInvalid},
		{rpctypes.ErrGRPCCompacted, kv.ErrCompacted, kv.ErrCompacted},
		{rpctypes.ErrGRPCLeaseNotFound, kv.ErrLeaseNotFound, kv.ErrLeaseNotFound},
		{rpctypes.ErrGRPCNoSpace, kv.ErrNoSpace, kv.ErrNoSpace},
		{rpctypes.ErrTooManyRequests, kv.ErrTooManyRequests, kv.ErrTooManyRequests},
		{rpctypes.ErrGRPCNoLeader, kv.ErrUnavailable, kv.ErrUnavailable},
		{rpctypes.ErrGRPCInvalidAuthToken, kv.ErrUnavailable, kv.ErrUnavailable},
		{rpctypes.ErrGRPCPermissionDenied, kv.ErrPermission, kv.ErrPermission},
		{rpctypes.ErrGRPCUserEmpty, kv.ErrPermission, kv.ErrPermission},
		{rpctypes.ErrGRPCAuthFailed, kv.ErrPermission, kv.ErrPermission},
		{status.Error(codes.Unknown, raft.ErrProposalDropped.Error()), kv.ErrUnavailable, kv.ErrUnavailable},
		{status.Error(codes.Unknown, lease.ErrNotPrimary.Error()), kv.ErrUnavailable, kv.ErrUnavailable},
		{rpctypes.ErrGRPCTimeout, kv.ErrUnknown, kv.ErrUnavailable},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, kv.ErrUnknown, kv.ErrUnavailable},
		{rpctypes.ErrGRPCTimeoutDueToConnectionLost, kv.ErrUnknown, kv.ErrUnavailable},
		{rpctypes.ErrGRPCStopped, kv.ErrUnknown, kv.ErrUnavailable},
		{rpctypes.ErrGRPCCanceled, kv.ErrUnknown, kv.ErrUnavailable},
		{context.DeadlineExceeded, kv.ErrUnknown, kv.ErrUnavailable},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), kv.ErrUnknown, kv.ErrUnavailable},
		{status.Error(codes.Internal, "anything"), kv.ErrUnknown, kv.ErrUnavailable},
		{errors.New("anything"), kv.ErrUnknown, kv.ErrUnavailable},
		{sized, kv.ErrUnknown, kv.ErrInvalid},
	} {
		r := request{op: "test"}
		require.ErrorIs(t, r.readError(t.Context(), c.err), c.read, "%v", c.err)
		r.peer.Addr = &net.TCPAddr{}
		require.ErrorIs(t, r.writeError(t.Context(), c.err, small), c.write, "%v", c.err)
		r.peer.Addr = nil
		r.inProcess = true
		require.ErrorIs(t, r.writeError(t.Context(), c.err, small), c.write, "%v in process", c.err)
		if errors.Is(c.write, kv.ErrUnknown) {
			r.inProcess = false
			require.ErrorIs(t, r.writeError(t.Context(), c.err, small), kv.ErrUnavailable, "%v, never sent", c.err)
		}
	}
	r := request{op: "test"}
	r.peer.Addr = &net.TCPAddr{}
	require.ErrorIs(t, r.writeError(t.Context(), sized, large), kv.ErrInvalid)
}

func TestCanceledWatches(t *testing.T) {
	for reason, class := range map[string]error{
		rpctypes.ErrCompacted.Error():               kv.ErrCompacted,
		rpctypes.ErrGRPCPermissionDenied.Error():    kv.ErrPermission,
		rpctypes.ErrGRPCInvalidAuthToken.Error():    kv.ErrUnavailable,
		"mvcc: watcher duplicate ID on WatchStream": kv.ErrUnavailable,
		"": kv.ErrUnavailable,
	} {
		require.ErrorIs(t, canceled(&pb.WatchResponse{CancelReason: reason}), class, reason)
	}
	require.ErrorIs(t, canceled(&pb.WatchResponse{CompactRevision: 7}), kv.ErrCompacted)
}

package etcdkv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/state/kv"
)

// proposalDropped is raft's refusal of a proposal while there is no leader, which
// etcd passes on as text.
const proposalDropped = "raft proposal dropped"

// notPrimary is the refusal of a lease's renewal by a member that leads no more.
const notPrimary = "not a primary lessor"

// classes are the errors of etcd that tell by themselves what became of a request.
// Those that are not here (time-outs, a server that stops) leave a write's outcome
// open.
var classes = func() map[string]error {
	m := map[string]error{
		proposalDropped: kv.ErrUnavailable,
		notPrimary:      kv.ErrUnavailable,
	}
	for class, errs := range map[error][]error{
		kv.ErrInvalid: {
			rpctypes.ErrGRPCEmptyKey, rpctypes.ErrGRPCKeyNotFound, rpctypes.ErrGRPCValueProvided,
			rpctypes.ErrGRPCLeaseProvided, rpctypes.ErrGRPCTooManyOps, rpctypes.ErrGRPCDuplicateKey,
			rpctypes.ErrGRPCInvalidSortOption, rpctypes.ErrGRPCRequestTooLarge, rpctypes.ErrGRPCFutureRev,
			rpctypes.ErrGRPCLeaseExist, rpctypes.ErrGRPCLeaseTTLTooLarge, rpctypes.ErrGRPCInvalidClientAPIVersion,
		},
		kv.ErrCompacted:       {rpctypes.ErrGRPCCompacted},
		kv.ErrLeaseNotFound:   {rpctypes.ErrGRPCLeaseNotFound},
		kv.ErrNoSpace:         {rpctypes.ErrGRPCNoSpace},
		kv.ErrTooManyRequests: {rpctypes.ErrGRPCRequestTooManyRequests},
		kv.ErrPermission: {
			rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCUserEmpty, rpctypes.ErrGRPCAuthFailed,
			rpctypes.ErrGRPCUserNotFound, rpctypes.ErrGRPCRoleNotFound, rpctypes.ErrGRPCAuthNotEnabled,
			rpctypes.ErrGRPCInvalidAuthMgmt, rpctypes.ErrGRPCPermissionNotGranted, rpctypes.ErrGRPCRoleNotGranted,
		},
		// The failing call makes the client fetch a new token: the next may do.
		kv.ErrUnavailable: {
			rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision,
			// Answered before anything is proposed, or instead of applying it.
			rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCNotLeader, rpctypes.ErrGRPCNotCapable,
			rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrGRPCCorrupt,
			// Of reads alone.
			rpctypes.ErrGRPCLeaderChanged,
		},
	} {
		for _, err := range errs {
			m[rpctypes.ErrorDesc(err)] = class
		}
	}
	return m
}()

// classOf is the class that err tells by itself, or nil.
func classOf(err error) error {
	if class, ok := classes[rpctypes.ErrorDesc(err)]; ok {
		return class
	}
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return kv.ErrPermission
	case codes.InvalidArgument, codes.Unimplemented:
		return kv.ErrInvalid
	}
	return nil
}

// tooLarge says whether err is gRPC's own refusal of a message by its size.
func tooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(rpctypes.ErrorDesc(err), "larger than max")
}

// readError is the error of a request that changes nothing; ctx is the
// caller's.
func (r *request) readError(ctx context.Context, err error) error {
	class := classOf(err)
	switch {
	case class != nil:
	case tooLarge(err):
		class = kv.ErrInvalid
	default:
		class = kv.ErrUnavailable
	}
	return r.wrap(ctx, class, err)
}

// writeError is the error of the request in; ctx is the caller's.
func (r *request) writeError(ctx context.Context, err error, in proto.Message) error {
	class := classOf(err)
	switch {
	case class != nil:
	case tooLarge(err) && proto.Size(in) > kv.MaxRequestBytes:
		class = kv.ErrInvalid // it was the request, not its answer
	case !r.inProcess && r.peer.Addr == nil:
		class = kv.ErrUnavailable // never handed to a connection
	default:
		class = kv.ErrUnknown
	}
	return r.wrap(ctx, class, err)
}

func (r *request) wrap(ctx context.Context, class, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // of a stream that ended before its answer
	}
	if ctx.Err() != nil {
		return fmt.Errorf("etcd %s: %w: %w: %w", r.op, class, context.Cause(ctx), err)
	}
	return fmt.Errorf("etcd %s: %w: %w", r.op, class, err)
}

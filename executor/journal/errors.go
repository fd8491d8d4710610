package journal

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

var (
	// ErrClosed: Run has returned; nothing further was sent.
	ErrClosed = errors.New("journal closed")
	// ErrNoNode: no control node's address is known.
	ErrNoNode = errors.New("no control node is known")
	// ErrEntry: the entry cannot be sent: it is too large, or holds text that is
	// not UTF-8. Nothing was written, and to ask again is useless.
	ErrEntry = errors.New("entry cannot be sent")
)

// Error is a control node's refusal. It wraps the class of package kv or
// executor that the code stands for, if there is one.
type Error struct {
	Code    codes.Code
	Message string
}

// Error is the node's text and the code.
func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// GRPCStatus makes status.Code know the error.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// Unwrap answers the class.
func (e *Error) Unwrap() error {
	switch e.Code {
	case codes.InvalidArgument:
		return kv.ErrInvalid
	case codes.ResourceExhausted:
		return kv.ErrNoSpace
	case codes.PermissionDenied:
		return kv.ErrPermission
	case codes.NotFound:
		return state.ErrNotRegistered
	case codes.FailedPrecondition:
		return state.ErrCheckpointChanged
	case codes.AlreadyExists:
		return state.ErrNameTaken
	}
	return nil
}

// refused is a unary call's error as callers get it.
func refused(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	return &Error{Code: st.Code(), Message: st.Message()}
}

// passing tells errors of a node after which another one, or the same one later,
// may do better. Credentials that one node refuses another may accept, while
// certificates are being replaced.
func passing(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Unauthenticated, codes.Unimplemented:
		return true
	}
	return false
}

// gaveUp is the error of a caller whose context ended. sent: perhaps a node
// carried the request out.
func gaveUp(ctx context.Context, sent bool) error {
	if sent {
		return fmt.Errorf("%w: %w", kv.ErrUnknown, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

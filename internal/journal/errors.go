package journal

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// class is what a client is told of an error: the code by which it decides, and
// a text of ours. Where text is empty the error's own is told.
type class struct {
	code codes.Code
	text string
}

// errKind: an entry of a newer executor, or of none.
var errKind = errors.New("entry has no kind that this node knows")

// classes is the table of errors, most telling first. An error that wraps
// several is of the first of them.
var classes = []struct {
	err error
	class
}{
	{errKind, class{codes.Unimplemented, ""}},
	{state.ErrNotRegistered, class{codes.NotFound, "registration is gone"}},
	{state.ErrNameTaken, class{codes.AlreadyExists, ""}},
	{store.ErrNotFound, class{codes.NotFound, "there is no such record"}},
	{store.ErrTooLarge, class{codes.InvalidArgument, ""}},
	{state.ErrCheckpointChanged, class{codes.FailedPrecondition, ""}},
	{store.ErrChanged, class{codes.FailedPrecondition, ""}},
	{store.ErrContended, class{codes.Aborted, "contended: others changed again and again what it relies on"}},
	{store.ErrClosed, class{codes.Unavailable, "node is shutting down"}},
	{kv.ErrNoSpace, class{codes.ResourceExhausted, "store has no space left"}},
	{kv.ErrPermission, class{codes.PermissionDenied, "store refused this node's credentials"}},
	{kv.ErrUnknown, class{codes.Unavailable, "outcome is unknown"}},
	{kv.ErrTooManyRequests, class{codes.Unavailable, "store is overloaded"}},
	{kv.ErrUnavailable, class{codes.Unavailable, "store is unavailable"}},
	{kv.ErrInvalid, class{codes.InvalidArgument, "store refused the request as invalid"}},
	{store.ErrCorrupt, class{codes.DataLoss, "stored value is unreadable"}},
	{context.DeadlineExceeded, class{codes.Unavailable, "outcome is unknown"}},
	{context.Canceled, class{codes.Unavailable, "outcome is unknown"}},
	{errEnded, class{codes.Unavailable, "outcome is unknown"}},
}

// classify answers an error's class. Of violations the text is their own; an
// error that the table does not know is INTERNAL.
func classify(err error) class {
	if _, ok := errors.AsType[state.Violations](err); ok {
		return class{codes.InvalidArgument, err.Error()}
	}
	for i := range classes {
		if errors.Is(err, classes[i].err) {
			c := classes[i].class
			if c.text == "" {
				c.text = err.Error()
			}
			return c
		}
	}
	return class{codes.Internal, "internal error"}
}

// failed is an error as a unary RPC tells it.
func (s *Server) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	c := classify(err)
	s.metrics.failed.WithLabelValues(c.code.String()).Inc()
	s.logFailure(c.code, what, err)
	return status.Error(c.code, c.text)
}

// logFailure says what the client is not told. What a client did wrong, and what
// befalls every entry at once, is worth a line only to who looks for it.
func (s *Server) logFailure(code codes.Code, what string, err error) {
	switch code {
	case codes.Internal, codes.DataLoss:
		s.log.Warn("journal request failed", "request", what, "code", code, "err", err)
	default:
		s.log.Debug("journal request refused", "request", what, "code", code, "err", err)
	}
}

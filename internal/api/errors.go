package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// Domain is the domain of every ErrorInfo.
const Domain = "leaderd"

// maxViolations bounds the violations of one answer, which travels in the
// trailer of the call.
const maxViolations = 50

// fault is how an error of the store is answered.
type fault struct {
	err    error
	code   codes.Code
	reason leaderdv1.ErrorReason
	// text is for people; %s is the name of what was asked for.
	text string
	// log tells that the error holds more than the answer says.
	log bool
}

// faults is the one table of errors. The first entry that matches counts.
var faults = []fault{
	{store.ErrChanged, codes.Aborted, leaderdv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH, "%s changed in between; read it again", false},
	{store.ErrContended, codes.Aborted, leaderdv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH, "%s is being changed by many at once; try again", false},
	{store.ErrPaused, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_JOB_PAUSED, "%s: the job is paused", false},
	{store.ErrCorrupt, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_JOB_QUARANTINED, "%s is broken: its stored value cannot be read; put it anew or delete it", true},
	{kv.ErrNoSpace, codes.ResourceExhausted, leaderdv1.ErrorReason_ERROR_REASON_STORE_FULL, "the store's quota is used up; look whether %s was changed", true},
	{store.ErrKeyReused, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_KEY_REUSED, "an earlier submission to %s has this idempotency key and another payload, spec or limit key, or was for other shards", false},
	{store.ErrOver, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_RUN_OVER, "%s is over: it has its verdict", false},
	{store.ErrNotOver, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_OVER, "%s is not over: only a run that has its verdict can be retried", false},
	{store.ErrSucceeded, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_RUN_SUCCEEDED, "%s has succeeded: there is nothing to retry; trigger the job to run it again", false},
	{store.ErrNoShards, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_NO_SHARDS, "%s has no shards of which some could be retried alone: its job had none, or it ended before it was split; retry it as a whole", false},
	{store.ErrNoJob, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, "the job of %s does not exist any more", false},
	{kv.ErrUnknown, codes.Unknown, leaderdv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN, "the store did not answer in time; the change of %s may have been made, or not", true},
	{kv.ErrTooManyRequests, codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, "the store is overloaded (%s); try again", true},
	{kv.ErrUnavailable, codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, "the store cannot be reached (%s); try again", true},
	{kv.ErrPermission, codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, "the store refuses this node's credentials (%s)", true},
	{store.ErrClosed, codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_NODE_UNAVAILABLE, "the node is shutting down (%s); try another one", false},
}

// callKind tells whether a call changes anything. For one that does not, an
// unknown outcome means that the store was out of reach.
type callKind bool

const (
	reads  callKind = false
	writes callKind = true
)

// failOf is the answer to an error of the store. missing is the reason for
// something that does not exist, name what was asked for.
func failOf(ctx context.Context, log hclog.Logger, kind callKind, missing leaderdv1.ErrorReason, name string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return answer(codes.NotFound, missing, fmt.Sprintf("%s does not exist", name), name)
	}
	// A caller who is gone gets nothing; one whose write is open should hear
	// that if it can.
	unknown := kind == writes && errors.Is(err, kv.ErrUnknown)
	if ctx.Err() != nil && !unknown {
		return status.FromContextError(ctx.Err()).Err()
	}
	for _, f := range faults {
		if !errors.Is(err, f.err) {
			continue
		}
		if errors.Is(f.err, kv.ErrUnknown) && kind == reads {
			f.code, f.reason = codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE
			f.text = "the store did not answer in time (%s); try again"
		}
		if f.log {
			log.Warn("request is refused", "name", name, "reason", f.reason, "err", err)
		}
		return answer(f.code, f.reason, fmt.Sprintf(f.text, name), name)
	}
	log.Error("request ended in an error that has no place here", "name", name, "err", err)
	return status.Errorf(codes.Internal, "internal error about %s; the node's log has it", name)
}

func answer(code codes.Code, reason leaderdv1.ErrorReason, text, name string) error {
	return detailed(status.New(code, text), &errdetails.ErrorInfo{
		Reason: reason.String(), Domain: Domain, Metadata: map[string]string{"name": name},
	})
}

// refuse is the answer to a request with violations, nil if there are none.
func refuse(v state.Violations) error {
	if len(v) == 0 {
		return nil
	}
	bad := &errdetails.BadRequest{}
	for i, f := range v {
		if i == maxViolations {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: f.Field, Description: fmt.Sprintf("and %d more violations from here on", len(v)-i),
			})
			break
		}
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: f.Field, Description: f.Description,
		})
	}
	text := v[0].Field + ": " + v[0].Description
	if n := len(v) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return detailed(status.New(codes.InvalidArgument, text), &errdetails.ErrorInfo{
		Reason: leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD.String(), Domain: Domain,
	}, bad)
}

// detailed is st with details; they are all messages that marshal.
func detailed(st *status.Status, details ...protoadapt.MessageV1) error {
	with, err := st.WithDetails(details...)
	if err != nil {
		return status.Errorf(codes.Internal, "describe an error: %s", st.Message())
	}
	return with.Err()
}

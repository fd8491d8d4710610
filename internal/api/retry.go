package api

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// Repeater makes runs that repeat others. *store.Store is one.
type Repeater interface {
	Repeat(ctx context.Context, r state.Repeat) (run state.RunID, duplicate bool, err error)
}

// RetryRun implements leaderdv1.RunServiceServer.
func (s *runService) RetryRun(ctx context.Context, req *leaderdv1.RetryRunRequest) (*leaderdv1.RetryRunResponse, error) {
	var v state.Violations
	now := s.cfg.Wall().UTC().Truncate(time.Microsecond)
	r := state.Repeat{
		Pending: state.Pending{
			Actor: actorOf(ctx, &v), Reason: req.GetReason(), AllowOverlap: req.GetAllowOverlap(), Requested: now,
		},
		FailedOnly: req.GetFailedOnly(), Key: req.GetIdempotencyKey(), KeyTTL: state.DefaultKeyTTL, Now: now,
	}
	r.Pending.Job, r.Pending.Origin = parseRunName(&v, req.GetName())
	r.Pending.Run = repeatRunID(r.Pending.Origin, now)
	checkReason(&v, req.GetReason())
	checkKey(&v, r.Key)
	if err := refuse(v); err != nil {
		return nil, err
	}
	run, duplicate, err := s.cfg.Repeater.Repeat(ctx, r)
	if errors.Is(err, store.ErrNotFound) {
		return nil, s.missing(ctx, req.GetName(), r.Pending.Job, r.Pending.Origin)
	}
	if err != nil {
		return nil, failOf(ctx, s.cfg.Logger, writes, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, req.GetName(), err)
	}
	return &leaderdv1.RetryRunResponse{Run: runName(r.Pending.Job, run), Duplicate: duplicate}, nil
}

// checkKey checks an idempotency key.
func checkKey(v *state.Violations, key string) {
	if n := len(key); n > state.MaxKeyBytes {
		v.Add("idempotencyKey", "has %d bytes, at most %d are allowed", n, state.MaxKeyBytes)
	}
	if !utf8.ValidString(key) {
		v.Add("idempotencyKey", "is not valid UTF-8")
	}
}

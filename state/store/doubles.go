package store

import (
	"context"
	"fmt"
	"slices"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// NoteDouble adds an attempt that began without a claim to the record of its run, which
// was decided otherwise. The verdict stands. It is idempotent; beyond state.MaxDoubles
// nothing is added. ErrNotFound: the run has no record of its own: it is live, was
// decided together with others, or its record was packed or swept. Other errors are
// those of package kv.
func (s *Store) NoteDouble(ctx context.Context, r state.DoubleReport) error {
	if err := s.noteDouble(ctx, &r); err != nil {
		return fmt.Errorf("note an unclaimed attempt at %s %s: %w", r.Job, r.Run, err)
	}
	return nil
}

func (s *Store) noteDouble(ctx context.Context, report *state.DoubleReport) error {
	if n := len(report.Attempt.Error); n > state.MaxErrorBytes {
		return fmt.Errorf("%w: error has %d bytes, at most %d are allowed", ErrTooLarge, n, state.MaxErrorBytes)
	}
	attempt := codec.AttemptToProto(&report.Attempt)
	same := func(a *statev1.Attempt) bool {
		return a.GetUnclaimed() && a.GetNode() == attempt.GetNode() && a.GetStarted() == attempt.GetStarted()
	}
	return s.amendRecord(ctx, report.Job, report.Run, func(rec *statev1.Record) (changed bool, err error) {
		if len(rec.GetDoubles()) >= state.MaxDoubles ||
			slices.ContainsFunc(rec.GetDoubles(), same) || slices.ContainsFunc(rec.GetAttempts(), same) {
			return false, nil
		}
		rec.Doubles = append(rec.Doubles, attempt)
		return true, nil
	})
}

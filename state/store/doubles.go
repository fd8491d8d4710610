package store

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
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
	key := s.keys.historyRun(report.Job, report.Run)
	attempt := codec.AttemptToProto(&report.Attempt)
	same := func(a *statev1.Attempt) bool {
		return a.GetUnclaimed() && a.GetNode() == attempt.GetNode() && a.GetStarted() == attempt.GetStarted()
	}
	for range maxTries {
		found, err := s.readOne(ctx, key)
		if err != nil {
			return err
		}
		if found.Key == "" {
			return ErrNotFound
		}
		// As a message, so that what this version does not know of it stays.
		var rec statev1.Record
		if err := proto.Unmarshal(found.Value, &rec); err != nil {
			return fmt.Errorf("%w: key %q: %w", ErrCorrupt, key, err)
		}
		if len(rec.GetDoubles()) >= state.MaxDoubles ||
			slices.ContainsFunc(rec.GetDoubles(), same) || slices.ContainsFunc(rec.GetAttempts(), same) {
			return nil
		}
		rec.Doubles = append(rec.Doubles, attempt)
		value, err := proto.Marshal(&rec)
		if err != nil {
			return err
		}
		r := &request{writes: []uint64{s.batch.hash(key)}}
		r.txn.If = []kv.Compare{unchanged(key, found.ModRevision)}
		r.txn.Then = []kv.Op{kv.Put(key, value, 0)}
		res, err := s.batch.do(ctx, r)
		if err != nil || res.Succeeded {
			return err
		}
	}
	return ErrContended
}

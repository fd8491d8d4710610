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

// NoteHook adds to a run's record what became of one of its hooks. Nothing else of the
// record changes: the verdict stands as its finish wrote it. It is idempotent, and of
// several reports of one hook the first counts. ErrNotFound: the record has gone, was
// packed, or is not of that attempt. Other errors are those of package kv.
func (s *Store) NoteHook(ctx context.Context, r state.HookReport) error {
	if err := s.noteHook(ctx, &r); err != nil {
		return fmt.Errorf("note hook %s of %s %s: %w", r.Hook.Name, r.Job, r.Run, err)
	}
	return nil
}

func (s *Store) noteHook(ctx context.Context, report *state.HookReport) error {
	for _, x := range [...]struct {
		what      string
		size, max int
	}{{"tail", len(report.Hook.Tail), state.MaxHookTail}, {"error", len(report.Hook.Error), state.MaxErrorBytes}} {
		if x.size > x.max {
			return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrTooLarge, x.what, x.size, x.max)
		}
	}
	return s.amendRecord(ctx, report.Job, report.Run, func(rec *statev1.Record) (changed bool, err error) {
		if n := len(rec.GetAttempts()); n == 0 || rec.GetAttempts()[n-1].GetToken() != report.Token {
			return false, ErrNotFound
		}
		at := slices.IndexFunc(rec.GetHooks(), func(h *statev1.HookRun) bool { return h.GetName() == uint32(report.Hook.Name) })
		switch {
		case at < 0:
			return false, ErrNotFound
		case rec.GetHooks()[at].GetState() != 0:
			return false, nil
		}
		rec.Hooks[at] = codec.HookRunToProto(&report.Hook)
		return true, nil
	})
}

// amendRecord adds to the record of a run what change does. ErrNotFound: there is none.
func (s *Store) amendRecord(ctx context.Context, id state.JobID, run state.RunID, change func(*statev1.Record) (changed bool, err error)) error {
	key := s.keys.historyRun(id, run)
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
		if changed, err := change(&rec); err != nil || !changed {
			return err
		}
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

package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/leaderd/leaderd/state"
)

// WaitRun answers a run when it has a verdict, or, where ctx ends before, as it was
// last seen, without an error. Errors: ErrNotFound, those of package kv, and ctx's own
// where it was not seen at all. It watches the one key under which the verdict comes.
func (s *Store) WaitRun(ctx context.Context, id state.JobID, run state.RunID) (RunEntry, error) {
	seen, err := s.GetRun(ctx, id, run)
	for wait := minRetry; err == nil && seen.Record == nil && seen.Broken == nil && ctx.Err() == nil; {
		var newer RunEntry
		newer, err = s.awaitVerdict(ctx, id, run)
		switch {
		case err == nil:
			seen = newer
		case ctx.Err() != nil:
			return seen, nil //nolint:nilerr // as it was
		case !errors.Is(err, ErrNotFound):
			s.log.Debug("watch for a verdict ended", "job", id, "run", run, "err", err)
			err = nil
			pauseFor(ctx, wait/2+rand.N(wait/2))
			wait = min(2*wait, maxRetry)
		}
	}
	return seen, err
}

// awaitVerdict blocks until something is written about a run's verdict, and answers the
// run then.
func (s *Store) awaitVerdict(ctx context.Context, id state.JobID, run state.RunID) (RunEntry, error) {
	w, err := s.kv.Watch(ctx, s.keys.historyRun(id, run), "", 0)
	if err != nil {
		return RunEntry{}, fmt.Errorf("watch run %s %s: %w", id, run, err)
	}
	defer w.Close()
	for {
		// What was written before the watch began is seen by the first look.
		entry, err := s.GetRun(ctx, id, run)
		if err != nil || entry.Record != nil || entry.Broken != nil {
			return entry, err
		}
		if _, err := w.Next(ctx); err != nil {
			return entry, fmt.Errorf("watch run %s %s: %w", id, run, err)
		}
	}
}

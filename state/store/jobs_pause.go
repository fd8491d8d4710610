package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
)

// pauseEnded is the reason of a version by which a pause ended by itself.
const pauseEnded = "pause ended"

// resumed is a paused job without its pause: its slots are due after an instant.
func resumed(was *statev1.Job, after int64) *statev1.Job {
	next := proto.CloneOf(was)
	next.Paused, next.PauseReason, next.PauseActor, next.PausedUntil = false, "", "", 0
	next.Effective = after
	return next
}

// pauseEnd is the edit that ends a pause which has come to its end. Slots are due
// after that end, however late it is made: they are an outage's, or late, like
// others that nobody planned in time. But none is due that was the version's
// before the pause.
func pauseEnd(was *JobEntry, _ int64) (*statev1.Job, state.Change, error) {
	after := max(was.Message.GetPausedUntil(), was.Message.GetUpdated())
	return resumed(was.Message, after), state.ChangeResume, nil
}

// EndPause resumes a job whose pause has come to its end by now, while the term
// stands and the job has a revision: one with another is state.ErrJobChanged, and
// the newer version tells what is to be done. Slots are due after the end of the
// pause. It is idempotent: what was done by an earlier try is ErrJobChanged.
func (s *Store) EndPause(ctx context.Context, term state.Term, id state.JobID, revision int64, now time.Time) error {
	c := ChangeJob{ID: id, Revision: revision, Now: now}
	if term.Number == 0 { // which would compare as "is not there"
		return state.ErrTermLost
	}
	// edit itself ends such a pause, before it would change anything else.
	e := c.edit(func(*JobEntry, int64) (*statev1.Job, state.Change, error) { return nil, 0, nil })
	e.reason, e.term = pauseEnded, term
	return s.leadEdit(ctx, e)
}

// endPause is EndPause for anybody who finds the pause of a job over before the
// leader has got to that. It answers the job as it is then.
func (s *Store) endPause(ctx context.Context, id state.JobID, now time.Time) (JobEntry, error) {
	c := ChangeJob{ID: id, Now: now}
	entry, _, err := s.edit(ctx, c.edit(func(*JobEntry, int64) (*statev1.Job, state.Change, error) { return nil, 0, nil }))
	return entry, err
}

// PauseFailing pauses a job for the leader while the term stands and the job has a
// revision; another one is state.ErrJobChanged. It is idempotent as EndPause is.
func (s *Store) PauseFailing(ctx context.Context, term state.Term, id state.JobID, revision int64, reason string, now time.Time) error {
	c := ChangeJob{ID: id, Revision: revision, Reason: reason, Now: now}
	if term.Number == 0 { // which would compare as "is not there"
		return state.ErrTermLost
	}
	e := c.edit(func(was *JobEntry, _ int64) (*statev1.Job, state.Change, error) {
		if was.Message.GetPaused() {
			return nil, 0, nil
		}
		next := proto.CloneOf(was.Message)
		next.Paused, next.PauseReason, next.PauseActor, next.PausedUntil = true, c.Reason, state.Leaderd, 0
		return next, state.ChangePause, nil
	})
	e.actor, e.term = state.Leaderd, term
	return s.leadEdit(ctx, e)
}

func (s *Store) leadEdit(ctx context.Context, e *edit) error {
	_, _, err := s.edit(ctx, e)
	switch {
	case errors.Is(err, ErrChanged), errors.Is(err, ErrNotFound):
		return state.ErrJobChanged
	case err != nil:
		return fmt.Errorf("change job %s: %w", e.id, err)
	}
	return nil
}

const (
	// failuresPage is how many runs are looked at, at a time, for those that ended,
	// and failuresPages how often: a job may have many skipped ones between.
	failuresPage  = runsPerTxn
	failuresPages = 32
)

// FailuresInARow tells whether the newest n runs of a job's version, of those that
// succeeded, failed or timed out, all failed or timed out, and which is the last of
// them. The newest are those that were due or asked for last. Runs of backfills do
// not count. Among very many others, such as skipped ones, they are not looked for
// any further: then it is not known, and answered as no.
func (s *Store) FailuresInARow(ctx context.Context, id state.JobID, generation int64, n int) (last state.RunID, all bool, err error) {
	before, found := state.RunID(""), 0
	for range failuresPages {
		runs, err := s.runsBefore(ctx, id, before, failuresPage)
		if err == nil && len(runs) > 0 {
			before = runs[len(runs)-1]
			var entries []RunEntry
			if entries, err = s.readRuns(ctx, id, runs); err == nil {
				for i := range entries {
					rec := entries[i].Record
					if rec == nil || rec.Run.Kind() == state.KindBackfill {
						continue
					}
					switch rec.State { //nolint:exhaustive // of others it is not known how the work would have ended
					case state.StateSucceeded:
						return "", false, nil
					case state.StateFailed, state.StateTimedOut:
					default:
						continue
					}
					if rec.Generation != generation {
						return "", false, nil
					}
					if found++; found == 1 {
						last = rec.Run
					}
					if found == n {
						return last, true, nil
					}
				}
			}
		}
		if err != nil {
			return "", false, fmt.Errorf("look at the last runs of %s: %w", id, err)
		}
		if len(runs) < failuresPage {
			break
		}
	}
	return "", false, nil
}

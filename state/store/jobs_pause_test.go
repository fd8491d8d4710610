package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// pauseUntil makes the job and pauses it at slotAt(1) until slotAt(9).
func (r *rig) pauseUntil(t *testing.T) JobEntry {
	t.Helper()
	put := putOf(billing, specOf("@every 1m"))
	put.Now = slotAt(0)
	_, err := r.s.PutJob(t.Context(), put)
	require.NoError(t, err)
	e, changed, err := r.s.PauseJob(t.Context(), ChangeJob{
		ID: billing, Actor: "ada", Reason: "swap", Until: slotAt(9), Now: slotAt(1),
	})
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "ada", e.Job.PauseActor)
	require.Equal(t, slotAt(9), e.Job.PausedUntil)
	return e
}

// The leader that gets to the end of a pause late makes slots due after that end all
// the same; one whose term is over, or whose job has changed, changes nothing.
func TestEndPause(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	e := r.pauseUntil(t)
	_, changed, err := r.s.PauseJob(ctx, ChangeJob{ID: billing, Actor: "ben", Reason: "swap", Until: slotAt(9), Now: slotAt(2)})
	require.NoError(t, err)
	require.False(t, changed)

	require.NoError(t, r.s.EndPause(ctx, term, billing, e.Job.Revision, slotAt(8)), "it is not over yet")
	got, err := r.s.GetJob(ctx, billing)
	require.NoError(t, err)
	require.True(t, got.Job.Paused)

	require.ErrorIs(t, r.s.EndPause(ctx, state.Term{Key: term.Key, Number: term.Number + 1}, billing, e.Job.Revision, slotAt(12)), state.ErrTermLost)
	require.ErrorIs(t, r.s.EndPause(ctx, state.Term{}, billing, e.Job.Revision, slotAt(12)), state.ErrTermLost)
	require.ErrorIs(t, r.s.EndPause(ctx, term, billing, e.Job.Revision-1, slotAt(12)), state.ErrJobChanged)
	require.NoError(t, r.s.EndPause(ctx, term, billing, e.Job.Revision, slotAt(12)))
	require.ErrorIs(t, r.s.EndPause(ctx, term, billing, e.Job.Revision, slotAt(12)), state.ErrJobChanged)

	got, err = r.s.GetJob(ctx, billing)
	require.NoError(t, err)
	require.False(t, got.Job.Paused)
	require.Zero(t, got.Job.PausedUntil)
	require.Empty(t, got.Job.PauseActor)
	require.Equal(t, slotAt(9), got.Job.Effective)
	require.Equal(t, slotAt(12), got.Job.Updated)
	versions, err := r.s.ListVersions(ctx, billing, got.Job.Generation+1, 1)
	require.NoError(t, err)
	require.Equal(t, state.ChangeResume, versions[0].Version.Change)
	require.Equal(t, state.Leaderd, versions[0].Version.Actor)
	require.Equal(t, pauseEnded, versions[0].Version.Reason)
}

// Whoever changes a job after the end of its pause, before a leader has got to that,
// ends it first: the slots between are nobody's otherwise.
func TestChangeAfterThePause(t *testing.T) {
	for name, change := range map[string]func(*rig, JobEntry) error{
		"edit": func(r *rig, e JobEntry) error {
			put := putOf(billing, specOf("@every 5m"))
			put.Now, put.Revision = slotAt(12), e.Job.Revision
			_, err := r.s.PutJob(t.Context(), put)
			return err
		},
		"pause": func(r *rig, _ JobEntry) error {
			_, _, err := r.s.PauseJob(t.Context(), ChangeJob{ID: billing, Reason: "more", Now: slotAt(12)})
			return err
		},
		"resume": func(r *rig, _ JobEntry) error {
			_, _, err := r.s.ResumeJob(t.Context(), ChangeJob{ID: billing, Now: slotAt(12)})
			return err
		},
		"delete": func(r *rig, e JobEntry) error {
			return r.s.DeleteJob(t.Context(), ChangeJob{ID: billing, Revision: e.Job.Revision, Now: slotAt(12)})
		},
		"trigger": func(r *rig, _ JobEntry) error {
			_, err := r.s.PutPending(t.Context(), state.Pending{Job: billing, Run: "20000101T000000Z-trigger-00000001", Requested: slotAt(12)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			require.NoError(t, change(r, r.pauseUntil(t)))
			versions, err := r.s.ListVersions(t.Context(), billing, 1<<40, 10)
			require.NoError(t, err)
			var resumed *state.Job
			for i := range versions {
				if v := &versions[i].Version; v.Change == state.ChangeResume {
					require.Nil(t, resumed)
					resumed = &v.Job
				}
			}
			require.NotNil(t, resumed)
			require.Equal(t, slotAt(9), resumed.Effective)
			require.EqualValues(t, 3, resumed.Generation)
		})
	}
}

func TestPauseFailing(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	res, err := r.s.PutJob(ctx, putOf(billing, specOf("@every 1m")))
	require.NoError(t, err)
	revision, why := res.Entry.Job.Revision, "3 runs in a row failed"
	over := state.Term{Key: term.Key, Number: term.Number + 1}
	require.ErrorIs(t, r.s.PauseFailing(ctx, over, billing, revision, why, time.Now()), state.ErrTermLost)
	require.NoError(t, r.s.PauseFailing(ctx, term, billing, revision, why, time.Now()))
	require.ErrorIs(t, r.s.PauseFailing(ctx, term, billing, revision, why, time.Now()), state.ErrJobChanged)
	got, err := r.s.GetJob(ctx, billing)
	require.NoError(t, err)
	require.True(t, got.Job.Paused)
	require.Equal(t, state.Leaderd, got.Job.PauseActor)
	require.Equal(t, why, got.Job.PauseReason)
}

// Which runs fail in a row goes by when they were due; others than those that ended by
// themselves, older versions' and backfills' do not count.
func TestFailuresInARow(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	put := func(run state.RunID, to state.RunState, generation int64) {
		t.Helper()
		rec := state.Record{Generation: generation, State: to, Recorded: slotAt(59), Shards: 1}
		_, err := r.db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(r.s.keys.historyRun(billing, run), codec.MarshalRecord(&rec), 0)}})
		require.NoError(t, err)
	}
	is := func(n int, generation int64, last state.RunID) {
		t.Helper()
		run, all, err := r.s.FailuresInARow(ctx, billing, generation, n)
		require.NoError(t, err)
		require.Equal(t, last != "", all)
		require.Equal(t, last, run)
	}
	slot := func(n int) state.RunID { return state.SlotRunID(slotAt(n)) }
	is(1, 2, "")
	put(slot(1), state.StateFailed, 1)
	is(1, 1, slot(1))
	is(1, 2, "")
	put(slot(2), state.StateSucceeded, 2)
	put(slot(3), state.StateTimedOut, 2)
	for n := range 50 { // more than are read at a time
		put(state.TriggerRunID(slotAt(4), uint32(n)), state.StateSkipped, 2)
	}
	put(slot(6), state.StateFailed, 2)
	put(slot(7), state.StateLost, 2)
	put("20991130T020000Z-backfill-00000001-20261001T000000Z", state.StateFailed, 2)
	is(2, 2, slot(6))
	is(3, 2, "")
	put(slot(8), state.StateSucceeded, 2)
	is(1, 2, "")
}

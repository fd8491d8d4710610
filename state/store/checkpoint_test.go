package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

func saved(t *testing.T, r *rig, c state.Checkpoint) int64 {
	t.Helper()
	res, err := r.s.Checkpoint(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, state.TokenStored, res.Status)
	return res.Revision
}

// The last ones can be listed, no more than are kept, also where fewer are kept than
// were.
func TestCheckpointsAreKept(t *testing.T) {
	r := newRig(t)
	l := r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, true))
	of := state.CheckpointRef{Job: billing, Run: l.Run}
	previous := int64(0)
	for n := int64(1); n <= 9; n++ {
		keep := 3
		if n == 9 {
			keep = 2
		}
		c := state.Checkpoint{
			Live: l, Data: fmt.Append(nil, "at ", n), Previous: previous, Number: n, Keep: keep, Saved: slotAt(int(n)),
		}
		previous = saved(t, r, c)
		last, err := r.s.GetCheckpoint(t.Context(), of)
		require.NoError(t, err)
		require.Equal(t, state.SavedCheckpoint{
			Number: n, Data: c.Data, Token: l.Token, Run: l.Run, Saved: c.Saved, Revision: previous,
		}, last)
		kept, err := r.s.ListCheckpoints(t.Context(), of)
		require.NoError(t, err)
		require.Len(t, kept, int(min(n, int64(keep))))
		for i, k := range kept {
			require.Equal(t, fmt.Sprint("at ", n-int64(i)), string(k.Data))
		}
		require.Equal(t, last, kept[0])
	}
	none, err := r.s.GetCheckpoint(t.Context(), state.CheckpointRef{Job: billing, Run: l.Run, Shard: 1})
	require.NoError(t, err)
	require.Zero(t, none)
}

// What a run has saved goes with its success, shard by shard, and stays with any other
// verdict.
func TestCheckpointsGoWithSuccess(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for to, left := range map[state.RunState]int{state.StateSucceeded: 0, state.StateFailed: 2} {
			r := newRig(t)
			l := r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive))
			saved(t, r, state.Checkpoint{Live: l, Data: []byte("x"), Number: 1})
			_, err := r.s.SaveProgress(t.Context(), state.ProgressReport{Live: l})
			require.NoError(t, err)
			// Another shard's, whose number begins with the same digit.
			key := r.s.keys.checkpoint(state.CheckpointRef{Job: billing, Run: l.Run, Shard: 10})
			r.put(key, "theirs")
			f := endOf(l, to)
			f.Saved, f.Reported = true, true
			require.Equal(t, state.TokenStored, r.finish(f))
			n := 0
			for k := range r.dump() {
				if strings.HasPrefix(k, r.s.keys.checkpoints()) && k != key {
					n++
				}
				require.False(t, strings.HasPrefix(k, r.s.keys.progress()), k)
			}
			require.Equal(t, left, n)
			require.Contains(t, r.dump(), key)
		}
	})
}

// Checkpoints of the job outlive its runs, and go with it. One that is made anew under
// the name inherits none, not even of a run that began before.
func TestCheckpointsOfAJob(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		rev, a := r.setJob(billing), r.register("a")
		of := state.CheckpointRef{Job: billing, OfJob: true}
		l := r.start(claimOf(billing, rev, a, 5, exclusive))
		first := saved(t, r, state.Checkpoint{Live: l, Data: []byte("to 5"), Number: 1, OfJob: true})
		f := endOf(l, state.StateSucceeded)
		f.Saved = true
		require.Equal(t, state.TokenStored, r.finish(f))

		l = r.start(claimOf(billing, rev, a, 6, exclusive))
		last, err := r.s.GetCheckpoint(t.Context(), of)
		require.NoError(t, err)
		require.Equal(t, "to 5", string(last.Data))
		c := state.Checkpoint{Live: l, Data: []byte("to 6"), Number: 2, OfJob: true}
		_, err = r.s.Checkpoint(t.Context(), c)
		require.ErrorIs(t, err, state.ErrCheckpointChanged, "it did not read the last one")
		c.Previous = first
		second := saved(t, r, c)

		require.NoError(t, r.s.DeleteJob(t.Context(), ChangeJob{ID: billing, Now: slotAt(7)}))
		last, err = r.s.GetCheckpoint(t.Context(), of)
		require.NoError(t, err)
		require.Zero(t, last)
		c = state.Checkpoint{Live: l, Data: []byte("late"), Number: 1, OfJob: true}
		_, err = r.s.Checkpoint(t.Context(), c)
		require.ErrorIs(t, err, ErrJobGone)
		r.setJob(billing)
		_, err = r.s.Checkpoint(t.Context(), c)
		require.ErrorIs(t, err, ErrJobGone, "it is another job")
		c.Previous, c.Number = second, 3
		_, err = r.s.Checkpoint(t.Context(), c)
		require.ErrorIs(t, err, ErrJobGone)
	})
}

func TestDeleteCheckpoints(t *testing.T) {
	r := newRig(t)
	l := r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, true))
	first := saved(t, r, state.Checkpoint{Live: l, Data: []byte("1"), Number: 1, OfJob: true})
	for range 2 {
		require.NoError(t, r.s.DeleteCheckpoints(t.Context(), billing))
	}
	_, err := r.s.Checkpoint(t.Context(), state.Checkpoint{Live: l, Data: []byte("2"), Previous: first, Number: 2, OfJob: true})
	require.ErrorIs(t, err, state.ErrCheckpointChanged, "a run that is live does not undo it")
	last, err := r.s.GetCheckpoint(t.Context(), state.CheckpointRef{Job: billing, OfJob: true})
	require.NoError(t, err)
	require.Zero(t, last)
}

func TestProgress(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		rev, a := r.setJob(billing), r.register("a")
		l := r.start(claimOf(billing, rev, a, 5, exclusive))
		report := state.ProgressReport{Live: l, Progress: state.Progress{
			Done: 30, Total: 40, Message: "half", Reported: slotAt(7), Begun: 10, BegunAt: slotAt(5),
		}}
		save := func() state.TokenStatus {
			status, err := r.s.SaveProgress(t.Context(), report)
			require.NoError(t, err)
			return status
		}
		require.Equal(t, state.TokenStored, save())
		want := map[ProgressKey]Reported{{Job: billing, Run: l.Run}: {report.Progress, l.Token}}
		for _, at := range []struct {
			id  state.JobID
			run state.RunID
		}{{billing, l.Run}, {billing, ""}, {state.JobID{Namespace: billing.Namespace}, ""}, {}} {
			all, err := r.s.ListProgress(t.Context(), at.id, at.run)
			require.NoError(t, err)
			require.Equal(t, want, all)
		}
		none, err := r.s.ListProgress(t.Context(), state.JobID{Namespace: "other"}, "")
		require.NoError(t, err)
		require.Empty(t, none)
		end, ok := report.Progress.End()
		require.True(t, ok)
		require.Equal(t, slotAt(8), end, "20 of them took 2")

		r.wait(l)
		require.Equal(t, state.TokenFenced, save())
		report.Progress.Message = strings.Repeat("x", state.MaxProgressMessage+1)
		_, err = r.s.SaveProgress(t.Context(), report)
		require.ErrorIs(t, err, ErrTooLarge)
	})
}

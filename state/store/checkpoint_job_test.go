package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// saving makes a job whose checkpoints have a scope.
func (r *rig) saving(id state.JobID, scope leaderdv1.CheckpointPolicy_Scope) int64 {
	value, err := proto.Marshal(&statev1.Job{Spec: &leaderdv1.JobSpec{Checkpoint: &leaderdv1.CheckpointPolicy{Scope: scope, Keep: 2}}})
	require.NoError(r.t, err)
	return r.put(r.s.keys.job(id), string(value))
}

// What is put is what the next run goes on from, and nothing else: a live run that knows
// the one before does not write over it, and numbers never go back.
func TestSetCheckpoint(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	ask := func(c SetCheckpoint, want CheckpointSet) state.SavedCheckpoint {
		t.Helper()
		c.Job, c.Saved = billing, slotAt(1)
		set, last, err := r.s.SetCheckpoint(ctx, c)
		require.NoError(t, err)
		require.Equal(t, want, set)
		return last
	}
	of := state.CheckpointRef{Job: billing, OfJob: true}
	last := func() state.SavedCheckpoint {
		t.Helper()
		c, err := r.s.GetCheckpoint(ctx, of)
		require.NoError(t, err)
		return c
	}

	_, _, err := r.s.SetCheckpoint(ctx, SetCheckpoint{Job: billing})
	require.ErrorIs(t, err, ErrNotFound)
	r.saving(billing, leaderdv1.CheckpointPolicy_SCOPE_RUN)
	_, _, err = r.s.SetCheckpoint(ctx, SetCheckpoint{Job: billing})
	require.ErrorIs(t, err, ErrNoJobCheckpoints)
	rev := r.saving(billing, leaderdv1.CheckpointPolicy_SCOPE_JOB)
	_, _, err = r.s.SetCheckpoint(ctx, SetCheckpoint{Job: billing, Data: make([]byte, state.MaxCheckpoint+1)})
	require.ErrorIs(t, err, ErrTooLarge)

	require.EqualValues(t, 7, ask(SetCheckpoint{Data: []byte("a"), Number: 7, DryRun: true}, CheckpointCreated).Number)
	require.Zero(t, last())
	put := ask(SetCheckpoint{Data: []byte("a"), Number: 7, Run: "old"}, CheckpointCreated)
	require.Equal(t, state.SavedCheckpoint{Number: 7, Data: []byte("a"), Run: "old", Saved: slotAt(1), Revision: put.Revision}, last())
	ask(SetCheckpoint{Data: []byte("a"), Number: 9, Replace: true}, CheckpointUnchanged)
	require.EqualValues(t, 7, ask(SetCheckpoint{Data: []byte("b")}, CheckpointConflict).Number)
	require.Equal(t, put, last())

	// A run goes on from it, and is then overtaken.
	l := r.start(claimOf(billing, rev, r.register("a"), 5, true))
	own := saved(t, r, state.Checkpoint{Live: l, Data: []byte("c"), Previous: put.Revision, Number: 8, Keep: 2, OfJob: true})
	require.EqualValues(t, 9, ask(SetCheckpoint{Data: []byte("b"), Number: 3, Replace: true, DryRun: true}, CheckpointReplaced).Number)
	require.Equal(t, "c", string(last().Data))
	require.EqualValues(t, 9, ask(SetCheckpoint{Data: []byte("b"), Number: 3, Replace: true}, CheckpointReplaced).Number)
	_, err = r.s.Checkpoint(ctx, state.Checkpoint{Live: l, Data: []byte("d"), Previous: own, Number: 9, Keep: 2, OfJob: true})
	require.ErrorIs(t, err, state.ErrCheckpointChanged)
	kept, err := r.s.ListCheckpoints(ctx, of)
	require.NoError(t, err)
	require.Len(t, kept, 2)
	require.Equal(t, "b", string(kept[0].Data))
	require.Zero(t, kept[0].Token)
	require.Equal(t, "c", string(kept[1].Data))
}

// All are listed once, page by page, and no checkpoint of a run is among them.
func TestListJobCheckpoints(t *testing.T) {
	r := newRig(t)
	var want []string
	for _, id := range []state.JobID{{Namespace: "a", Name: "x-1"}, {Namespace: "a", Name: "x"}, {Namespace: "b", Name: "x"}} { // as keys sort
		rev := r.saving(id, leaderdv1.CheckpointPolicy_SCOPE_JOB)
		for _, shard := range []int{0, 10, 2} {
			c := SetCheckpoint{Job: id, Shard: shard, Data: fmt.Append(nil, id, shard), Saved: slotAt(1)}
			_, _, err := r.s.SetCheckpoint(t.Context(), c)
			require.NoError(t, err)
			c.Data, c.Replace = fmt.Append(nil, id, " ", shard), true
			_, _, err = r.s.SetCheckpoint(t.Context(), c)
			require.NoError(t, err)
			want = append(want, string(c.Data))
		}
		l := r.start(claimOf(id, rev, r.register("n"), 5, false))
		saved(t, r, state.Checkpoint{Live: l, Data: []byte("of the run"), Number: 1})
	}
	r.put(r.s.keys.checkpointsOfJob(state.JobID{Namespace: "a", Name: "x"})+"stray", "")
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		l := ListJobCheckpoints{Limit: limit}
		for {
			page, more, err := r.s.ListJobCheckpoints(t.Context(), l)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), limit)
			for _, c := range page {
				got = append(got, string(c.Last.Data))
			}
			if !more {
				break
			}
			l.After = page[len(page)-1].Of
		}
		require.Equal(t, want, got, "pages of %d", limit)
	}
	page, more, err := r.s.ListJobCheckpoints(t.Context(), ListJobCheckpoints{Namespace: "b", Limit: 10})
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, page, 3)

	// A page is bounded by what it holds, too.
	for shard := range 20 {
		_, _, err := r.s.SetCheckpoint(t.Context(), SetCheckpoint{
			Job: state.JobID{Namespace: "b", Name: "x"}, Shard: 100 + shard, Data: make([]byte, state.MaxCheckpoint), Saved: slotAt(1),
		})
		require.NoError(t, err)
	}
	page, more, err = r.s.ListJobCheckpoints(t.Context(), ListJobCheckpoints{Namespace: "b", Limit: 1000})
	require.NoError(t, err)
	require.True(t, more)
	require.Less(t, len(page), 15)
}

package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

func TestDeletionsAreNotedUntilALeaderHasDealtWithThem(t *testing.T) {
	ctx := t.Context()
	s, db := openMemory(t)
	other := state.JobID{Namespace: "a/b", Name: "odd name"}
	for _, id := range []state.JobID{billing, other} {
		_, err := s.PutJob(ctx, putOf(id, specOf("@every 1m")))
		require.NoError(t, err)
	}
	none, err := s.ListDeleted(ctx)
	require.NoError(t, err)
	require.Empty(t, none)

	at := time.Now().UTC().Truncate(time.Microsecond)
	for _, id := range []state.JobID{billing, other} {
		require.NoError(t, s.DeleteJob(ctx, ChangeJob{ID: id, Actor: "anna", Now: at}))
	}
	gone, err := s.ListDeleted(ctx)
	require.NoError(t, err)
	require.Len(t, gone, 2)
	require.Equal(t, other, gone[0].Job.ID)
	require.EqualValues(t, 2, gone[1].Job.Generation)
	require.Equal(t, state.ChangeDelete, gone[1].Change)
	require.Equal(t, at, gone[1].Time)

	res, err := db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put("/leaderd/leader/x", nil, 0)}})
	require.NoError(t, err)
	term := state.Term{Number: res.Revision, Key: "/leaderd/leader/x"}
	require.ErrorIs(t, s.ForgetDeleted(ctx, state.Term{Number: 1, Key: term.Key}, &gone[0]), state.ErrTermLost)
	require.NoError(t, s.ForgetDeleted(ctx, term, &gone[0]))
	require.NoError(t, s.ForgetDeleted(ctx, term, &gone[0]), "once more is no harm")

	_, err = s.PutJob(ctx, putOf(billing, specOf("@every 1m")))
	require.NoError(t, err)
	none, err = s.ListDeleted(ctx)
	require.NoError(t, err)
	require.Empty(t, none, "the versions of a job that was made anew tell of its deletion")

	require.NoError(t, s.DeleteJob(ctx, ChangeJob{ID: billing, Actor: "anna", Now: at}))
	require.NoError(t, s.ForgetDeleted(ctx, term, &gone[1]), "of an earlier deletion")
	again, err := s.ListDeleted(ctx)
	require.NoError(t, err)
	require.Len(t, again, 1)
}

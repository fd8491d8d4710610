package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// etcd carries out the request that crosses its quota, and answers that there is no
// space: whoever is told so must not take it for refused.
func TestNoSpaceIsAnUnknownOutcome(t *testing.T) {
	r := newRig(t)
	id := state.JobID{Namespace: "default", Name: "put"}
	c := claimOf(billing, r.setJob(billing), r.register("a"), 5, true)
	_, err := r.s.GetClosed(t.Context())
	require.NoError(t, err)
	r.spoilWrites(faulty.Fault{After: kv.ErrNoSpace})

	_, err = r.s.Claim(t.Context(), c)
	require.ErrorIs(t, err, kv.ErrNoSpace)
	require.ErrorIs(t, err, kv.ErrUnknown)
	r.spoilWrites(faulty.Fault{After: kv.ErrNoSpace})
	_, err = r.s.PutJob(t.Context(), putOf(id, specOf("@daily")))
	require.ErrorIs(t, err, kv.ErrNoSpace)
	require.ErrorIs(t, err, kv.ErrUnknown)

	r.onTxn(nil)
	r.start(c) // it is his
	_, err = r.s.GetJob(t.Context(), id)
	require.NoError(t, err)
}

package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

func wishFor(run state.RunID, detail string) state.Cancel {
	return state.Cancel{Job: billing, Run: run, Requested: slotAt(60), Actor: "ada", Reason: state.ReasonRequested, Detail: detail}
}

// A run that has not started gets its verdict at once, whatever answers are lost, with
// the version by which it would have run; its claim then comes to nothing.
func TestCancelBeforeTheStart(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	for _, text := range []string{"a", "b", "c"} {
		spec := specOf("@every 1m")
		spec.Description = text
		_, err := r.s.PutJob(ctx, putOf(billing, spec))
		require.NoError(t, err)
	}
	job, err := r.s.GetJob(ctx, billing)
	require.NoError(t, err)
	p, err := r.s.PutPending(ctx, state.Pending{Job: billing, Run: state.TriggerRunID(slotAt(1), 1), Requested: slotAt(1)})
	require.NoError(t, err)
	calls := 0
	r.onTxn(func(txn *kv.Txn) faulty.Fault {
		if calls++; len(txn.If) > 0 && calls%2 == 0 {
			return faulty.Fault{After: kv.ErrUnknown}
		}
		return faulty.Fault{}
	})
	_, err = r.s.CancelRun(ctx, wishFor(p.Run, "stop"))
	require.NoError(t, err)
	rec, ok := r.record(billing, p.Run)
	require.True(t, ok)
	require.Equal(t, state.StateCancelled, rec.State)
	require.Equal(t, job.Job.Generation, rec.Generation)
	require.EqualValues(t, 3, rec.Generation)
	require.Equal(t, "stop", rec.Detail)
	_, there := r.get(r.s.keys.pendingRun(billing, p.Run))
	require.False(t, there)

	_, err = r.s.CancelRun(ctx, wishFor(p.Run, "stop"))
	require.NoError(t, err, "asked again")
	_, err = r.s.CancelRun(ctx, wishFor(p.Run, "no, stop"))
	require.ErrorIs(t, err, ErrOver)
	_, err = r.s.CancelRun(ctx, wishFor("20261130T020000Z-trigger-ffffffff", ""))
	require.ErrorIs(t, err, ErrNotFound)
	c := claimOf(billing, job.Job.Revision, r.register("n1"), 1, true)
	c.Live.Run, c.Pending = p.Run, p.Revision
	require.Equal(t, state.ClaimDecided, r.claim(c).Status)
}

// The wish that a live run ends is durable, the first one counts, and it goes when the
// run is over.
func TestCancelLive(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		ctx := t.Context()
		term := r.lead("l")
		rev, o := r.setJob(billing), r.register("n1")
		live := r.start(claimOf(billing, rev, o, 1, exclusive))
		for _, detail := range []string{"first", "second"} {
			e, err := r.s.CancelRun(ctx, wishFor(live.Run, detail))
			require.NoError(t, err)
			require.Len(t, e.Live, 1)
		}
		key := r.s.keys.cancelRun(billing, live.Run)
		found, ok := r.get(key)
		require.True(t, ok)
		wish, err := r.s.DecodeCancel(found)
		require.NoError(t, err)
		require.Equal(t, "first", wish.Detail)
		require.Equal(t, "ada", wish.Actor)

		// Between attempts the leader ends it; the owner's late end is fenced.
		waits := r.wait(live)
		records, over, err := r.s.FindLive(ctx, billing, live.Run)
		require.NoError(t, err)
		require.False(t, over)
		require.Equal(t, waits.Token, records[0].Token)
		ok, err = r.s.CancelWaiting(ctx, term, waits, &wish, slotAt(61))
		require.NoError(t, err)
		require.True(t, ok)
		rec, _ := r.record(billing, live.Run)
		require.Equal(t, state.StateCancelled, rec.State)
		require.Equal(t, "first", rec.Detail)
		require.EqualValues(t, 1, rec.Generation)
		require.Len(t, rec.Attempts, 1)
		_, over, err = r.s.FindLive(ctx, billing, live.Run)
		require.NoError(t, err)
		require.True(t, over)
		require.ErrorIs(t, r.s.DropCancel(ctx, state.Term{Key: term.Key, Number: term.Number + 1}, &wish), state.ErrTermLost)
		newer := wish
		newer.Revision++
		require.NoError(t, r.s.DropCancel(ctx, term, &newer))
		_, ok = r.get(key)
		require.True(t, ok, "another wish is left alone")
		require.NoError(t, r.s.DropCancel(ctx, term, &wish))
		_, ok = r.get(key)
		require.False(t, ok)
		r.start(claimOf(billing, rev, o, 2, exclusive))
	})
}

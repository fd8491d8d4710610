package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// fill makes a job and a backfill of n slots of it.
func (r *rig) fill(t *testing.T, n, concurrency int) (state.Backfill, []time.Time) {
	t.Helper()
	put, err := r.s.PutJob(t.Context(), putOf(billing, specOf("@every 1m")))
	require.NoError(t, err)
	var slots []time.Time
	for i := range n {
		slots = append(slots, slotAt(n-i)) // in whatever order
	}
	b, err := r.s.CreateBackfill(t.Context(), state.Backfill{
		Job: billing, ID: state.NewBackfillID(slotAt(60), 1), From: slotAt(0), To: slotAt(n + 1), Concurrency: concurrency,
		Actor: "ada", Reason: "swap", Created: slotAt(60), JobUID: put.Entry.Job.UID,
	}, slots, put.Entry.Job.Revision)
	require.NoError(t, err)
	return b, slots
}

// endFed gives a run that was made its verdict, as its owner would.
func (r *rig) endFed(t *testing.T, run state.RunID, to state.RunState) {
	t.Helper()
	rec := state.Record{State: to, Recorded: slotAt(61), Shards: 1}
	_, err := r.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{
		kv.Put(r.s.keys.historyRun(billing, run), codec.MarshalRecord(&rec), 0), kv.Delete(r.s.keys.pendingRun(billing, run)),
	}})
	require.NoError(t, err)
}

// Every answer of the store may be lost: each slot gets one run all the same, in order,
// and every end is counted once.
func TestFeedBackfill(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	b, slots := r.fill(t, 7, 2)
	calls := 0
	hook := faulty.Hook(func(_ context.Context, c faulty.Call) faulty.Fault {
		if c.Txn != nil && len(c.Txn.If) > 0 {
			if calls++; calls%2 == 1 {
				return faulty.Fault{After: kv.ErrUnknown}
			}
		}
		return faulty.Fault{}
	})
	r.fault.Store(&hook)
	over := state.Term{Key: term.Key, Number: term.Number + 1}
	_, _, err := r.s.FeedBackfill(ctx, over, billing, b.ID, 32, slotAt(60))
	require.ErrorIs(t, err, state.ErrTermLost)

	made := map[state.RunID]bool{}
	for i := range 5 {
		for range 2 { // once more changes nothing
			got, open, err := r.s.FeedBackfill(ctx, term, billing, b.ID, 32, slotAt(60))
			require.NoError(t, err)
			require.Equal(t, min(2*i+2, 7), got.Next)
			if i < 4 {
				require.Equal(t, b.ID.Run(slots[2*i]), open[0])
			}
			for _, run := range open {
				made[run] = true
				p, err := r.s.GetRun(ctx, billing, run)
				require.NoError(t, err)
				require.NotNil(t, p.Pending)
				require.Equal(t, "ada", p.Pending.Actor)
			}
			require.Len(t, made, got.Next)
			require.Equal(t, i == 4, !got.Active())
		}
		got, err := r.s.GetBackfill(ctx, billing, b.ID)
		require.NoError(t, err)
		for n, index := range got.Open {
			r.endFed(t, b.ID.Run(slots[index]), []state.RunState{state.StateSucceeded, state.StateFailed}[n])
		}
	}
	r.fault.Store(nil)
	got, err := r.s.GetBackfill(ctx, billing, b.ID)
	require.NoError(t, err)
	require.Equal(t, 4, got.Succeeded)
	require.Equal(t, 3, got.Failed)
	require.Equal(t, slotAt(60), got.Ended)
	res, err := r.db.Range(ctx, r.s.keys.backfillSlots(billing, b.ID), "", kv.RangeOptions{})
	require.NoError(t, err)
	require.Empty(t, res.KVs, "its slots are forgotten")
	gone, open, err := r.s.FeedBackfill(ctx, term, billing, "20261130T020000Z-00000009", 32, slotAt(60))
	require.NoError(t, err)
	require.False(t, gone.Active())
	require.Empty(t, open)
}

// Calls that come at once make no more than are allowed.
func TestBackfillsAtOnceAreBounded(t *testing.T) {
	r := newRig(t)
	put, err := r.s.PutJob(t.Context(), putOf(billing, specOf("@every 1m")))
	require.NoError(t, err)
	create := func(n int) error {
		_, err := r.s.CreateBackfill(t.Context(), state.Backfill{
			Job: billing, ID: state.NewBackfillID(slotAt(n), 1), Concurrency: 1, Created: slotAt(n), JobUID: put.Entry.Job.UID,
		}, []time.Time{slotAt(0)}, put.Entry.Job.Revision)
		return err
	}
	for n := 1; n < state.MaxBackfillsActive; n++ {
		require.NoError(t, create(n))
	}
	var between error
	first := true
	r.onTxn(func(txn *kv.Txn) faulty.Fault {
		if first && len(txn.Then) > 0 && len(txn.If) > 0 {
			first = false
			between = create(30)
		}
		return faulty.Fault{}
	})
	require.ErrorIs(t, create(31), ErrTooMany)
	require.NoError(t, between)
	require.Equal(t, state.MaxBackfillsActive, count(t, r.s, r.s.keys.backfillsOf(billing)))
}

// A backfill of which the answer was lost, and that has moved on before it is asked for
// again, is the one that was made.
func TestBackfillIsMadeOnce(t *testing.T) {
	r := newRig(t)
	term := r.lead("l")
	put, err := r.s.PutJob(t.Context(), putOf(billing, specOf("@every 1m")))
	require.NoError(t, err)
	id := state.NewBackfillID(slotAt(5), 1)
	key := r.s.keys.backfill(billing, id)
	lost := false
	r.onTxn(func(txn *kv.Txn) faulty.Fault {
		if len(txn.Then) == 0 || txn.Then[0].Key != key || len(txn.If) < 3 {
			return faulty.Fault{}
		}
		if !lost {
			lost = true
			return faulty.Fault{After: kv.ErrUnknown}
		}
		_, _, err := r.other().FeedBackfill(t.Context(), term, billing, id, 1, slotAt(6))
		require.NoError(t, err)
		return faulty.Fault{}
	})
	b := state.Backfill{
		Job: billing, ID: id, Concurrency: 1, Created: slotAt(5), JobUID: put.Entry.Job.UID, Actor: "ada",
	}
	got, err := r.s.CreateBackfill(t.Context(), b, []time.Time{slotAt(0), slotAt(1)}, put.Entry.Job.Revision)
	require.NoError(t, err)
	require.True(t, lost)
	require.Equal(t, id, got.ID)
	b.Actor = "bob"
	_, err = r.s.CreateBackfill(t.Context(), b, []time.Time{slotAt(0), slotAt(1)}, put.Entry.Job.Revision)
	require.ErrorIs(t, err, ErrExists)
}

// A job that was made anew under the name is another one.
func TestBackfillOfADeletedJob(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	b, slots := r.fill(t, 3, 1)
	_, _, err := r.s.FeedBackfill(ctx, term, billing, b.ID, 32, slotAt(60))
	require.NoError(t, err)
	require.NoError(t, r.s.DeleteJob(ctx, ChangeJob{ID: billing, Now: time.Now()}))
	_, err = r.s.PutJob(ctx, putOf(billing, specOf("@every 1m")))
	require.NoError(t, err)
	got, open, err := r.s.FeedBackfill(ctx, term, billing, b.ID, 32, slotAt(61))
	require.NoError(t, err)
	require.Empty(t, open)
	require.Equal(t, 3, got.Cancelled)
	require.Equal(t, "the job was deleted", got.CancelReason)
	run, err := r.s.GetRun(ctx, billing, b.ID.Run(slots[0]))
	require.NoError(t, err)
	require.Equal(t, state.StateCancelled, run.Record.State)
	require.Equal(t, state.ReasonBackfill, run.Record.Reason)
}

// Only so many are under way, and of those that ended the newest stay.
func TestBackfillsAreBounded(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	put, err := r.s.PutJob(ctx, putOf(billing, specOf("@every 1m")))
	require.NoError(t, err)
	create := func(n int, job int64) error {
		_, err := r.s.CreateBackfill(ctx, state.Backfill{
			Job: billing, ID: state.NewBackfillID(slotAt(n), 1), Concurrency: 1, Created: slotAt(n), JobUID: put.Entry.Job.UID,
		}, []time.Time{slotAt(0)}, job)
		return err
	}
	revision := put.Entry.Job.Revision
	require.ErrorIs(t, create(0, revision+1), ErrChanged)
	for n := range state.MaxBackfillsActive {
		require.NoError(t, create(n, revision))
	}
	require.ErrorIs(t, create(40, revision), ErrTooMany)
	term := r.lead("l")
	for n := range 50 {
		id := state.NewBackfillID(slotAt(n), 1)
		if n >= state.MaxBackfillsActive {
			require.NoError(t, create(n, revision), fmt.Sprint(n))
		}
		_, err := r.s.CancelBackfill(ctx, billing, id, "ada", "", false, slotAt(n))
		require.NoError(t, err)
		_, _, err = r.s.FeedBackfill(ctx, term, billing, id, 1, slotAt(n))
		require.NoError(t, err)
	}
	page, more, err := r.s.ListBackfills(ctx, ListBackfills{Namespace: billing.Namespace, Limit: 100})
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, page, state.MaxBackfillsKept)
	require.Equal(t, state.NewBackfillID(slotAt(49), 1), page[0].Backfill.ID)
	_, err = r.s.GetBackfill(ctx, billing, state.NewBackfillID(slotAt(0), 1))
	require.ErrorIs(t, err, ErrNotFound)

	// What somebody else damaged is told, and harms no other.
	_, err = r.db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(r.s.keys.backfill(billing, state.NewBackfillID(slotAt(49), 1)), []byte("\xff"), 0)}})
	require.NoError(t, err)
	_, _, err = r.s.FeedBackfill(ctx, term, billing, state.NewBackfillID(slotAt(49), 1), 1, slotAt(50))
	require.ErrorIs(t, err, state.ErrUnreadable)
	page, _, err = r.s.ListBackfills(ctx, ListBackfills{Limit: 100})
	require.NoError(t, err)
	require.Error(t, page[0].Broken)
	require.NoError(t, page[1].Broken)
}

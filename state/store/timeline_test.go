package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// A write of the watermark that was given up, and is carried out behind newer
// ones, changes nothing.
func TestLateWatermark(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	put := func(n int) error {
		return r.s.PutWatermark(ctx, term, state.Watermark{Instant: slotAt(n), Written: slotAt(n), Jobs: int64(n)})
	}
	require.NoError(t, put(1))

	var late kv.Txn
	hook := faulty.Hook(func(_ context.Context, c faulty.Call) faulty.Fault {
		if c.Txn != nil && len(c.Txn.Then) == 1 && c.Txn.Then[0].Key == r.s.keys.watermark() {
			late = *c.Txn
			return faulty.Fault{Before: kv.ErrPermission} // given up, and yet on its way
		}
		return faulty.Fault{}
	})
	r.fault.Store(&hook)
	require.Error(t, put(2))
	r.fault.Store(nil)
	require.NoError(t, put(3))

	res, err := r.db.Txn(ctx, late)
	require.NoError(t, err)
	require.False(t, res.Succeeded)
	w, err := r.s.GetWatermark(ctx)
	require.NoError(t, err)
	require.Equal(t, slotAt(3), w.Instant)
	require.EqualValues(t, 3, w.Jobs)

	// Carried out before the next one, it is overwritten.
	r.fault.Store(&hook)
	require.Error(t, put(4))
	r.fault.Store(nil)
	res, err = r.db.Txn(ctx, late)
	require.NoError(t, err)
	require.True(t, res.Succeeded)
	require.NoError(t, put(5))
	w, err = r.s.GetWatermark(ctx)
	require.NoError(t, err)
	require.Equal(t, slotAt(5), w.Instant)
}

// A change takes effect at the watermark where the clock of who makes it is behind.
func TestChangeBehindTheWatermark(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	mark := time.Now().UTC().Truncate(time.Second)
	require.NoError(t, r.s.PutWatermark(ctx, r.lead("l"), state.Watermark{Instant: mark, Written: mark}))
	slow, right := mark.Add(-time.Minute), mark.Add(time.Second)

	put := putOf(billing, specOf("@every 1m"))
	put.Now = slow
	res, err := r.s.PutJob(ctx, put)
	require.NoError(t, err)
	require.Equal(t, mark, res.Entry.Job.Effective)
	require.Equal(t, mark, res.Entry.Job.Anchor)
	require.Equal(t, mark, res.Entry.Job.Updated)

	paused, _, err := r.s.PauseJob(ctx, ChangeJob{ID: billing, Now: slow})
	require.NoError(t, err)
	require.Equal(t, mark, paused.Job.Updated)
	resumed, _, err := r.s.ResumeJob(ctx, ChangeJob{ID: billing, Now: right})
	require.NoError(t, err)
	require.Equal(t, right, resumed.Job.Effective)

	require.NoError(t, r.s.DeleteJob(ctx, ChangeJob{ID: billing, Now: slow}))
	gone, err := r.s.ListDeleted(ctx)
	require.NoError(t, err)
	require.Len(t, gone, 1)
	require.Equal(t, mark, gone[0].Time)
	versions, _, err := r.s.OlderVersions(ctx, billing, 0)
	require.NoError(t, err)
	require.Equal(t, gone[0].Job.Revision, versions[0].Job.Revision)
}

// The last change of any job is read from the store, not from what is known here.
func TestLastChange(t *testing.T) {
	r := newRig(t)
	none, err := r.s.LastChange(t.Context())
	require.NoError(t, err)
	require.Zero(t, none)
	put, err := r.other().PutJob(t.Context(), putOf(billing, specOf("@daily")))
	require.NoError(t, err)
	r.put("elsewhere", "x")
	last, err := r.s.LastChange(t.Context())
	require.NoError(t, err)
	require.Equal(t, put.Entry.Job.Revision, last)
}

// All versions that are kept are answered, in pages.
func TestOlderVersionsGoOn(t *testing.T) {
	r := newRig(t)
	for n := range 2*olderVersions + 5 {
		_, err := r.s.PutJob(t.Context(), putOf(billing, specOf(fmt.Sprintf("@every %ds", n+1))))
		require.NoError(t, err)
	}
	var generations []int64
	for next := int64(2*olderVersions + 4); next != 0; {
		page, behind, err := r.s.OlderVersions(t.Context(), billing, next)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), olderVersions)
		for i := range page {
			generations = append(generations, page[i].Job.Generation)
		}
		next = behind
	}
	require.Len(t, generations, 2*olderVersions+3)
	for i, g := range generations {
		require.EqualValues(t, 2*olderVersions+3-i, g)
	}
}

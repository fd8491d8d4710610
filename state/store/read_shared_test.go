package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// A slot's verdict is found at the begin of its range, however many runs were asked
// for in between.
func TestSlotOfARangeBehindManyTriggers(t *testing.T) {
	for name, triggers := range map[string]int{"a few": 3, "as many as one look": sharedRuns, "many": 5*sharedRuns + 1} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setJob(billing)
			term := r.lead("l")
			require.True(t, r.decideRange(term, rangeOf(billing, 1, 9), r.closeTo(term, 9).Revision))
			for n := range triggers {
				run := state.TriggerRunID(slotAt(2).Add(time.Duration(n)*time.Second), uint32(n))
				rec := state.Record{State: state.StateSucceeded, Due: slotAt(2), Shards: 1}
				r.put(r.s.keys.historyRun(billing, run), string(codec.MarshalRecord(&rec)))
			}
			got, err := r.s.GetRun(t.Context(), billing, slotRun(8))
			require.NoError(t, err)
			require.Equal(t, slotAt(1), got.Record.Due)
			_, err = r.s.GetRun(t.Context(), billing, slotRun(10))
			require.ErrorIs(t, err, ErrNotFound)

			d, err := r.s.ListDecided(t.Context(), billing, slotAt(8), slotAt(11))
			require.NoError(t, err)
			require.True(t, d.Has(slotAt(8)))
			require.False(t, d.Has(slotAt(10)))
		})
	}
}

// Pages of a scan are of the first one's revision.
func TestScanIsOfOneRevision(t *testing.T) {
	r := newRig(t)
	prefix := r.s.Prefix() + "scan/"
	const n = 2*pageKeys + 7
	for begin := 0; begin < n; begin += 100 {
		var x kv.Txn
		for i := begin; i < min(begin+100, n); i++ {
			x.Then = append(x.Then, kv.Put(prefix+jobNo(i).Name, nil, 0))
		}
		r.commit(x)
	}
	seen := 0
	require.NoError(t, r.s.scan(t.Context(), prefix, func(found kv.KeyValue) {
		if seen%pageKeys == 0 {
			r.put(prefix+"zz-"+jobNo(seen).Name, "")
		}
		seen++
		require.NotContains(t, found.Key, "zz-")
	}))
	require.Equal(t, n, seen)
}

func TestLiveOf(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		c := claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive)
		none := func() {
			t.Helper()
			got, err := r.s.LiveOf(t.Context(), billing, c.Live.Run)
			require.NoError(t, err)
			require.Empty(t, got)
		}
		none()
		l := r.start(c)
		got, err := r.s.LiveOf(t.Context(), billing, c.Live.Run)
		require.NoError(t, err)
		require.Equal(t, []state.Live{l}, got)
		w := r.wait(l)
		got, err = r.s.LiveOf(t.Context(), billing, c.Live.Run)
		require.NoError(t, err)
		require.Equal(t, []state.Live{w}, got)
		other, err := r.s.LiveOf(t.Context(), billing, slotRun(6))
		require.NoError(t, err)
		require.Empty(t, other)
		c = again(w, c.JobRevision, c.Live.Owner)
		r.end(r.start(c))
		none()
		r.put(r.s.keys.activeShard(billing, slotRun(6), 0), "\xff\xff")
		_, err = r.s.LiveOf(t.Context(), billing, slotRun(6))
		require.ErrorIs(t, err, ErrCorrupt)
	})
}

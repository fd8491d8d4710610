package store

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/memkv"
)

func all(*state.Live) bool { return true }

func jobNo(n int) state.JobID {
	return state.JobID{Namespace: "default", Name: fmt.Sprintf("job-%05d", n)}
}

func TestListLive(t *testing.T) {
	r := newRig(t)
	a := r.register("a")
	var want []state.Live
	for n := range 250 { // more than one look-up of verdicts
		rev := r.setJob(jobNo(n))
		l := r.start(claimOf(jobNo(n), rev, a, 1, n%2 == 0))
		switch n % 5 {
		case 0:
			r.end(l) // leaves a dead record where n is even
		case 1:
			want = append(want, r.wait(l))
		default:
			want = append(want, l)
		}
	}
	got, err := r.s.ListLive(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = r.s.ListLive(t.Context(), func(l *state.Live) bool { return l.State == state.StateWaiting })
	require.NoError(t, err)
	require.Len(t, got, 50)
}

func TestListLiveInPages(t *testing.T) {
	r := newRig(t)
	const n = 2*pageKeys + 7
	for begin := 0; begin < n; begin += 100 {
		var x kv.Txn
		for i := begin; i < min(begin+100, n); i++ {
			x.Then = append(x.Then, kv.Put(r.s.keys.activeShard(jobNo(i), slotRun(1), 0), codec.MarshalLive(&state.Live{Run: slotRun(1)}), 0))
		}
		r.commit(x)
	}
	got, err := r.s.ListLive(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, got, n)
	for i := range got {
		require.Equal(t, jobNo(i), got[i].Job)
	}
}

func TestUnreadableLiveRecords(t *testing.T) {
	db := memkv.New()
	t.Cleanup(db.Close)
	var out bytes.Buffer
	s, err := New(db, Config{Logger: hclog.New(&hclog.LoggerOptions{Output: &out})})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	r := &rig{t: t, db: db, s: s}
	l := r.start(claimOf(billing, r.setJob(billing), r.register("a"), 1, true))
	r.put(s.keys.activeShard(jobNo(1), slotRun(3), 0), "\xff")
	r.put(s.keys.activeGate(jobNo(2)), "\xff")
	r.put(s.keys.active()+"strange", "x")
	got, err := s.ListLive(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, []state.Live{l}, got)
	for _, key := range []string{s.keys.activeShard(jobNo(1), slotRun(3), 0), s.keys.activeGate(jobNo(2)), "strange"} {
		require.Contains(t, out.String(), key)
	}

	out.Reset()
	d, err := s.ListDecided(t.Context(), jobNo(1), slotAt(0), slotAt(9))
	require.NoError(t, err)
	require.True(t, d.Has(slotAt(3)), "its key tells")
	d, err = s.ListDecided(t.Context(), jobNo(2), slotAt(0), slotAt(9))
	require.NoError(t, err)
	require.Empty(t, d.Slots)
	require.Contains(t, out.String(), s.keys.activeGate(jobNo(2)))
}

func TestListDecided(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		rev, a, term := r.setJob(billing), r.register("a"), r.lead("l")
		r.end(r.start(claimOf(billing, rev, a, 1, exclusive)))
		closed := r.closeTo(term, 20)
		require.True(t, r.decideRange(term, rangeOf(billing, 5, 8), closed.Revision))
		require.True(t, r.decideRange(term, rangeOf(billing, 10, 10), closed.Revision))
		require.True(t, r.decide(term, skipOf(billing, 12), exclusive, 0))
		r.put(r.s.keys.historyRun(billing, slotRun(13)), "\xff")
		r.put(r.s.keys.historyRun(billing, state.TriggerRunID(slotAt(14), 1)), "")
		r.start(claimOf(billing, rev, a, 25, exclusive))
		decided := map[int]bool{1: true, 5: true, 6: true, 7: true, 8: true, 10: true, 12: true, 13: true, 25: true}
		for first := range 30 {
			for _, last := range []int{first, first + 1, first + 12} {
				// The window's own zone says nothing.
				zone := time.FixedZone("", 3600)
				d, err := r.s.ListDecided(t.Context(), billing, slotAt(first).In(zone), slotAt(last))
				require.NoError(t, err)
				for n := first; n <= last; n++ {
					require.Equal(t, decided[n], d.Has(slotAt(n)), "slot %d of %d–%d", n, first, last)
				}
				for slot := range d.Slots {
					require.False(t, slot.Before(slotAt(first)) || slot.After(slotAt(last)))
				}
			}
		}
	})
}

func TestListDecidedInPages(t *testing.T) {
	r := newRig(t)
	const n = pageKeys + 11
	for begin := 0; begin < n; begin += 100 {
		var x kv.Txn
		for i := begin; i < min(begin+100, n); i++ {
			x.Then = append(x.Then, kv.Put(r.s.keys.historyRun(billing, slotRun(i)), nil, 0))
		}
		r.commit(x)
	}
	d, err := r.s.ListDecided(t.Context(), billing, slotAt(0), slotAt(n))
	require.NoError(t, err)
	require.Len(t, d.Slots, n)
}

// A run that comes to its end while its job's slots are listed is not missed.
func TestListDecidedDuringAFinish(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for step := range 4 {
			r := newRig(t)
			rev, a := r.setJob(billing), r.register("a")
			l := r.start(claimOf(billing, rev, a, 5, exclusive))
			reads := 0
			hook := faulty.Hook(func(_ context.Context, c faulty.Call) faulty.Fault {
				if c.Op == faulty.OpRange {
					if reads == step {
						s := r.other()
						status, err := s.Finish(t.Context(), endOf(l, state.StateSucceeded))
						require.NoError(t, err)
						require.Equal(t, state.TokenStored, status)
						// With the next run at the gate nothing is left of it there.
						_, err = s.Claim(t.Context(), claimOf(billing, rev, a, 6, exclusive))
						require.NoError(t, err)
					}
					reads++
				}
				return faulty.Fault{}
			})
			r.fault.Store(&hook)
			d, err := r.s.ListDecided(t.Context(), billing, slotAt(0), slotAt(9))
			require.NoError(t, err)
			require.True(t, d.Has(slotAt(5)), "before read %d", step)
		}
	})
}

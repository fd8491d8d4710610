package store

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// gated is a claim of a due run of a job with a gate.
func gated(id state.JobID, revision int64, o state.Owner, n int, g state.Gate) state.Claim {
	c := claimOf(id, revision, o, n, g.Limit == 0)
	c.Gate, c.ApplyOverlap = g, true
	return c
}

// taken are the numbers of the places that are taken at a gate.
func (r *rig) taken(id state.JobID, key string) (all []int) {
	prefix := r.s.keys.placesOf(id, key)
	res, err := r.db.Range(context.Background(), prefix, end(prefix), kv.RangeOptions{})
	require.NoError(r.t, err)
	for _, found := range res.KVs {
		var n int
		_, err := fmt.Sscanf(found.Key[len(prefix):], "%d", &n)
		require.NoError(r.t, err)
		all = append(all, n)
	}
	return all
}

// Each run has a place until its verdict, over retries, and whoever gives it that.
func TestPlaces(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	rev, o := r.setJob(billing), r.register("n1")
	two := state.Gate{Policy: state.OverlapAllow, Limit: 2}
	first, second := r.start(gated(billing, rev, o, 0, two)), r.start(gated(billing, rev, o, 1, two))
	require.Equal(t, []int{1, 2}, r.taken(billing, ""))
	require.Equal(t, state.ClaimSkipped, r.claim(gated(billing, rev, o, 2, two)).Status)
	rec, _ := r.record(billing, slotRun(2))
	require.Equal(t, state.ReasonOverlap, rec.Reason)
	require.Equal(t, "2 runs were live", rec.Detail)

	r.end(first)
	third := r.start(gated(billing, rev, o, 3, two))
	require.Equal(t, first.Place, third.Place)
	waits := r.wait(second)
	require.Equal(t, second.Place, waits.Place, "a run between attempts keeps its place")
	require.Equal(t, state.ClaimSkipped, r.claim(gated(billing, rev, o, 4, two)).Status)
	next := again(waits, rev, o)
	next.Gate = two
	second = r.start(next)
	require.Equal(t, waits.Place, second.Place)

	// By the leader: a lost run waits with its place, and gives it back when given up.
	r.unregister(o)
	waits, ok, err := r.s.MarkLost(ctx, term, second, slotAt(5))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []int{1, 2}, r.taken(billing, ""))
	ok, err = r.s.GiveUp(ctx, term, waits, state.StateMissed, state.ReasonDeadline, slotAt(6), 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []int{third.Place}, r.taken(billing, ""))
	third.AtMostOnce = true
	_, ok, err = r.s.MarkLost(ctx, term, third, slotAt(6))
	require.NoError(t, err)
	require.True(t, ok)
	require.Empty(t, r.taken(billing, ""))
}

// A limit that was lowered, or is another job's, is not exceeded by a run that begins.
func TestPlacesOfAKey(t *testing.T) {
	r := newRig(t)
	report := state.JobID{Namespace: "default", Name: "report"}
	rev, other, o := r.setJob(billing), r.setJob(report), r.register("n1")
	three := state.Gate{Policy: state.OverlapAllow, Limit: 3, Key: "db"}
	one := state.Gate{Policy: state.OverlapAllow, Limit: 1, Key: "db"}
	var live []state.Live
	for n := range 3 {
		live = append(live, r.start(gated(billing, rev, o, n, three)))
	}
	require.Equal(t, []int{1, 2, 3}, r.taken(report, "db"))
	require.Empty(t, r.taken(billing, ""))
	early := gated(report, other, o, 3, one)
	early.ApplyOverlap = false
	require.Equal(t, state.ClaimHeld, r.claim(early).Status)
	for i, l := range live {
		require.Equal(t, state.ClaimHeld, r.claim(early).Status, i)
		r.end(l)
	}
	l := r.start(early)
	require.Equal(t, state.ClaimSkipped, r.claim(gated(billing, rev, o, 4, one)).Status)
	rec, _ := r.record(billing, slotRun(4))
	require.Equal(t, "run "+string(l.Run)+" of "+report.String()+" was live", rec.Detail)
	elsewhere := state.JobID{Namespace: "other", Name: "report"}
	r.start(gated(elsewhere, r.setJob(elsewhere), o, 3, one)) // a key is a namespace's own
}

// Whatever two stores guess, whatever answers are lost and however limits change: a run
// begins only while fewer are live than its limit, and places are those of the live runs.
func TestPlacesProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		stores := []*Store{r.s, r.other()}
		rev, o := r.setJob(billing), r.register("n1")
		lose := 0
		r.onTxn(func(txn *kv.Txn) faulty.Fault {
			if lose > 0 && len(txn.If) > 0 {
				lose--
				return faulty.Fault{After: kv.ErrUnknown}
			}
			return faulty.Fault{}
		})
		var live []state.Live
		for n := range rapid.IntRange(1, 24).Draw(rt, "steps") {
			s := stores[rapid.IntRange(0, 1).Draw(rt, "store")]
			lose = rapid.IntRange(0, 2).Draw(rt, "lost")
			if len(live) > 0 && rapid.Bool().Draw(rt, "end") {
				i := rapid.IntRange(0, len(live)-1).Draw(rt, "which")
				status, err := s.Finish(t.Context(), endOf(live[i], state.StateSucceeded))
				require.NoError(rt, err)
				require.Equal(rt, state.TokenStored, status)
				live = slices.Delete(live, i, i+1)
			} else {
				limit := rapid.IntRange(1, 4).Draw(rt, "limit")
				c := gated(billing, rev, o, n, state.Gate{Policy: state.OverlapAllow, Limit: limit})
				res, err := s.Claim(t.Context(), c)
				require.NoError(rt, err)
				if res.Status == state.Claimed {
					require.Less(rt, len(live), limit)
					live = append(live, *res.Live)
				} else {
					require.Equal(rt, state.ClaimSkipped, res.Status)
					beyond := slices.ContainsFunc(live, func(l state.Live) bool { return l.Place > limit })
					require.True(rt, len(live) >= limit || beyond, "skipped, and the gate was open")
				}
			}
			var want []int
			for _, l := range live {
				want = append(want, l.Place)
			}
			slices.Sort(want)
			require.Equal(rt, want, r.taken(billing, ""))
		}
	})
}

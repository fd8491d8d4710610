package store

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// stepOf is the claim of the first step of a slot's run.
func stepOf(id state.JobID, revision int64, o state.Owner, n int, exclusive bool) state.Claim {
	c := claimOf(id, revision, o, n, exclusive)
	c.Live.Shard, c.Live.Listing = state.ListShard, &state.Shards{Dynamic: &state.Listing{Max: 3}, MinSuccess: 1}
	return c
}

// listOf ends a first step with what it has listed.
func listOf(l state.Live, texts ...string) state.Finish {
	f := endOf(l, state.StateSucceeded)
	for _, text := range texts {
		f.List = append(f.List, map[string]string{state.ListParam: text})
	}
	return f
}

func shardClaim(l state.Live, revision int64, o state.Owner, shard int) state.Claim {
	c := state.Claim{Job: l.Job, JobRevision: revision, Exclusive: l.Exclusive, Split: true, Live: l}
	c.Live.Shard, c.Live.Attempt, c.Live.Owner, c.Live.Listing = shard, 1, o, nil
	return c
}

// TestListing follows a run from its first step to its verdict: the header takes the
// step's place with the list, once, and the step is fenced from then on.
func TestListing(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		value, err := proto.Marshal(&statev1.Job{Spec: &leaderdv1.JobSpec{Shards: &leaderdv1.Shards{Dynamic: &leaderdv1.DynamicShards{}}}})
		require.NoError(t, err)
		job, a, term := r.put(r.s.keys.job(billing), string(value)), r.register("a"), r.lead("l")
		step := r.start(stepOf(billing, job, a, 5, exclusive))
		require.Equal(t, state.ClaimStale, r.claim(shardClaim(step, job, a, 0)).Status, "there is no header yet")
		seen, err := r.s.RunShards(t.Context(), billing, step.Run)
		require.NoError(t, err)
		require.True(t, seen.Listing)

		f := listOf(step, "x", "y")
		require.Equal(t, state.TokenStored, r.finish(f))
		require.Equal(t, state.TokenStored, r.finish(f), "asked again")
		require.Equal(t, state.TokenFenced, r.finish(endOf(step, state.StateFailed)))
		require.Equal(t, state.TokenFenced, r.finish(retryOf(step, slotAt(6))))
		other := listOf(step, "z")
		other.Attempt.Ended = slotAt(9)
		require.Equal(t, state.TokenFenced, r.finish(other), "the list is fixed")
		require.Equal(t, state.ClaimLive, r.claim(stepOf(billing, job, r.register("b"), 5, exclusive)).Status)

		seen, err = r.s.RunShards(t.Context(), billing, step.Run)
		require.NoError(t, err)
		require.False(t, seen.Listing)
		require.NotNil(t, seen.Header)
		require.Equal(t, exclusive, seen.Header.Exclusive)
		require.Equal(t, []state.Attempt{f.Attempt}, seen.Header.Attempts)
		require.Equal(t, 2, seen.Header.Split.Total())
		require.Equal(t, 1, seen.Header.Split.Needed())
		require.Empty(t, seen.Shards)

		ends := make([]state.Live, 2)
		for i, text := range []string{"x", "y"} {
			got := r.claim(shardClaim(step, job, a, i))
			require.Equal(t, state.Claimed, got.Status, got.Status.String())
			require.Equal(t, map[string]string{state.ListParam: text}, got.Part.Params)
			require.Equal(t, state.TokenStored, r.finish(endOf(*got.Live, state.StateSucceeded)))
			ends[i] = state.Live{Shard: i, State: state.StateSucceeded}
		}
		require.Equal(t, state.ClaimDecided, r.claim(shardClaim(step, job, a, 2)).Status, "it was not listed")

		seen, err = r.s.RunShards(t.Context(), billing, step.Run)
		require.NoError(t, err)
		rec := state.Record{
			Job: billing, Run: step.Run, State: state.StateSucceeded, Due: step.Due, Recorded: slotAt(7), Shards: 2,
			Split: seen.Header.Split, Ends: ends, Attempts: seen.Header.Attempts,
		}
		ok, err := r.s.Conclude(t.Context(), term, *seen.Header, rec, seen.Seen)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, state.TokenStored, r.finish(f), "asked again after the verdict")
		require.Equal(t, state.TokenFenced, r.finish(other))
		for key := range r.dump() {
			require.NotContains(t, key, "active/", "nothing is left behind")
		}
	})
}

// TestListUnknown has the answer to a list be lost.
func TestListUnknown(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for name, fault := range map[string]faulty.Fault{"before": {Before: kv.ErrUnknown}, "after": {After: kv.ErrUnknown}} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				step := r.start(stepOf(billing, r.setJob(billing), r.register("a"), 5, exclusive))
				done := false
				r.onTxn(func(txn *kv.Txn) faulty.Fault {
					if done || len(txn.Then) == 0 {
						return faulty.Fault{}
					}
					done = true
					return fault
				})
				f := listOf(step, "x")
				status, err := r.s.Finish(t.Context(), f)
				for err != nil {
					status, err = r.s.Finish(t.Context(), f)
				}
				require.Equal(t, state.TokenStored, status)
				seen, err := r.s.RunShards(t.Context(), billing, step.Run)
				require.NoError(t, err)
				require.Equal(t, 1, seen.Header.Split.Total())
			})
		}
	})
}

// TestListRace has a first step that is taken for lost, the one that follows it and one
// more that knows nothing end at once, by two control nodes: one of them fixes the list,
// and it is the newest attempt.
func TestListRace(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for range 20 {
			r := newRig(t)
			job, a := r.setJob(billing), r.register("a")
			stale := r.start(stepOf(billing, job, a, 5, exclusive))
			r.unregister(a)
			waiting, ok, err := r.s.MarkLost(t.Context(), r.lead("l"), stale, slotAt(6))
			require.NoError(t, err)
			require.True(t, ok)
			c := again(waiting, job, r.register("b"))
			c.Live.Listing = stale.Listing
			newest := r.start(c)
			twin := listOf(newest, "of the twin")
			twin.Attempt.Ended = slotAt(8)

			ends := []state.Finish{listOf(stale, "old", "older"), listOf(newest, "new"), twin}
			stores := []*Store{r.s, r.other(), r.other()}
			got := make([]state.TokenStatus, len(ends))
			errs := make([]error, len(ends))
			var all sync.WaitGroup
			for i := range ends {
				all.Go(func() { got[i], errs[i] = stores[i].Finish(context.Background(), ends[i]) })
			}
			all.Wait()
			for _, err := range errs {
				require.NoError(t, err)
			}
			require.Equal(t, state.TokenFenced, got[0])
			require.NotEqual(t, got[1], got[2], "one of them alone")
			seen, err := r.s.RunShards(t.Context(), billing, stale.Run)
			require.NoError(t, err)
			want := "new"
			if got[2] == state.TokenStored {
				want = "of the twin"
			}
			require.Equal(t, []map[string]string{{state.ListParam: want}}, seen.Header.Split.Params)
			require.Len(t, seen.Header.Attempts, 2)
		}
	})
}

// TestListOfNothing has the success of a step that lists nothing be the run's.
func TestListOfNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		job := r.setJob(billing)
		step := r.start(stepOf(billing, job, r.register("a"), 5, exclusive))
		f := listOf(step)
		require.Equal(t, state.TokenStored, r.finish(f))
		require.Equal(t, state.TokenStored, r.finish(f), "asked again")
		rec, ok := r.record(billing, step.Run)
		require.True(t, ok)
		require.Equal(t, state.StateSucceeded, rec.State)
		require.Equal(t, noShards, rec.Detail)
		require.Zero(t, rec.Shards)
		require.True(t, rec.Split.Listed())
		require.Equal(t, []state.Attempt{f.Attempt}, rec.Attempts)
		r.start(stepOf(billing, job, r.register("b"), 6, exclusive))
	})
}

// TestListTooLong refuses what no run is split into.
func TestListTooLong(t *testing.T) {
	r := newRig(t)
	step := r.start(stepOf(billing, r.setJob(billing), r.register("a"), 5, true))
	_, err := r.s.Finish(t.Context(), listOf(step, "1", "2", "3", "4"))
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, "has 4 entries; at most 3 are allowed")
}

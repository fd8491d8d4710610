package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// TestFirstSteps answers runs that list their shards: while the step is at work, once it
// has listed, over several pages, and where it has listed nothing or failed.
func TestFirstSteps(t *testing.T) {
	s := serve(t, nil)
	list := func(run string, size int32, token string) *leaderdv1.ListShardsResponse {
		res, err := s.runs.ListShards(t.Context(), &leaderdv1.ListShardsRequest{Name: billing + "/runs/" + run, PageSize: size, PageToken: token})
		require.NoError(t, err)
		return res
	}
	listing := &state.Shards{Dynamic: &state.Listing{Max: 9}, MinSuccess: 2}
	end := state.Attempt{Number: 1, Node: "n1", Token: 5, Claimed: noon, Started: noon, Ended: noon.Add(time.Second), State: state.StateSucceeded}

	const run = "20261130T120000Z"
	s.write(t, "active/default/billing/"+run+"/-2", codec.LiveToProto(&state.Live{
		Run: run, Shard: state.ListShard, Shards: 1, State: state.StateRunning, Attempt: 1, Owner: state.Owner{Node: "n1", Revision: 4},
		Due: noon, Claimed: noon, Listing: listing,
	}))
	got := s.run(t, run)
	require.Equal(t, leaderdv1.Run_STATE_RUNNING, got.GetState())
	require.Nil(t, got.GetShards())
	require.EqualValues(t, state.ListShard, got.GetAttempts()[0].GetShard())
	step := list(run, 0, "").GetShards()
	require.Len(t, step, 1)
	require.EqualValues(t, state.ListShard, step[0].GetNumber())
	require.Equal(t, leaderdv1.Run_STATE_RUNNING, step[0].GetState())

	const listed = "20261130T120100Z"
	split := &state.Split{Shards: *listing}
	split.Params = []map[string]string{{"value": "a"}, {"value": "b"}}
	s.write(t, "active/default/billing/"+listed+"/~", codec.LiveToProto(&state.Live{
		Run: listed, Shard: state.HeaderShard, Shards: 2, State: state.StateRunning, Attempt: 1, Due: noon, Split: split,
		Attempts: []state.Attempt{end},
	}))
	got = s.run(t, listed)
	require.EqualValues(t, 2, got.GetShards().GetTotal())
	require.EqualValues(t, 2, got.GetShards().GetPending())
	require.Len(t, got.GetAttempts(), 1)
	require.EqualValues(t, state.ListShard, got.GetAttempts()[0].GetShard())
	var numbers []int32
	var params []string
	for token, pages := "", 0; token != "" || pages == 0; pages++ {
		res := list(listed, 1, token)
		require.LessOrEqual(t, len(res.GetShards()), 1)
		for _, shard := range res.GetShards() {
			numbers, params = append(numbers, shard.GetNumber()), append(params, shard.GetParams()["value"])
		}
		token = res.GetNextPageToken()
	}
	require.Equal(t, []int32{state.ListShard, 0, 1}, numbers)
	require.Equal(t, []string{"", "a", "b"}, params)

	for id, to := range map[string]state.RunState{"20261130T120200Z": state.StateSucceeded, "20261130T120300Z": state.StateFailed} {
		last := end
		last.State = to
		s.write(t, "history/default/billing/"+id, codec.RecordToProto(&state.Record{
			State: to, Detail: "why", Due: noon, Attempts: []state.Attempt{last}, Split: &state.Split{Shards: *listing},
		}))
		got = s.run(t, id)
		require.Equal(t, to == state.StateSucceeded, got.GetShards() != nil)
		require.Zero(t, got.GetShards().GetTotal())
		require.EqualValues(t, state.ListShard, got.GetAttempts()[0].GetShard())
		step := list(id, 0, "").GetShards()
		require.Len(t, step, 1)
		require.Equal(t, "why", step[0].GetDetail())
		require.Equal(t, runStateOf(to), step[0].GetState())
	}
}

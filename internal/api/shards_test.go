package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/rpc"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// What is told of a run fits a message, however often each of its many shards has failed
// with however much to say.
func TestRunOfManyShardsAndTriesIsAnswered(t *testing.T) {
	s := serve(t, nil)
	const shards, tries = 400, state.MaxAttemptRecords
	split := &state.Split{Shards: state.Shards{Count: shards}}
	s.write(t, "active/default/billing/20261130T120000Z/~", codec.LiveToProto(&state.Live{
		Run: "20261130T120000Z", Shard: state.HeaderShard, Shards: shards, Attempt: 1, State: state.StateRunning, Due: noon, Claimed: noon, Split: split,
	}))
	for i := range shards {
		l := state.Live{
			Run: "20261130T120000Z", Shard: i, Shards: shards, State: state.StateRunning, Attempt: tries + 1, Due: noon, Claimed: noon, Header: 1,
			Owner: state.Owner{Node: "n1", Revision: 4},
		}
		for n := range tries {
			l.Attempts = append(l.Attempts, state.Attempt{
				Number: n + 1, Node: "n1", Token: 5, Term: 3, Claimed: noon, Started: noon, Ended: noon.Add(time.Second),
				State: state.StateFailed, Error: strings.Repeat("e", state.MaxErrorBytes),
			})
		}
		s.write(t, fmt.Sprintf("active/default/billing/20261130T120000Z/%d", i), codec.LiveToProto(&l))
	}

	run := s.run(t, "20261130T120000Z")
	require.Less(t, proto.Size(run), rpc.MaxMessageBytes/2)
	require.EqualValues(t, shards, run.GetShards().GetRunning())
	require.Len(t, run.GetAttempts(), shards)
	for i, a := range run.GetAttempts() {
		require.EqualValues(t, i, a.GetShard())
		require.Equal(t, leaderdv1.Run_STATE_RUNNING, a.GetState())
	}

	listed, err := s.runs.ListRuns(t.Context(), &leaderdv1.ListRunsRequest{Parent: billing})
	require.NoError(t, err)
	require.Len(t, listed.GetRuns(), 1)

	next, token := 0, ""
	for {
		page, err := s.runs.ListShards(t.Context(), &leaderdv1.ListShardsRequest{Name: billing + "/runs/20261130T120000Z", PageSize: 1000, PageToken: token})
		require.NoError(t, err)
		require.Less(t, proto.Size(page), rpc.MaxMessageBytes)
		for _, shard := range page.GetShards() {
			require.EqualValues(t, next, shard.GetNumber())
			require.Len(t, shard.GetAttempts(), tries+1)
			next++
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Equal(t, shards, next)
}

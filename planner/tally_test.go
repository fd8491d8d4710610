package planner

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// A verdict goes into the store twice where it leaves a dead letter, in one request.
// One that is larger could never be stored, and its run would hold its gate for ever.
func TestVerdictOfManyShardsFitsTheStore(t *testing.T) {
	now := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	split := &state.Split{Shards: state.Shards{Broadcast: true}}
	for i := range state.MaxShards {
		split.Nodes = append(split.Nodes, fmt.Sprintf("%0*d", state.MaxNameBytes, i))
		// It repeats what failed of a run that repeated what failed of another, and so on.
		split.Resumed = append(split.Resumed, state.ShardsOf{Run: state.SubmitRunID(now, uint64(i)), Shards: []int{i}})
	}
	ends := func(attempts, text int, detail bool) []state.Live {
		all := make([]state.Live, state.MaxShards)
		for i := range all {
			l := &all[i]
			*l = state.Live{Shard: i, State: state.StateFailed, Attempt: attempts, Header: 1, End: &state.ShardEnd{Recorded: now}}
			if detail {
				l.End.Reason, l.End.Detail = strings.Repeat("r", state.MaxReasonBytes), strings.Repeat("d", state.MaxDetailBytes)
			}
			for n := range attempts {
				l.Attempts = append(l.Attempts, state.Attempt{
					Number: n + 1, Node: split.Nodes[i], Token: 1 << 40, Term: 1 << 40, Claimed: now, Started: now, Ended: now,
					State: state.StateFailed, ExitCode: 255, HasCode: true, Error: strings.Repeat("é", text/2),
					Done: 1 << 40, Total: 1 << 40, Message: strings.Repeat("m", min(text, state.MaxProgressMessage)),
				})
			}
		}
		return all
	}
	none := func(string) bool { return false }
	for _, c := range []struct {
		name           string
		attempts, text int
		detail         bool
	}{
		{"one attempt with a long error", 1, state.MaxErrorBytes, false},
		{"two attempts with long errors", 2, state.MaxErrorBytes, false},
		{"all that may be", state.MaxAttemptRecords, state.MaxErrorBytes, true},
		{"many attempts without a word", 4, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			shards := ends(c.attempts, c.text, c.detail)
			ta := newTally(split, shards, none)
			rec := ta.record(&state.Live{Job: state.JobID{Namespace: "n", Name: "j"}, Due: now, Split: split}, fate{state: state.StateFailed}, now)
			size := len(codec.MarshalRecord(&rec))
			require.Less(t, 2*size, int(kv.MaxRequestBytes)-64<<10, "the verdict has %d bytes", size)
			require.Len(t, rec.Ends, state.MaxShards)
			for i := range rec.Ends {
				as := rec.Ends[i].Attempts
				require.NotEmpty(t, as)
				require.Equal(t, c.attempts, as[len(as)-1].Number, "the last attempt stays")
				require.True(t, utf8.ValidString(as[0].Error))
				require.Equal(t, c.text > 0, as[0].Error != "", "something of the error stays")
			}
			for i := range shards {
				require.Len(t, shards[i].Attempts, c.attempts, "what was read is not changed")
				require.Len(t, shards[i].Attempts[0].Error, c.text)
			}
		})
	}

	few := ends(2, state.MaxErrorBytes, true)[:10]
	ta := newTally(&state.Split{Shards: state.Shards{Count: 10}}, few, none)
	rec := ta.record(&state.Live{Due: now}, fate{state: state.StateFailed}, now)
	for i := range rec.Ends {
		require.Equal(t, few[i].Attempts, rec.Ends[i].Attempts, "where there is room, nothing is left out")
		require.Equal(t, few[i].End.Detail, rec.Ends[i].End.Detail)
	}
}

// What is carried over counts as succeeded, whatever becomes of the others, and has no
// attempts: not where its node is gone, nor where all that is left is given up.
func TestTallyOfCarriedShards(t *testing.T) {
	now := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	one := []state.Live{{Shard: 1, State: state.StateSucceeded}, {Shard: 2, State: state.StateFailed}}
	both := []state.Live{{Shard: 1, State: state.StateSucceeded}, {Shard: 2, State: state.StateSucceeded}}
	split := func(needed int) *state.Split {
		return &state.Split{
			Shards: state.Shards{Broadcast: true, MinSuccess: needed}, Nodes: []string{"a", "b", "c", "d"},
			Carried: []state.ShardsOf{{Run: "r1", Shards: []int{0}}, {Run: "r2", Shards: []int{3}}},
		}
	}
	gone := func(string) bool { return true }
	here := func(string) bool { return false }
	for _, c := range []struct {
		name     string
		needed   int
		shards   []state.Live
		lost     func(string) bool
		giveUp   bool
		ended    bool
		hopeless bool
		want     fate
	}{
		{"nothing has begun", 0, nil, here, false, false, false, fate{}},
		{"all is given up", 0, nil, here, true, true, true, fate{state: state.StateCancelled, detail: "2 of 4 shards succeeded, 4 were needed; not 1, 2"}},
		{"enough were carried over", 2, nil, here, true, true, false, fate{state: state.StateSucceeded, detail: "2 of 4 shards succeeded, 2 were needed; not 1, 2"}},
		{"their nodes are gone", 0, nil, gone, false, true, true, fate{state: state.StateFailed, detail: "2 of 4 shards succeeded, 4 were needed; not 1, 2"}},
		{
			"one more succeeds", 3, one, here,
			false, true, false,
			fate{state: state.StateSucceeded, detail: "3 of 4 shards succeeded, 3 were needed; not 2"},
		},
		{
			"all the others succeed", 0, both, here,
			false, true, false,
			fate{state: state.StateSucceeded},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ta := newTally(split(c.needed), c.shards, c.lost)
			if c.giveUp {
				ta.leaveMissing(fate{state: state.StateCancelled})
			}
			require.Equal(t, c.ended, ta.ended())
			require.Equal(t, c.hopeless, ta.hopeless())
			if !c.ended {
				return
			}
			verdict := ta.verdict(nil, false)
			require.Equal(t, c.want, verdict)
			rec := ta.record(&state.Live{Due: now}, verdict, now)
			for _, shard := range []int{0, 3} {
				require.Equal(t, state.Live{Shard: shard, State: state.StateSucceeded}, rec.Ends[shard])
			}
		})
	}
}

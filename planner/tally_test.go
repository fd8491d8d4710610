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

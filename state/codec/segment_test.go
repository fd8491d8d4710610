package codec_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// TestSegment: what is packed comes back as it was, whatever its numbers.
func TestSegment(t *testing.T) {
	number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 5), rapid.Int64Range(1_790_000_000_000_000, 1_800_000_000_000_000), rapid.Int64Range(-1<<60, 1<<60))
	rapid.Check(t, func(t *rapid.T) {
		var of []codec.Packed
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			r := &statev1.Record{
				Generation: number.Draw(t, "generation"), State: 5, Due: number.Draw(t, "due"), Until: number.Draw(t, "until"),
				Recorded: number.Draw(t, "recorded"), Tail: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "tail"),
			}
			for range rapid.IntRange(0, 3).Draw(t, "attempts") {
				r.Attempts = append(r.Attempts, &statev1.Attempt{
					Node: rapid.String().Draw(t, "node"), Token: number.Draw(t, "token"), Claimed: number.Draw(t, "claimed"),
					Started: number.Draw(t, "started"), Ended: number.Draw(t, "ended"),
				})
			}
			run := state.SlotRunID(codec.Time(r.GetDue()))
			if rapid.Bool().Draw(t, "triggered") {
				run = state.TriggerRunID(time.Unix(int64(len(of)), 0), 7)
			}
			of = append(of, codec.Packed{Run: run, Revision: rapid.Int64Range(1, 1<<60).Draw(t, "revision"), Record: r})
		}
		value, err := codec.MarshalSegment(of)
		require.NoError(t, err)
		back, err := codec.UnmarshalSegment(value)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(of, back, protocmp.Transform()))
	})
}

// TestSegmentRefuses: a damaged value is an error, not a panic, and does not unpack
// to more than a segment may.
func TestSegmentRefuses(t *testing.T) {
	value, err := codec.MarshalSegment([]codec.Packed{{Run: "a", Revision: 1, Record: &statev1.Record{Due: 1}}})
	require.NoError(t, err)
	for i := range value {
		_, _ = codec.UnmarshalSegment(value[:i])
		broken := append([]byte(nil), value...)
		broken[i] ^= 0x55
		_, _ = codec.UnmarshalSegment(broken)
	}
	_, err = codec.UnmarshalSegment(nil)
	require.Error(t, err)
}

// TestSegmentSize: a month of a job that is due every minute.
func TestSegmentSize(t *testing.T) {
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	bytes, plain, revision := 0, 0, int64(1_000_000)
	draw := uint64(1)
	random := func(n int64) time.Duration { // as good as any for sizes
		draw = draw*6364136223846793005 + 1442695040888963407
		return time.Duration(int64(draw>>33)%n) * time.Microsecond
	}
	var of []codec.Packed
	const runs = 43_200
	for i := range runs {
		slot := begin.Add(time.Duration(i) * time.Minute)
		revision += 400 + int64(random(200)/time.Microsecond)
		started := slot.Add(200*time.Microsecond + random(400))
		ended := started.Add(2*time.Second + random(200_000))
		r := state.Record{
			Generation: 3, State: state.StateSucceeded, Due: slot, Recorded: ended.Add(300*time.Microsecond + random(300)), Shards: 1,
			Attempts: []state.Attempt{{
				Number: 1, Node: "node-" + string(rune('1'+i/1000%3)), Token: revision - 60 - int64(random(40)/time.Microsecond), Term: 4711,
				Claimed: slot.Add(-100*time.Millisecond - random(20_000)), Started: started, Ended: ended, State: state.StateSucceeded, HasCode: true,
			}},
		}
		of = append(of, codec.Packed{Run: state.SlotRunID(slot), Revision: revision, Record: codec.RecordToProto(&r)})
		plain += len(codec.MarshalRecord(&r))
		if len(of) == 1024 || i == runs-1 {
			value, err := codec.MarshalSegment(of)
			require.NoError(t, err)
			bytes += len(value)
			of = nil
		}
	}
	t.Logf("%d runs: %d bytes of values, packed %d, %.1f a run", runs, plain, bytes, float64(bytes)/runs)
	require.Less(t, bytes, 24*runs)
}

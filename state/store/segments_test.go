package store

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// A page of packed runs is bounded by all that it holds: a list of runs that often failed
// with much to say would be too large to be answered.
func TestPagesOfPackedRunsAreBounded(t *testing.T) {
	r := newRig(t)
	var packed []codec.Packed
	for n := range 200 {
		rec := state.Record{State: state.StateFailed, Due: slotAt(n), Recorded: slotAt(n), Shards: 1}
		for i := range state.MaxAttemptRecords {
			rec.Attempts = append(rec.Attempts, state.Attempt{
				Number: i + 1, Node: "n", Token: 5, Claimed: slotAt(n), Ended: slotAt(n), State: state.StateFailed,
				Error: strings.Repeat("e", state.MaxErrorBytes),
			})
		}
		packed = append(packed, codec.Packed{Run: slotRun(n), Revision: 9, Record: codec.RecordToProto(&rec)})
	}
	value, err := codec.MarshalSegment(packed)
	require.NoError(t, err)
	r.put(r.s.keys.segmentKey(billing, packed), string(value))

	l := ListRuns{Namespace: billing.Namespace, Job: billing.Name, Limit: 1000}
	seen := 0
	for {
		page, err := r.s.ListRuns(t.Context(), l)
		require.NoError(t, err)
		size := 0
		for i := range page.Runs {
			size += proto.Size(codec.RecordToProto(page.Runs[i].Record))
		}
		require.LessOrEqual(t, size, MaxPageBytes)
		seen += len(page.Runs)
		if !page.More {
			break
		}
		l.AfterJob, l.AfterRun = page.LastJob, page.LastRun
	}
	require.Equal(t, len(packed), seen)
}

// What lies in a segment is packed in steps that the store takes, however much it is and
// however little of it can be compressed.
func TestPackLargeRecordsIntoASegment(t *testing.T) {
	r := newRig(t)
	rng := rand.New(rand.NewPCG(1, 2))
	record := func(n int) state.Record {
		rec := state.Record{State: state.StateFailed, Due: slotAt(n), Recorded: slotAt(n), Shards: 1, Tail: make([]byte, state.MaxTailBytes)}
		for i := range rec.Tail {
			rec.Tail[i] = byte(rng.Uint32())
		}
		return rec
	}
	rev := r.setJob(billing)
	require.NotZero(t, rev)
	var packed []codec.Packed
	for _, n := range []int{0, 900} {
		rec := record(n)
		packed = append(packed, codec.Packed{Run: slotRun(n), Revision: 9, Record: codec.RecordToProto(&rec)})
	}
	value, err := codec.MarshalSegment(packed)
	require.NoError(t, err)
	r.put(r.s.keys.segmentKey(billing, packed), string(value))
	const late = 250
	want := map[state.RunID]state.Record{}
	for n := 1; n <= late; n++ {
		rec := record(n)
		want[slotRun(n)] = rec
		r.put(r.s.keys.historyRun(billing, slotRun(n)), string(codec.MarshalRecord(&rec)))
	}
	term := r.lead("l")
	done := sweeps(t, r.s, term, r.everything(billing, 1000))
	require.Greater(t, done.Packed, late*3/4, "but for the last few")
	res, err := r.s.kv.Range(t.Context(), r.s.keys.segmentsOf(billing), end(r.s.keys.segmentsOf(billing)), kv.RangeOptions{})
	require.NoError(t, err)
	for _, segment := range res.KVs {
		require.LessOrEqual(t, len(segment.Value), 2*segmentBytes)
	}
	seen := 0
	for _, e := range runsOf(t, r.s, billing, 50) {
		if rec, ok := want[e.Run]; ok {
			seen++
			require.Equal(t, rec.Tail, e.Record.Tail)
		}
	}
	require.Equal(t, late, seen)
}

// So are those of dead letters, which have the ends of outputs, and of calendars.
func TestPagesOfLargeValuesAreBounded(t *testing.T) {
	r := newRig(t)
	const all = 600
	tail := codec.MarshalRecord(&state.Record{State: state.StateFailed, Tail: make([]byte, state.MaxTailBytes)})
	spec, err := proto.Marshal(&statev1.Calendar{Spec: &leaderdv1.CalendarSpec{Description: strings.Repeat("x", state.MaxTailBytes)}})
	require.NoError(t, err)
	for n := range all {
		r.put(r.s.keys.deadRun(billing, slotRun(n)), string(tail))
		r.put(r.s.keys.calendar(state.CalendarID{Namespace: "n", Name: fmt.Sprintf("c%03d", n)}), string(spec))
	}
	seen, l := 0, ListDead{Limit: all + 1}
	for more := true; more; {
		var page []RunEntry
		page, more, err = r.s.ListDead(t.Context(), l)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page)*state.MaxTailBytes, MaxPageBytes)
		seen += len(page)
		l.AfterJob, l.AfterRun = billing, page[len(page)-1].Run
	}
	require.Equal(t, all, seen)

	seen = 0
	var after state.CalendarID
	for more := true; more; {
		var page []CalendarEntry
		page, more, err = r.s.ListCalendars(t.Context(), "", after, all+1)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page)*state.MaxTailBytes, MaxPageBytes)
		seen += len(page)
		after = page[len(page)-1].Calendar.ID
	}
	require.Equal(t, all, seen)
}

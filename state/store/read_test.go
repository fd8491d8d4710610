package store

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// write stores a value as it would be stored by the transactions of a run.
func write(t testing.TB, s *Store, key string, message proto.Message) {
	t.Helper()
	value, err := proto.Marshal(message)
	require.NoError(t, err)
	_, err = s.kv.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put(key, value, 0)}})
	require.NoError(t, err)
}

func writeRecord(t testing.TB, s *Store, id state.JobID, run state.RunID, rec state.Record) {
	t.Helper()
	write(t, s, s.keys.historyRun(id, run), codec.RecordToProto(&rec))
}

func writeLive(t testing.TB, s *Store, l state.Live) {
	t.Helper()
	write(t, s, s.keys.live(&l), codec.LiveToProto(&l))
}

var (
	noon    = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	noonRun = state.SlotRunID(noon)
)

func TestGetRun(t *testing.T) {
	ctx := t.Context()
	s, _ := openMemory(t)
	_, err := s.PutJob(ctx, putOf(billing, specOf("@daily")))
	require.NoError(t, err)
	_, err = s.GetRun(ctx, billing, noonRun)
	require.ErrorIs(t, err, ErrNotFound)

	trigger := state.TriggerRunID(noon, 7)
	_, err = s.PutPending(ctx, state.Pending{Job: billing, Run: trigger, Requested: noon, Actor: "anna", AllowOverlap: true})
	require.NoError(t, err)
	_, err = s.PutPending(ctx, state.Pending{Job: billing, Run: trigger, Requested: noon})
	require.ErrorIs(t, err, ErrExists)
	got, err := s.GetRun(ctx, billing, trigger)
	require.NoError(t, err)
	require.Equal(t, "anna", got.Pending.Actor)
	require.True(t, got.Pending.AllowOverlap)

	// Live at the gate, then dead there: the verdict wins.
	writeLive(t, s, state.Live{Job: billing, Run: noonRun, Shards: 1, State: state.StateRunning, Attempt: 1, Exclusive: true})
	got, err = s.GetRun(ctx, billing, noonRun)
	require.NoError(t, err)
	require.Nil(t, got.Record)
	require.Len(t, got.Live, 1)
	require.NotZero(t, got.Live[0].Token)
	writeRecord(t, s, billing, noonRun, state.Record{State: state.StateSucceeded, Due: noon})
	got, err = s.GetRun(ctx, billing, noonRun)
	require.NoError(t, err)
	require.Equal(t, state.StateSucceeded, got.Record.State)
	require.Empty(t, got.Live)

	// Shards of a run.
	run := state.SlotRunID(noon.Add(time.Minute))
	for shard := range 3 {
		writeLive(t, s, state.Live{Job: billing, Run: run, Shard: shard, Shards: 3, State: state.StateRunning})
	}
	got, err = s.GetRun(ctx, billing, run)
	require.NoError(t, err)
	require.Len(t, got.Live, 3)

	// A verdict on a range of slots is found for each, past triggered runs.
	first, last := noon.Add(time.Hour), noon.Add(2*time.Hour)
	writeRecord(t, s, billing, state.SlotRunID(first), state.Record{
		State: state.StateMissed, Due: first, Until: last, Count: 61,
	})
	writeRecord(t, s, billing, state.TriggerRunID(first.Add(time.Second), 1), state.Record{State: state.StateFailed, Due: first})
	for _, slot := range []time.Time{first, first.Add(30 * time.Minute), last} {
		got, err = s.GetRun(ctx, billing, state.SlotRunID(slot))
		require.NoError(t, err)
		require.Equal(t, state.SlotRunID(slot), got.Run)
		require.EqualValues(t, 61, got.Record.Count)
	}
	_, err = s.GetRun(ctx, billing, state.SlotRunID(last.Add(time.Second)))
	require.ErrorIs(t, err, ErrNotFound)
	_, err = s.GetRun(ctx, billing, state.TriggerRunID(first.Add(time.Minute), 1))
	require.ErrorIs(t, err, ErrNotFound)

	put(t, s.kv, s.keys.historyRun(billing, "broken"), "\xff")
	got, err = s.GetRun(ctx, billing, "broken")
	require.NoError(t, err)
	require.ErrorIs(t, got.Broken, ErrCorrupt)
}

// TestListRuns compares pages of any size with the sorted whole.
func TestListRuns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		s, _ := openMemory(t)
		var want []string
		for _, key := range []string{"a/x", "a/y", "a-b/x", "b/x", "b/z"} {
			id, _, err := parseJob(key)
			require.NoError(t, err)
			seen := map[state.RunID]bool{}
			exclusive := rapid.Bool().Draw(rt, "exclusive")
			for i := range rapid.IntRange(0, 30).Draw(rt, "runs") {
				at := noon.Add(time.Duration(rapid.IntRange(0, 20).Draw(rt, "at")) * time.Second)
				run := state.SlotRunID(at)
				if rapid.Bool().Draw(rt, "trigger") {
					run = state.TriggerRunID(at, uint32(i))
				}
				if seen[run] {
					continue
				}
				seen[run] = true
				switch kind := rapid.IntRange(0, 3).Draw(rt, "kind"); {
				case kind == 0 && !exclusive:
					writeLive(t, s, state.Live{Job: id, Run: run, State: state.StateRunning})
				case kind == 1:
					write(t, s, s.keys.pendingRun(id, run), codec.RecordToProto(&state.Record{Generation: 1}))
				default:
					if exclusive {
						writeLive(t, s, state.Live{Job: id, Run: run, Exclusive: true, State: state.StateRunning})
					}
					writeRecord(t, s, id, run, state.Record{State: state.StateSucceeded, Due: at})
				}
			}
			var runs []string
			for run := range seen {
				runs = append(runs, id.String()+" "+string(run))
			}
			slices.Sort(runs)
			slices.Reverse(runs)
			want = append(want, runs...)
		}
		namespace := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(rt, "namespace")
		name := rapid.SampledFrom([]string{"", "x", "z"}).Draw(rt, "name")
		var expected []string
		// Keys order "a-b/" before "a/".
		for _, ns := range []string{"a-b", "a", "b"} {
			for _, w := range want {
				id, _, _ := parseJob(w)
				jobName := id.Name[:1]
				if id.Namespace == ns && (namespace == "" || namespace == ns) && (name == "" || name == jobName) {
					expected = append(expected, w)
				}
			}
		}
		l := ListRuns{Namespace: namespace, Job: name, Limit: rapid.IntRange(1, 40).Draw(rt, "limit")}
		var got []string
		for pages := 0; ; pages++ {
			require.Less(rt, pages, 200)
			page, err := s.ListRuns(ctx, l)
			require.NoError(rt, err)
			require.LessOrEqual(rt, len(page.Runs), l.Limit)
			for _, e := range page.Runs {
				require.NoError(rt, e.Broken)
				got = append(got, e.Job.String()+" "+string(e.Run))
			}
			if !page.More {
				break
			}
			require.NotEmpty(rt, page.Runs)
			last := page.Runs[len(page.Runs)-1]
			l.AfterJob, l.AfterRun = last.Job, last.Run
		}
		require.Equal(rt, expected, got)
	})
}

func TestListRunsOfALongHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, _ := openMemory(t)
		const total = 7000
		now := time.Now().UTC().Truncate(time.Second)
		for i := range total {
			// Dense at the end, sparse before.
			at := now.Add(-time.Duration(i) * time.Second)
			if i > 4000 {
				at = now.Add(-time.Duration(i-3990) * time.Hour)
			}
			writeRecord(t, s, billing, state.SlotRunID(at), state.Record{State: state.StateSucceeded, Due: at})
		}
		l := ListRuns{Namespace: billing.Namespace, Job: billing.Name, Limit: 500}
		var got []state.RunID
		for more := true; more; {
			page, err := s.ListRuns(ctx, l)
			require.NoError(t, err)
			for _, e := range page.Runs {
				got = append(got, e.Run)
			}
			last := page.Runs[len(page.Runs)-1]
			more, l.AfterJob, l.AfterRun = page.More, last.Job, last.Run
		}
		require.Len(t, got, total)
		require.True(t, slices.IsSortedFunc(got, func(a, b state.RunID) int { return cmp.Compare(b, a) }))
	})
}

func TestListRunsIsBoundedInBytes(t *testing.T) {
	ctx := t.Context()
	s, _ := openMemory(t)
	const total = 600
	for i := range total {
		at := noon.Add(time.Duration(i) * time.Second)
		writeRecord(t, s, billing, state.SlotRunID(at), state.Record{
			State: state.StateFailed, Due: at, Tail: make([]byte, state.MaxTailBytes), Detail: fmt.Sprint(i),
		})
	}
	l := ListRuns{Limit: 1000}
	seen := 0
	for more := true; more; {
		page, err := s.ListRuns(ctx, l)
		require.NoError(t, err)
		size := 0
		for _, e := range page.Runs {
			size += len(e.Record.Tail)
		}
		require.LessOrEqual(t, size, MaxPageBytes)
		seen += len(page.Runs)
		last := page.Runs[len(page.Runs)-1]
		more, l.AfterJob, l.AfterRun = page.More, last.Job, last.Run
	}
	require.Equal(t, total, seen)
}

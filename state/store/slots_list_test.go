package store

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// Slots are listed in order of time, live ones and verdicts, with the range that the
// window begins in, and without runs that were asked for; pages go on where the one
// before ended.
func TestListSlots(t *testing.T) {
	s, _ := openMemory(t)
	id := state.JobID{Namespace: "a", Name: "x"}
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	put := func(run state.RunID, rec state.Record) {
		write(t, s, s.keys.historyRun(id, run), codec.RecordToProto(&rec))
	}
	put(state.SlotRunID(at(-30)), state.Record{State: state.StateMissed, Due: at(-30), Until: at(5), Count: 36})
	for n := 6; n < 40; n++ {
		put(state.SlotRunID(at(n)), state.Record{State: state.StateSucceeded, Due: at(n)})
		put(state.TriggerRunID(at(n), 1), state.Record{State: state.StateSucceeded, Due: at(n)})
	}
	put(state.SlotRunID(at(60)), state.Record{State: state.StateSucceeded, Due: at(60)})
	writeLive(t, s, state.Live{Job: id, Run: state.SlotRunID(at(41)), State: state.StateRunning})
	writeLive(t, s, state.Live{Job: id, Run: state.SlotRunID(at(42)), State: state.StateRunning, Exclusive: true})
	writeLive(t, s, state.Live{Job: state.JobID{Namespace: "a", Name: "x-1"}, Run: state.SlotRunID(at(43)), State: state.StateRunning})

	want := []state.RunID{state.SlotRunID(noon)} // which the range covers
	for n := 6; n < 43; n++ {
		if n != 40 {
			want = append(want, state.SlotRunID(at(n)))
		}
	}
	for _, limit := range []int{1, 2, 7, 33, 1000} {
		var got []state.RunID
		for from := noon; from.Before(at(60)); {
			page, err := s.ListSlots(t.Context(), ListSlots{Job: id, From: from, To: at(60), Limit: limit})
			require.NoError(t, err)
			require.True(t, page.Until.After(from))
			require.LessOrEqual(t, len(page.Slots), limit+1)
			for _, e := range page.Slots {
				got = append(got, e.Run)
			}
			from = page.Until
		}
		// A page that begins in the range has it too.
		require.Equal(t, want, slices.Compact(got), "limit %d", limit)
	}

	holder, held, err := s.GateHolder(t.Context(), id)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, state.SlotRunID(at(42)), holder.Run)
	_, held, err = s.GateHolder(t.Context(), state.JobID{Namespace: "a", Name: "y"})
	require.NoError(t, err)
	require.False(t, held)
}

package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func minute(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }

// TestListIsWhole: whatever the size of pages, each slot of the versions in force is
// answered once, and by the right version.
func TestListIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var versions []state.JobVersion // the newest first
		at := 0
		for g := range rapid.IntRange(1, 6).Draw(t, "versions") {
			v := state.JobVersion{Change: state.ChangeUpdate, Time: minute(at).Add(30 * time.Second), Actor: "a"}
			if g == 0 {
				v.Change = state.ChangeCreate
			}
			v.Job = state.Job{
				ID: state.JobID{Namespace: "n", Name: "j"}, Generation: int64(g + 1), Effective: v.Time, Updated: v.Time,
				Paused: g > 0 && rapid.Bool().Draw(t, "paused"),
				Spec:   state.JobSpec{NoOp: true, Schedules: rapid.SampledFrom([][]string{{"* * * * *"}, {"*/7 * * * *"}, {"*/3 * * * *", "*/5 * * * *"}}).Draw(t, "schedules")},
			}
			versions = append([]state.JobVersion{v}, versions...)
			at += rapid.IntRange(1, 40).Draw(t, "gap")
		}
		in := &Input{Spans: Spans(versions), Now: minute(100)}
		for n := 0; n < 160; n += rapid.IntRange(1, 20).Draw(t, "next record") {
			run := state.SlotRunID(minute(n))
			in.Records = append(in.Records, store.RunEntry{Run: run, Record: &state.Record{Run: run, Due: minute(n), State: state.StateSucceeded}})
		}
		end := minute(160)
		var want int // slots in force, and records of none
		recorded := map[int]bool{}
		for i := range in.Records {
			slot, _ := in.Records[i].Run.Slot()
			recorded[int(slot.Sub(noon)/time.Minute)] = true
		}
		for n := range 160 {
			i := spanAt(in.Spans, minute(n))
			if recorded[n] || i >= 0 && in.Spans[i].names(minute(n)) {
				want++
			}
		}
		size := rapid.IntRange(1, 30).Draw(t, "size")
		got := 0
		for from := noon; !from.IsZero(); {
			page := *in
			page.Records = nil
			for _, r := range in.Records {
				if slot, _ := r.Run.Slot(); !slot.Before(from) {
					page.Records = append(page.Records, r)
				}
			}
			entries, next := List(&page, Window{Since: noon, From: from, To: end, Most: size})
			require.True(t, next.IsZero() || next.After(from), "no progress from %s", from)
			for i, e := range entries {
				require.False(t, i > 0 && e.First.Before(entries[i-1].First), "out of order")
				if e.Answer != leaderdv1.Slot_ANSWER_SUPERSEDED {
					got += int(e.Count)
				}
			}
			from = next
		}
		require.Equal(t, want, got)
	})
}

// spanAt is at, which the test has another use for.
func spanAt(spans []Span, t time.Time) int { return at(spans, t) }

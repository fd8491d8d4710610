package planner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
)

// A job's older versions, changes by clocks that go forward and back, and what a
// watermark speaks for: every slot that was owed and may be undecided is in a span of
// its own version, and no other is.
func TestSpansHoldWhatIsUndecided(t *testing.T) {
	epoch := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }
	id := state.JobID{Namespace: "ns", Name: "a"}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "versions")
		older := make([]state.JobVersion, n) // the newest first
		for i := range older {
			v := &older[n-1-i]
			v.Job.ID, v.Job.Generation, v.Job.Revision = id, int64(i+1), int64(10*(i+1))
			v.Job.Spec = state.JobSpec{Schedules: []string{"* * * * * *"}, NoOp: true}
			v.Time = at(rapid.IntRange(1, 60).Draw(t, "time"))
			v.Job.Effective, v.Job.Updated = v.Time, v.Time
			switch rapid.IntRange(0, 4).Draw(t, "change") {
			case 0:
				v.Change = state.ChangeDelete
			case 1:
				v.Change, v.Job.Paused = state.ChangePause, true
			default:
				v.Change = state.ChangeUpdate
			}
		}
		end := ending{id, int64(n + 1), at(rapid.IntRange(1, 60).Draw(t, "end")), state.ReasonSuperseded}
		before := spoken{instant: at(rapid.IntRange(1, 60).Draw(t, "mark")), jobs: int64(rapid.IntRange(1, 10*n+5).Draw(t, "jobs"))}
		spans, _, _ := spansOf(end, older, before)

		in := map[int64]map[time.Time]bool{}
		for _, s := range spans {
			slots := map[time.Time]bool{}
			for slot := s.from.Add(time.Second); !slot.After(s.until); slot = slot.Add(time.Second) {
				slots[slot] = true
			}
			require.Nil(t, in[s.version.Generation], "one span a version")
			in[s.version.Generation] = slots
		}
		for i, v := range older {
			for slot := at(0); !slot.After(at(60)); slot = slot.Add(time.Second) {
				owed := v.Change == state.ChangeUpdate && slot.After(v.Time) && !slot.After(end.at)
				for _, newer := range older[:i] {
					owed = owed && !slot.After(newer.Time)
				}
				decided := v.Job.Revision <= before.jobs && !slot.After(before.instant)
				require.Equal(t, owed && !decided, in[v.Job.Generation][slot], "generation %d, %s", v.Job.Generation, slot)
			}
		}
	})
}

// A watermark that does not tell which jobs it speaks for is taken to lack the
// changes of its last seconds.
func TestWatermarkThatSpeaksForUnknownJobs(t *testing.T) {
	mark := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	s := spoken{instant: mark}
	require.Equal(t, mark.Add(-10*time.Second), s.since(5, mark.Add(-10*time.Second)))
	require.Equal(t, mark, s.since(5, mark.Add(-20*time.Second)))
	require.True(t, s.ended(5, mark.Add(-10*time.Second)))
	require.False(t, s.ended(5, mark.Add(-20*time.Second)))
}

package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/leaderd/leaderd/state"
)

// BenchmarkTimelineChange adds, changes and removes one job among n: its cost grows as
// the logarithm of n.
func BenchmarkTimelineChange(b *testing.B) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	make1 := func(i int) *timed {
		return newTimed(Compile(&state.Job{
			ID:   state.JobID{Namespace: "ns", Name: fmt.Sprint("j", i)},
			Spec: state.JobSpec{Schedules: []string{fmt.Sprintf("%d %d * * *", i%60, i/60%24)}, NoOp: true},
		}))
	}
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var l timeline
			for i := range n {
				l.put(make1(i), now)
			}
			one := make1(n / 2)
			b.ReportAllocs()
			for b.Loop() {
				l.put(one, now)
				l.put(one, now.Add(12*time.Hour))
				l.remove(one)
			}
		})
	}
}

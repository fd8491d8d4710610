package planner

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
)

var epoch = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func testJob(t require.TestingT, name string, schedules ...string) *Job {
	j := compile(&state.Job{
		ID:        state.JobID{Namespace: "default", Name: name},
		Spec:      state.JobSpec{Schedules: schedules, NoOp: true},
		Effective: epoch,
		Anchor:    epoch,
		Revision:  1,
	}, nil)
	require.NoError(t, j.Broken)
	return j
}

func TestTimelinePopsEverySlotOnceInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var line timeline
		jobs := make([]*timed, rapid.IntRange(1, 20).Draw(t, "jobs"))
		want := map[string]int{}
		until := epoch.Add(2 * time.Minute)
		for i := range jobs {
			every := rapid.IntRange(1, 50).Draw(t, "every")
			jobs[i] = newTimed(testJob(t, fmt.Sprint(i), fmt.Sprintf("@every %ds", every)))
			line.put(jobs[i], epoch)
			for s := epoch.Add(time.Duration(every) * time.Second); !s.After(until); s = s.Add(time.Duration(every) * time.Second) {
				want[fmt.Sprint(i, s)]++
			}
		}
		got := map[string]int{}
		last := epoch
		for {
			job, slot, ok := line.pop(until)
			if !ok {
				break
			}
			require.False(t, slot.Before(last), "slots come in order")
			last = slot
			got[fmt.Sprint(slices.Index(jobs, job), slot)]++
		}
		require.Equal(t, want, got)
		require.True(t, line.first().After(until))
	})
}

func TestTimelinePutNeverNamesAPoppedSlotAgain(t *testing.T) {
	var line timeline
	job := newTimed(testJob(t, "a", "@every 10s"))
	line.put(job, epoch)
	_, slot, ok := line.pop(epoch.Add(time.Minute))
	require.True(t, ok)
	line.put(job, epoch) // as after a clock that was set back
	require.True(t, line.first().After(slot))
}

func TestTimelineRemove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var line timeline
		var in []*timed
		for i := range rapid.IntRange(1, 30).Draw(t, "jobs") {
			job := newTimed(testJob(t, fmt.Sprint(i), fmt.Sprintf("@every %ds", rapid.IntRange(1, 100).Draw(t, "every"))))
			line.put(job, epoch)
			in = append(in, job)
		}
		for range rapid.IntRange(0, len(in)).Draw(t, "removals") {
			i := rapid.IntRange(0, len(in)-1).Draw(t, "which")
			line.remove(in[i])
			line.remove(in[i]) // once more is no harm
			in = slices.Delete(in, i, i+1)
			if len(in) == 0 {
				break
			}
		}
		require.Len(t, line.heap, len(in))
		for i, job := range line.heap {
			require.Equal(t, i, job.at)
			require.GreaterOrEqual(t, job.next, line.heap[0].next)
		}
	})
}

func TestTimelineHoldsNothingThatIsNeverDue(t *testing.T) {
	var line timeline
	paused := newTimed(testJob(t, "paused", "@every 1s"))
	paused.job.Paused = true
	triggered := newTimed(testJob(t, "triggered"))
	past := newTimed(testJob(t, "past", "@at 2020-01-01T00:00:00Z"))
	for _, job := range []*timed{paused, triggered, past} {
		line.put(job, epoch)
	}
	require.True(t, line.first().IsZero())
	_, _, ok := line.pop(epoch.AddDate(100, 0, 0))
	require.False(t, ok)
}

func TestSchedulesTogether(t *testing.T) {
	j := testJob(t, "a", "@every 10s", "@every 15s")
	var got []int
	for s := j.NextSlot(epoch); len(got) < 6; s = j.NextSlot(s) {
		got = append(got, int(s.Sub(epoch).Seconds()))
	}
	require.Equal(t, []int{10, 15, 20, 30, 40, 45}, got, "a slot that two schedules name is one")
	require.EqualValues(t, 5, j.schedules.count(epoch, epoch.Add(40*time.Second)))
	require.Equal(t, epoch.Add(45*time.Second), j.schedules.prev(epoch.Add(49*time.Second)))
}

func TestLatenessQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l lateness
		var all []time.Duration
		for range rapid.IntRange(1, 300).Draw(t, "starts") {
			d := time.Duration(rapid.Int64Range(0, 100_000_000).Draw(t, "us")) * time.Microsecond
			all = append(all, d)
			l.add(epoch, d)
		}
		slices.Sort(all)
		sum := l.summary(epoch.Add(30 * time.Second))
		require.EqualValues(t, len(all), sum.Starts)
		require.Equal(t, all[len(all)-1], sum.Max)
		for _, q := range []struct {
			q   float64
			got time.Duration
		}{{0.5, sum.P50}, {0.99, sum.P99}} {
			want := all[int(q.q*float64(len(all)))]
			require.LessOrEqual(t, math.Abs(float64(q.got-want)), 0.07*float64(want)+1000)
		}
		require.Zero(t, l.summary(epoch.Add(2*time.Minute)).Starts, "what is old is left out")
	})
}

func TestGaps(t *testing.T) {
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	slots := func(ss ...int) map[time.Time]struct{} {
		m := map[time.Time]struct{}{}
		for _, s := range ss {
			m[at(s)] = struct{}{}
		}
		return m
	}
	for name, c := range map[string]struct {
		decided state.Decided
		want    [][2]time.Time
	}{
		"nothing decided": {state.Decided{}, [][2]time.Time{{at(0), at(9)}}},
		"ends decided":    {state.Decided{Slots: slots(0, 9)}, [][2]time.Time{{at(1), at(8)}}},
		"in the middle":   {state.Decided{Slots: slots(3, 4)}, [][2]time.Time{{at(0), at(2)}, {at(5), at(9)}}},
		"all decided": {
			state.Decided{Ranges: []state.Record{{Due: at(-5), Until: at(20), Count: 26}}}, nil,
		},
		"a range before and a slot behind": {
			state.Decided{Slots: slots(7), Ranges: []state.Record{{Due: at(-5), Until: at(2), Count: 8}}},
			[][2]time.Time{{at(3), at(6)}, {at(8), at(9)}},
		},
	} {
		require.Equal(t, c.want, gaps(&c.decided, at(0), at(9)), name)
	}
}

func TestHedgeBudget(t *testing.T) {
	var b hedgeBudget
	n := 0
	for b.spend(epoch) {
		n++
	}
	require.Equal(t, hedgeReserve, n)
	require.True(t, b.spend(epoch.Add(10*time.Millisecond)), "the floor refills it")
	require.False(t, b.spend(epoch.Add(10*time.Millisecond)))
	for range 11 {
		b.earn()
	}
	require.True(t, b.spend(epoch.Add(10*time.Millisecond)), "claims refill it")
}

func BenchmarkTimelinePop(b *testing.B) {
	var line timeline
	for i := range 1_000_000 {
		line.put(newTimed(testJob(b, fmt.Sprint(i), fmt.Sprintf("@every %ds", 1+i%3600))), epoch)
	}
	b.ReportAllocs()
	for b.Loop() {
		line.pop(epoch.AddDate(1, 0, 0))
	}
}

package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/state"
)

// TestClockLeavesTimesOut has jobs at 02:30 in the night in which Berlin's clock goes
// from 02:00 to 03:00.
func TestClockLeavesTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		gap := time.Date(2000, 3, 26, 1, 0, 0, 0, time.UTC)
		w.until(gap.Add(-30 * time.Second))
		berlin := func(name, schedule string, missing state.MissingTime) *job {
			j := newJob(name, schedule).with(func(s *state.JobSpec) { s.TimeZone, s.MissingTime = "Europe/Berlin", missing })
			w.put(j)
			return j
		}
		shift := berlin("shift", "30 2 * * *", state.MissingShift)
		skip := berlin("skip", "30 2 * * *", state.MissingSkip)
		both := berlin("both", "30 2 * * *", state.MissingSkip).with(func(s *state.JobSpec) { s.Schedules = append(s.Schedules, "0 3 * * *") })
		w.put(both)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(gap.Add(10 * time.Second))
		require.Equal(t, "succeeded", w.slotVerdict(shift, gap))
		require.Equal(t, "skipped:dst", w.slotVerdict(skip, gap))
		require.Contains(t, w.entry(skip, state.SlotRunID(gap)).Record.Detail, "the clock left out")
		require.Equal(t, "succeeded", w.slotVerdict(both, gap), "another schedule names it")
		w.verify(true)
	})
}

// TestWindow runs a job in a window of its own: the first instant is in it, the last
// is not.
func TestWindow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		from := time.Now().Truncate(time.Minute).Add(20 * time.Second)
		j := newJob("a", "*/5 * * * * *").with(func(s *state.JobSpec) { s.Start, s.End = from, from.Add(20*time.Second) })
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(from.Add(time.Minute))
		var want []string
		for s := 0; s < 20; s += 5 {
			want = append(want, slotID(from.Add(time.Duration(s)*time.Second)))
		}
		require.Equal(t, want, w.startsIn(j, time.Time{}))
		w.verify(true)
	})
}

// TestJitter has slots due later than they are, across the loss of the leader and
// while nobody leads, and takes what is not due yet back with an edit.
func TestJitter(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const jitter = 2 * time.Minute
		j := newJob("a", "*/10 * * * * *").with(func(s *state.JobSpec) { s.Jitter = jitter })
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(3 * time.Minute)
		w.leader().kill()
		w.pass(5 * time.Second)
		w.control("c2")
		w.awaitLeader(0)
		w.pass(4 * time.Minute)
		starts := w.history.of(j)
		require.Greater(t, len(starts), 20)
		spread := map[time.Duration]bool{}
		for _, s := range starts {
			slot, ok := s.run.Slot()
			require.True(t, ok)
			due := slot.Add(state.Jitter(j.id, slot, jitter))
			require.Equal(t, due, s.begun.UTC(), "run %s", s.run)
			spread[due.Sub(slot)] = true
			require.Equal(t, due, w.entry(j, s.run).Record.Due, "when it was due is in the record")
		}
		require.Greater(t, len(spread), 10)
		mark, err := w.api.GetWatermark(w.ctx)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), mark.Instant, 20*time.Second, "slots that are due later do not hold the watermark")

		edited := time.Now()
		w.put(j.with(func(s *state.JobSpec) { s.Schedules = []string{"@every 24h"} }))
		w.leader().kill() // before it has decided them, perhaps
		w.control("c3")
		w.awaitLeader(0)
		w.pass(jitter + time.Minute)
		require.Empty(t, w.startsIn(j, edited.Add(10*time.Second)))
		require.NotZero(t, w.slotsOf(j)["skipped:superseded"])
		w.verify(true)
	})
}

// TestJitterInAnOutage has slots fall due in an outage, and others that were before
// it and are due after it.
func TestJitterInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "*/10 * * * * *").with(func(s *state.JobSpec) { s.Jitter, s.CatchUp = 90*time.Second, state.CatchUpNone })
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Minute)
		down := time.Now()
		w.controls["c1"].kill()
		w.workers["e1"].kill()
		w.pass(time.Minute)
		up := time.Now()
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(3 * time.Minute)
		for slot := down.Truncate(10 * time.Second).Add(-time.Minute); slot.Before(up); slot = slot.Add(10 * time.Second) {
			switch due := slot.Add(state.Jitter(j.id, slot, 90*time.Second)); {
			case due.After(up.Add(10 * time.Second)):
				require.Equal(t, "succeeded", w.slotVerdict(j, slot), "due after the outage")
			case due.After(down.Add(4*time.Second)) && due.Before(up):
				require.Equal(t, "missed:outage", w.slotVerdict(j, slot))
			}
		}
		w.verify(true)
	})
}

// TestCatchUpAll catches up as many slots of an outage as the job wants: in order,
// and one after another where runs must not overlap.
func TestCatchUpAll(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		all := newJob("all", "*/5 * * * * *").with(func(s *state.JobSpec) { s.CatchUp, s.CatchUpLimit = state.CatchUpAll, 4 })
		turns := newJob("turns", "*/5 * * * * *").with(func(s *state.JobSpec) {
			s.CatchUp, s.CatchUpWindow, s.Overlap = state.CatchUpAll, 20*time.Second, state.OverlapSkip
		})
		for _, j := range []*job{all, turns} {
			w.history.does(j, 1500*time.Millisecond, state.StateSucceeded)
			w.put(j)
		}
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(time.Now().Truncate(time.Minute).Add(62 * time.Second))
		down := time.Now()
		w.controls["c1"].kill()
		w.workers["e1"].kill()
		w.pass(time.Minute)
		up := time.Now()
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(time.Minute)
		late := func(j *job) (slots []time.Time) {
			for _, s := range w.history.of(j) {
				if slot, _ := s.run.Slot(); slot.After(down) && slot.Before(up) {
					slots = append(slots, slot)
				}
			}
			return slots
		}
		last := up.Truncate(5 * time.Second)
		want := utc([]time.Time{last.Add(-15 * time.Second), last.Add(-10 * time.Second), last.Add(-5 * time.Second), last})
		require.Equal(t, want, utc(late(all)))
		require.GreaterOrEqual(t, len(late(turns)), 3)
		require.LessOrEqual(t, len(late(turns)), 5)
		require.IsNonDecreasing(t, nanos(late(turns)))
		require.NotZero(t, w.slotsOf(turns)["missed:outage"])
		for _, slot := range late(turns) {
			require.Equal(t, "succeeded", w.slotVerdict(turns, slot))
		}
		w.verify(true)
	})
}

func utc(all []time.Time) (out []time.Time) {
	for _, t := range all {
		out = append(out, t.UTC())
	}
	return out
}

func nanos(all []time.Time) (out []int64) {
	for _, t := range all {
		out = append(out, t.UnixNano())
	}
	return out
}

// TestCatchUpCapacity has nobody who can run jobs: what is kept for later is told
// apart from what is not, and why.
func TestCatchUpCapacity(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		jobs := map[string]*job{}
		for name, policy := range map[string]state.CatchUp{"none": state.CatchUpNone, "all": state.CatchUpAll} {
			jobs[name] = newJob(name, "*/5 * * * * *").with(func(s *state.JobSpec) {
				s.CatchUp, s.Selector, s.CatchUpLimit = policy, map[string]string{"zone": "z"}, 3
			})
			w.put(jobs[name])
		}
		w.control("c1")
		w.worker("e1", place{labels: map[string]string{"zone": "a"}})
		w.awaitLeader(0)
		w.pass(2 * time.Minute)
		require.Equal(t, map[string]int64{"missed:no_matching_node": w.slotsOf(jobs["none"])["missed:no_matching_node"]}, w.slotsOf(jobs["none"]))
		up := time.Now()
		w.worker("e2", place{labels: map[string]string{"zone": "z"}})
		w.pass(10 * time.Second)
		kept := 0
		for _, s := range w.history.of(jobs["all"]) {
			if slot, _ := s.run.Slot(); slot.Before(up.Add(-15 * time.Second)) {
				kept++
			}
		}
		require.LessOrEqual(t, kept, 3, "at most three are kept beyond the horizon")
		require.NotZero(t, w.slotsOf(jobs["all"])["missed:no_matching_node"])
		w.pass(time.Minute)
		w.verify(true)
	})
}

// TestCatchUpHoldsNobodyUp has more slots to catch up, one slow one after another,
// than entries may be open: other jobs are planned all the same.
func TestCatchUpHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.plan = planner.Config{MaxOpen: 100}
		slow := newJob("slow", "* * * * * *").with(func(s *state.JobSpec) {
			s.CatchUp, s.CatchUpLimit, s.Overlap, s.StartDeadline = state.CatchUpAll, 150, state.OverlapSkip, time.Hour
		})
		w.history.does(slow, time.Minute, state.StateSucceeded)
		good := newJob("good", "* * * * * *")
		w.put(slow)
		w.put(good)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		w.controls["c1"].kill()
		w.pass(5 * time.Minute)
		w.control("c2")
		w.awaitLeader(0)
		w.pass(30 * time.Second)
		from := time.Now()
		w.pass(time.Minute)
		w.punctual(good, from, from.Add(time.Minute), 0)
		w.verify(false)
	})
}

package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// slotsOf counts a job's slots by verdict.
func (w *world) slotsOf(j *job) map[string]int64 {
	out := map[string]int64{}
	for _, r := range w.records(j) {
		what := r.State.String()
		if r.Reason != "" {
			what += ":" + r.Reason
		}
		out[what] += max(r.Count, 1)
	}
	return out
}

// missed counts a job's slots that did not run.
func (w *world) missed(j *job) (n int64) {
	for what, count := range w.slotsOf(j) {
		if strings.HasPrefix(what, "missed:") {
			n += count
		}
	}
	return n
}

// startsIn are the slots of a job whose work began at an instant after from.
func (w *world) startsIn(j *job, from time.Time) (slots []string) {
	for _, s := range w.history.of(j) {
		if s.begun.After(from) {
			slots = append(slots, string(s.run))
		}
	}
	return slots
}

func slotID(at time.Time) string { return string(state.SlotRunID(at)) }

// TestClockSetForward sets all clocks forward by an hour: of each job the newest
// slot that fell due runs, once, and the others have their verdict (T01).
func TestClockSetForward(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := newJob("a", "@every 5s"), newJob("b", "* * * * *")
		w.put(a)
		w.put(b)
		w.control("c1")
		w.control("c2")
		w.worker("e1", place{})
		w.awaitLeader(0)
		ten := time.Now().Truncate(time.Minute).Add(2 * time.Minute)
		w.until(ten.Add(100 * time.Millisecond))
		for _, h := range w.hosts {
			w.setClock(h, time.Hour)
		}
		eleven := ten.Add(time.Hour)
		w.pass(3 * time.Second)
		require.Equal(t, []string{slotID(eleven)}, w.startsIn(a, ten.Add(50*time.Millisecond)))
		require.Equal(t, []string{slotID(eleven)}, w.startsIn(b, ten.Add(50*time.Millisecond)))
		require.EqualValues(t, 719, w.missed(a))
		require.EqualValues(t, 59, w.missed(b))
		w.pass(58 * time.Second)
		require.Equal(t, slotID(eleven.Add(5*time.Second)), w.startsIn(a, ten.Add(50*time.Millisecond))[1])
		require.Equal(t, []string{slotID(eleven), slotID(eleven.Add(time.Minute))}, w.startsIn(b, ten.Add(50*time.Millisecond)))
	})
}

// TestSleepingMachine has the wall clock of all go on by eight and a half hours
// while the monotonic clock, and with it every timer, stands still (T03).
func TestSleepingMachine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		hourly := newJob("hourly", "0 * * * *").with(func(s *state.JobSpec) { s.StartDeadline = 40 * time.Minute })
		w.put(hourly)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(10 * time.Second)
		slept := time.Now()
		for _, h := range w.hosts {
			w.setClock(h, 8*time.Hour+30*time.Minute)
		}
		woke := slept.Add(8*time.Hour + 30*time.Minute)
		w.pass(30 * time.Second)
		newest := woke.Truncate(time.Hour)
		require.Equal(t, []string{slotID(newest)}, w.startsIn(hourly, slept))
		require.EqualValues(t, int(newest.Sub(slept)/time.Hour), w.missed(hourly))
		w.pass(30*time.Minute + time.Minute)
		require.Equal(t, []string{slotID(newest), slotID(newest.Add(time.Hour))}, w.startsIn(hourly, slept))
	})
}

// TestClocksApart has a leader die whose successor's clock is slow or fast: each
// slot starts once (T04).
func TestClocksApart(t *testing.T) {
	for name, skew := range map[string]time.Duration{"slow": -40 * time.Second, "fast": 90 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				j := newJob("minutely", "* * * * *")
				w.put(j)
				w.control("c1")
				w.worker("e1", place{})
				first := w.awaitLeader(0)
				w.setClock(w.control("c2").host, skew)
				from := time.Now().Truncate(time.Minute)
				w.until(from.Add(time.Minute + 10*time.Second))
				require.Equal(t, []string{slotID(from.Add(time.Minute))}, w.startsIn(j, from))
				term := first.term.Load()
				first.kill()
				w.awaitLeader(term)
				w.until(from.Add(5*time.Minute + 30*time.Second))
				starts := w.startsIn(j, from)
				seen := map[string]bool{}
				for _, s := range starts {
					require.False(t, seen[s], "%s started twice", s)
					seen[s] = true
				}
				for at := from.Add(time.Minute); !at.After(from.Add(5 * time.Minute)); at = at.Add(time.Minute) {
					require.True(t, seen[slotID(at)], "%s did not start: %s", at.Format(clockLayout), w.slotVerdict(j, at))
				}
			})
		})
	}
}

// TestNightDown has nobody there for twelve hours, and a job paused for as long:
// of 720 missed slots the newest runs, once, and of the paused job's none (P01).
func TestNightDown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, napping := newJob("minutely", "* * * * *"), newJob("napping", "* * * * *")
		w.put(j)
		w.put(napping)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(90 * time.Second)
		w.pause(napping)
		w.controls["c1"].kill()
		w.workers["e1"].kill()
		down := time.Now()
		w.until(down.Truncate(time.Minute).Add(12*time.Hour + 30*time.Second))
		w.control("c2")
		w.worker("e2", place{})
		w.awaitLeader(0)
		w.pass(5 * time.Second)
		newest := time.Now().Truncate(time.Minute)
		w.resume(napping)
		w.pass(2 * time.Minute)
		require.Equal(t, []string{slotID(newest), slotID(newest.Add(time.Minute)), slotID(newest.Add(2 * time.Minute))}, w.startsIn(j, down))
		require.EqualValues(t, 719, w.missed(j))
		require.Equal(t, []string{slotID(newest.Add(time.Minute)), slotID(newest.Add(2 * time.Minute))}, w.startsIn(napping, down))
		require.Zero(t, w.missed(napping))
		w.verify(true)
	})
}

// TestIntervalsAreAnchored restarts all nodes every day of a week, and fails over
// in the middle of an hour: intervals count from their job's creation (P04).
func TestIntervalsAreAnchored(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		weekly, hourly := newJob("weekly", "@every 168h"), newJob("hourly", "@every 1h")
		monday := time.Now()
		w.put(weekly)
		w.put(hourly)
		begin := func(name string) {
			c := w.control("c-" + name)
			w.worker("e-"+name, place{})
			w.awaitLeader(0)
			require.NotNil(t, c)
		}
		end := func(name string) {
			w.controls["c-"+name].kill()
			w.workers["e-"+name].kill()
		}
		begin("first")
		w.until(monday.Add(30 * time.Minute))
		end("first")
		begin("second")
		failedOver := time.Now()
		w.until(monday.Add(time.Hour + time.Minute))
		require.Equal(t, []string{slotID(monday.Add(time.Hour).Truncate(time.Second))}, w.startsIn(hourly, failedOver))
		require.Empty(t, w.startsIn(weekly, monday))
		end("second")
		for day := range 7 {
			w.until(monday.Add(time.Duration(day+1)*24*time.Hour - time.Minute))
			begin("day")
			w.pass(2 * time.Minute)
			end("day")
		}
		require.Equal(t, []string{slotID(monday.Add(168 * time.Hour).Truncate(time.Second))}, w.startsIn(weekly, monday))
	})
}

// TestLateIsNotDropped holds starts up for 1.2 and for 61 seconds: by default they
// come late, and where a job's deadline is shorter the slot says so (P06).
func TestLateIsNotDropped(t *testing.T) {
	for _, held := range []time.Duration{1200 * time.Millisecond, 61 * time.Second} {
		t.Run(held.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				j := newJob("patient", "30 * * * * *")
				hasty := newJob("hasty", "30 * * * * *").with(func(s *state.JobSpec) { s.StartDeadline = time.Second })
				w.put(j)
				w.put(hasty)
				w.control("c1")
				w.worker("e1", place{})
				w.awaitLeader(0)
				slot := time.Now().Truncate(time.Minute).Add(90 * time.Second)
				w.until(slot.Add(-100 * time.Millisecond))
				for _, h := range w.hosts {
					h.pause()
				}
				w.until(slot.Add(held))
				for _, h := range w.hosts {
					h.resume()
				}
				w.pass(20 * time.Second)
				if held < time.Minute {
					require.Equal(t, "succeeded", w.slotVerdict(j, slot))
				} else { // the next slot fell due meanwhile: that is the newest
					require.Equal(t, "succeeded", w.slotVerdict(j, slot.Add(time.Minute)))
				}
				require.Contains(t, []string{"missed:deadline", "missed:outage"}, w.slotVerdict(hasty, slot))
				require.NotContains(t, w.startsIn(hasty, slot), slotID(slot))
				w.verify(true)
			})
		})
	}
}

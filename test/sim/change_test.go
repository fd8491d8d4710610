package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// TestChangesDecideLateSlots changes jobs that nobody can run: what was due
// before gets its verdict, with the reason.
func TestChangesDecideLateSlots(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		jobs := map[string]*job{}
		for _, name := range []string{"edited", "paused", "deleted", "recreated"} {
			jobs[name] = newJob(name, "*/5 * * * * *").with(func(s *state.JobSpec) { s.Selector = map[string]string{"no": "node"} })
			w.put(jobs[name])
		}
		begun := time.Now()
		w.control("c1")
		w.awaitLeader(0)
		w.until(begun.Add(7 * time.Second))
		w.put(jobs["edited"].with(func(s *state.JobSpec) { s.Schedules = []string{"@every 1h"} }))
		w.pause(jobs["paused"])
		w.delete(jobs["deleted"])
		w.delete(jobs["recreated"])
		w.put(jobs["recreated"])
		w.pass(time.Second)
		slot := begun.Add(5 * time.Second)
		require.Equal(t, "skipped:superseded", w.slotVerdict(jobs["edited"], slot))
		require.Equal(t, "skipped:paused", w.slotVerdict(jobs["paused"], slot))
		require.Equal(t, "skipped:deleted", w.slotVerdict(jobs["deleted"], slot))
		require.Equal(t, "skipped:deleted", w.slotVerdict(jobs["recreated"], slot))
		w.pass(time.Minute)
		w.verify(true)
	})
}

// TestNothingStartsAfterAChange pauses, resumes and deletes a job that runs.
func TestNothingStartsAfterAChange(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a", "* * * * * *")
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(3500 * time.Millisecond)
		quiet := func() {
			t.Helper()
			at := time.Now()
			w.pass(10 * time.Second)
			for _, s := range w.history.of(j) {
				require.False(t, s.begun.After(at), "run %s started after the change", s.run)
			}
		}
		w.pause(j)
		quiet()
		w.resume(j)
		from := time.Now()
		w.pass(3500 * time.Millisecond)
		w.punctual(j, from, from.Add(3*time.Second), 0)
		w.put(j.with(func(s *state.JobSpec) { s.Schedules = []string{"@every 1h"} }))
		quiet()
		w.delete(j)
		quiet()
		w.verify(true)
	})
}

// TestChangesWhileNobodyLeads changes jobs between two leaders.
func TestChangesWhileNobodyLeads(t *testing.T) {
	for name, nobody := range map[string]time.Duration{"failover": 4 * time.Second, "outage": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				edited, paused, deleted := newJob("edited", "* * * * * *"), newJob("paused", "* * * * * *"), newJob("deleted", "* * * * * *")
				jobs := []*job{edited, paused, deleted}
				for _, j := range jobs {
					j.spec.Selector = map[string]string{"no": "node"}
					w.put(j)
				}
				w.control("c1")
				w.control("c2")
				w.awaitLeader(0)
				w.pass(3 * time.Second)
				w.leader().kill()
				for _, c := range w.controls {
					c.kill() // what they know of the jobs goes with them
				}
				w.pass(nobody / 2)
				w.put(edited.with(func(s *state.JobSpec) { s.Schedules = []string{"*/2 * * * * *"} }))
				w.pause(paused)
				w.delete(deleted)
				w.pass(nobody / 2)
				w.control("c3")
				w.awaitLeader(0)
				w.pass(15 * time.Minute)
				w.verify(true)
				left, err := w.api.ListDeleted(w.ctx)
				require.NoError(t, err)
				require.Empty(t, left, "the deletion is done with")
			})
		})
	}
}

// TestRetryOfAnEarlierJob has a job deleted and made again while its run waits for its next
// attempt: that run is not the new job's, whoever leads, if its attempt was live by then, and
// if it has many shards, of which some have not begun.
func TestRetryOfAnEarlierJob(t *testing.T) {
	for name, at := range map[string]time.Duration{"waits": 5 * time.Second, "is live": 500 * time.Millisecond} {
		for _, led := range []bool{true, false} {
			for _, shards := range []int{1, 40} {
				t.Run(fmt.Sprintf("it %s, led %v, %d shards", name, led, shards), func(t *testing.T) {
					bubble(t, func(t *testing.T, w *world) {
						j := newJob("j").with(func(s *state.JobSpec) { s.Retry = steady(3, 20*time.Second) })
						if shards > 1 {
							j.with(func(s *state.JobSpec) { s.Shards = &state.Shards{Count: shards} })
						}
						slot := withTwo(w, j)
						w.history.does(j, time.Second, state.StateFailed)
						w.until(slot.Add(at))
						if !led {
							w.leader().kill()
						}
						w.delete(j)
						w.put(j)
						again := time.Now()
						w.until(slot.Add(2 * time.Minute))
						for _, s := range w.history.of(j) {
							require.False(t, s.begun.After(again), "shard began at %s", s.begun)
						}
						rec := w.record(j, state.SlotRunID(slot))
						if shards == 1 {
							require.Equal(t, state.StateCancelled, rec.State)
							require.Equal(t, state.ReasonDeleted, rec.Reason)
						}
						w.verify(true)
					})
				})
			}
		}
	}
}

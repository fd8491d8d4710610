package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// pauseUntil pauses a job until an instant.
func (w *world) pauseUntil(j *job, until time.Time) {
	w.t.Helper()
	c := w.change(j)
	c.Until = until
	_, _, err := w.api.PauseJob(w.ctx, c)
	require.NoError(w.t, err)
}

// TestPauseEnds has pauses end by themselves while one node leads, while none does
// for less than the horizon, and while none does for minutes.
func TestPauseEnds(t *testing.T) {
	for name, down := range map[string]time.Duration{"led": 0, "failover": 6 * time.Second, "outage": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				j := newJob("j", "*/5 * * * * *")
				w.put(j)
				w.control("c1")
				w.worker("e1", place{})
				w.awaitLeader(0)
				w.until(time.Now().Truncate(time.Minute).Add(time.Minute + 2*time.Second))
				begun := time.Now()
				end := begun.UTC().Truncate(time.Minute).Add(30 * time.Second)
				w.pauseUntil(j, end)
				w.until(end.Add(-3 * time.Second))
				if down > 0 {
					w.controls["c1"].kill()
					w.pass(down)
					w.control("c2")
					w.awaitLeader(0)
				}
				w.until(end.Add(down + 20*time.Second))
				for at := begun.Truncate(time.Minute).Add(5 * time.Second); !at.After(end); at = at.Add(5 * time.Second) {
					require.Equal(t, "get run ns/j "+slotID(at)+": not found", w.slotVerdict(j, at))
				}
				missed := 0
				for at := end.Add(5 * time.Second); at.Before(time.Now()); at = at.Add(5 * time.Second) {
					got := w.slotVerdict(j, at)
					if missed++; got != "missed:outage" {
						missed--
						require.Equal(t, "succeeded", got, "%s after the pause", at.Sub(end))
					}
				}
				require.Equal(t, down > time.Minute, missed > 0, "%d slots", missed)
				e, err := w.api.GetJob(w.ctx, j.id)
				require.NoError(t, err)
				require.False(t, e.Job.Paused)
				require.Equal(t, end, e.Job.Effective)
				require.Equal(t, state.Leaderd, e.Job.UpdatedBy)
				w.verify(true)
			})
		})
	}
}

// TestChangedAfterItsPause has nobody lead when a pause ends, and the job changed
// after that: the slots between are skipped, by the change, and not forgotten.
func TestChangedAfterItsPause(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("j", "*/5 * * * * *")
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(time.Now().Truncate(time.Minute).Add(time.Minute + 2*time.Second))
		end := time.Now().Truncate(time.Minute).Add(20 * time.Second)
		w.pauseUntil(j, end)
		w.controls["c1"].kill()
		w.until(end.Add(31 * time.Second))
		w.put(j.with(func(s *state.JobSpec) { s.Schedules = []string{"@every 30m"} }))
		w.control("c2")
		w.awaitLeader(0)
		w.pass(5 * time.Second)
		for at := end.Add(5 * time.Second); !at.After(end.Add(30 * time.Second)); at = at.Add(5 * time.Second) {
			require.Equal(t, "skipped:superseded", w.slotVerdict(j, at))
		}
		w.verify(true)
	})
}

// TestFailuresPause has a job's runs fail: the third in a row pauses it, also where
// the leader dies before it hears of that one.
func TestFailuresPause(t *testing.T) {
	for _, failover := range []bool{false, true} {
		t.Run(map[bool]string{false: "led", true: "failover"}[failover], func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				j := newJob("j", "*/5 * * * * *").with(func(s *state.JobSpec) { s.PauseAfterFailures = 3 })
				w.put(j)
				w.control("c1")
				w.worker("e1", place{})
				w.awaitLeader(0)
				w.until(time.Now().UTC().Truncate(time.Minute).Add(time.Minute - time.Second))
				begun := time.Now().UTC().Add(time.Second) // :00
				fails := func(at int) {
					w.until(begun.Add(time.Duration(at)*time.Second - 100*time.Millisecond))
					w.history.does(j, 100*time.Millisecond, state.StateFailed)
				}
				fails(0)
				w.until(begun.Add(9 * time.Second))
				w.history.does(j, 100*time.Millisecond, state.StateSucceeded)
				fails(15) // 15, 20, 25
				w.until(begun.Add(24 * time.Second))
				job, err := w.api.GetJob(w.ctx, j.id)
				require.NoError(t, err)
				require.False(t, job.Job.Paused)
				if failover {
					w.controls["c1"].kill()
					w.until(begun.Add(26 * time.Second))
					w.control("c2")
					w.awaitLeader(0)
				}
				w.until(begun.Add(29 * time.Second))
				job, err = w.api.GetJob(w.ctx, j.id)
				require.NoError(t, err)
				if !failover || job.Job.Paused { // a new leader may come too late for the next slot
					require.True(t, job.Job.Paused)
					require.Equal(t, "3 runs in a row failed, the last of them "+slotID(begun.Add(25*time.Second)), job.Job.PauseReason)
				}
				w.pass(20 * time.Second)
				job, err = w.api.GetJob(w.ctx, j.id)
				require.NoError(t, err)
				require.True(t, job.Job.Paused)
				require.Equal(t, state.Leaderd, job.Job.PauseActor)

				// Resumed, it counts anew.
				w.resume(j)
				w.pass(8 * time.Second)
				job, err = w.api.GetJob(w.ctx, j.id)
				require.NoError(t, err)
				require.False(t, job.Job.Paused)
				w.pass(20 * time.Second)
				job, err = w.api.GetJob(w.ctx, j.id)
				require.NoError(t, err)
				require.True(t, job.Job.Paused)
				w.verify(true)
			})
		})
	}
}

package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// TestOutage takes all nodes down for longer than the horizon: the latest missed
// slot of a job that wants it runs, once; the others are missed:outage.
func TestOutage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	down := time.Now().Truncate(time.Second).Add(4 * time.Second)
	length := pick(15*time.Second, 50*time.Second)
	// Three slots a minute, and all in the outage.
	in := func(d time.Duration) int { return down.Add(d).Second() }
	thrice := fmt.Sprintf("%d,%d,%d * * * * *", in(4*time.Second), in(7*time.Second), in(10*time.Second))
	none := func(s *leaderdv1.JobSpec) { s.CatchUp = leaderdv1.CatchUp_CATCH_UP_NONE }
	soon := func(s *leaderdv1.JobSpec) { s.StartDeadline = seconds(2) }
	c.apply(
		c.httpJob("latest", thrice),
		c.httpJob("latest-allow", thrice, allowOverlap),
		c.httpJob("latest-once", thrice, atMostOnce),
		c.shellJob("latest-shell", thrice, ""),
		c.httpJob("too-late", thrice, soon),
		c.httpJob("none", thrice, none),
		c.httpJob("each", "@every 1s"),
		c.httpJob("rare", "0 0 1 1 *"),
		c.httpJob("paused", thrice),
	)
	c.pause("paused")
	from := settled()
	c.awaitWatermark(down)
	for _, n := range c.nodes {
		n.signal(syscall.SIGKILL)
	}
	for _, n := range c.nodes {
		n.wait(patience)
	}
	pass(t, time.Until(down.Add(length)))
	up := time.Now()
	c.startAll()
	c.awaitWatermark(time.Now().Add(2 * time.Second))

	h := c.check(from, time.Now().Truncate(time.Second))
	type outcome struct {
		started, missed int
		last            time.Time
	}
	got := map[string]*outcome{}
	for job := range h.Jobs {
		got[job] = &outcome{}
	}
	for _, s := range h.Starts {
		if slot, _ := history.Slot(s.Run); slot.After(down.Add(2*time.Second)) && slot.Before(up) {
			require.True(t, s.At.After(up), "%+v", s)
			got[s.Job].started++
			got[s.Job].last = slot
		}
	}
	for _, r := range h.Runs {
		if r.State == "missed" {
			require.Equal(t, "outage", r.Reason, "%+v", r)
			got[r.Job].missed += int(max(r.Count, 1))
		}
	}
	for _, job := range []string{"latest", "latest-allow", "latest-once", "latest-shell"} {
		require.Equal(t, 1, got[job].started, job)
		require.Equal(t, down.Add(10*time.Second).UTC(), got[job].last, job)
		require.Equal(t, 2, got[job].missed, job)
	}
	for _, job := range []string{"too-late", "none"} {
		require.Zero(t, got[job].started, job)
		require.Equal(t, 3, got[job].missed, job)
	}
	for _, job := range []string{"rare", "paused"} {
		require.Zero(t, got[job].started+got[job].missed, job)
	}
	require.LessOrEqual(t, got["each"].started, 1)
	require.GreaterOrEqual(t, got["each"].missed, int(length/time.Second)-4)
}

// TestStoreOutage stops etcd for about a horizon, and for half of one. Jobs that want it
// run on without a claim what was planned, on time, and all of that is recorded as it was
// when etcd is back; others hold.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	for _, horizon := range []string{"12s", "20s"} {
		t.Run(horizon, func(t *testing.T) {
			t.Parallel()
			storeOutage(t, horizon)
		})
	}
}

func storeOutage(t *testing.T, horizon string) {
	t.Helper()
	c := newCluster(t, options{nodes: 3, flags: []string{"--planner-horizon=" + horizon}})
	planned := func(s *leaderdv1.JobSpec) { s.StoreOutage = leaderdv1.StoreOutage_STORE_OUTAGE_RUN_PLANNED }
	var jobs []*leaderdv1.Job
	for i := range 5 {
		jobs = append(jobs, c.httpJob(fmt.Sprintf("planned-%d", i), "@every 1s", allowOverlap, planned))
	}
	jobs = append(jobs, c.shellJob("planned-shell", "@every 1s", "", allowOverlap, planned), c.httpJob("held", "@every 1s", allowOverlap))
	c.apply(jobs...)
	from := settled()
	c.awaitWatermark(from.Add(2 * time.Second))
	c.etcd.Kill(0)
	down := time.Now()
	// Registrations are trusted for 1.6 seconds here, and the store is asked for one more.
	without := down.Add(4 * time.Second)
	pass(t, time.Until(down.Add(10*time.Second)))
	up := time.Now()
	c.etcd.Restart(0)
	c.awaitWatermark(time.Now().Add(2 * time.Second))

	to := time.Now().Truncate(time.Second)
	h := c.check(from, to)
	begun := map[string]int{}
	for _, s := range h.Starts {
		slot, _ := history.Slot(s.Run)
		if s.Token == 0 {
			begun[s.Job]++
			require.True(t, s.At.After(down), "%+v", s)
		}
		if s.Job == "held" {
			require.False(t, s.At.After(without) && s.At.Before(up), "%+v", s)
		} else if slot.After(without) && slot.Before(down.Add(9*time.Second)) {
			require.Zero(t, s.Token, "%+v", s)
			require.Less(t, s.At.Sub(slot), lateLimit(100*time.Millisecond, time.Second), "%+v", s)
		}
	}
	doubles, slots := 0, map[string]int{}
	for _, r := range h.Runs {
		doubles += r.Doubles
		if r.Job != "held" && !r.Due.After(down.Add(9*time.Second)) { // what had been planned when etcd stopped
			require.Equal(t, "succeeded", r.State, "%+v", r)
			slots[r.Job] += int(max(r.Count, 1))
		}
	}
	require.Zero(t, begun["held"])
	for _, j := range jobs {
		name := j.GetName()[len("namespaces/default/jobs/"):]
		if name == "held" {
			continue
		}
		require.GreaterOrEqual(t, begun[name], 5, name)
		require.GreaterOrEqual(t, slots[name], int(down.Add(9*time.Second).Sub(from)/time.Second), name)
	}
	t.Logf("begun without a claim: %v; %d of them beside a run that was claimed", begun, doubles)
}

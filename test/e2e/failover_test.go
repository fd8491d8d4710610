package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// manyJobs is 200 jobs due every second and 50 by the second of the minute, over
// all policies, most as requests and some as commands.
func manyJobs(r *recorder) []*leaderdv1.Job {
	var jobs []*leaderdv1.Job
	for i := range 200 {
		var change []func(*leaderdv1.JobSpec)
		if i%2 == 0 {
			change = append(change, allowOverlap)
		}
		if i%4 < 2 {
			change = append(change, atMostOnce)
		}
		name := fmt.Sprintf("every-%03d", i)
		if i%50 == 0 {
			jobs = append(jobs, r.shellJob(name, "@every 1s", "", change...))
		} else {
			jobs = append(jobs, r.httpJob(name, "@every 1s", change...))
		}
	}
	for i := range 50 {
		jobs = append(jobs, r.httpJob(fmt.Sprintf("cron-%02d", i), fmt.Sprintf("%d/5 * * * * *", i%5)))
	}
	return jobs
}

// failoverLimit is how late a slot may start elsewhere whose executor died, counted
// from when its death could be noticed, the end of its registration.
func failoverLimit() time.Duration { return lateLimit(2*time.Second, 10*time.Second) }

// TestFailover kills the leader, stops another node for a while, and drains one:
// each slot of 250 jobs has one verdict and no attempt started twice, and what
// the dead executors would have run starts elsewhere soon.
func TestFailover(t *testing.T) {
	c := newCluster(t, options{nodes: 3})
	registry := c.watchNodes()
	c.apply(manyJobs(c.recorder)...)
	from := settled()
	c.awaitWatermark(from.Add(2 * time.Second))
	calm := time.Now()

	first := c.leader()
	first.kill()
	killed := time.Now()
	c.awaitLeader(first.name)
	t.Logf("another node leads %s after the leader was killed", time.Since(killed).Round(time.Millisecond))
	c.awaitNodes(2)
	c.awaitWatermark(time.Now().Add(2 * time.Second))
	first.start()
	first.ready()
	c.awaitNodes(3)

	// The next one, be it leader or not, is stopped for longer than its leases.
	paused := c.others(first)[0]
	paused.signal(syscall.SIGSTOP)
	stopped := time.Now()
	c.awaitNodes(2)
	pass(t, pick(6*time.Second, 20*time.Second))
	paused.signal(syscall.SIGCONT)
	resumed := time.Now()
	c.awaitNodes(3)
	paused.ready()
	c.awaitWatermark(time.Now().Add(2 * time.Second))

	drained := c.leader()
	draining := time.Now()
	require.Zero(t, drained.terminate(), "exit status after SIGTERM")
	t.Logf("the leader drained in %s", time.Since(draining).Round(time.Millisecond))
	c.awaitLeader(drained.name)
	c.awaitWatermark(time.Now().Add(2 * time.Second))

	to := time.Now().Add(-2 * time.Second).Truncate(time.Second)
	h := c.check(from, to)
	for _, phase := range []struct {
		name     string
		from, to time.Time
	}{{"calm", from, calm}, {"killed", killed, stopped}, {"stopped", stopped, resumed}, {"resumed", resumed, draining}, {"drained", draining, to}} {
		l := h.Lateness(phase.from, phase.to)
		t.Logf("%-8s %5d starts, p50 %s, p99 %s, max %s late", phase.name, l.Starts, l.P50, l.P99, l.Max)
	}
	require.Zero(t, h.Count()["missed:outage"]+h.Count()["missed:deadline"])
	checkDetection(t, h, first, killed, registry.gone(first.name, killed))
	checkDetection(t, h, paused, stopped, registry.gone(paused.name, stopped))
}

// checkDetection asserts that of the slots from death until it was noticed none
// started elsewhere later than the limit after that.
func checkDetection(t testing.TB, h *history.Facts, dead *node, death, noticed time.Time) {
	t.Helper()
	nodes := h.Nodes()
	t.Logf("a death was noticed after %s", noticed.Sub(death).Round(time.Millisecond))
	var worst time.Duration
	for _, s := range h.Starts {
		slot, _ := history.Slot(s.Run)
		if nodes[history.Holder{Job: s.Job, Token: s.Token}] == dead.name || slot.Before(death.Add(-time.Second)) || slot.After(noticed) {
			continue
		}
		worst = max(worst, s.At.Sub(noticed))
		require.Less(t, s.At.Sub(noticed), failoverLimit(), "%s of %s, attempt %d", s.Run, s.Job, s.Attempt)
	}
	t.Logf("its slots had started elsewhere by %s after that", worst.Round(time.Millisecond))
}

// TestControlFailover kills a leader that runs no work: its end makes no slot
// late.
func TestControlFailover(t *testing.T) {
	w := newWorkshop(t)
	server := startEtcd(t)
	endpoints := "--etcd-endpoints=" + strings.Join(server.Endpoints(), ",")
	var controls []string
	for i := range 3 {
		n := w.node(fmt.Sprintf("c%d", i+1), endpoints, "--roles=control")
		controls = append(controls, n.api)
	}
	for i := range 2 {
		w.node(fmt.Sprintf("e%d", i+1), "--roles=executor", "--control-addresses="+strings.Join(controls, ","))
	}
	c := &cluster{workshop: w, api: newAPI(t, controls...), t: t, etcd: server}
	c.startAll()
	c.apply(manyJobs(c.recorder)...)
	from := settled()
	c.awaitWatermark(from.Add(2 * time.Second))
	before := time.Now()

	leader := c.leader()
	leader.kill()
	c.awaitLeader(leader.name)
	t.Logf("another node leads %s after the leader was killed", time.Since(before).Round(time.Millisecond))
	c.awaitWatermark(time.Now().Add(2 * time.Second))

	to := time.Now().Add(-2 * time.Second).Truncate(time.Second)
	h := c.check(from, to)
	calm, dead := h.Lateness(from, before), h.Lateness(before, to)
	t.Logf("before %d starts, p50 %s, p99 %s, max %s late", calm.Starts, calm.P50, calm.P99, calm.Max)
	t.Logf("after  %d starts, p50 %s, p99 %s, max %s late", dead.Starts, dead.P50, dead.P99, dead.Max)
	require.Less(t, dead.Max, controlLimit())
	counts := h.Count()
	require.Equal(t, counts["succeeded"]+counts["skipped:overlap"], sum(counts), "%v", counts)
}

// controlLimit is how late a slot may start when a leader that runs no work dies.
func controlLimit() time.Duration { return lateLimit(250*time.Millisecond, 2*time.Second) }

func sum(counts map[string]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// TestRollingRestarts restarts one node after the other, as a deploy does, while
// jobs run that take a while (R10): each slot starts once and soon, and no run is
// cut off.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 3})
	c.apply(someJobs(c.recorder, 20)...)
	for i := range 5 {
		c.apply(c.httpJob(fmt.Sprintf("while-%d", i), "@every 2s", func(s *leaderdv1.JobSpec) { s.GetHttp().Url += "?sleep=1500ms" }))
	}
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	rounds := 1
	if *long {
		rounds = 4
	}
	for range rounds {
		for _, n := range c.nodes {
			require.Zero(t, n.terminate())
			n.start()
			n.ready()
			c.awaitNodes(3)
		}
	}
	c.awaitWatermark(time.Now().Add(2 * time.Second))
	to := time.Now().Truncate(time.Second)
	h := c.check(from, to)
	counts := h.Count()
	require.Equal(t, sum(counts), counts["succeeded"]+counts["skipped:overlap"], "%v", counts)
	require.Less(t, h.Lateness(from, to).Max, 3*time.Second)
}

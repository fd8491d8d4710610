package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// newSplitCluster makes control nodes c1, c2, … and executors e1, e2, … that know
// no etcd.
func newSplitCluster(t testing.TB, controls, executors int, flags ...string) *cluster {
	t.Helper()
	c := &cluster{workshop: newWorkshop(t), t: t, etcd: startEtcd(t)}
	endpoints := "--etcd-endpoints=" + strings.Join(c.etcd.Endpoints(), ",")
	var addresses []string
	for i := range controls {
		n := c.node(fmt.Sprintf("c%d", i+1), append([]string{endpoints, "--roles=control"}, flags...)...)
		addresses = append(addresses, n.api)
	}
	for i := range executors {
		name := fmt.Sprintf("e%d", i+1)
		c.node(name, append([]string{
			"--roles=executor", "--control-addresses=" + strings.Join(addresses, ","), "--labels=name=" + name,
		}, flags...)...)
	}
	c.api = newAPI(t, addresses...)
	c.startAll()
	return c
}

// awaitStarts waits until a job has n starts and answers the newest.
func (c *cluster) awaitStarts(job string, n int) history.Start {
	c.t.Helper()
	var last history.Start
	await(c.t, fmt.Sprintf("%s started %d times", job, n), func(context.Context) error {
		all := c.startsOf(job)
		if len(all) < n {
			return fmt.Errorf("it started %d times", len(all))
		}
		for _, s := range all {
			if s.At.After(last.At) {
				last = s
			}
		}
		return nil
	})
	return last
}

// TestRemoteExecutor kills, one after the other, the control node that an executor
// without etcd speaks to and an executor at work (R07): the first costs nothing;
// of the second's runs one is tried again elsewhere and the at-most-once one is
// lost.
func TestRemoteExecutor(t *testing.T) {
	t.Parallel()
	c := newSplitCluster(t, 2, 2)
	sleeping := func(s *leaderdv1.JobSpec) { s.GetHttp().Url += "?sleep=600s" }
	c.apply(someJobs(c.recorder, 10)...)
	c.apply(c.httpJob("again", "", sleeping), c.httpJob("once", "", sleeping, atMostOnce))
	from := settled()
	c.awaitWatermark(from.Add(time.Second))

	// Both control nodes in turn, so that each executor loses the one it uses.
	for _, name := range []string{"c1", "c2"} {
		n := c.named(name)
		n.kill()
		other := c.others(n, c.named("e1"), c.named("e2"))
		c.prefer(other...)
		c.awaitLeader(name)
		c.awaitWatermark(time.Now().Add(2 * time.Second))
		n.start()
		n.ready()
	}
	c.awaitNodes(4)
	mid := time.Now()
	h := c.check(from, mid)
	require.Zero(t, h.Count()["missed:outage"])

	// Both on the executor that the first of them is on.
	again := c.trigger("again")
	first := c.awaitStarts("again", 1)
	dead := c.nodeOf(again)
	c.apply(c.httpJob("once", "", sleeping, atMostOnce, selecting("name", dead.name)))
	once := c.trigger("once")
	c.awaitStarts("once", 1)
	dead.kill()
	killed := time.Now()
	second := c.awaitStarts("again", 2)
	t.Logf("the run's second attempt started %s after its executor was killed", second.At.Sub(killed).Round(time.Millisecond))
	require.Less(t, second.At.Sub(killed), 7*time.Second)
	require.Equal(t, 2, second.Attempt)
	require.Greater(t, second.Token, first.Token)
	require.NotEqual(t, dead, c.nodeOf(again))
	lost := c.awaitRun(once)
	require.Equal(t, leaderdv1.Run_STATE_LOST, lost.GetState())
	require.Len(t, lost.GetAttempts(), 1)
	record := c.run(again)
	require.Len(t, record.GetAttempts(), 2)
	require.Equal(t, leaderdv1.Run_STATE_LOST, record.GetAttempts()[0].GetState())
	require.Equal(t, leaderdv1.Run_STATE_RUNNING, record.GetAttempts()[1].GetState())
	c.awaitWatermark(time.Now().Add(time.Second))
	to := time.Now().Truncate(time.Second)
	c.judge(c.pastOf(to, c.versions(), again), from, to)
}

// nodeOf is where a run's newest attempt is.
func (c *cluster) nodeOf(run string) *node {
	c.t.Helper()
	attempts := c.run(run).GetAttempts()
	require.NotEmpty(c.t, attempts)
	return c.named(attempts[len(attempts)-1].GetNode())
}

// TestSelector has a job whose label no executor has: it waits, is not lost, and
// starts when one comes (J07).
func TestSelector(t *testing.T) {
	t.Parallel()
	c := newSplitCluster(t, 1, 1)
	c.apply(c.httpJob("picky", "", selecting("name", "e2")))
	run := c.trigger("picky")
	c.awaitWatermark(time.Now().Add(time.Second))
	require.Equal(t, leaderdv1.Run_STATE_PENDING, c.run(run).GetState())
	late := c.node("e2", "--roles=executor", "--control-addresses="+c.named("c1").api, "--labels=name=e2")
	late.start()
	late.ready()
	done := c.awaitRun(run)
	require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, done.GetState())
	require.Equal(t, "e2", done.GetAttempts()[0].GetNode())
}

// TestPausedExecutor stops an executor with a run at work until the run has begun
// anew elsewhere; when it goes on, it stops the work and changes nothing (B4).
func TestPausedExecutor(t *testing.T) {
	t.Parallel()
	again, single := endless(t), endless(t)
	c := newSplitCluster(t, 1, 2, "--executor-drain-grace=0s")
	c.apply(c.shellJob("long", "", "exec sleep "+again), c.shellJob("once", "", "exec sleep "+single, atMostOnce))
	run := c.trigger("long")
	c.awaitStarts("long", 1)
	victim := c.nodeOf(run)
	c.apply(c.shellJob("once", "", "exec sleep "+single, atMostOnce, selecting("name", victim.name)))
	once := c.trigger("once")
	c.awaitStarts("once", 1)
	victim.pause()
	c.awaitStarts("long", 2)
	lost := c.awaitRun(once)
	require.Equal(t, leaderdv1.Run_STATE_LOST, lost.GetState())
	victim.resume()
	await(t, "the old attempt's processes are gone", func(context.Context) error {
		if n := len(processes(t, again)); n != 1 {
			return fmt.Errorf("%d sleep", n)
		}
		if len(processes(t, single)) != 0 {
			return errors.New("the at-most-once run goes on")
		}
		return nil
	})
	c.awaitNodes(3)
	require.Equal(t, leaderdv1.Run_STATE_LOST, c.run(once).GetState())
	require.Equal(t, leaderdv1.Run_STATE_RUNNING, c.run(run).GetState())
	require.NotEqual(t, victim, c.nodeOf(run))
	require.Len(t, c.startsOf("once"), 1)
	require.Len(t, c.startsOf("long"), 2)
	for _, n := range c.nodes {
		require.Zero(t, n.terminate())
	}
	require.Empty(t, processes(t, again))
}

// TestStoppedAtItsSlot stops an executor between its claims and their slot, until
// its runs are lost (F03): when it goes on, the slots are long past, and it must
// not start what may be another's by then.
func TestStoppedAtItsSlot(t *testing.T) {
	c := newSplitCluster(t, 1, 2)
	c.apply(someJobs(c.recorder, 200)...)
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	victim := c.named("e1")
	claimed := func() int {
		n := 0
		for _, r := range c.runs("") {
			if a := r.GetAttempts(); r.GetState() == leaderdv1.Run_STATE_RUNNING && a[len(a)-1].GetNode() == victim.name {
				n++
			}
		}
		return n
	}
	// Claims are made some tens of milliseconds before their slot at the least.
	var stopped time.Time
	held := 0
	for range 20 {
		stopped = time.Now().Truncate(time.Second).Add(980 * time.Millisecond)
		pass(t, time.Until(stopped))
		victim.pause()
		if held = claimed(); held > 0 {
			break
		}
		victim.resume()
		pass(t, 300*time.Millisecond)
	}
	require.Positive(t, held, "the executor was never stopped with claims")
	c.awaitNodes(2)
	c.awaitWatermark(time.Now().Add(time.Second))
	resumed := time.Now()
	victim.resume()
	c.awaitNodes(3)
	c.awaitWatermark(time.Now().Add(2 * time.Second))
	to := time.Now().Truncate(time.Second)
	h := c.check(from, to)
	t.Logf("stopped with %d claims", held)
	nodes := h.Nodes()
	for _, s := range h.Starts {
		if slot, _ := history.Slot(s.Run); nodes[history.Holder{Job: s.Job, Token: s.Token}] == victim.name && slot.Before(resumed.Add(-2*time.Second)) {
			require.True(t, s.At.Before(resumed), "%s of %s, attempt %d, started %s after its executor went on",
				s.Run, s.Job, s.Attempt, s.At.Sub(resumed))
		}
	}
}

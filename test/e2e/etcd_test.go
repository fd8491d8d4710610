package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/test/etcdtest"
)

// TestBothLeadersDie kills the leader and, while its lease still lives, the leader
// of etcd, which gives all leases their whole life again (F07): somebody leads
// in the end, and no slot is forgotten.
func TestBothLeadersDie(t *testing.T) {
	t.Parallel()
	ttl := pick(2*time.Second, 10*time.Second)
	c := newCluster(t, options{
		nodes: 3, etcd: []etcdtest.Option{etcdtest.WithMembers(3)},
		flags: []string{"--election-ttl=" + ttl.String(), "--planner-horizon=" + (ttl + 6*time.Second).String()},
	})
	c.apply(someJobs(c.recorder, 20)...)
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	old := c.leader()
	old.kill()
	killed := time.Now()
	c.prefer(c.others(old)...)
	pass(t, ttl*6/10)
	member := c.etcd.AwaitLeader(t.Context())
	c.etcd.Kill(member)
	c.awaitLeader(old.name)
	took := time.Since(killed)
	t.Logf("another node leads %s after the leader was killed, with a lease of %s", took.Round(time.Millisecond), ttl)
	require.Less(t, took, 30*time.Second)
	c.etcd.Restart(member)
	old.start()
	old.ready()
	c.awaitNodes(3)
	c.awaitWatermark(time.Now().Add(2 * time.Second))
	c.check(from, time.Now().Truncate(time.Second))
}

// TestIsolatedMember cuts one of three etcd members off from the others while its
// clients still reach it (E08): the nodes leave it, no edit goes unseen, and it
// gives no node a leadership of its own.
func TestIsolatedMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2, etcd: []etcdtest.Option{etcdtest.WithMembers(3)}})
	c.apply(someJobs(c.recorder, 20)...)
	c.apply(c.httpJob("edited", "@every 1s", marked("v0")))
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	// Each in turn, so that the one that a node uses is among them.
	for i := range c.etcd.Endpoints() {
		c.etcd.Isolate(i)
		isolated := time.Now()
		mark := fmt.Sprintf("v%d", i+1)
		c.apply(c.httpJob("edited", "@every 1s", marked(mark)))
		await(t, "the edit is seen", func(context.Context) error {
			if last := c.awaitStarts("edited", 1); last.Mark != mark {
				return fmt.Errorf("work still starts by %s", last.Mark)
			}
			return nil
		})
		t.Logf("an edit was seen %s after member %d was isolated", time.Since(isolated).Round(time.Millisecond), i)
		require.Less(t, time.Since(isolated), lateLimit(10*time.Second+callTimeout, patience))
		pass(t, time.Until(isolated.Add(pick(3*time.Second, 30*time.Second))))
		c.etcd.Mend(i)
		c.awaitWatermark(time.Now().Add(time.Second))
	}
	c.check(from, time.Now().Truncate(time.Second))
}

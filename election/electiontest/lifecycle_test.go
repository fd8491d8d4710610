package electiontest_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderd/leaderd/election"
	"github.com/leaderd/leaderd/election/electiontest"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// metric sums a metric over its labels; for a histogram it is the count.
func metric(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	require.FailNow(t, "no such metric", name)
	return 0
}

func TestElectorTellsOfItsTerm(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 2)
	a := ns.AwaitTerm(0)
	leader, other := ns.Node(a.Node), ns.Node(1-a.Node)
	term, leads := leader.Elector.Term()
	require.True(t, leads)
	require.Equal(t, a.Term, term)
	require.InDelta(t, 1, metric(t, leader.Metrics, "leaderd_election_is_leader"), 0)
	require.InDelta(t, a.Term.Number, metric(t, leader.Metrics, "leaderd_election_term"), 0)
	require.InDelta(t, 1, metric(t, leader.Metrics, "leaderd_election_campaigns_total"), 0)
	_, leads = other.Elector.Term()
	require.False(t, leads)
	require.InDelta(t, 0, metric(t, other.Metrics, "leaderd_election_is_leader"), 0)
	candidates(t, etcd.Client(), 2)
	// A candidate that waits keeps its lease alive too.
	for _, n := range []*electiontest.Node{leader, other} {
		require.Eventually(t, func() bool {
			return metric(t, n.Metrics, "leaderd_election_keepalive_seconds") > 1
		}, electiontest.Limit, 10*time.Millisecond)
		require.NotZero(t, n.Elector.Heartbeat())
	}
	ns.Ledger.Forced(a.Term.Number)
	_, err := etcd.Client().Delete(within(t), a.Term.Key)
	require.NoError(t, err)
	ns.AwaitEnd(a.Term.Number)
	candidates(t, etcd.Client(), 2)
	require.InDelta(t, 1, metric(t, leader.Metrics, "leaderd_election_terms_lost_total"), 0)
	require.InDelta(t, 0, metric(t, leader.Metrics, "leaderd_election_is_leader"), 0)
}

func TestSecondRunIsRefused(t *testing.T) {
	ns := electiontest.Start(t, etcdtest.Start(t), 1)
	a := ns.AwaitTerm(0)
	require.ErrorIs(t, ns.Node(0).Elector.Run(t.Context(), nil), election.ErrRunning)
	require.True(t, a.Term.Trusted(time.Now()))
	require.NoError(t, ns.Stop(0))
}

func TestWaitingCandidateLeavesTheQueue(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 3, electiontest.WithConfig(long))
	a := ns.AwaitTerm(0)
	candidates(t, etcd.Client(), 3)
	require.NoError(t, ns.Stop((a.Node+1)%3))
	candidates(t, etcd.Client(), 2)
	require.NoError(t, ns.Stop((a.Node+2)%3))
	candidates(t, etcd.Client(), 1)
	requireHeld(t, etcd.Client(), a.Term)
	require.Len(t, ns.Events(), 1)
}

func TestStopWhileEtcdIsSilent(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 2)
	a := ns.AwaitTerm(0)
	candidates(t, etcd.Client(), 2)
	ns.Node(0).Proxy.Blackhole(bothWays)
	ns.Node(1).Proxy.Blackhole(bothWays)
	require.NoError(t, ns.Stop(a.Node))
	require.NoError(t, ns.Stop(1-a.Node))
}

// silent is a Watcher that never tells of anything.
type silent struct{ clientv3.Watcher }

func (silent) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	c := make(chan clientv3.WatchResponse)
	context.AfterFunc(ctx, func() { close(c) })
	return c
}

// F15 where the watch hangs.
func TestDeletedKeyIsFoundWithoutAWatch(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 1, electiontest.WithClient(func(c *clientv3.Client) {
		c.Watcher = silent{c.Watcher}
	}))
	a := ns.AwaitTerm(0)
	_, err := etcd.Client().Delete(within(t), a.Term.Key)
	require.NoError(t, err)
	require.Equal(t, election.ReasonKeyGone, lostBecause(t, ns.AwaitEnd(a.Term.Number)))
	requireHeld(t, etcd.Client(), ns.AwaitTerm(a.Term.Number).Term)
}

// broken is a Watcher whose watches end at once.
type broken struct{ clientv3.Watcher }

func (broken) Watch(context.Context, string, ...clientv3.OpOption) clientv3.WatchChan {
	c := make(chan clientv3.WatchResponse)
	close(c)
	return c
}

func TestWatchesThatEndDoNotEndTheTerm(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 1, electiontest.WithClient(func(c *clientv3.Client) {
		c.Watcher = broken{c.Watcher}
	}))
	a := ns.AwaitTerm(0)
	require.Eventually(t, func() bool {
		return metric(t, ns.Node(0).Metrics, "leaderd_election_keepalive_seconds") > 5
	}, electiontest.Limit, 10*time.Millisecond)
	require.True(t, a.Term.Trusted(time.Now()))
	require.Len(t, ns.Events(), 1)
}

// F07: the leader's term outlives a change of etcd's leader, and a leader whose
// member dies is followed by a node with another.
func TestMembersOfEtcdDie(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithMembers(3))
	ns := electiontest.Start(t, etcd, 3, electiontest.WithConfig(election.Config{TTL: 6 * time.Second}))
	a := ns.AwaitTerm(0)
	candidates(t, etcd.Client(), 3)
	if member := etcd.AwaitLeader(within(t)); member == a.Node {
		from, to := etcd.Etcd(member).Server, etcd.Etcd((member+1)%3).Server
		require.NoError(t, from.MoveLeader(within(t), uint64(from.MemberID()), uint64(to.MemberID())))
	}
	killed := etcd.AwaitLeader(within(t))
	require.NotEqual(t, a.Node, killed)
	started := time.Now()
	etcd.Kill(killed)
	t.Logf("etcd's leader killed within %s", time.Since(started))
	elected := time.Now()
	etcd.AwaitLeader(within(t))
	require.Eventually(t, func() bool { return ns.Node(a.Node).Elector.Heartbeat().After(elected) },
		electiontest.Limit, 10*time.Millisecond)
	requireHeld(t, etcd.Client(), a.Term)
	require.True(t, a.Term.Trusted(time.Now()))

	t.Logf("lease alive under the new leader after %s", time.Since(elected))
	etcd.Restart(killed)
	died := time.Now()
	etcd.Kill(a.Node)
	next := ns.AwaitTerm(a.Term.Number)
	t.Logf("failover, with etcd's leader lost too, within %s", time.Since(died))
	require.NotEqual(t, a.Node, next.Node)
	require.Equal(t, election.ReasonExpired, lostBecause(t, ns.AwaitEnd(a.Term.Number)))
	requireHeld(t, etcd.Client(), next.Term)
}

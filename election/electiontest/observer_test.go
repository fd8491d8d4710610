package electiontest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderd/leaderd/election"
	"github.com/leaderd/leaderd/election/electiontest"
	"github.com/leaderd/leaderd/test/etcdtest"
	"github.com/leaderd/leaderd/test/faultproxy"
)

// observe runs an observer behind a proxy of its own.
func observe(t *testing.T, etcd *etcdtest.Server, resync time.Duration) (*election.Observer, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.Start(t, etcd.Endpoints()[0])
	client := electiontest.NewClient(t, proxy.Addr())
	o, err := election.NewObserver(client, election.ObserverConfig{Resync: resync})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- o.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ran)
	})
	return o, proxy
}

// awaitLeader waits until the observer tells of a leader that ok accepts.
func awaitLeader(t *testing.T, o *election.Observer, ok func(election.Leader) bool) election.Leader {
	t.Helper()
	limit := time.NewTimer(electiontest.Limit)
	defer limit.Stop()
	for {
		leader, changed := o.Follow()
		if ok(leader) {
			return leader
		}
		select {
		case <-changed:
		case <-limit.C:
			require.FailNow(t, "leader not observed", "last known: %+v", leader)
		}
	}
}

func of(term election.Term) func(election.Leader) bool {
	return func(l election.Leader) bool { return l.Term == term.Term }
}

func none(l election.Leader) bool { return l == election.Leader{} }

func TestObserverFollowsEachLeader(t *testing.T) {
	etcd := etcdtest.Start(t)
	o, _ := observe(t, etcd, time.Hour)
	<-o.Synced()
	require.Equal(t, election.Leader{}, o.Current())
	require.NotZero(t, o.Heard())
	ns := electiontest.Start(t, etcd, 3, electiontest.WithConfig(long))
	var last int64
	for range 3 {
		e := ns.AwaitTerm(last)
		last = e.Term.Number
		leader := awaitLeader(t, o, of(e.Term))
		require.Equal(t, ns.Node(e.Node).Name, leader.Name)
		require.Equal(t, leader.Name+".test:7000", leader.Address)
		require.NoError(t, ns.Stop(e.Node))
	}
	awaitLeader(t, o, none)
}

func TestObserverSurvivesPartitionAndCompaction(t *testing.T) {
	etcd := etcdtest.Start(t)
	o, proxy := observe(t, etcd, time.Hour)
	ns := electiontest.Start(t, etcd, 2, electiontest.WithConfig(long))
	a := ns.AwaitTerm(0)
	awaitLeader(t, o, of(a.Term))
	proxy.Cut()
	require.NoError(t, ns.Stop(a.Node))
	b := ns.AwaitTerm(a.Term.Number)
	resp, err := etcd.Client().Put(within(t), "other", "")
	require.NoError(t, err)
	_, err = etcd.Client().Compact(within(t), resp.Header.Revision)
	require.NoError(t, err)
	require.Equal(t, a.Term.Number, o.Current().Term.Number, "the last known is kept")
	proxy.Heal()
	awaitLeader(t, o, of(b.Term))
	require.NoError(t, ns.Stop(b.Node))
	awaitLeader(t, o, none)
}

func TestObserverSurvivesARestartOfEtcd(t *testing.T) {
	etcd := etcdtest.Start(t)
	o, _ := observe(t, etcd, time.Hour)
	ns := electiontest.Start(t, etcd, 1, electiontest.WithConfig(long))
	a := ns.AwaitTerm(0)
	awaitLeader(t, o, of(a.Term))
	etcd.Restart(0)
	require.NoError(t, ns.Stop(0))
	awaitLeader(t, o, none)
}

// A watch that is silent for ever is found out by the next resync.
func TestObserverResyncs(t *testing.T) {
	etcd := etcdtest.Start(t)
	o, _ := observe(t, etcd, 50*time.Millisecond)
	<-o.Synced()
	began := o.Heard()
	require.Eventually(t, func() bool { return o.Heard().Sub(began) > 200*time.Millisecond },
		electiontest.Limit, 5*time.Millisecond)
	ns := electiontest.Start(t, etcd, 1)
	awaitLeader(t, o, of(ns.AwaitTerm(0).Term))
}

func TestObserverOfAnUnreadableLeader(t *testing.T) {
	etcd := etcdtest.Start(t)
	o, _ := observe(t, etcd, time.Hour)
	<-o.Synced()
	c := etcd.Client()
	resp, err := c.Put(within(t), election.DefaultPrefix+"/candidates/1", "not json")
	require.NoError(t, err)
	leader := awaitLeader(t, o, func(l election.Leader) bool { return l.Term.Number == resp.Header.Revision })
	require.Empty(t, leader.Name)
	require.Empty(t, leader.Address)
	// Its neighbours are none of its business.
	_, err = c.Put(within(t), election.DefaultPrefix+"/candidates-2/1", "")
	require.NoError(t, err)
	_, err = c.Delete(within(t), election.DefaultPrefix+"/candidates/", clientv3.WithPrefix())
	require.NoError(t, err)
	awaitLeader(t, o, none)
}

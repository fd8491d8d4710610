package electiontest_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/election"
	"github.com/leaderd/leaderd/election/electiontest"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// A member that is killed while a peer asks its version leaves that request at the
// lock of its closed backend for ever; this is etcd's own.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/etcdserver.(*EtcdServer).StorageVersion"))
}

// long is a configuration under which nothing expires during a test: what
// happens, happens for another reason.
var long = election.Config{TTL: election.MaxTTL}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), electiontest.Limit)
	t.Cleanup(cancel)
	return ctx
}

// leaseOf is the lease on which a term's key lies.
func leaseOf(t *testing.T, term election.Term) clientv3.LeaseID {
	t.Helper()
	id, err := strconv.ParseInt(term.Key[strings.LastIndex(term.Key, "/")+1:], 16, 64)
	require.NoError(t, err)
	return clientv3.LeaseID(id)
}

// requireHeld checks that a term's key is there, with its lease.
func requireHeld(t *testing.T, c *clientv3.Client, term election.Term) {
	t.Helper()
	resp, err := c.Get(within(t), term.Key)
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	require.Equal(t, term.Number, resp.Kvs[0].CreateRevision)
	require.Equal(t, int64(leaseOf(t, term)), resp.Kvs[0].Lease)
}

// candidates waits until the default election has n.
func candidates(t *testing.T, c *clientv3.Client, n int) {
	t.Helper()
	ctx := within(t)
	var events clientv3.WatchChan
	for {
		resp, err := c.Get(ctx, election.DefaultPrefix+"/", clientv3.WithPrefix())
		require.NoError(t, err)
		if len(resp.Kvs) == n {
			return
		}
		if events == nil {
			events = c.Watch(ctx, election.DefaultPrefix+"/", clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
		}
		_, open := <-events
		require.True(t, open, "%d candidates instead of %d", len(resp.Kvs), n)
	}
}

func lostBecause(t *testing.T, e electiontest.Event) election.Reason {
	t.Helper()
	var lost *election.LostError
	require.ErrorAs(t, e.Cause, &lost)
	require.ErrorIs(t, e.Cause, election.ErrTermLost)
	return lost.Reason
}

func TestResigningHandsOverBeforeTheLeaseEnds(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 3, electiontest.WithConfig(long))
	candidates(t, etcd.Client(), 3)
	var last election.Term
	for range 3 {
		e := ns.AwaitTerm(last.Number)
		requireHeld(t, etcd.Client(), e.Term)
		last = e.Term
		require.NoError(t, ns.Stop(e.Node))
		require.ErrorIs(t, ns.AwaitEnd(last.Number).Cause, context.Canceled)
		require.False(t, last.Trusted(time.Now()))
	}
	resp, err := etcd.Client().Get(within(t), election.DefaultPrefix, clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, resp.Kvs)
	leases, err := etcd.Client().Leases(within(t))
	require.NoError(t, err)
	require.Empty(t, leases.Leases)
	require.Len(t, ns.Ledger.Spans(), 3)
}

// F15: the leader's key is deleted from outside.
func TestDeletedKeyEndsTheTermAtOnce(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 2, electiontest.WithConfig(long))
	first := ns.AwaitTerm(0)
	ns.Ledger.Forced(first.Term.Number)
	deleted := time.Now()
	_, err := etcd.Client().Delete(within(t), first.Term.Key)
	require.NoError(t, err)
	end := ns.AwaitEnd(first.Term.Number)
	t.Logf("noticed after %s", time.Since(deleted))
	require.Equal(t, election.ReasonKeyGone, lostBecause(t, end))
	requireHeld(t, etcd.Client(), ns.AwaitTerm(first.Term.Number).Term)
	t.Logf("led again after %s", time.Since(deleted))
}

// A key put again without its lease would never go.
func TestKeyTakenFromItsLeaseEndsTheTerm(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 1, electiontest.WithConfig(long))
	first := ns.AwaitTerm(0)
	ns.Ledger.Forced(first.Term.Number)
	_, err := etcd.Client().Put(within(t), first.Term.Key, "{}")
	require.NoError(t, err)
	require.Equal(t, election.ReasonKeyGone, lostBecause(t, ns.AwaitEnd(first.Term.Number)))
	// The key stays in nobody's hands, first in the queue, until someone removes it.
	_, err = etcd.Client().Delete(within(t), first.Term.Key)
	require.NoError(t, err)
	requireHeld(t, etcd.Client(), ns.AwaitTerm(first.Term.Number).Term)
}

func TestRevokedLeaseEndsTheTerm(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 2)
	first := ns.AwaitTerm(0)
	ns.Ledger.Forced(first.Term.Number)
	_, err := etcd.Client().Revoke(within(t), leaseOf(t, first.Term))
	require.NoError(t, err)
	require.Contains(t, []election.Reason{election.ReasonKeyGone, election.ReasonLeaseGone},
		lostBecause(t, ns.AwaitEnd(first.Term.Number)))
	requireHeld(t, etcd.Client(), ns.AwaitTerm(first.Term.Number).Term)
}

// F01: a waiting candidate is cut off until its lease has expired, then the
// leader dies.
func TestCandidateWithAnExpiredLeaseDoesNotLead(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 3)
	a := ns.AwaitTerm(0)
	candidates(t, etcd.Client(), 3)
	b := (a.Node + 1) % 3
	ns.Node(b).Proxy.Blackhole(bothWays)
	candidates(t, etcd.Client(), 2)
	ns.Node(b).Proxy.Heal()
	ns.Node(a.Node).Proxy.Cut() // dies without a word
	require.Equal(t, election.ReasonExpired, lostBecause(t, ns.AwaitEnd(a.Term.Number)))
	next := ns.AwaitTerm(a.Term.Number)
	require.NotEqual(t, a.Node, next.Node)
	requireHeld(t, etcd.Client(), next.Term)
	ns.Node(a.Node).Proxy.Heal()
	candidates(t, etcd.Client(), 3)
	require.Equal(t, next.Term.Number, last(ns.Events()).Term.Number, "led on undisturbed")
}

// F01 at its core: the candidate does not even know that its lease is gone when
// Campaign tells it that it has won.
func TestVictoryWithoutAKeyIsNotBelieved(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 2, electiontest.WithConfig(long))
	a := ns.AwaitTerm(0)
	candidates(t, etcd.Client(), 2)
	ns.Ledger.Forced(a.Term.Number)
	resp, err := etcd.Client().Get(within(t), election.DefaultPrefix+"/", clientv3.WithLastCreate()...)
	require.NoError(t, err)
	_, err = etcd.Client().Revoke(within(t), clientv3.LeaseID(resp.Kvs[0].Lease))
	require.NoError(t, err)
	_, err = etcd.Client().Delete(within(t), a.Term.Key)
	require.NoError(t, err)
	next := ns.AwaitTerm(a.Term.Number)
	requireHeld(t, etcd.Client(), next.Term)
	require.Greater(t, next.Term.Number, resp.Kvs[0].CreateRevision)
	// The other may lead again before the loser has looked.
	require.Eventually(t, func() bool {
		return strings.Contains(ns.Node(1-a.Node).Log.String(), "not this session's")
	}, electiontest.Limit, 10*time.Millisecond)
}

// F06: every lease is gone at once.
func TestAllLeasesRevoked(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 3)
	first := ns.AwaitTerm(0)
	candidates(t, etcd.Client(), 3)
	ns.Ledger.Forced(first.Term.Number)
	leases, err := etcd.Client().Leases(within(t))
	require.NoError(t, err)
	for _, l := range leases.Leases {
		_, err := etcd.Client().Revoke(within(t), l.ID)
		require.NoError(t, err)
	}
	ns.AwaitEnd(first.Term.Number)
	requireHeld(t, etcd.Client(), ns.AwaitTerm(first.Term.Number).Term)
	candidates(t, etcd.Client(), 3)
}

// F09: the lease is not found when it is revoked.
func TestLeaseGoneAtResignationIsASuccess(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 1, electiontest.WithConfig(long),
		electiontest.WithLead(func(n *electiontest.Node) election.Lead {
			return func(ctx context.Context, term election.Term) error {
				_, err := n.Client.Revoke(ctx, leaseOf(t, term))
				return err
			}
		}))
	first := ns.AwaitTerm(0)
	ns.AwaitTerm(first.Term.Number)
	require.NoError(t, ns.Stop(0))
	require.NotContains(t, ns.Node(0).Log.String(), "resignation unconfirmed")
}

// E01: elections whose prefixes begin or contain each other's.
func TestRelatedPrefixesAreSeparateElections(t *testing.T) {
	etcd := etcdtest.Start(t)
	var all []*electiontest.Nodes
	for _, prefix := range []string{"/l/x", "/l/xy", "/l/x/y", "/l"} {
		cfg := long
		cfg.Prefix = prefix
		all = append(all, electiontest.Start(t, etcd, 1, electiontest.WithConfig(cfg)))
		all[len(all)-1].AwaitTerm(0)
	}
	for i, ns := range all[:3] {
		require.NoError(t, ns.Stop(0), "election %d", i)
	}
	requireHeld(t, etcd.Client(), all[3].AwaitTerm(0).Term)
}

func last(events []electiontest.Event) electiontest.Event { return events[len(events)-1] }

var errWork = errors.New("work failed")

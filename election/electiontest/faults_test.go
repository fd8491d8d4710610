package electiontest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/election"
	"github.com/leaderd/leaderd/election/electiontest"
	"github.com/leaderd/leaderd/test/etcdtest"
	"github.com/leaderd/leaderd/test/faultproxy"
)

const bothWays = faultproxy.Both

// F03, F04: the leader hears no answer while its work takes no notice.
func TestTermEndsAtItsDeadlineWhateverTheWorkDoes(t *testing.T) {
	for name, way := range map[string]faultproxy.Direction{
		"requests held": faultproxy.Up, "answers held": faultproxy.Down,
	} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			release := make(chan struct{})
			ns := electiontest.Start(t, etcd, 2, electiontest.WithConfig(election.Config{
				TTL: election.MinTTL, StopLimit: time.Hour,
			}), electiontest.WithLead(func(*electiontest.Node) election.Lead {
				return func(ctx context.Context, _ election.Term) error {
					<-ctx.Done()
					<-release
					return nil
				}
			}))
			a := ns.AwaitTerm(0)
			ns.Node(a.Node).Proxy.Blackhole(way)
			end := ns.AwaitEnd(a.Term.Number)
			require.Equal(t, election.ReasonExpired, lostBecause(t, end))
			require.False(t, a.Term.Trusted(time.Now()))
			next := ns.AwaitTerm(a.Term.Number)
			require.NotEqual(t, a.Node, next.Node)
			ns.Node(a.Node).Proxy.Heal()
			close(release)
			candidates(t, etcd.Client(), 2)
		})
	}
}

func TestWorkThatDoesNotStopIsFatalAndNotResigned(t *testing.T) {
	etcd := etcdtest.Start(t)
	release := make(chan struct{})
	cfg := long
	cfg.StopLimit = time.Millisecond
	ns := electiontest.Start(t, etcd, 1, electiontest.WithConfig(cfg),
		electiontest.WithLead(func(*electiontest.Node) election.Lead {
			return func(context.Context, election.Term) error {
				<-release
				return nil
			}
		}))
	a := ns.AwaitTerm(0)
	err := ns.Stop(0)
	require.ErrorIs(t, err, election.ErrStuck)
	require.ErrorIs(t, err, election.ErrFatal)
	require.False(t, a.Term.Trusted(time.Now()))
	requireHeld(t, etcd.Client(), a.Term) // nobody follows until the lease ends
	close(release)
	ns.AwaitEnd(a.Term.Number)
}

func TestFailingWorkEndsTheTermNotTheElector(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":  func() error { return errWork },
		"return": func() error { return nil },
		"panic":  func() error { panic("boom") },
		"nil panic": func() error {
			panic(nil) //nolint:govet // on purpose
		},
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			var terms atomic.Int64
			ns := electiontest.Start(t, etcd, 1, electiontest.WithConfig(long),
				electiontest.WithLead(func(*electiontest.Node) election.Lead {
					return func(ctx context.Context, _ election.Term) error {
						if terms.Add(1) < 3 {
							return fail()
						}
						<-ctx.Done()
						return nil
					}
				}))
			second := ns.AwaitTerm(ns.AwaitTerm(0).Term.Number)
			requireHeld(t, etcd.Client(), ns.AwaitTerm(second.Term.Number).Term)
			require.NoError(t, ns.Stop(0))
		})
	}
}

// A node that cannot lead stays away, so that it is not in the queue when the
// leader dies.
func TestNodeThatCannotLeadStaysAway(t *testing.T) {
	etcd := etcdtest.Start(t)
	config := long
	config.RetryMax = time.Hour
	var failing atomic.Int64
	failing.Store(-1)
	ns := electiontest.Start(t, etcd, 2, electiontest.WithConfig(config),
		electiontest.WithLead(func(n *electiontest.Node) election.Lead {
			return func(ctx context.Context, term election.Term) error {
				if failing.CompareAndSwap(-1, term.Number) {
					return errWork
				}
				<-ctx.Done()
				return nil
			}
		}))
	first := ns.AwaitTerm(0)
	second := ns.AwaitTerm(first.Term.Number)
	require.NotEqual(t, first.Node, second.Node)
	candidates(t, etcd.Client(), 1)
	requireHeld(t, etcd.Client(), second.Term)
	require.Eventually(t, func() bool {
		return strings.Contains(ns.Node(first.Node).Log.String(), "leaving the lead to others")
	}, electiontest.Limit, 10*time.Millisecond)
	require.NoError(t, ns.Stop(first.Node))
}

func TestFatalErrorEndsRunAndResigns(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 1, electiontest.WithConfig(long),
		electiontest.WithLead(func(*electiontest.Node) election.Lead {
			return func(context.Context, election.Term) error {
				return fmt.Errorf("%w: %w", errWork, election.ErrFatal)
			}
		}))
	err := ns.Wait(0)
	require.ErrorIs(t, err, election.ErrFatal)
	require.ErrorIs(t, err, errWork)
	candidates(t, etcd.Client(), 0)
}

func TestEtcdRestart(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 2)
	a := ns.AwaitTerm(0)
	etcd.Stop(0)
	ns.AwaitEnd(a.Term.Number)
	etcd.Restart(0)
	requireHeld(t, etcd.Client(), ns.AwaitTerm(a.Term.Number).Term)
	candidates(t, etcd.Client(), 2)
}

// A member that hangs is no reason to lose a term while others answer.
func TestSlowAnswersKeepTheTerm(t *testing.T) {
	etcd := etcdtest.Start(t)
	ns := electiontest.Start(t, etcd, 2)
	a := ns.AwaitTerm(0)
	ns.Node(a.Node).Proxy.Delay(faultproxy.Both, 300*time.Millisecond) // 0.6 of 1.6 s of trust
	heartbeat := func() time.Time { return ns.Node(a.Node).Elector.Heartbeat() }
	began := heartbeat()
	require.Eventually(t, func() bool { return heartbeat().Sub(began) > 2*election.MinTTL },
		electiontest.Limit, 10*time.Millisecond)
	require.True(t, a.Term.Trusted(time.Now()))
	require.Len(t, ns.Events(), 1)
}

// Many candidates, one fault after another on whoever leads: the ledger is
// checked in the cleanup.
func TestOneLeaderAtATimeThroughFaults(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 5
	}
	etcd := etcdtest.Start(t)
	failing := make(chan struct{}, 1)
	ns := electiontest.Start(t, etcd, 5, electiontest.WithLead(func(*electiontest.Node) election.Lead {
		return func(ctx context.Context, _ election.Term) error {
			select {
			case <-ctx.Done():
				return nil
			case <-failing:
				return errWork
			}
		}
	}))
	faults := []struct {
		name string
		do   func(e electiontest.Event)
	}{
		{"cut", func(e electiontest.Event) { ns.Node(e.Node).Proxy.Cut() }},
		{"requests held", func(e electiontest.Event) { ns.Node(e.Node).Proxy.Blackhole(faultproxy.Up) }},
		{"answers held", func(e electiontest.Event) { ns.Node(e.Node).Proxy.Blackhole(faultproxy.Down) }},
		{"key deleted", func(e electiontest.Event) {
			ns.Ledger.Forced(e.Term.Number)
			_, err := etcd.Client().Delete(within(t), e.Term.Key)
			require.NoError(t, err)
		}},
		{"lease revoked", func(e electiontest.Event) {
			ns.Ledger.Forced(e.Term.Number)
			_, err := etcd.Client().Revoke(within(t), leaseOf(t, e.Term))
			require.NoError(t, err)
		}},
		{"work failed", func(electiontest.Event) { failing <- struct{}{} }},
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	current := ns.AwaitTerm(0)
	for i := range rounds {
		f := faults[i%len(faults)]
		began := time.Now()
		f.do(current)
		next := ns.AwaitTerm(current.Term.Number)
		ns.AwaitEnd(current.Term.Number)
		t.Logf("%s: term %d on node %d follows after %s", f.name, next.Term.Number, next.Node, time.Since(began))
		// Some faults outlast the next round.
		if random.IntN(2) == 0 {
			for j := range 5 {
				ns.Node(j).Proxy.Heal()
			}
		} else {
			ns.Node(next.Node).Proxy.Heal()
		}
		current = next
	}
	for j := range 5 {
		ns.Node(j).Proxy.Heal()
	}
	candidates(t, etcd.Client(), 5)
	require.GreaterOrEqual(t, len(ns.Ledger.Spans()), rounds)
}

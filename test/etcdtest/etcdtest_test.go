package etcdtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/leaderd/leaderd/test/etcdtest"
)

func TestMain(m *testing.M) {
	etcdtest.Main()
	goleak.VerifyTestMain(m)
}

func TestSingleMemberKeepsItsDataThroughARestart(t *testing.T) {
	s := etcdtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.Client().Put(ctx, "a", "1")
	require.NoError(t, err)
	s.Restart(0)
	got, err := s.Client().Get(ctx, "a")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
}

func TestThreeMembersSurviveTheirLeader(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, etcdtest.WithMembers(3))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.Client().Put(ctx, "a", "1")
	require.NoError(t, err)
	old := s.AwaitLeader(ctx)
	s.Kill(old)
	require.NotEqual(t, old, s.AwaitLeader(ctx))
	require.Eventually(t, func() bool {
		got, err := s.Client().Get(ctx, "a")
		return err == nil && len(got.Kvs) == 1
	}, time.Minute, 10*time.Millisecond)
	s.Restart(old)
}

func TestProcessesAreKilledAndStopped(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, etcdtest.WithMembers(3), etcdtest.WithProcesses(), etcdtest.WithTick(50*time.Millisecond, 500*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.Client().Put(ctx, "a", "1")
	require.NoError(t, err)
	killed := s.AwaitLeader(ctx)
	s.Kill(killed)
	require.NotEqual(t, killed, s.AwaitLeader(ctx))
	s.Restart(killed)
	stopped := s.AwaitLeader(ctx)
	s.Pause(stopped)
	require.NotEqual(t, stopped, s.AwaitLeader(ctx))
	s.Resume(stopped)
	s.StopAll()
	s.RestartAll()
	s.AwaitLeader(ctx)
	require.Eventually(t, func() bool {
		got, err := s.Client().Get(ctx, "a")
		return err == nil && len(got.Kvs) == 1
	}, time.Minute, 10*time.Millisecond)
}

func TestIsolatedMembersDoNotLead(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]etcdtest.Option{"inside": nil, "processes": {etcdtest.WithProcesses()}} {
		t.Run(name, func(t *testing.T) {
			s := etcdtest.Start(t, append(opts, etcdtest.WithMembers(3), etcdtest.WithTick(50*time.Millisecond, 500*time.Millisecond))...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			isolated := s.AwaitLeader(ctx)
			s.Isolate(isolated)
			require.Eventually(t, func() bool {
				leader := s.Leader()
				return leader >= 0 && leader != isolated
			}, time.Minute, 10*time.Millisecond)
			alone, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints()[isolated : isolated+1], Logger: zap.NewNop()})
			require.NoError(t, err)
			defer alone.Close()
			short, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			_, err = alone.Put(short, "a", "1")
			require.Error(t, err, "a member without the others accepted a write")
			s.Mend(isolated)
			_, err = alone.Put(ctx, "a", "2")
			require.NoError(t, err)
		})
	}
}

func TestAlarmRefusesWrites(t *testing.T) {
	s := etcdtest.Start(t)
	_, err := s.Client().Put(t.Context(), "a", "1")
	require.NoError(t, err)
	require.NoError(t, s.Alarm(t.Context()))
	_, err = s.Client().Put(t.Context(), "a", "2")
	require.ErrorContains(t, err, "space")
	_, err = s.Client().AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	require.NoError(t, err)
	_, err = s.Client().Put(t.Context(), "a", "3")
	require.NoError(t, err)
}

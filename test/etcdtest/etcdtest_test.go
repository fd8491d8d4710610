package etcdtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/test/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

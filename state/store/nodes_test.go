package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/memkv"
)

func TestRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, _ := openMemory(t)
		node := state.Node{
			Name: "n1", Control: true, Executor: true, Address: "h:1", Capacity: 4,
			Labels: map[string]string{"zone": "a"}, Started: time.Now().UTC(),
		}
		first, err := s.Register(ctx, node, 5*time.Second)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, first.TTL)
		nodes, err := s.ListNodes(ctx)
		require.NoError(t, err)
		node.Revision = first.Owner.Revision
		require.Equal(t, []state.Node{node}, nodes)

		for range 5 {
			time.Sleep(3 * time.Second)
			_, err := s.KeepAliveNode(ctx, first)
			require.NoError(t, err)
		}

		second, err := s.Register(ctx, node, 5*time.Second)
		require.NoError(t, err)
		require.Greater(t, second.Owner.Revision, first.Owner.Revision)
		_, err = s.KeepAliveNode(ctx, first)
		require.ErrorIs(t, err, state.ErrNotRegistered, "the second process has the name")
		require.NoError(t, s.Deregister(ctx, first))
		_, err = s.KeepAliveNode(ctx, second)
		require.NoError(t, err, "the first one's end is not the second one's")

		time.Sleep(10 * time.Second)
		_, err = s.KeepAliveNode(ctx, second)
		require.ErrorIs(t, err, state.ErrNotRegistered)
		nodes, err = s.ListNodes(ctx)
		require.NoError(t, err)
		require.Empty(t, nodes)
		require.NoError(t, s.Deregister(ctx, second))
	})
}

func TestDeregisterEndsNoOtherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := memkv.New()
		defer db.Close()
		s := openStore(t, db, "")
		reg, err := s.Register(ctx, state.Node{Name: "n1"}, 5*time.Second)
		require.NoError(t, err)
		leader, _, err := db.Grant(ctx, time.Minute)
		require.NoError(t, err)
		require.NoError(t, s.Deregister(ctx, state.Registration{Owner: reg.Owner, Lease: int64(leader)}))
		_, err = db.KeepAlive(ctx, leader)
		require.NoError(t, err)
		require.NoError(t, s.Deregister(ctx, reg))
		nodes, err := s.ListNodes(ctx)
		require.NoError(t, err)
		require.Empty(t, nodes)
	})
}

func TestRegistrationAfterUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := memkv.New()
		defer db.Close()
		left := 0
		s := openStore(t, faulty.New(db, func(_ context.Context, c faulty.Call) faulty.Fault {
			if c.Op == faulty.OpTxn && left > 0 {
				left--
				return faulty.Fault{After: kv.ErrUnknown}
			}
			return faulty.Fault{}
		}), "")
		for range 2 {
			left = 2
			reg, err := s.Register(ctx, state.Node{Name: "n1"}, 5*time.Second)
			require.NoError(t, err)
			nodes, err := s.ListNodes(ctx)
			require.NoError(t, err)
			require.Len(t, nodes, 1)
			require.Equal(t, reg.Owner.Revision, nodes[0].Revision)
			_, err = s.KeepAliveNode(ctx, reg)
			require.NoError(t, err)
		}
	})
}

func TestTwoProcessesOfOneName(t *testing.T) {
	s, _ := openMemory(t)
	ctx := t.Context()
	older := state.Node{Name: "n", Address: "a:1", Started: noon}
	newer := state.Node{Name: "n", Address: "b:1", Started: noon.Add(time.Second)}
	first, err := s.Register(ctx, older, time.Minute)
	require.NoError(t, err)
	second, err := s.Register(ctx, newer, time.Minute)
	require.NoError(t, err, "it may be the same node after a restart")
	_, err = s.KeepAliveNode(ctx, first)
	require.ErrorIs(t, err, state.ErrNotRegistered)
	_, err = s.Register(ctx, older, time.Minute)
	require.ErrorIs(t, err, state.ErrNameTaken)
	require.ErrorContains(t, err, "b:1")
	_, err = s.KeepAliveNode(ctx, second)
	require.NoError(t, err, "it is left alone")
	_, err = s.Register(ctx, newer, time.Minute)
	require.NoError(t, err, "a process may register again")
	require.NoError(t, s.Deregister(ctx, second))
}

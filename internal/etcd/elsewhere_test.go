package etcd

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// TestDialPassesOverAMemberWithoutALeader cuts a member off from the others: none
// of the requests that its turn it would be are refused.
func TestDialPassesOverAMemberWithoutALeader(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.WithMembers(3), etcdtest.WithTick(50*time.Millisecond, 500*time.Millisecond))
	cfg := config.Default().Etcd
	cfg.Endpoints = server.Endpoints()
	client, err := Dial(cfg, hclog.NewNullLogger())
	require.NoError(t, err)
	defer client.Close()
	isolated := (server.AwaitLeader(t.Context()) + 1) % 3
	server.Isolate(isolated)
	alone := server.Etcd(isolated).Server
	require.Eventually(t, func() bool { return alone.Leader() == 0 }, time.Minute, 10*time.Millisecond)
	// The others may elect anew, on a slow machine: what is refused meanwhile is
	// asked again.
	others := server.Etcd((isolated + 1) % 3).Server
	for granted, asked := 0, 0; granted < 30; asked++ {
		require.Less(t, asked, 3000, "requests")
		term, led := others.Term(), others.Leader() != 0
		_, err := client.Grant(clientv3.WithRequireLeader(t.Context()), 5)
		if err == nil {
			granted++
		} else if led && others.Leader() != 0 && others.Term() == term {
			require.NoError(t, err)
		}
	}

	// Without any leader the refusal comes through.
	for i := range cfg.Endpoints {
		server.Isolate(i)
	}
	require.Eventually(t, func() bool {
		_, err := client.Grant(clientv3.WithRequireLeader(t.Context()), 5)
		return knowsNoLeader(err)
	}, time.Minute, 10*time.Millisecond)
}

package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A new pod is refused until the network knows it, and a new cluster has no leader.
func TestClusterStatusWaits(t *testing.T) {
	f, addr := startFake(t)
	refusals := 0
	f.fail = func(string) error {
		if refusals++; refusals <= 6 { // a single request gives up before: see client.Conn
			return status.Error(codes.Unavailable, "connection refused")
		}
		return nil
	}
	f.leaderless = 2
	require.Contains(t, succeed(t, addr, "", "cluster", "status", "--wait", "1m"), "n1 (leader)")

	f.leaderless = 1
	require.Contains(t, succeed(t, addr, "", "cluster", "status"), "leader:         none", "once is as it is")

	f.leaderless = 1000
	code, stdout, stderr := cmdline(t, addr, "", "cluster", "status", "--wait", "1ns")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Equal(t, "error: no node leads after 1ns\n", stderr)

	f.fail = func(string) error { return status.Error(codes.Unimplemented, "unknown service") }
	code, _, stderr = cmdline(t, addr, "", "cluster", "status", "--wait", "1m")
	require.Equal(t, 1, code, "waiting does not mend that")
	require.Contains(t, stderr, "does not know this request")

	code, _, stderr = cmdline(t, addr, "", "cluster", "status", "--wait", "-1s")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "--wait: -1s is negative")
}

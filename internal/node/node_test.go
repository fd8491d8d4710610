package node

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/internal/ops"
)

// TestReadyWhenUp: a node is live from its start and ready when it is up, so that a
// rolling upgrade waits for one whose member of etcd waits for others.
func TestReadyWhenUp(t *testing.T) {
	cfg := config.Default()
	cfg.Name, cfg.DataDir = "n1", t.TempDir()
	cfg.Listen, cfg.Advertise, cfg.OpsListen = "127.0.0.1:0", "127.0.0.1:0", ""
	cfg.Etcd.Embedded.ClientListen, cfg.Etcd.Embedded.PeerListen = unused(t), unused(t)
	n, err := New(cfg, Options{})
	require.NoError(t, err)
	status := func(path string) (int, string) {
		w := httptest.NewRecorder()
		ops.New(ops.Config{Health: n.health}).Handler().ServeHTTP(w, httptest.NewRequest("GET", path, http.NoBody))
		return w.Code, w.Body.String()
	}
	code, body := status("/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, body, "[-] start: the node is not up yet")
	require.Contains(t, body, "[-] registration: the node is not registered")
	code, _ = status("/livez")
	require.Equal(t, 200, code)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	<-n.Ready()
	_, body = status("/readyz")
	require.NotContains(t, body, "start")
	cancel()
	require.NoError(t, <-ended)
}

func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/test/etcdtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// etcd's own, which it never stops: one for each process.
		goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
		goleak.IgnoreTopFunction("go.etcd.io/etcd/pkg/v3/logutil.(*MergeLogger).outputLoop"),
		// Connections between members that etcd leaves to be closed by the other side,
		// which has ended; a process ends with its member.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
	)
}

const (
	patience = 30 * time.Second
	tick     = 20 * time.Millisecond
)

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	var open []net.Listener
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		open = append(open, l)
		out = append(out, l.Addr().String())
	}
	for _, l := range open { // only now, so that no port comes up twice
		require.NoError(t, l.Close())
	}
	return out
}

func settings(t *testing.T) config.Etcd {
	ports := freePorts(t, 2)
	cfg := config.Default().Etcd
	cfg.Embedded.ClientListen, cfg.Embedded.PeerListen = ports[0], ports[1]
	return cfg
}

// start runs s until the returned function is called, which answers Run's error.
func start(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-ended:
		cancel()
		t.Fatalf("run: %v", err)
	}
	return func() error {
		cancel()
		return <-ended
	}
}

func TestServerKeepsDataOverARestart(t *testing.T) {
	cfg, dir := settings(t), t.TempDir()
	var log bytes.Buffer
	logger := hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})
	for round := range 2 {
		s := New("n1", dir, cfg, logger)
		stop := start(t, s)
		ctx := t.Context()
		key := fmt.Sprintf("/leaderd/%d", round)
		_, err := s.KV().Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(key, []byte("v"), 0)}})
		require.NoError(t, err)
		got, err := s.Client().Get(ctx, "/leaderd/", clientv3.WithPrefix())
		require.NoError(t, err)
		require.EqualValues(t, round+1, got.Count)
		require.NoError(t, s.Check())
		require.NoError(t, stop())
	}
	require.DirExists(t, filepath.Join(dir, "etcd", "member"))
	require.NotContains(t, log.String(), "[ERROR]")
	require.NotContains(t, log.String(), "[WARN]", "a quiet start and stop")
	t.Log(log.String())
}

func TestServerThreeMembers(t *testing.T) {
	const n = 3
	peers := freePorts(t, n)
	var cluster []string
	for i, p := range peers {
		cluster = append(cluster, fmt.Sprintf("n%d=http://%s", i, p))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	var servers []*Server
	for i := range n {
		cfg := settings(t)
		cfg.Embedded.PeerListen = peers[i]
		cfg.Embedded.InitialCluster = cluster
		s := New(fmt.Sprintf("n%d", i), t.TempDir(), cfg, hclog.NewNullLogger())
		servers = append(servers, s)
		group.Go(func() error { return s.Run(ctx) })
	}
	for _, s := range servers {
		<-s.Ready()
	}
	_, err := servers[0].KV().Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put("/a", []byte("v"), 0)}})
	require.NoError(t, err)
	got, err := servers[2].Client().Get(ctx, "/a")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	cancel()
	require.NoError(t, group.Wait())
}

func TestServerEndsWithAnErrorWhenItCannotListen(t *testing.T) {
	cfg := settings(t)
	l, err := net.Listen("tcp", cfg.Embedded.PeerListen)
	require.NoError(t, err)
	defer l.Close()
	err = New("n1", t.TempDir(), cfg, hclog.NewNullLogger()).Run(t.Context())
	require.ErrorContains(t, err, "address already in use")
}

func TestServerEndsBeforeItIsReady(t *testing.T) {
	cfg := settings(t)
	other := freePorts(t, 1)[0]
	cfg.Embedded.InitialCluster = []string{"n1=http://" + cfg.Embedded.PeerListen, "n2=http://" + other}
	s := New("n1", t.TempDir(), cfg, hclog.NewNullLogger())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.NoError(t, s.Run(ctx), "no quorum: only ctx ends it")
	select {
	case <-s.Ready():
		t.Fatal("ready without a quorum")
	default:
	}
}

func TestDial(t *testing.T) {
	server := etcdtest.Start(t)
	cfg := config.Default().Etcd
	cfg.Endpoints = server.Endpoints()
	client, err := Dial(cfg, hclog.NewNullLogger())
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Get(t.Context(), "/x")
	require.NoError(t, err)
}

func TestDialAuthenticates(t *testing.T) {
	server := etcdtest.Start(t)
	ctx, admin := t.Context(), server.Client()
	_, err := admin.UserAdd(ctx, "root", "secret")
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)

	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	cfg := config.Default().Etcd
	cfg.Endpoints, cfg.Username, cfg.PasswordFile = server.Endpoints(), "root", file
	client, err := Dial(cfg, hclog.NewNullLogger())
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Get(ctx, "/x")
	require.NoError(t, err)

	cfg.PasswordFile = file + "x"
	_, err = Dial(cfg, hclog.NewNullLogger())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestZapBridge(t *testing.T) {
	var out bytes.Buffer
	log := zapLogger(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info, DisableTime: true}), nil)
	log.Debug("a")
	log.Info("b")
	require.Empty(t, out.String())
	log.With(zap.String("id", "7")).Warn("slow", zap.Duration("took", time.Second), zap.Error(errors.New("boom")))
	log.Error("bad")
	require.Equal(t, "[WARN]  slow: id=7 took=1s error=boom\n[ERROR] bad\n", out.String())
	out.Reset()
	for range 100 {
		log.Warn("again")
	}
	require.Equal(t, "[WARN]  again\n", out.String(), "repeated messages are thinned out")
}

package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/state/etcdkv"
	"github.com/leaderd/leaderd/state/etcdkv/inproc"
)

// ErrStopped: the member ended by itself, for instance because it was removed
// from its cluster.
var ErrStopped = errors.New("etcd member stopped")

// watchProgress is how often etcd tells watchers that nothing happened.
const watchProgress = 5 * time.Second

// Server is an etcd member of this process.
type Server struct {
	node string
	dir  string
	cfg  config.Etcd
	log  hclog.Logger

	stopping atomic.Bool

	// peer is this member's own peer URL, once others has been called.
	peer string

	ready  chan struct{}
	etcd   *embed.Etcd
	client *clientv3.Client
	kv     *etcdkv.KV
}

// New makes the member of the node of that name, with its data below dataDir. It
// wants a valid configuration and starts nothing.
func New(node, dataDir string, cfg config.Etcd, log hclog.Logger) *Server {
	return &Server{
		node:  node,
		dir:   filepath.Join(dataDir, "etcd"),
		cfg:   cfg,
		log:   log,
		ready: make(chan struct{}),
	}
}

// Run runs the member until ctx is done or the member fails, and returns when it
// has stopped, which takes up to some seconds: a leader hands over first. It
// must be called once. Whoever uses Client or KV must have ended before ctx is.
// Run returns nil only where ctx is done.
func (s *Server) Run(ctx context.Context) error {
	cfg, err := s.memberConfig()
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if cfg.ClusterState, err = s.enter(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start etcd: %w", err)
	}
	s.log.Info("etcd member is starting", "dir", s.dir, "peer", cfg.ListenPeerUrls[0].Host, "client", cfg.ListenClientUrls[0].Host)
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer s.stop(member)

	select {
	case <-ctx.Done():
		return nil
	case err := <-member.Err():
		return fmt.Errorf("start etcd: %w", err)
	case <-member.Server.StopNotify():
		return fmt.Errorf("start etcd: %w", ErrStopped)
	case <-member.Server.ReadyNotify():
	}

	// The member's own listener has no credentials to ask for.
	local := s.cfg
	local.Endpoints, local.Username = []string{endpoint(s.cfg.Embedded.ClientListen)}, ""
	client, err := dial(local, nil, "", s.log)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it reports only that its context ended
	s.etcd, s.client, s.kv = member, client, inproc.New(member.Server, client)
	s.log.Info("etcd member is ready", "members", len(member.Server.Cluster().Members()))
	close(s.ready)

	looking, stop := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { s.replaceLost(looking) })
	defer looks.Wait()
	defer stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-member.Err():
		return fmt.Errorf("run etcd: %w", err)
	case <-member.Server.StopNotify():
		return fmt.Errorf("run etcd: %w", ErrStopped)
	}
}

// stop stops the member. Where it never became ready, etcd's Close would wait
// for ever for the listeners, which wait for it to become ready; so the server
// behind them is stopped first.
func (s *Server) stop(member *embed.Etcd) {
	s.stopping.Store(true)
	select {
	case <-member.Server.ReadyNotify():
	default:
		member.Server.HardStop()
	}
	member.Close()
}

// Ready is closed when the member serves: it has joined its cluster, which has a
// quorum. It never is if Run returns before.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Client is a connection to the member's client listener, for watches, the
// election and maintenance. Only after Ready; it ends with Run.
func (s *Server) Client() *clientv3.Client { return s.client }

// KV is the store on the member, by function call. Only after Ready; it ends
// with Run.
func (s *Server) KV() *etcdkv.KV { return s.kv }

// Endpoints are where the member's client listener is reached on this host.
func (s *Server) Endpoints() []string { return []string{endpoint(s.cfg.Embedded.ClientListen)} }

// Check answers an error while the member knows of no leader. Only after Ready.
func (s *Server) Check() error {
	if s.etcd.Server.Leader() == 0 {
		return errors.New("etcd member has no leader")
	}
	return nil
}

// endpoint is where to dial what listens on address.
func endpoint(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// memberConfig is etcd's configuration, with the reasons for what is not
// etcd's default.
func (s *Server) memberConfig() (*embed.Config, error) {
	e := s.cfg.Embedded
	members, err := e.Members(s.node)
	if err != nil {
		return nil, fmt.Errorf("initial_cluster%w", err)
	}
	c := embed.NewConfig()
	c.Name = s.node
	c.Dir = s.dir
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: e.ClientListen}}
	c.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: endpoint(e.ClientListen)}}
	c.ListenPeerUrls = []url.URL{{Scheme: e.PeerScheme(), Host: e.PeerListen}}
	if t := e.PeerTLS; t.Enabled() {
		// The authority vouches for members. That a certificate has the address a
		// connection comes from is not asked: addresses of pods change, and behind
		// their names others may stand.
		c.PeerTLSInfo = transport.TLSInfo{
			TrustedCAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCertAuth: true, SkipClientSANVerify: true,
		}
	}
	var cluster []string
	for _, m := range members {
		cluster = append(cluster, m.Name+"="+m.Peer.String())
		if m.Name == s.node {
			c.AdvertisePeerUrls = []url.URL{m.Peer}
		}
	}
	c.InitialCluster = strings.Join(cluster, ",")
	c.InitialClusterToken = e.InitialClusterToken
	c.ClusterState = e.InitialClusterState
	c.QuotaBackendBytes = int64(e.QuotaBytes)
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(s.log, &s.stopping))

	// Superseded revisions cost memory (each an entry of etcd's index) until they
	// are compacted. By time, not by count: etcd compacts by count only every five
	// minutes, however fast the store grows.
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = e.CompactionRetention.String()
	// The file never shrinks by itself; at a start nobody waits for it yet.
	c.BootstrapDefragThresholdMegabytes = 64
	// Watchers of quiet prefixes must see that their watch lives.
	c.WatchProgressNotifyInterval = watchProgress
	// Nobody needs REST on this listener.
	c.EnableGRPCGateway = false
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// Package etcdtest starts real etcd members inside the test process, on
// loopback ports and in a temporary directory, and takes them down again when
// the test ends.
//
// Members write without fsync, so they are fast and survive Stop, Kill and
// Restart (the process lives on) but would not survive a crash of the machine.
package etcdtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// startTimeout bounds how long a member may take to become ready.
const startTimeout = 60 * time.Second

// startTries is how often Start picks new ports when another process took one
// between the moment it was found free and the moment etcd listened on it.
const startTries = 5

type options struct {
	members  int
	tick     time.Duration
	election time.Duration
	quota    int64
	fsync    bool
	modify   []func(*embed.Config)
}

// Option changes how Start starts the members.
type Option func(*options)

// WithMembers sets the number of members; default 1.
func WithMembers(n int) Option { return func(o *options) { o.members = n } }

// WithTick sets the heartbeat interval and the election timeout; defaults 100 ms
// and 1 s, etcd's own. The least lease TTL that etcd grants is one and a half
// election timeouts, rounded up to seconds.
func WithTick(heartbeat, election time.Duration) Option {
	return func(o *options) { o.tick, o.election = heartbeat, election }
}

// WithQuota sets the backend quota in bytes; default etcd's own (2 GiB).
func WithQuota(bytes int64) Option { return func(o *options) { o.quota = bytes } }

// WithFsync makes the members sync their log to disk, for measurements.
func WithFsync() Option { return func(o *options) { o.fsync = true } }

// WithConfig changes any other setting of every member, last of all.
func WithConfig(f func(*embed.Config)) Option {
	return func(o *options) { o.modify = append(o.modify, f) }
}

type member struct {
	name         string
	dir          string
	peer, client string // URLs
	etcd         *embed.Etcd
}

// Server is a running cluster. Its methods fail the test on error and may be
// called by one goroutine at a time, except Client, which any may call.
type Server struct {
	t       testing.TB
	o       options
	dir     string
	members []*member

	mu     sync.Mutex
	client *clientv3.Client
}

// Start starts a cluster, waits until every member has a leader, and stops all
// of it in the test's cleanup.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{t: t, o: options{members: 1, tick: 100 * time.Millisecond, election: time.Second}}
	for _, f := range opts {
		f(&s.o)
	}
	// Made first, so that it is removed last: a member whose directory goes away
	// under it ends the process.
	s.dir = t.TempDir()
	t.Cleanup(s.close)
	var err error
	for range startTries {
		if err = s.prepare(); err != nil {
			t.Fatalf("prepare etcd: %v", err)
		}
		if err = s.startAll(); err == nil {
			return s
		}
		s.StopAll()
		if !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	t.Fatalf("start etcd: %v", err)
	return nil
}

func (s *Server) prepare() error {
	ports, err := freePorts(2 * s.o.members)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	s.members = nil
	for i := range s.o.members {
		name := fmt.Sprintf("m%d", i)
		s.members = append(s.members, &member{
			name:   name,
			dir:    filepath.Join(dir, name),
			peer:   fmt.Sprintf("http://127.0.0.1:%d", ports[2*i]),
			client: fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1]),
		})
	}
	return nil
}

func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	// Held until all are found, so that no port comes up twice.
	held := make([]net.Listener, 0, n)
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func (s *Server) config(m *member) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name = m.name
	cfg.Dir = m.dir
	peer, err := url.Parse(m.peer)
	if err != nil {
		return nil, err
	}
	client, err := url.Parse(m.client)
	if err != nil {
		return nil, err
	}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	var cluster []string
	for _, o := range s.members {
		cluster = append(cluster, o.name+"="+o.peer)
	}
	cfg.InitialCluster = strings.Join(cluster, ",")
	cfg.ClusterState = embed.ClusterStateFlagNew
	cfg.TickMs = uint(s.o.tick.Milliseconds())
	cfg.ElectionMs = uint(s.o.election.Milliseconds())
	cfg.QuotaBackendBytes = s.o.quota
	cfg.UnsafeNoFsync = !s.o.fsync
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	for _, f := range s.o.modify {
		f(cfg)
	}
	return cfg, nil
}

func (s *Server) startAll() error {
	// Members of a new cluster become ready only together.
	for _, m := range s.members {
		if err := s.launch(m); err != nil {
			return err
		}
	}
	for _, m := range s.members {
		if err := ready(m); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) launch(m *member) error {
	cfg, err := s.config(m)
	if err != nil {
		return fmt.Errorf("configure %s: %w", m.name, err)
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("launch %s: %w", m.name, err)
	}
	m.etcd = e
	return nil
}

func ready(m *member) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-m.etcd.Server.ReadyNotify():
		return nil
	case err := <-m.etcd.Err():
		return fmt.Errorf("await %s: %w", m.name, err)
	case <-timeout.C:
		return fmt.Errorf("await %s: not ready after %s", m.name, startTimeout)
	}
}

// Endpoints are the client URLs of all members, running or not. They stay the
// same through Stop and Restart.
func (s *Server) Endpoints() []string {
	var out []string
	for _, m := range s.members {
		out = append(out, m.client)
	}
	return out
}

// Etcd is member i, or nil while it is stopped.
func (s *Server) Etcd(i int) *embed.Etcd { return s.members[i].etcd }

// Leader is the index of the member that leads, or -1.
func (s *Server) Leader() int {
	for i, m := range s.members {
		if m.etcd != nil && m.etcd.Server.Leader() == m.etcd.Server.MemberID() {
			return i
		}
	}
	return -1
}

// Client is a client of all members, made at the first call and closed with the
// cluster. Callers must not close it.
func (s *Server) Client() *clientv3.Client {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		s.client = s.newClient()
	}
	return s.client
}

// NewClient makes one more client, which is closed in the test's cleanup; the
// caller may close it earlier.
func (s *Server) NewClient() *clientv3.Client {
	s.t.Helper()
	c := s.newClient()
	s.t.Cleanup(func() { _ = c.Close() }) // closing twice answers an error
	return c
}

func (s *Server) newClient() *clientv3.Client {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints:            s.Endpoints(),
		Logger:               zap.NewNop(),
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		PermitWithoutStream:  true,
		MaxUnaryRetries:      1,
	})
	if err != nil {
		s.t.Fatalf("make etcd client: %v", err)
	}
	return c
}

// Stop stops member i in good order (a leader hands over). Its data stays.
func (s *Server) Stop(i int) {
	if m := s.members[i]; m.etcd != nil {
		m.etcd.Close()
		m.etcd = nil
	}
}

// Kill stops member i as if its process had died: a leader hands nothing over.
func (s *Server) Kill(i int) {
	if m := s.members[i]; m.etcd != nil {
		m.etcd.Server.HardStop()
		m.etcd.Close()
		m.etcd = nil
	}
}

// StopAll stops every member.
func (s *Server) StopAll() {
	var wg sync.WaitGroup
	for i := range s.members {
		wg.Go(func() { s.Stop(i) })
	}
	wg.Wait()
}

// Restart starts member i again (stopping it first where it runs) and waits
// until it is ready: it needs a quorum of running members for that.
func (s *Server) Restart(i int) {
	s.t.Helper()
	s.Stop(i)
	m := s.members[i]
	if err := s.launch(m); err != nil {
		s.t.Fatalf("restart etcd: %v", err)
	}
	if err := ready(m); err != nil {
		s.t.Fatalf("restart etcd: %v", err)
	}
}

// RestartAll starts every stopped member again and waits until all are ready.
func (s *Server) RestartAll() {
	s.t.Helper()
	for _, m := range s.members {
		if m.etcd == nil {
			if err := s.launch(m); err != nil {
				s.t.Fatalf("restart etcd: %v", err)
			}
		}
	}
	for _, m := range s.members {
		if err := ready(m); err != nil {
			s.t.Fatalf("restart etcd: %v", err)
		}
	}
}

// AwaitLeader waits until a running member leads and answers its index.
func (s *Server) AwaitLeader(ctx context.Context) int {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if i := s.Leader(); i >= 0 {
			return i
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("await etcd leader: %v", context.Cause(ctx))
		}
	}
}

func (s *Server) close() {
	s.mu.Lock()
	c := s.client
	s.client = nil
	s.mu.Unlock()
	if c != nil {
		_ = c.Close() // reports only that its context ended
	}
	s.StopAll()
	for _, m := range s.members {
		_ = os.RemoveAll(m.dir) // TempDir's own cleanup reports what remains
	}
}

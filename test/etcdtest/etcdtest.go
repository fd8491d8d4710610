// Package etcdtest starts real etcd members, on loopback ports and in a temporary
// directory, and takes them down again when the test ends. They run inside the
// test process, or, WithProcesses, in processes of their own that can be stopped
// and killed.
//
// Members write without fsync, so they are fast and survive Stop, Kill and
// Restart (the machine lives on) but would not survive its crash.
package etcdtest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// startTimeout bounds how long a member may take to become ready.
const startTimeout = 3 * time.Minute

// endTimeout is what a member's process gets to end in good order.
const endTimeout = 10 * time.Second

// startTries is how often Start picks new ports when another process took one
// between the moment it was found free and the moment etcd listened on it.
const startTries = 5

type options struct {
	members  int
	tick     time.Duration
	election time.Duration
	quota    int64
	fsync    bool
	process  bool
	program  string
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

// WithProcesses runs every member in a process of its own, the test's program
// started anew: its TestMain must call Main first. WithConfig has no effect then.
func WithProcesses() Option { return func(o *options) { o.process = true } }

// WithProgram is WithProcesses with a program of its own, package member: one that
// was built without the race detector is many times faster.
func WithProgram(path string) Option {
	return func(o *options) { o.process, o.program = true, path }
}

type member struct {
	name         string
	dir          string
	peer, client string      // URLs
	etcd         *embed.Etcd // while it runs in this process
	process      *process    // while it runs in its own
	id           types.ID    // once it was ready
	paused       bool
}

func (m *member) running() bool { return m.etcd != nil || m.process != nil }

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

// cluster is all members, as etcd's configuration names them.
func (s *Server) cluster() string {
	var all []string
	for _, m := range s.members {
		all = append(all, m.name+"="+m.peer)
	}
	return strings.Join(all, ",")
}

func (s *Server) settings(m *member) settings {
	return settings{
		Name: m.name, Dir: m.dir, Peer: m.peer, Client: m.client, Cluster: s.cluster(),
		Tick: s.o.tick, Election: s.o.election, Quota: s.o.quota, Fsync: s.o.fsync,
	}
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
	if s.o.process {
		p, err := startProcess(s.o.program, s.settings(m))
		if err != nil {
			return fmt.Errorf("launch %s: %w", m.name, err)
		}
		m.process, m.paused = p, false
		return nil
	}
	cfg, err := s.settings(m).config()
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
	if m.process != nil {
		id, err := m.process.awaitReady(startTimeout)
		if err != nil {
			return fmt.Errorf("await %s: %w", m.name, err)
		}
		m.id = id
		return nil
	}
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-m.etcd.Server.ReadyNotify():
		m.id = m.etcd.Server.MemberID()
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

// Etcd is member i, or nil while it is stopped or runs in its own process.
func (s *Server) Etcd(i int) *embed.Etcd { return s.members[i].etcd }

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

func (s *Server) newClient() *clientv3.Client {
	s.t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints:            s.Endpoints(),
		Logger:               zap.NewNop(),
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxUnaryRetries:      1,
	})
	if err != nil {
		s.t.Fatalf("make etcd client: %v", err)
	}
	return c
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

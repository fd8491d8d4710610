package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/leaderd/leaderd/executor"
	"github.com/leaderd/leaderd/executor/output"
	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/executor/unclaimed"
	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/internal/ops"
	"github.com/leaderd/leaderd/internal/rpc"
	"github.com/leaderd/leaderd/planner/schedule"
	"github.com/leaderd/leaderd/state"
)

// Options are what a node needs beside its configuration.
type Options struct {
	// Version of the program. Default "dev".
	Version string
	// Logger takes the node's log. Default: none.
	Logger hclog.Logger
	// ReapOrphans makes an executor's process adopt and collect what its commands
	// leave behind, also as PID 1. Only one node of a process may. Default: off.
	ReapOrphans bool
}

// What health checks answer of a node that has not begun to do its work, or does
// not do all of it.
var (
	errStarting     = errors.New("the node is not up yet; with etcd in it, it waits for a majority of members, and before it has data for all")
	errUnregistered = errors.New("the node is not registered")
)

// Node is one leaderd process. Make one with New.
type Node struct {
	cfg      config.Config
	version  string
	log      hclog.Logger
	registry *prometheus.Registry
	health   *ops.Health
	ready    chan struct{}
	begun    func() // takes the check away that the node has not begun to work
	reap     bool

	listener  net.Listener // nil on a node that is an executor alone
	advertise string
	client    credentials.TransportCredentials // to other nodes; nil: plain text
	server    credentials.TransportCredentials
	started   time.Time
}

// New makes a node from a valid configuration. It binds the gRPC listener, so
// that the node's address is known, and starts nothing else. Run it.
func New(cfg config.Config, o Options) (*Node, error) {
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	n := &Node{
		cfg:      cfg,
		version:  o.Version,
		log:      o.Logger,
		registry: prometheus.NewRegistry(),
		health:   ops.NewHealth(),
		ready:    make(chan struct{}),
		reap:     o.ReapOrphans && cfg.Executes(),
		started:  time.Now(),
	}
	n.begun = n.health.Add(ops.Check{Name: "start", Func: func(time.Time) error { return errStarting }})
	if n.cfg.Executes() { // until there is an executor to ask
		n.health.Add(ops.Check{Name: "registration", Func: func(time.Time) error { return errUnregistered }})
	}
	n.registry.MustRegister(collectors.NewGoCollector(), n.health,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := n.secure(); err != nil {
		return nil, fmt.Errorf("node %s: %w", cfg.Name, err)
	}
	if !cfg.Control() {
		return n, nil
	}
	listener, err := net.Listen("tcp", cfg.Listen) //nolint:noctx // binding does not block
	if err != nil {
		return nil, fmt.Errorf("node %s: listen: %w", cfg.Name, err)
	}
	n.listener = listener
	if n.advertise, err = advertised(cfg.Advertise, listener.Addr()); err != nil {
		return nil, errors.Join(fmt.Errorf("node %s: %w", cfg.Name, err), listener.Close())
	}
	return n, nil
}

// Address is where other nodes and clients reach the node; empty on a node that
// is an executor alone.
func (n *Node) Address() string { return n.advertise }

// Ready is closed when the node has begun to do its work.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Registry has the node's metrics.
func (n *Node) Registry() *prometheus.Registry { return n.registry }

// Run runs the node until ctx ends, then drains it and returns nil; see the
// package comment for the order. It returns an error if a part failed for good;
// after executor.ErrStuck or election.ErrStuck the process must exit. It is
// called once.
func (n *Node) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	all := newStages(ctx, func(err error) { stop(err) })
	first := all.next()
	first.run(n.serveOps)
	if n.reap {
		first.run(runner.ReapOrphans)
	}
	err := n.work(ctx, all)
	if errors.Is(err, context.Canceled) {
		err = nil // asked to end before it was up
	}
	if err = all.end(err); err != nil {
		return fmt.Errorf("node %s: %w", n.cfg.Name, err)
	}
	return nil
}

// work starts what the roles need and does their work until ctx ends and all is
// drained.
func (n *Node) work(ctx context.Context, all *stages) error {
	if !n.cfg.Control() {
		return n.executeRemotely(ctx, all)
	}
	c, err := n.startControl(ctx, all)
	if err != nil {
		return err
	}
	n.up()
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return c.elector.Run(ctx, c.lead) })
	work.Go(func() error {
		if !n.cfg.Executes() {
			return n.register(ctx, c.journal)
		}
		return n.execute(ctx, c.journal, leaders{c.observer})
	})
	return work.Wait()
}

func (n *Node) up() {
	close(n.ready)
	n.begun()
	n.log.Info("node is up", "node", n.cfg.Name, "address", n.advertise, "roles", n.cfg.Roles, "version", n.version,
		"zone_data", schedule.ZoneData())
}

func (n *Node) serveOps(ctx context.Context) error {
	if n.cfg.OpsListen == "" {
		return nil
	}
	return ops.New(ops.Config{
		Listen: n.cfg.OpsListen, Pprof: n.cfg.OpsPprof, Health: n.health, Metrics: n.registry, Logger: n.log.Named("ops"),
	}).Run(ctx)
}

// self is the node as its key describes it.
func (n *Node) self() state.Node {
	return state.Node{
		Name:      n.cfg.Name,
		Control:   n.cfg.Control(),
		Executor:  n.cfg.Executes(),
		Address:   n.advertise,
		Labels:    n.cfg.Labels,
		Capacity:  n.cfg.Capacity,
		Resources: n.cfg.Resources,
		Version:   n.version,
		Started:   n.started,
	}
}

// register keeps the key of a node that runs no work.
func (n *Node) register(ctx context.Context, registry executor.Registry) error {
	r, err := executor.NewRegistrar(registry, executor.RegistrarConfig{
		Node: n.self(), TTL: n.cfg.Executor.RegistrationTTL, Logger: n.log.Named("registrar"), Metrics: n.registry,
	})
	if err != nil {
		return err
	}
	return r.Run(ctx, nil)
}

// execute runs work until ctx ends and the executor has drained.
func (n *Node) execute(ctx context.Context, j executor.Journal, l executor.Leaders) error {
	ring, err := output.Open(filepath.Join(n.cfg.DataDir, "output"), output.Options{
		MaxTotalBytes: int64(n.cfg.Executor.OutputMaxBytes), MaxRunBytes: int64(n.cfg.Executor.OutputMaxRunBytes),
	})
	if err != nil {
		return err
	}
	log := n.log.Named("executor")
	sockets, remove, noSocket := runner.PrepareSocketDir(filepath.Join(n.cfg.DataDir, "run"))
	if noSocket != nil {
		log.Warn("commands get no socket for checkpoints and progress; those that rely on one will fail", "err", noSocket)
	}
	defer func() {
		if err := remove(); err != nil {
			log.Warn("directory of sockets is left behind", "dir", sockets, "err", err)
		}
	}()
	run := runner.New(runner.Config{
		Version: n.version, FenceGrace: n.cfg.Executor.RegistrationTTL / 10, SocketDir: sockets, NoSocket: noSocket, ExchangeDir: sockets,
	})
	defer run.Close()
	without, err := unclaimed.Open(unclaimed.Dir(filepath.Join(n.cfg.DataDir, "unclaimed")), unclaimed.Config{
		Runner: run, Capacity: max(n.self().Capacity, 1), Wall: time.Now, Output: ring, Logger: log, Metrics: n.registry,
	})
	if err != nil {
		return err
	}
	x, err := executor.New(j, l, run, n.dial, executor.Config{
		Node: n.self(),
		TTL:  n.cfg.Executor.RegistrationTTL,
		// 0 means none here, and the default there.
		DrainGrace: max(n.cfg.Executor.DrainGrace, time.Nanosecond),
		Output:     ring,
		Unclaimed:  without,
		Logger:     log,
		Metrics:    n.registry,
	})
	if err != nil {
		return err
	}
	n.health.Add(ops.Check{Name: "registration", Func: func(time.Time) error {
		if _, ok := x.Current(); !ok {
			return errUnregistered
		}
		return nil
	}})
	return x.Run(ctx)
}

// secure reads the credentials of the listener and of connections to others.
func (n *Node) secure() error {
	server, err := n.cfg.TLS.Server()
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	client, err := n.cfg.TLS.Client()
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	if server != nil {
		n.server = credentials.NewTLS(server)
	}
	if client != nil {
		n.client = credentials.NewTLS(client)
	}
	return nil
}

// advertised is the address that others are told: as configured, with a port 0
// replaced by the one that was bound.
func advertised(configured string, bound net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(configured)
	if err != nil {
		return "", fmt.Errorf("advertise: %w", err)
	}
	if port == "0" {
		if _, port, err = net.SplitHostPort(bound.String()); err != nil {
			return "", fmt.Errorf("advertise: %w", err)
		}
	}
	return net.JoinHostPort(host, port), nil
}

// dial connects to another node, for executor.Dial.
func (n *Node) dial(address string) (*grpc.ClientConn, error) {
	return rpc.Dial(address, rpc.ClientConfig{Credentials: n.client})
}

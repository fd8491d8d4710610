package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/election"
	"github.com/leaderd/leaderd/executor"
	"github.com/leaderd/leaderd/internal/api"
	"github.com/leaderd/leaderd/internal/etcd"
	journalserver "github.com/leaderd/leaderd/internal/journal"
	"github.com/leaderd/leaderd/internal/ops"
	"github.com/leaderd/leaderd/internal/rpc"
	"github.com/leaderd/leaderd/planner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/etcdkv"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

const (
	// rpcGrace is how long RPCs that run at shutdown may go on.
	rpcGrace = 5 * time.Second
	// stale is how old the newest sign of a loop may be before the node is not
	// ready. The slowest loop shows one every ten seconds.
	stale = 30 * time.Second
	// stalled is the same for the loop of the leader, which turns every 50 ms.
	stalled = 5 * time.Second
)

// control is what a control node has beside an executor.
type control struct {
	store    *store.Store
	journal  executor.Journal
	observer *election.Observer
	elector  *election.Elector
	planner  *planner.Planner
	lead     election.Lead
}

// startControl starts all that serves a control node's work and waits until it
// can.
func (n *Node) startControl(ctx context.Context, all *stages) (*control, error) {
	db, room, err := n.openEtcd(ctx, all.next())
	if err != nil {
		return nil, err
	}
	client := room.client
	base := all.next()
	base.run(room.run)
	if room.member != nil {
		base.run(room.member.KeepRoom)
	}
	n.health.Add(room.check())
	c := &control{}
	c.store, err = store.New(db, store.Config{
		Prefix: n.cfg.Etcd.Prefix, Logger: n.log.Named("store"), Registerer: n.registry,
	})
	if err != nil {
		return nil, err
	}
	c.journal = localJournal{c.store}
	base.atEnd(func() error { c.store.Close(); return nil })

	prefix := n.cfg.Etcd.Prefix + "leader"
	c.observer, err = election.NewObserver(client, election.ObserverConfig{Prefix: prefix, Logger: n.log.Named("observer")})
	if err != nil {
		return nil, err
	}
	base.run(c.observer.Run)
	c.elector, err = election.New(client, election.Config{
		Prefix: prefix, Name: n.cfg.Name, Address: n.advertise, TTL: n.cfg.Election.TTL,
		Logger: n.log.Named("election"), Metrics: n.registry,
	})
	if err != nil {
		return nil, err
	}

	jobs, nodes := c.store.JobsCache(), c.store.NodesCache()
	pending, cancels := c.store.PendingCache(), c.store.CancelsCache()
	backfills := c.store.BackfillsCache()
	catalog := planner.NewCatalog()
	base.run(jobs.Run)
	base.run(nodes.Run)
	base.run(pending.Run)
	base.run(backfills.Run)
	base.run(cancels.Run)
	feed := jobs.Subscribe()
	base.run(func(ctx context.Context) error { return feedCatalog(ctx, c.store, feed, catalog, n.log) })
	calendars := c.store.CalendarsCache()
	base.run(calendars.Run)
	followed := calendars.Subscribe()
	base.run(func(ctx context.Context) error { return keepCalendars(ctx, c.store, followed, n.log) })
	c.planner, err = planner.New(c.store, room.sources(planner.Sources{
		Catalog: catalog,
		Fresh:   feed.WaitFor,
		Nodes:   followNodes(nodes),
		Pending: followPending(c.store, pending, n.log),
		Cancels: followCancels(c.store, cancels, n.log),

		Backfills: followBackfills(c.store, backfills, n.log),
	}), planner.Config{
		Horizon: n.cfg.Planner.Horizon, MaxOpen: n.cfg.Planner.MaxPlanned, HedgeDelay: n.cfg.Planner.HedgeDelay,
		Retention: planner.Retention{
			Retention: state.Retention{MaxRuns: n.cfg.Retention.MaxRuns, MaxAge: n.cfg.Retention.MaxAge},
			Period:    n.cfg.Retention.Period, Budget: int64(n.cfg.Retention.StoreBudgetBytes),
		},
		Logger: n.log.Named("planner"), Registerer: n.registry,
	})
	if err != nil {
		return nil, err
	}
	c.lead = func(ctx context.Context, term election.Term) error { return c.planner.Run(ctx, term.Term) }

	for name, cache := range map[string]*store.Cache{
		"jobs": jobs.Cache, "nodes": nodes.Cache, "pending": pending, "backfills": backfills, "calendars": calendars, "cancels": cancels,
	} {
		n.health.Add(ops.Check{Name: "watch of " + name, Func: func(now time.Time) error {
			return fresh(now, cache.LastHeard(), stale)
		}})
	}
	n.health.Add(ops.Check{Name: "election", Func: func(now time.Time) error {
		return fresh(now, c.elector.Heartbeat(), stale)
	}})
	n.health.Add(ops.Check{Name: "planner", Func: func(now time.Time) error {
		return leads(now, c.planner.Beat(), c.planner.Trouble(), n.cfg.Name, c.observer.Current().Name)
	}})

	server, drain, err := n.services(c, catalog, jobs, nodes)
	if err != nil {
		return nil, err
	}
	all.next().run(func(ctx context.Context) error { return rpc.Serve(ctx, server, n.listener, rpcGrace, drain) })

	select {
	case <-catalog.Ready():
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// services makes the gRPC server.
func (n *Node) services(c *control, catalog *planner.Catalog, jobs *store.JobsCache, nodes *store.NodesCache) (
	server *grpc.Server, drain func(), err error,
) {
	server, err = rpc.NewServer(rpc.ServerConfig{
		Credentials: n.server, Logger: n.log.Named("rpc"), Registerer: n.registry,
	})
	if err != nil {
		return nil, nil, err
	}
	journals, err := journalserver.NewServer(c.store, follow{c.observer}, journalserver.Config{
		Logger: n.log.Named("journal"), Registerer: n.registry,
	})
	if err != nil {
		return nil, nil, err
	}
	public, err := api.New(api.Config{
		Node: n.cfg.Name, Reader: c.store, Lister: jobs, Versions: c.store, Putter: c.store, Pauser: c.store, Triggerer: c.store, Submitter: c.store, Canceller: c.store, Repeater: c.store, Backfills: c.store,
		Calendars: c.store, Checkpoint: c.store, Queue: leaderQueue{c.observer, n.dial}, Holders: c.store,
		Runs: c.store, DeadLetters: c.store, Circuits: c.store, Watermark: c.store, Leadership: leadership{c.observer}, Nodes: nodes, Jobs: catalog,
		Logger: n.log.Named("api"),
	})
	if err != nil {
		return nil, nil, err
	}
	public.Register(server)
	workerv1.RegisterJournalServiceServer(server, journals)
	workerv1.RegisterLeaderServiceServer(server, planner.NewServer(c.planner))
	return server, journals.Drain, nil
}

// openEtcd answers the store and a client for the election: of a member in this
// process, or of an etcd elsewhere.
func (n *Node) openEtcd(ctx context.Context, st *stage) (kv.KV, *room, error) {
	log := n.log.Named("etcd")
	if !n.cfg.EmbedsEtcd() {
		client, err := etcd.Dial(n.cfg.Etcd, log)
		if err != nil {
			return nil, nil, err
		}
		st.atEnd(client.Close)
		return etcdkv.New(client, etcdkv.Options{}), &room{client: client}, nil
	}
	member := etcd.New(n.cfg.Name, n.cfg.DataDir, n.cfg.Etcd, log)
	st.run(member.Run)
	select {
	case <-member.Ready():
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	n.health.Add(ops.Check{Name: "etcd member", Func: func(time.Time) error { return member.Check() }})
	return member.KV(), &room{client: member.Client(), member: member}, nil
}

// leads answers what is wrong with the part of a node that leads: beat is the newest
// sign of its loop, zero while it does not lead. That it led in vain matters until
// another node does.
func leads(now, beat time.Time, trouble error, self, leader string) error {
	switch {
	case !beat.IsZero():
		return fresh(now, beat, stalled)
	case leader != "" && leader != self:
		return nil
	}
	return trouble
}

// fresh answers an error if the newest sign of a loop is too old.
func fresh(now, sign time.Time, limit time.Duration) error {
	if sign.IsZero() {
		return errors.New("has not begun")
	}
	if age := now.Sub(sign); age > limit {
		return fmt.Errorf("last advanced %s ago", age.Round(time.Second))
	}
	return nil
}

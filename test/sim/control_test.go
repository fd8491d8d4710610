package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/planner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
)

// candidatesPrefix is before the keys of those who lead or wait for their turn, in
// order of creation.
const candidatesPrefix = store.DefaultPrefix + "leader/candidates/"

// control is one life of a control node.
type control struct {
	w       *world
	name    string
	host    *host
	link    *link
	store   *store.Store
	planner *planner.Planner
	catalog *planner.Catalog
	server  *grpc.Server
	// lease is the candidacy's, 0 while there is none; term and key are those of
	// the newest term.
	lease atomic.Int64
	term  atomic.Int64
	key   atomic.Pointer[string]
	// ended are the errors with which terms ended.
	mu    sync.Mutex
	ended []error

	stop   context.CancelFunc
	done   sync.WaitGroup
	served sync.WaitGroup
}

// control starts a control node.
func (w *world) control(name string) *control {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.ctx)
	h := w.host(name)
	c := &control{w: w, name: name, host: h, link: newLink(w.mem, h, &w.late), stop: stop, catalog: planner.NewCatalog()}
	var err error
	c.store, err = store.New(c.link, store.Config{Logger: w.logger(name).Named("store")})
	require.NoError(w.t, err)
	jobs, nodes := c.store.JobsCache(), c.store.NodesCache()
	pending, cancels := c.store.PendingCache(), c.store.CancelsCache()
	backfills := c.store.BackfillsCache()
	for _, cache := range []*store.Cache{jobs.Cache, nodes.Cache, pending, cancels, backfills} {
		c.done.Go(func() { _ = cache.Run(ctx) })
	}
	feed := jobs.Subscribe()
	c.done.Go(func() { c.feed(ctx, feed) })
	cfg := w.plan
	cfg.Logger = w.logger(name).Named("planner")
	cfg.Wall = h.wall
	c.planner, err = planner.New(c.store, planner.Sources{
		Catalog: c.catalog,
		Fresh:   feed.WaitFor,
		Nodes: func(ctx context.Context, each func([]state.Node)) error {
			return follow(ctx, nodes.Cache, func(store.Update) { each(nodes.Nodes()) })
		},
		Pending: func(ctx context.Context, each func(are, gone []state.Pending)) error {
			return follow(ctx, pending, func(u store.Update) { each(decoded(u, c.store.DecodePending), deleted(u, c.store.DecodePending)) })
		},
		Cancels: func(ctx context.Context, each func([]state.Cancel)) error {
			return follow(ctx, cancels, func(u store.Update) { each(decoded(u, c.store.DecodeCancel)) })
		},
		Backfills: func(ctx context.Context, each func([]state.Backfill)) error {
			return follow(ctx, backfills, func(u store.Update) { each(c.store.ReadBackfills(u, func(string, error) {})) })
		},
	}, cfg)
	require.NoError(w.t, err)
	c.server = grpc.NewServer(grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window))
	workerv1.RegisterLeaderServiceServer(c.server, planner.NewServer(c.planner))
	listener := w.net.listen(h)
	c.served.Go(func() { _ = c.server.Serve(listener) })
	c.done.Go(func() { c.campaign(ctx) })
	w.controls[name] = c
	return c
}

// kill ends a control node as a crash does: nothing it does from now on reaches
// the store or an executor.
func (c *control) kill() {
	if c.w.controls[c.name] == c {
		delete(c.w.controls, c.name)
	}
	c.link.cut()
	c.host.die()
	c.stop()
	c.w.net.unlisten(c.name)
	c.w.gone.Go(func() {
		c.server.Stop()
		c.served.Wait()
		c.done.Wait()
		c.store.Close()
	})
}

// resign ends a control node in order.
func (c *control) resign() {
	delete(c.w.controls, c.name)
	c.stop()
	c.w.gone.Go(func() {
		c.done.Wait()
		c.w.net.unlisten(c.name)
		c.server.Stop()
		c.served.Wait()
		c.store.Close()
	})
}

// terms are the errors with which terms ended so far.
func (c *control) terms() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]error(nil), c.ended...)
}

// campaign leads whenever it can, until ctx ends.
func (c *control) campaign(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.lead(ctx); err != nil && ctx.Err() == nil {
			c.w.logger(c.name).Named("election").Debug("no term", "err", err)
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
}

// lead puts a candidate's key, waits until it is the oldest, and leads until the
// term is lost.
func (c *control) lead(ctx context.Context) error {
	once, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	begun := time.Now()
	lease, ttl, err := c.link.Grant(once, c.w.election)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.link.Revoke(ctx, lease)
	}()
	key := fmt.Sprintf("%s%016x", candidatesPrefix, lease)
	put, err := c.link.Txn(once, kv.Txn{Then: []kv.Op{kv.Put(key, []byte(c.name), lease)}})
	if err != nil {
		return err
	}
	c.lease.Store(int64(lease))
	defer c.lease.Store(0)
	lctx, lose := context.WithCancelCause(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { c.keep(lctx, lose, lease, ttl, begun) })
	defer keeper.Wait()
	defer lose(nil)
	if err := c.turn(lctx, key); err != nil {
		return err
	}
	c.key.Store(&key)
	c.term.Store(put.Revision)
	err = c.planner.Run(lctx, state.Term{Number: put.Revision, Key: key})
	if err == nil {
		err = context.Cause(lctx)
	}
	lose(errors.New("term is over"))
	keeper.Wait()
	c.w.logger(c.name).Named("election").Info("term ended", "term", put.Revision, "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, err)
	return err
}

// turn waits until a candidate's key is the oldest. The error tells that it is gone.
func (c *control) turn(ctx context.Context, key string) error {
	for {
		_, changed := c.w.leaders.Follow()
		once, cancel := context.WithTimeout(ctx, time.Second)
		res, err := c.link.Range(once, candidatesPrefix, strings.TrimSuffix(candidatesPrefix, "/")+"0", kv.RangeOptions{})
		cancel()
		if err == nil {
			switch first := oldest(res.KVs); {
			case first.Key == key:
				return nil
			case !slices.ContainsFunc(res.KVs, func(k kv.KeyValue) bool { return k.Key == key }):
				return errors.New("the candidate's key is gone")
			}
			// Until then it need not ask often.
			again, cancel := context.WithTimeout(ctx, 2*time.Second)
			select {
			case <-changed:
			case <-again.Done():
			}
			cancel()
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// oldest is the key that was created first, none of none.
func oldest(kvs []kv.KeyValue) kv.KeyValue {
	if len(kvs) == 0 {
		return kv.KeyValue{}
	}
	return slices.MinFunc(kvs, func(a, b kv.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
}

// keep renews the leader's lease. It ends the term when the store says that the
// lease is gone, or four fifths of the TTL after the start of the last request
// that was answered.
func (c *control) keep(ctx context.Context, lose context.CancelCauseFunc, lease kv.LeaseID, ttl time.Duration, begun time.Time) {
	for deadline := begun.Add(ttl * 4 / 5); ; {
		start := time.Now()
		once, cancel := context.WithDeadline(ctx, deadline)
		_, err := c.link.KeepAlive(once, lease)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			deadline = start.Add(ttl * 4 / 5)
		case errors.Is(err, kv.ErrLeaseNotFound), !time.Now().Before(deadline):
			lose(fmt.Errorf("leader's lease: %w", err))
			return
		}
		if !sleep(ctx, min(ttl/5, time.Until(deadline))) {
			return
		}
	}
}

// feed keeps the catalog.
func (c *control) feed(ctx context.Context, sub *store.Subscription) {
	stored := func(from kv.KeyValue) planner.Stored {
		j, err := c.store.DecodeJob(from)
		return planner.Stored{Job: j, Value: from.Value, Err: err}
	}
	_ = consume(ctx, sub, func(u store.Update) {
		if u.Reset {
			c.catalog.Reset(func(yield func(planner.Stored) bool) {
				for _, from := range u.All {
					if !yield(stored(*from)) {
						return
					}
				}
			})
		}
		for _, e := range u.Events {
			if !e.Deleted {
				c.catalog.Set(stored(e.KV))
			} else if j, _ := c.store.DecodeJob(e.KV); j.ID != (state.JobID{}) {
				c.catalog.Delete(j.ID, j.Revision)
			}
		}
	})
}

func decoded[T any](u store.Update, decode func(kv.KeyValue) (T, error)) []T {
	var values []T
	add := func(from kv.KeyValue) {
		if v, err := decode(from); err == nil {
			values = append(values, v)
		}
	}
	for _, from := range u.All {
		add(*from)
	}
	for _, e := range u.Events {
		if !e.Deleted {
			add(e.KV)
		}
	}
	return values
}

// deleted is what an update tells to be gone, by its keys.
func deleted[T any](u store.Update, decode func(kv.KeyValue) (T, error)) []T {
	var values []T
	for _, e := range u.Events {
		if v, err := decode(kv.KeyValue{Key: e.KV.Key, ModRevision: e.KV.ModRevision}); e.Deleted && err == nil {
			values = append(values, v)
		}
	}
	return values
}

func follow(ctx context.Context, cache *store.Cache, each func(store.Update)) error {
	sub := cache.Subscribe()
	defer sub.Close()
	return consume(ctx, sub, each)
}

func consume(ctx context.Context, sub *store.Subscription, each func(store.Update)) error {
	for {
		u, err := sub.Next(ctx)
		if err != nil {
			return nil //nolint:nilerr // ctx ended
		}
		each(u)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// leader is the control node that leads, nil where none does.
func (w *world) leader() *control {
	now, _ := w.leaders.Follow()
	return w.controls[now.Name]
}

// awaitLeader waits for a leader of a newer term and answers it.
func (w *world) awaitLeader(after int64) *control {
	w.t.Helper()
	var c *control
	w.eventually(30*time.Second, "a leader", func() bool {
		c = w.leader()
		return c != nil && c.term.Load() > after && !c.planner.Beat().IsZero()
	})
	return c
}

// leaders tells who leads, from the store itself.
type leaders struct {
	mem     *memkv.Store
	mu      sync.Mutex
	now     leaderNow
	changed chan struct{}
}

func newLeaders(mem *memkv.Store) *leaders { return &leaders{mem: mem, changed: make(chan struct{})} }

func (l *leaders) run(ctx context.Context) {
	w, err := l.mem.Watch(ctx, candidatesPrefix, strings.TrimSuffix(candidatesPrefix, "/")+"0", 1)
	if err != nil {
		return
	}
	defer w.Close()
	candidates := map[string]kv.KeyValue{}
	for {
		b, err := w.Next(ctx)
		if err != nil {
			return
		}
		for _, e := range b.Events {
			if candidates[e.KV.Key] = e.KV; e.Deleted {
				delete(candidates, e.KV.Key)
			}
		}
		var now leaderNow
		if first := oldest(slices.Collect(maps.Values(candidates))); first.Key != "" {
			now = leaderNow{Name: string(first.Value), Address: string(first.Value), Term: first.CreateRevision}
		}
		l.mu.Lock()
		if l.now != now {
			l.now = now
			close(l.changed)
			l.changed = make(chan struct{})
		}
		l.mu.Unlock()
	}
}

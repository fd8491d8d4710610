package store

import (
	"context"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/state"
)

// freshTimeout is how long a list waits for its cache before it reads the store
// itself.
const freshTimeout = 2 * time.Second

// JobsCache is the watch cache of the jobs. Use the store's DecodeJob on what it
// holds.
type JobsCache struct {
	*Cache
	store *Store
}

// JobsCache makes a cache of the jobs; run it.
func (s *Store) JobsCache() *JobsCache {
	return &JobsCache{Cache: NewCache(s.kv, s.keys.jobs(), s.log.Named("jobs")), store: s}
}

// ListJobs answers a page of jobs that has every change committed before the
// call. If the watch does not get that far soon it reads the store itself, so a
// sick watch makes lists slow, not wrong.
func (c *JobsCache) ListJobs(ctx context.Context, l ListJobs) (JobPage, error) {
	wait, cancel := context.WithTimeoutCause(ctx, freshTimeout, fmt.Errorf("not within %s", freshTimeout))
	defer cancel()
	if err := c.Fresh(wait); err != nil {
		if ctx.Err() != nil {
			return JobPage{}, fmt.Errorf("list jobs: %w", err)
		}
		c.log.Warn("list of jobs reads the store instead of its cache", "err", err)
		return c.store.ListJobs(ctx, l)
	}
	var (
		page     JobPage
		size     int
		from, to = c.store.keys.bounds(&l)
	)
	for {
		kvs, more, _ := c.List(from, to, l.Limit-len(page.Jobs)+1)
		if page.add(c.store, &l, &size, kvs) || !more {
			return page, nil
		}
		// Keys of no job were passed over.
		from = kvs[len(kvs)-1].Key + "\x00"
	}
}

// NodesCache is the watch cache of the registered nodes.
type NodesCache struct {
	*Cache
	store *Store
}

// NodesCache makes a cache of the nodes; run it.
func (s *Store) NodesCache() *NodesCache {
	return &NodesCache{Cache: NewCache(s.kv, s.keys.nodes(), s.log.Named("nodes")), store: s}
}

// Nodes answers all registered nodes, as the cache has them, in order of name.
// One that cannot be read is logged and left out.
func (c *NodesCache) Nodes() []state.Node {
	kvs, _, _ := c.List(c.from, c.to, -1)
	nodes := make([]state.Node, 0, len(kvs))
	for i := range kvs {
		nodes = c.store.appendNode(nodes, kvs[i])
	}
	return nodes
}

// PendingCache makes a cache of the pending runs; run it, and use the store's
// DecodePending on what it holds.
func (s *Store) PendingCache() *Cache {
	return NewCache(s.kv, s.keys.pending(), s.log.Named("pending"))
}

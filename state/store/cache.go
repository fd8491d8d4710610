package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/leaderd/leaderd/state/kv"
)

const (
	// askProgress is how often a watch that may simply be quiet is asked to
	// prove that it is alive.
	askProgress = 10 * time.Second
	// maxSilence is after how long without any answer a watch is given up and
	// begun anew.
	maxSilence = 35 * time.Second
	// minAsk and maxAsk are how long a reader that waits for a revision waits
	// before it asks for progress again.
	minAsk = 5 * time.Millisecond
	maxAsk = 100 * time.Millisecond
	// listBytes is about how much one page of a listing shall hold.
	listBytes = 4 << 20
)

// errSilent ends a watch that told nothing for maxSilence.
var errSilent = errors.New("watch is silent")

// Cache is all keys below a prefix, as of one revision: listed once, then kept by watch. Values are kept as
// they are stored and decoded by whoever asks. What it knows may be late; a
// reader that must see a certain write waits for its revision.
//
// All methods may be called concurrently.
type Cache struct {
	kv       kv.KV
	from, to string
	log      hclog.Logger

	mu       sync.RWMutex
	index    index
	revision int64         // 0: not listed yet
	heard    time.Time     // when the store last told something
	advanced chan struct{} // closed when revision changes next
	asked    time.Time     // when progress was last asked for
	subs     map[*Subscription]struct{}
}

// NewCache makes an empty cache of the keys below prefix, which ends in '/'. It
// fills while Run runs.
func NewCache(db kv.KV, prefix string, log hclog.Logger) *Cache {
	return &Cache{
		kv: db, from: prefix, to: end(prefix), log: log,
		advanced: make(chan struct{}),
		subs:     make(map[*Subscription]struct{}),
	}
}

// Run fills the cache and keeps it up to date until ctx ends, then answers nil.
// It blocks, and goes through every failure of the store: a broken watch is
// begun again where it ended, and after a compaction everything is listed anew,
// which consumers see as a Reset. While the store is away the cache answers
// what it knew. Run is called once.
func (c *Cache) Run(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 50*time.Millisecond, time.Second
	for listed := false; ; {
		before := c.LastHeard()
		err := c.follow(ctx, &listed)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx is the end of the task
		case errors.Is(err, kv.ErrCompacted):
			c.log.Info("watch fell behind compaction, listing anew", "prefix", c.from)
			listed = false
		case errors.Is(err, errSilent):
			// A store that was restored from a backup has gone back, and would
			// stay silent until it gets to the watched revision again.
			c.log.Warn("watch is silent, listing anew", "prefix", c.from, "revision", c.Revision())
			listed = false
		default:
			c.log.Warn("watch ended, beginning it again", "prefix", c.from, "revision", c.Revision(), "err", err)
		}
		if c.LastHeard().After(before) {
			pause.Reset()
		}
		pauseFor(ctx, pause.NextBackOff())
	}
}

// follow lists, unless that has been done, then watches until something fails.
func (c *Cache) follow(ctx context.Context, listed *bool) error {
	if !*listed {
		if err := c.list(ctx); err != nil {
			return err
		}
		*listed = true
	}
	w, err := c.kv.Watch(ctx, c.from, c.to, c.Revision()+1)
	if err != nil {
		return fmt.Errorf("watch %s: %w", c.from, err)
	}
	defer w.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.askForProgress(ctx) })
	group.Go(func() error {
		for {
			if err := c.next(ctx, w); err != nil {
				return err
			}
		}
	})
	return group.Wait()
}

func (c *Cache) next(ctx context.Context, w kv.Watcher) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxSilence, errSilent)
	defer cancel()
	batch, err := w.Next(ctx)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	c.apply(&batch)
	return nil
}

// askForProgress keeps a quiet watch talking, so that silence means trouble.
func (c *Cache) askForProgress(ctx context.Context) error {
	for {
		if err := sleep(ctx, askProgress); err != nil {
			return err
		}
		if err := c.kv.Progress(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("progress cannot be asked for", "prefix", c.from, "err", err)
		}
	}
}

// list reads everything at one revision and replaces what is known.
func (c *Cache) list(ctx context.Context) error {
	var (
		items []*kv.KeyValue
		from  = c.from
		o     = kv.RangeOptions{Limit: 500}
	)
	for {
		res, err := c.kv.Range(ctx, from, c.to, o)
		if err != nil {
			return fmt.Errorf("list %s: %w", c.from, err)
		}
		if o.Revision == 0 {
			o.Revision = res.Revision
		}
		if items == nil {
			items = make([]*kv.KeyValue, 0, res.Count)
		}
		size := 0
		for i := range res.KVs {
			// Each on its own, so that one that stays does not hold its page.
			item := res.KVs[i]
			items = append(items, &item)
			size += len(item.Value) + len(item.Key)
		}
		if !res.More {
			break
		}
		if len(res.KVs) == 0 {
			return fmt.Errorf("list %s: a page without keys", c.from)
		}
		from = items[len(items)-1].Key + "\x00"
		o.Limit = int64(min(pageKeys, max(10, listBytes*len(res.KVs)/size)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index.load(items)
	c.advance(o.Revision)
	for sub := range c.subs {
		sub.fallBehind()
	}
	return nil
}

func (c *Cache) apply(batch *kv.WatchBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range batch.Events {
		e := &batch.Events[i]
		if e.Deleted {
			c.index.remove(e.KV.Key)
		} else {
			item := e.KV
			c.index.set(&item)
		}
	}
	c.advance(max(batch.Revision, c.revision))
	if len(batch.Events) > 0 {
		for sub := range c.subs {
			sub.push(batch.Events)
		}
	}
}

// advance is called with mu held.
func (c *Cache) advance(to int64) {
	c.heard = time.Now()
	if to != c.revision {
		c.revision = to
		close(c.advanced)
		c.advanced = make(chan struct{})
	}
}

// Get answers one key.
func (c *Cache) Get(key string) (kv.KeyValue, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if item := c.index.get(key); item != nil {
		return *item, true
	}
	return kv.KeyValue{}, false
}

// List answers up to limit keys of [from, to) in order, more if there are
// further ones, and the revision that all are of.
func (c *Cache) List(from, to string, limit int) (kvs []kv.KeyValue, more bool, revision int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.index.ascend(from, to, func(item *kv.KeyValue) bool {
		if len(kvs) == limit {
			more = true
			return false
		}
		kvs = append(kvs, *item)
		return true
	})
	return kvs, more, c.revision
}

// Len is how many keys there are.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.n
}

// Revision is the store's revision that the cache shows, 0 before the first
// listing.
func (c *Cache) Revision() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.revision
}

// LastHeard is when the store last told the cache anything, zero before the
// first listing. While Run runs and the store answers it is at most a good ten
// seconds ago: readiness can rely on it.
func (c *Cache) LastHeard() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.heard
}

// WaitFor blocks until the cache shows revision or a later one; it asks the
// store for progress, so that a prefix without changes gets there too. The
// error is ctx's cause.
func (c *Cache) WaitFor(ctx context.Context, revision int64) error {
	for wait := minAsk; ; wait = min(2*wait, maxAsk) {
		c.mu.Lock()
		there, advanced := c.revision >= revision, c.advanced
		ask := !there && time.Since(c.asked) >= minAsk
		if ask {
			c.asked = time.Now()
		}
		c.mu.Unlock()
		if there {
			return nil
		}
		if ask {
			if err := c.kv.Progress(ctx); err != nil && ctx.Err() == nil {
				c.log.Debug("progress cannot be asked for", "prefix", c.from, "err", err)
			}
		}
		if err := c.waitChange(ctx, advanced, wait); err != nil {
			return fmt.Errorf("wait for revision %d: %w", revision, err)
		}
	}
}

func (c *Cache) waitChange(ctx context.Context, advanced <-chan struct{}, atMost time.Duration) error {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-advanced:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Fresh blocks until the cache shows everything that was committed before the
// call. It costs one linearizable read and, as a rule, one exchange on the
// watch.
func (c *Cache) Fresh(ctx context.Context) error {
	res, err := c.kv.Range(ctx, c.from, "", kv.RangeOptions{KeysOnly: true})
	if err != nil {
		return fmt.Errorf("ask for the newest revision: %w", err)
	}
	return c.WaitFor(ctx, res.Revision)
}

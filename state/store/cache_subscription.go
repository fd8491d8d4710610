package store

import (
	"context"
	"fmt"

	"github.com/leaderd/leaderd/state/kv"
)

// maxBehind is how many events wait for a consumer before it gets a Reset
// instead.
const maxBehind = 1 << 14

// Update is what a Subscription delivers.
type Update struct {
	// Reset tells that All has everything there is, and that what the consumer
	// knew beside it is gone. Events is empty then.
	Reset bool
	// All are all keys in order. Neither they nor the list may be changed.
	All []*kv.KeyValue
	// Events are the changes since the update before, in order.
	Events []kv.Event
	// Revision is the store's revision that the consumer is at after this.
	Revision int64
}

// Subscription delivers a cache's contents and then its changes to one
// consumer, who never holds the cache up: one that falls far behind gets a
// Reset. Next is called by one goroutine at a time.
type Subscription struct {
	cache *Cache
	wake  chan struct{} // something to look at; holds one

	// Guarded by cache.mu.
	behind bool // the next update is a Reset
	events []kv.Event
	// resting is set while Next waits with nothing to deliver; rested is closed
	// then.
	resting bool
	rested  chan struct{}
}

// Subscribe begins a subscription; its first update is a Reset with everything,
// once the cache has been filled. Close it.
func (c *Cache) Subscribe() *Subscription {
	sub := &Subscription{cache: c, wake: make(chan struct{}, 1), behind: true, rested: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[sub] = struct{}{}
	return sub
}

// Next blocks for the next update. The error is ctx's cause.
func (sub *Subscription) Next(ctx context.Context) (Update, error) {
	for {
		if u, ok := sub.take(); ok {
			return u, nil
		}
		select {
		case <-sub.wake:
		case <-ctx.Done():
			return Update{}, fmt.Errorf("wait for changes of %s: %w", sub.cache.from, context.Cause(ctx))
		}
	}
}

func (sub *Subscription) take() (Update, bool) {
	c := sub.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	u := Update{Revision: c.revision}
	switch {
	case c.revision == 0:
		return u, false
	case sub.behind:
		u.Reset, u.All = true, c.index.all()
		sub.behind = false
	case len(sub.events) > 0:
		u.Events, sub.events = sub.events, nil
	default:
		if !sub.resting {
			sub.resting = true
			close(sub.rested)
		}
		return u, false
	}
	return u, true
}

// WaitFor blocks until the consumer has done with everything up to a revision:
// it has called Next again since. The error is ctx's cause.
func (sub *Subscription) WaitFor(ctx context.Context, revision int64) error {
	if err := sub.cache.WaitFor(ctx, revision); err != nil {
		return err
	}
	sub.cache.mu.RLock()
	rested := sub.rested
	sub.cache.mu.RUnlock()
	select {
	case <-rested:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the consumer of %s: %w", sub.cache.from, context.Cause(ctx))
	}
}

// push is called with the cache's mu held.
func (sub *Subscription) push(events []kv.Event) {
	switch {
	case sub.behind:
	case len(sub.events)+len(events) > maxBehind:
		sub.fallBehind()
	default:
		sub.events = append(sub.events, events...)
	}
	sub.stir()
}

// fallBehind is called with the cache's mu held.
func (sub *Subscription) fallBehind() {
	sub.behind, sub.events = true, nil
	sub.stir()
}

// stir is called with the cache's mu held, when there is something to deliver.
func (sub *Subscription) stir() {
	if sub.resting {
		sub.resting, sub.rested = false, make(chan struct{})
	}
	select {
	case sub.wake <- struct{}{}:
	default:
	}
}

// Close ends the subscription. It may be called twice.
func (sub *Subscription) Close() {
	sub.cache.mu.Lock()
	defer sub.cache.mu.Unlock()
	delete(sub.cache.subs, sub)
}

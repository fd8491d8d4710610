package e2e

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// registry notes when nodes' registrations end.
type registry struct {
	t    testing.TB
	mu   sync.Mutex
	ends map[string][]time.Time
}

// watchNodes follows the registrations until the test ends.
func (c *cluster) watchNodes() *registry {
	r := &registry{t: c.t, ends: map[string][]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	events := c.etcd.Client().Watch(ctx, prefix+"nodes/", clientv3.WithPrefix())
	go func() {
		defer close(done)
		for resp := range events {
			now := time.Now()
			r.mu.Lock()
			for _, e := range resp.Events {
				if e.GetType() == clientv3.EventTypeDelete {
					name := strings.TrimPrefix(string(e.GetKv().GetKey()), prefix+"nodes/")
					r.ends[name] = append(r.ends[name], now)
				}
			}
			r.mu.Unlock()
		}
	}()
	c.t.Cleanup(func() { cancel(); <-done })
	return r
}

// gone is when the node's registration ended first after then.
func (r *registry) gone(name string, then time.Time) time.Time {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, end := range r.ends[name] {
		if end.After(then) {
			return end
		}
	}
	require.Fail(r.t, "the registration did not end", "%s after %s", name, then)
	return time.Time{}
}

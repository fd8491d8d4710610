package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/test/etcdtest"
	"github.com/leaderd/leaderd/test/faultproxy"
)

// someJobs is n jobs due every second, of all guarantees and overlap policies.
func someJobs(r *recorder, n int) []*leaderdv1.Job {
	var jobs []*leaderdv1.Job
	for i := range n {
		var change []func(*leaderdv1.JobSpec)
		if i%2 == 0 {
			change = append(change, allowOverlap)
		}
		if i%4 < 2 {
			change = append(change, atMostOnce)
		}
		jobs = append(jobs, r.httpJob(fmt.Sprintf("job-%02d", i), "@every 1s", change...))
	}
	return jobs
}

// TestTwoLeaders has the leader's network to etcd go silent, twice: it believes in
// its term while another one is elected, goes on planning and running what it
// holds, and comes back with everything that it had sent. Nothing starts twice.
func TestTwoLeaders(t *testing.T) {
	t.Parallel()
	proxies := make([]*faultproxy.Proxy, 3)
	c := newCluster(t, options{nodes: 3, endpoints: func(node int, direct []string) []string {
		proxies[node] = faultproxy.Start(t, direct[0])
		return []string{"http://" + proxies[node].Addr()}
	}})
	c.apply(someJobs(c.recorder, 40)...)
	from := settled()
	c.awaitWatermark(from.Add(time.Second))

	for i, direction := range []faultproxy.Direction{faultproxy.Both, faultproxy.Down} {
		old := c.leader()
		for at, n := range c.nodes {
			if n == old {
				proxies[at].Blackhole(direction)
			}
		}
		cut := time.Now()
		c.prefer(c.others(old)...)
		c.awaitLeader(old.name)
		t.Logf("silence %d: another node leads after %s", i+1, time.Since(cut).Round(time.Millisecond))
		c.awaitWatermark(time.Now().Add(time.Second))
		for _, p := range proxies {
			p.Heal()
		}
		old.ready()
		c.awaitNodes(3)
		c.awaitWatermark(time.Now().Add(time.Second))
	}

	h := c.check(from, time.Now().Truncate(time.Second))
	require.Zero(t, h.Count()["missed:outage"])
}

// TestSilentMember has one of three etcd members go silent for all nodes, as when
// its machine loses power: they go on with the others, and see every change (E08).
func TestSilentMember(t *testing.T) {
	t.Parallel()
	var silenced []*faultproxy.Proxy
	c := newCluster(t, options{
		nodes: 2, etcd: []etcdtest.Option{etcdtest.WithMembers(3)},
		endpoints: func(_ int, direct []string) []string {
			proxies := make([]string, len(direct))
			for i, endpoint := range direct {
				p := faultproxy.Start(t, endpoint)
				if proxies[i] = "http://" + p.Addr(); i == 0 {
					silenced = append(silenced, p)
				}
			}
			return proxies
		},
	})
	c.apply(someJobs(c.recorder, 20)...)
	c.apply(c.httpJob("edited", "@every 1s", marked("v0")))
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	for _, p := range silenced {
		p.Blackhole(faultproxy.Both)
	}
	silence := time.Now()
	c.apply(c.httpJob("edited", "@every 1s", marked("v1")))
	await(t, "the edit is seen", func(context.Context) error {
		for _, s := range c.startsOf("edited") {
			if s.Mark == "v1" {
				return nil
			}
		}
		return errors.New("nothing started by it")
	})
	t.Logf("an edit was seen %s after a member went silent", time.Since(silence).Round(time.Millisecond))
	pass(t, time.Until(silence.Add(pick(18*time.Second, 60*time.Second)))) // the client's keep-alive notices after 15 s
	over := time.Now()
	for _, p := range silenced {
		p.Heal()
	}
	c.awaitWatermark(time.Now().Add(time.Second))
	to := time.Now().Truncate(time.Second)
	h := c.check(from, to)
	l := h.Lateness(silence, over)
	t.Logf("in the silence %d starts, p50 %s, p99 %s, max %s late", l.Starts, l.P50, l.P99, l.Max)
}

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// manyJobs is 200 jobs due every second and 50 by the second of the minute, over
// all policies, most as requests and some as commands.
func manyJobs(r *recorder) []*leaderdv1.Job {
	var jobs []*leaderdv1.Job
	for i := range 200 {
		var change []func(*leaderdv1.JobSpec)
		if i%2 == 0 {
			change = append(change, allowOverlap)
		}
		if i%4 < 2 {
			change = append(change, atMostOnce)
		}
		name := fmt.Sprintf("every-%03d", i)
		if i%50 == 0 {
			jobs = append(jobs, r.shellJob(name, "@every 1s", "", change...))
		} else {
			jobs = append(jobs, r.httpJob(name, "@every 1s", change...))
		}
	}
	for i := range 50 {
		jobs = append(jobs, r.httpJob(fmt.Sprintf("cron-%02d", i), fmt.Sprintf("%d/5 * * * * *", i%5)))
	}
	return jobs
}

// TestFailover kills the leader, stops another node and lets it go on, and
// drains one: each slot of 250 jobs has one verdict and started at most once.
func TestFailover(t *testing.T) {
	c := newCluster(t, options{nodes: 3, etcd: []etcdtest.Option{etcdtest.WithMembers(1)}})
	c.apply(manyJobs(c.recorder)...)
	from := settled()
	c.awaitWatermark(from.Add(2 * time.Second))

	first := c.leader()
	first.kill()
	killed := time.Now()
	second := c.named(c.awaitLeader(first.name))
	t.Logf("%s leads %s after %s was killed", second.name, time.Since(killed).Round(time.Millisecond), first.name)
	c.awaitNodes(2)
	c.awaitWatermark(time.Now().Add(2 * time.Second))

	to := time.Now().Add(-2 * time.Second).Truncate(time.Second)
	h := c.check(from, to)
	require.Positive(t, h.Count()["succeeded"])
}

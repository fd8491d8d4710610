package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// leaderKey is the key of the node that leads.
func (c *cluster) leaderKey() string {
	c.t.Helper()
	resp, err := c.etcd.Client().Get(c.t.Context(), prefix+"leader/", clientv3.WithFirstCreate()...)
	require.NoError(c.t, err)
	require.NotEmpty(c.t, resp.Kvs)
	return string(resp.Kvs[0].GetKey())
}

// term is the present leadership; it waits for one newer than that.
func (c *cluster) awaitTerm(newer int64) int64 {
	c.t.Helper()
	var term int64
	await(c.t, "another term begins", func(context.Context) error {
		s := c.status()
		if term = s.GetTerm(); s.GetLeader() == "" || term <= newer {
			return fmt.Errorf("%q leads in term %d", s.GetLeader(), term)
		}
		return nil
	})
	return term
}

// TestLeaderships changes the leader many times in a row, in all the ways there
// are, while a run goes on whose job allows no other (F12, F14, F15, F03).
func TestLeaderships(t *testing.T) {
	t.Parallel()
	c := newSplitCluster(t, 3, 2)
	c.apply(someJobs(c.recorder, 20)...)
	c.apply(c.httpJob("endless", "@every 1s", func(s *leaderdv1.JobSpec) { s.GetHttp().Url += "?sleep=600s"; s.Timeout = seconds(3600) }))
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	changes := map[string]func(*node){
		"resign": func(n *node) { require.Zero(t, n.terminate()); n.start() },
		"kill":   func(n *node) { n.kill(); c.awaitLeader(n.name); n.start() },
		"stop": func(n *node) {
			n.pause()
			c.awaitLeader(n.name)
			n.resume()
		},
		"key deleted": func(*node) {
			_, err := c.etcd.Client().Delete(t.Context(), c.leaderKey())
			require.NoError(t, err)
		},
		"lease revoked": func(*node) {
			resp, err := c.etcd.Client().Get(t.Context(), c.leaderKey())
			require.NoError(t, err)
			require.Len(t, resp.Kvs, 1)
			_, err = c.etcd.Client().Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].GetLease()))
			require.NoError(t, err)
		},
	}
	order := []string{"resign", "kill", "key deleted", "stop", "lease revoked", "resign"}
	if *long {
		for range 4 {
			order = append(order, order[:6]...)
		}
	}
	for _, how := range order {
		leader, term := c.leader(), c.status().GetTerm()
		begun := time.Now()
		changes[how](leader)
		if strings.Contains(how, "deleted") || strings.Contains(how, "revoked") {
			c.awaitTerm(term)
			require.Less(t, time.Since(begun), lateLimit(5*time.Second+callTimeout, patience), how)
		} else {
			c.awaitLeader(leader.name)
		}
		t.Logf("%-13s: a new term after %s", how, time.Since(begun).Round(time.Millisecond))
		leader.ready()
		c.awaitWatermark(time.Now().Add(time.Second))
	}
	to := time.Now().Truncate(time.Second)
	all := c.runs("endless")
	var live []string
	for _, r := range all {
		if !over(r.GetState()) {
			live = append(live, r.GetName())
		}
	}
	require.NotEmpty(t, live)
	h := c.pastOf(to, c.versions(), live...)
	c.judge(h, from, to)
	require.Len(t, c.startsOf("endless"), 1, "the endless run goes on, and no other began")
	require.Zero(t, h.Count()["missed:outage"])
}

// TestAllLeasesRevoked ends every lease at once, as an etcd does that comes back
// from a slow disk (F06): one node leads again soon, and all register again.
func TestAllLeasesRevoked(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 3})
	c.apply(someJobs(c.recorder, 20)...)
	c.apply(c.shellJob("long", "", "sleep 1.5"))
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	run := c.trigger("long")
	c.awaitStarts("long", 1)
	term := c.status().GetTerm()
	leases, err := c.etcd.Client().Leases(t.Context())
	require.NoError(t, err)
	revoked := time.Now()
	for _, l := range leases.Leases {
		_, err := c.etcd.Client().Revoke(t.Context(), l.ID)
		require.NoError(t, err)
	}
	c.awaitTerm(term)
	t.Logf("%d leases revoked, a new term after %s", len(leases.Leases), time.Since(revoked).Round(time.Millisecond))
	require.Less(t, time.Since(revoked), lateLimit(2*time.Second+3*time.Second, patience))
	c.awaitNodes(3)
	for _, n := range c.nodes {
		n.ready()
	}
	done := c.awaitRun(run)
	require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, done.GetState())
	c.awaitWatermark(time.Now().Add(2 * time.Second))
	c.check(from, time.Now().Truncate(time.Second))
}

// TestEtcdAway takes etcd away (F10): readiness turns red and liveness does not;
// nothing starts that cannot be recorded; when etcd is back all goes on.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	c.apply(someJobs(c.recorder, 10)...)
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	c.etcd.Stop(0)
	away := time.Now()
	for _, n := range c.nodes {
		awaitFor(t, 10*time.Second, n.name+" is not ready", func(ctx context.Context) error {
			code, body, err := n.health(ctx, "readyz")
			if err == nil && code == http.StatusOK {
				err = fmt.Errorf("readyz: %d: %s", code, body)
			}
			return err
		})
		t.Logf("%s is not ready %s after etcd left", n.name, time.Since(away).Round(time.Millisecond))
	}
	pass(t, pick(6*time.Second, 60*time.Second))
	for _, n := range c.nodes {
		require.True(t, n.running())
		code, body, err := n.health(t.Context(), "livez")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, body)
	}
	before := len(c.recorded())
	pass(t, 2*time.Second)
	require.Len(t, c.recorded(), before, "starts without etcd")
	back := time.Now()
	c.etcd.Restart(0)
	for _, n := range c.nodes {
		n.ready()
	}
	c.awaitNodes(2)
	c.awaitWatermark(time.Now().Add(time.Second))
	t.Logf("all goes on %s after etcd is back", time.Since(back).Round(time.Millisecond))
	c.check(from, time.Now().Truncate(time.Second))
}

// TestStoreFull fills etcd's quota (E03): what cannot be recorded does not start,
// changes are refused with the reason, and once there is space all goes on by
// itself.
func TestStoreFull(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2, etcd: []etcdtest.Option{etcdtest.WithQuota(16 << 20)}})
	c.apply(c.httpJob("often", "@every 1s"), c.httpJob("once", "@every 1s", atMostOnce), c.httpJob("doomed", "@every 1s"))
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	versions := c.versions() // before they are compacted
	client := c.etcd.Client()
	filler := strings.Repeat("x", 512<<10)
	for i := 0; ; i++ {
		if _, err := client.Put(t.Context(), fmt.Sprintf("/filler/%d", i), filler); err != nil {
			require.Contains(t, err.Error(), "space")
			break
		}
	}
	full := time.Now()
	await(t, "nothing starts any more", func(context.Context) error {
		for _, s := range c.recorded() {
			if time.Since(s.At) < 2*time.Second {
				return fmt.Errorf("%s of %s did", s.Run, s.Job)
			}
		}
		return nil
	})
	_, err := try(c.api, leaderd.PauseJob, &leaderdv1.PauseJobRequest{Name: jobName("often")})
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.NotEmpty(t, c.status().GetLeader(), "the leader leads on")
	refused := 0.0
	told := false
	for _, n := range c.nodes {
		m, err := n.metric(t.Context(), "leaderd_executor_refused_total")
		require.NoError(t, err)
		refused += m
		told = told || n.logged("space")
		code, body, err := n.health(t.Context(), "livez")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, body)
	}
	require.Positive(t, refused, "a metric tells of it")
	require.True(t, told, "the log tells of it")

	pass(t, pick(10*time.Second, 60*time.Second)) // longer than the horizon
	resp, err := client.Delete(t.Context(), "/filler/", clientv3.WithPrefix())
	require.NoError(t, err)
	_, err = client.Compact(t.Context(), resp.Header.GetRevision())
	require.NoError(t, err)
	_, err = client.Defragment(t.Context(), c.etcd.Endpoints()[0])
	require.NoError(t, err)
	_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	require.NoError(t, err)
	space := time.Now()
	await(t, "work starts again", func(context.Context) error {
		for _, s := range c.recorded() {
			if s.At.After(space) {
				return nil
			}
		}
		return errors.New("nothing did")
	})
	t.Logf("full for %s; work starts again %s after there was space",
		space.Sub(full).Round(time.Millisecond), time.Since(space).Round(time.Millisecond))
	c.awaitWatermark(time.Now().Add(2 * time.Second))
	to := time.Now().Truncate(time.Second)
	c.judge(c.pastOf(to, versions), from, to)
}

// TestSameSecond has many jobs due in one second (E06, P10), far more than etcd
// takes in a transaction and an executor at a time.
func TestSameSecond(t *testing.T) {
	c := newCluster(t, options{nodes: 3})
	n, ahead := 600, 12*time.Second
	if *long {
		n, ahead = 5000, 50*time.Second
	}
	due := time.Now().Truncate(time.Second).Add(ahead)
	var jobs []*leaderdv1.Job
	for i := range n {
		jobs = append(jobs, c.httpJob(fmt.Sprintf("minutely-%04d", i), fmt.Sprintf("%d * * * * *", due.Second())))
	}
	c.apply(jobs...)
	require.Less(t, time.Now(), due.Add(-time.Second), "the jobs were stored too slowly for the test")
	c.awaitWatermark(due.Add(time.Second))
	h := c.check(due, due)
	require.EqualValues(t, n, h.Count()["succeeded"])
	require.Less(t, h.Lateness(due, due).P99, 5*time.Second)
}

// TestIdle leaves streams idle for longer than many keep-alives (G01): nobody is
// told that it pings too often.
func TestIdle(t *testing.T) {
	t.Parallel()
	c := newSplitCluster(t, 2, 1)
	terms := c.status().GetTerm()
	sessions := map[string]float64{}
	for _, n := range c.nodes {
		var err error
		sessions[n.name], err = n.metric(t.Context(), "leaderd_executor_sessions_total")
		require.NoError(t, err)
	}
	pass(t, pick(50*time.Second, 300*time.Second))
	for _, n := range c.nodes {
		require.False(t, n.logged("too_many_pings"), n.name)
		require.False(t, n.logged("GoAway"), n.name)
		got, err := n.metric(t.Context(), "leaderd_executor_sessions_total")
		require.NoError(t, err)
		require.InDelta(t, sessions[n.name], got, 0, "sessions of %s", n.name)
	}
	require.Equal(t, terms, c.status().GetTerm())
}

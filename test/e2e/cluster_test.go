package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leaderd/leaderd/internal/history"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// prefix of all keys.
const prefix = "/leaderd/"

// workshop is a place for a scenario: a directory, whose logs a failure keeps and
// prints, and a recorder.
type workshop struct {
	*recorder
	t     testing.TB
	dir   string
	nodes []*node
}

func newWorkshop(t testing.TB) *workshop {
	t.Helper()
	dir, err := os.MkdirTemp("", "leaderd-e2e-")
	require.NoError(t, err)
	w := &workshop{t: t, dir: dir}
	t.Cleanup(func() {
		if !t.Failed() && os.Getenv("E2E_KEEP") == "" {
			require.NoError(t, os.RemoveAll(dir))
			return
		}
		for _, n := range w.nodes {
			t.Logf("log of %s, in %s:\n%s", n.name, n.logPath, logTail(n.logPath))
		}
	})
	w.recorder = newRecorder(t, dir)
	return w
}

// node adds a place for a process.
func (w *workshop) node(name string, extra ...string) *node {
	w.t.Helper()
	n := newNode(w.t, w.dir, name, extra...)
	w.nodes = append(w.nodes, n)
	return n
}

// named finds a node.
func (w *workshop) named(name string) *node {
	w.t.Helper()
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.name == name })
	require.GreaterOrEqual(w.t, i, 0, "no node %q", name)
	return w.nodes[i]
}

// others are the nodes but those.
func (w *workshop) others(not ...*node) []*node {
	return slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return slices.Contains(not, n) })
}

// cluster is nodes on an etcd of the test.
type cluster struct {
	*workshop
	*api
	t    testing.TB
	etcd *etcdtest.Server
}

// options shape a cluster.
type options struct {
	nodes int
	etcd  []etcdtest.Option
	// flags of all nodes
	flags []string
	// endpoints, where nodes shall not reach etcd directly
	endpoints func(node int, direct []string) []string
}

// newCluster makes a cluster of nodes n1, n2, … with both roles, and starts them.
func newCluster(t testing.TB, o options) *cluster {
	t.Helper()
	c := &cluster{workshop: newWorkshop(t), t: t, etcd: startEtcd(t, o.etcd...)}
	var addresses []string
	for i := range o.nodes {
		endpoints := c.etcd.Endpoints()
		if o.endpoints != nil {
			endpoints = o.endpoints(i, endpoints)
		}
		name := fmt.Sprintf("n%d", i+1)
		n := c.node(name, append([]string{"--etcd-endpoints=" + strings.Join(endpoints, ","), "--labels=name=" + name}, o.flags...)...)
		addresses = append(addresses, n.api)
	}
	c.api = newAPI(t, addresses...)
	c.startAll()
	return c
}

// startAll starts all nodes and waits until they are ready and one leads.
func (c *cluster) startAll() {
	c.t.Helper()
	for _, n := range c.nodes {
		n.start()
	}
	for _, n := range c.nodes {
		n.ready()
	}
	c.awaitLeader()
	c.awaitNodes(len(c.nodes))
}

// leader is the node that leads.
func (c *cluster) leader() *node {
	c.t.Helper()
	return c.named(c.awaitLeader())
}

// versions replays every change of a job from etcd's own past, which is never
// compacted in a test's etcd unless the test does.
func (c *cluster) versions() map[string][]history.Version {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	return replayVersions(ctx, c.t, c.etcd.Client())
}

// versionsAt is versions where a node runs etcd itself.
func (c *cluster) versionsAt(endpoint string) map[string][]history.Version {
	c.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	require.NoError(c.t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	return replayVersions(ctx, c.t, client)
}

// replayVersions reads the versions that were stored with each change of a job, in
// the same transaction: so they have its revision.
func replayVersions(ctx context.Context, t testing.TB, client *clientv3.Client) map[string][]history.Version {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The last event is one of our own, so that the end is seen.
	done, err := client.Put(ctx, ledgerEnd, "")
	require.NoError(t, err)
	out := map[string][]history.Version{}
	for resp := range client.Watch(ctx, prefix+"versions/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		require.NoError(t, resp.Err())
		for _, e := range resp.Events {
			if e.GetKv().GetModRevision() >= done.Header.GetRevision() {
				return out
			}
			job, v, err := versionIn(e)
			require.NoError(t, err)
			if job != "" {
				out[job] = append(out[job], v)
			}
		}
	}
	require.Fail(t, "the watch of versions ended", "%v", ctx.Err())
	return nil
}

func versionOf(j *statev1.Job) history.Version {
	spec := j.GetSpec()
	v := history.Version{
		Effective: time.UnixMicro(j.GetEffective()).UTC(), Anchor: time.UnixMicro(j.GetAnchor()).UTC(),
		Schedules: spec.GetSchedules(), Paused: j.GetPaused(),
		AtMostOnce: spec.GetGuarantee() == leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE,
		Exclusive:  spec.GetOverlap() != leaderdv1.Overlap_OVERLAP_ALLOW,
		RunPlanned: spec.GetStoreOutage() == leaderdv1.StoreOutage_STORE_OUTAGE_RUN_PLANNED,
		Generation: j.GetGeneration(), Zone: spec.GetTimeZone(),
		Mark:   spec.GetCommand().GetEnv()["MARK"],
		NoWork: spec.GetNoop() != nil,
	}
	if v.Paused {
		// A pause leaves the job's own instant alone, since it makes nothing due.
		v.Effective = time.UnixMicro(j.GetUpdated()).UTC()
	}
	if u, err := url.Parse(spec.GetHttp().GetUrl()); err == nil && v.Mark == "" {
		v.Mark = u.Query().Get("mark")
	}
	return v
}

// past is the history of the cluster up to an instant that it waits for: until
// all slots up to then have a verdict.
func (c *cluster) past(to time.Time) *history.Facts {
	c.t.Helper()
	return c.pastOf(to, c.versions())
}

// pastOf is past with versions that were read before. Runs that are named may go
// on.
func (c *cluster) pastOf(to time.Time, versions map[string][]history.Version, live ...string) *history.Facts {
	c.t.Helper()
	c.awaitWatermark(to)
	h := &history.Facts{Jobs: versions}
	await(c.t, "all runs up to then are over", func(context.Context) error {
		h.Runs = h.Runs[:0]
		for _, r := range c.runs("") {
			if r.GetDueTime().AsTime().After(to) {
				continue
			}
			if !over(r.GetState()) && !slices.Contains(live, r.GetName()) {
				return fmt.Errorf("%s is %s", r.GetName(), r.GetState())
			}
			h.Runs = append(h.Runs, historic(r))
		}
		return nil
	})
	for _, s := range c.recorded() {
		// What was asked for and is due later is not in the list.
		if slot, ok := history.Slot(s.Run); ok && !slot.After(to) || !ok && s.At.Before(to) {
			h.Starts = append(h.Starts, s)
		}
	}
	return h
}

// check asserts all of the history's rules on the slots in [from, to], logs what
// became of them, and answers the history.
func (c *cluster) check(from, to time.Time) *history.Facts {
	c.t.Helper()
	h := c.past(to)
	c.judge(h, from, to)
	return h
}

func (c *cluster) judge(h *history.Facts, from, to time.Time) {
	c.t.Helper()
	found := violations(c.t, h, from, to)
	l := h.Lateness(from, to)
	c.t.Logf("%d jobs, %d starts of slots: p50 %s, p99 %s, max %s late; verdicts %v",
		len(h.Jobs), l.Starts, l.P50, l.P99, l.Max, h.Count())
	for i, v := range found {
		if i == 20 {
			c.t.Errorf("… and %d more", len(found)-i)
			break
		}
		c.t.Error(v)
	}
	if len(found) > 0 {
		require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, "violations.txt"), []byte(fmt.Sprintln(found)), 0o600))
		c.t.FailNow()
	}
}

// violations are all of the history's, with the slots in [from, to]. Its times are
// of one machine, and no run of it was allowed to overlap.
func violations(t testing.TB, h *history.Facts, from, to time.Time) []history.Violation {
	t.Helper()
	h.From, h.To = from, to
	h.Sources |= history.WorkLog
	h.OneClock, h.KnowsOverrides = true, true
	r := history.Check(h)
	for _, u := range r.Unchecked {
		require.Empty(t, u.Job, "cannot be judged: %s", u.Why)
	}
	return r.Violations
}

// settled is an instant from which on the jobs that were just applied are due
// without doubt.
func settled() time.Time { return time.Now().Truncate(time.Second).Add(2 * time.Second) }

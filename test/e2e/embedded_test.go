package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// embedded are the flags of a node with an etcd of its own.
func embedded(t testing.TB) []string {
	t.Helper()
	return []string{
		"--etcd-embedded-client-listen=" + freeAddress(t), "--etcd-embedded-peer-listen=" + freeAddress(t),
	}
}

// TestEmbeddedRestart kills a node with its own etcd, twice, and drains it once:
// jobs, their pauses and the past are there again each time.
func TestEmbeddedRestart(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	n := w.node("n1", embedded(t)...)
	n.start()
	n.ready()
	a := newAPI(t, n.api)
	a.awaitLeader()
	a.apply(w.httpJob("often", "@every 1s"), w.httpJob("still", "@every 1s"))
	a.pause("still")
	a.awaitWatermark(settled().Add(2 * time.Second))
	seen := map[string]bool{}
	for i, end := range []func(){n.kill, func() { require.Zero(t, n.terminate()) }, n.kill} {
		for _, r := range a.runs("often") {
			if over(r.GetState()) {
				seen[r.GetName()] = true
			}
		}
		end()
		n.start()
		n.ready()
		a.awaitLeader()
		now := map[string]bool{}
		for _, r := range a.runs("often") {
			now[r.GetName()] = true
		}
		for name := range seen {
			require.True(t, now[name], "restart %d lost %s", i, name)
		}
		job := call(a, leaderd.GetJob, &leaderdv1.GetJobRequest{Name: jobName("still")}).GetJob()
		require.True(t, job.GetPaused())
		a.awaitWatermark(time.Now().Add(2 * time.Second))
	}
	counts := map[string]int{}
	for _, s := range w.recorded() {
		if s.Job == "often" {
			counts[s.Run+"/"+fmt.Sprint(s.Attempt)]++
		}
	}
	for run, n := range counts {
		require.Equal(t, 1, n, run)
	}
}

// trio starts three nodes with a member of etcd in each, and answers the addresses
// of the members.
func trio(t *testing.T, w *workshop) (a *api, clients map[string]string) {
	t.Helper()
	var members, addresses []string
	clients = map[string]string{}
	var peers [3]string
	for i := range 3 {
		peers[i] = freeAddress(t)
		members = append(members, fmt.Sprintf("n%d=http://%s", i+1, peers[i]))
	}
	for i := range 3 {
		name := fmt.Sprintf("n%d", i+1)
		clients[name] = freeAddress(t)
		n := w.node(name, "--etcd-embedded-client-listen="+clients[name], "--etcd-embedded-peer-listen="+peers[i],
			"--etcd-embedded-initial-cluster="+strings.Join(members, ","))
		addresses = append(addresses, n.api)
		n.start()
	}
	a = newAPI(t, addresses...)
	for _, n := range w.nodes {
		n.ready()
	}
	a.awaitNodes(3)
	return a, clients
}

// TestEmbeddedLostVolume has one node after the other lose all that its member of
// etcd has, the last time twice the same one: it is replaced without anybody's help,
// while the others go on, and nothing is missing afterwards.
func TestEmbeddedLostVolume(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	a, clients := trio(t, w)
	a.apply(someJobs(w.recorder, 20)...)
	from := settled()
	a.awaitWatermark(from.Add(time.Second))
	leader := a.awaitLeader()
	other := w.others(w.named(leader))[0]
	for _, name := range []string{other.name, leader, leader} {
		n := w.named(name)
		n.kill()
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, name, "etcd")))
		n.start()
		lost := time.Now()
		n.ready()
		t.Logf("%s is a member again %s after it came up without data", name, time.Since(lost).Round(time.Millisecond))
		a.awaitNodes(3)
		a.awaitWatermark(time.Now().Add(time.Second))
	}
	// The member that was replaced counts: without it there is no majority.
	w.others(w.named(leader))[0].kill()
	a.prefer(w.named(leader))
	a.awaitWatermark(time.Now().Add(time.Second))

	c := &cluster{workshop: w, api: a, t: t}
	to := time.Now().Truncate(time.Second)
	h := c.pastOf(to, c.versionsAt(clients[leader]))
	c.judge(h, from, to)
}

// TestEmbeddedTwoLostVolumes: two members without data would be a majority, but
// begin nothing anew while the one that has all is away; it still has it later.
func TestEmbeddedTwoLostVolumes(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	a, _ := trio(t, w)
	a.apply(w.httpJob("often", "@every 1s"))
	a.awaitLeader()
	for _, n := range w.nodes {
		n.kill()
	}
	for _, n := range w.nodes[1:] {
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, n.name, "etcd")))
		n.start()
	}
	for _, n := range w.nodes[1:] {
		await(t, n.name+" waits for n1", func(context.Context) error {
			if !n.logged("has no data, and waits", "n1 has not answered") {
				return errors.New("it does not say so")
			}
			return nil
		})
	}
	w.nodes[0].start()
	for _, n := range w.nodes[1:] {
		await(t, n.name+" knows that it lost its data", func(context.Context) error {
			if !n.logged("has no data, and waits", "n1 says that this member had data") {
				return errors.New("it does not say so")
			}
			return nil
		})
		require.NoDirExists(t, filepath.Join(w.dir, n.name, "etcd", "member", "wal"))
	}
	require.DirExists(t, filepath.Join(w.dir, "n1", "etcd", "member", "wal"))
}

// TestEmbeddedCluster runs three nodes whose etcd members are in them, and kills
// the one that leads, and with it a member.
func TestEmbeddedCluster(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	a, clients := trio(t, w)
	a.apply(someJobs(w.recorder, 20)...)
	from := settled()
	a.awaitWatermark(from.Add(time.Second))

	dead := w.named(a.awaitLeader())
	dead.kill()
	killed := time.Now()
	a.prefer(w.others(dead)...)
	a.awaitLeader(dead.name)
	t.Logf("another node leads %s after the leader, and its etcd member, was killed", time.Since(killed).Round(time.Millisecond))
	a.awaitWatermark(time.Now().Add(2 * time.Second))
	dead.start()
	dead.ready()
	a.awaitNodes(3)
	a.awaitWatermark(time.Now().Add(time.Second))

	c := &cluster{workshop: w, api: a, t: t}
	to := time.Now().Truncate(time.Second)
	h := c.pastOf(to, c.versionsAt(clients["n1"]))
	c.judge(h, from, to)
}

// TestDev tries the thing that people try first: it shows runs, and Ctrl-C leaves
// neither a process nor a file behind.
func TestDev(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	tmp := filepath.Join(w.dir, "tmp")
	require.NoError(t, os.Mkdir(tmp, 0o700))
	n := w.node("dev")
	n.env = []string{"TMPDIR=" + tmp}
	n.startWith(binary, "dev", "--listen="+n.api, "--ops-listen="+n.ops)
	await(t, "runs are shown", func(context.Context) error {
		if !n.running() {
			return fatal(errors.New("it ended"))
		}
		for _, words := range [][]string{{"ready:"}, {"heartbeat", "succeeded"}} {
			if !n.logged(words...) {
				return fmt.Errorf("no line with %q", words)
			}
		}
		return nil
	})
	code, stdout, stderr := runCLI(t, n.api, "", "job", "trigger", "hello")
	require.Zero(t, code, stdout+stderr)
	await(t, "the triggered run is shown", func(context.Context) error {
		if !n.logged("hello", "succeeded") {
			return errors.New("it is not")
		}
		return nil
	})
	begun := time.Now()
	n.signal(syscall.SIGINT)
	require.Zero(t, n.wait(patience))
	t.Logf("Ctrl-C took %s", time.Since(begun).Round(time.Millisecond))
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left, "files are left behind")
	require.Empty(t, children(t, n.cmd.Process.Pid))
	require.Empty(t, processes(t, "--listen="+n.api), "processes are left behind")
}

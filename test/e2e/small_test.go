package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// memory is a process's resident memory in bytes.
func (n *node) memory() int64 {
	n.t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	require.NoError(n.t, err)
	for line := range strings.Lines(string(content)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	require.Fail(n.t, "the process has no memory")
	return 0
}

// TestStarvedNode leaves a node a tenth of a CPU, in slices of ten milliseconds as
// a container's quota does, and a hundred jobs (K05): it keeps its leases, its
// memory is small, and no slot is forgotten.
func TestStarvedNode(t *testing.T) {
	c := newCluster(t, options{nodes: 1, flags: []string{"--election-ttl=5s", "--planner-horizon=15s", "--executor-registration-ttl=5s"}})
	registry := c.watchNodes()
	var jobs []*leaderdv1.Job
	for i := range 100 {
		jobs = append(jobs, c.httpJob(fmt.Sprintf("job-%02d", i), fmt.Sprintf("%d/10 * * * * *", i%10)))
	}
	c.apply(jobs...)
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	n, term := c.nodes[0], c.status().GetTerm()
	feed := starve(n, 90*time.Millisecond, 10*time.Millisecond)
	begun := time.Now()
	var most int64
	for time.Since(begun) < pick(12*time.Second, 30*time.Minute) {
		pass(t, time.Second)
		most = max(most, n.memory())
	}
	feed()
	require.True(t, n.running())
	c.awaitWatermark(time.Now().Add(time.Second))
	require.Equal(t, term, c.status().GetTerm(), "the node lost its leadership")
	registry.mu.Lock()
	require.Empty(t, registry.ends, "the node lost its registration")
	registry.mu.Unlock()
	t.Logf("at most %d MiB of memory", most>>20)
	require.Less(t, most, int64(100<<20))
	to := time.Now().Truncate(time.Second)
	h := c.check(from, to)
	require.Equal(t, h.Count()["succeeded"], sum(h.Count()), "%v", h.Count())
}

// TestDiskFull has an executor without a free byte on its disk: work goes on, its
// output's end is in the record, and what was lost is told. So it starts, too.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	s := newSiege(t, 1, 0, 1)
	if !s.disks {
		t.Skip("no leave to mount a small disk")
	}
	s.apply(shell("chatty", `head -c 3000000 /dev/zero | tr '\0' x; echo the end`), s.httpJob("often", "@every 1s"))
	from := settled()
	s.awaitWatermark(from.Add(time.Second))
	n := s.nodes[0]
	free := s.fillDisk(n)
	begun := time.Now()
	check := func() {
		t.Helper()
		done := s.awaitRun(s.trigger("chatty"))
		require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, done.GetState(), "%v", done)
		require.Len(t, done.GetAttempts(), 1)
		require.EqualValues(t, 3_000_008, done.GetOutputBytes())
		require.True(t, strings.HasSuffix(string(done.GetOutputTail()), "xxxthe end\n"))
	}
	check()
	t.Logf("a run with much output ended %s after the disk was full", time.Since(begun).Round(time.Millisecond))
	code, body, err := n.health(t.Context(), "livez")
	require.NoError(t, err)
	require.Equal(t, 200, code, body)
	n.kill()
	n.start()
	n.ready()
	s.awaitLeader()
	check()
	free()
	check()
	s.awaitWatermark(time.Now().Add(time.Second))
	to := time.Now().Truncate(time.Second)
	h := s.past(to)
	h.Runs = keep(h.Runs, func(r history.Run) bool { return r.Job == "often" })
	delete(h.Jobs, "chatty")
	s.judge(h, from, to)
}

// TestNothingGrows skips, ends and forgets runs and jobs by the thousand (E10):
// afterwards there are as many goroutines as before.
func TestNothingGrows(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 1})
	c.apply(c.httpJob("slow", "@every 1s", func(s *leaderdv1.JobSpec) { s.GetHttp().Url += "?sleep=5s" }))
	c.awaitStarts("slow", 1)
	n := c.nodes[0]
	round := func(jobs int) {
		t.Helper()
		var all []*leaderdv1.Job
		for i := range jobs {
			all = append(all, newJob(fmt.Sprintf("brief-%04d", i), "@every 1s", &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}}, nil))
		}
		c.apply(all...)
		c.awaitWatermark(time.Now().Add(time.Second))
		for _, j := range all {
			c.remove(strings.TrimPrefix(j.GetName(), jobName("")))
		}
		c.awaitWatermark(time.Now().Add(time.Second))
	}
	const jobs = 300
	round(jobs) // what is kept for later is made
	goroutines := func() float64 {
		t.Helper()
		m, err := n.metric(t.Context(), "go_goroutines")
		require.NoError(t, err)
		return m
	}
	var before float64
	await(t, "the node is at rest", func(context.Context) error {
		was := before
		if before = goroutines(); before != was {
			return errors.New("it is not")
		}
		return nil
	})
	rounds := 3
	if *long {
		rounds = 30
	}
	for range rounds {
		round(jobs)
	}
	await(t, "there are as many goroutines as before", func(context.Context) error {
		if now := goroutines(); now > before+20 {
			return fmt.Errorf("%g, before %g", now, before)
		}
		return nil
	})
	open, err := n.metric(t.Context(), "leaderd_planner_open_entries")
	require.NoError(t, err)
	t.Logf("%g goroutines, before %g; %g open entries", goroutines(), before, open)
	require.Less(t, open, 50.0, "the plan still has what is gone")
}

// TestNoTimeZoneFiles runs a node on a system without time zone data, as an image
// with nothing but the program is (K01): zones have their meaning all the same.
func TestNoTimeZoneFiles(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	empty := filepath.Join(w.dir, "empty")
	require.NoError(t, os.Mkdir(empty, 0o700))
	hide := []string{"--mount", "sh", "-c", `for d in /usr/share/zoneinfo /usr/share/lib/zoneinfo /usr/lib/locale/TZ /etc/zoneinfo; do
if [ -d "$d" ]; then mount --bind "$1" "$d" || exit; fi; done; shift; exec "$@"`, "sh", empty}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(hide, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no leave to hide the system's time zones: %v: %s", err, out)
	}
	n := w.node("n1", embedded(t)...)
	n.env = []string{"ZONEINFO=/nonexistent"}
	n.startWith("unshare", append(append(hide, binary), n.args...)...)
	n.ready()
	a := newAPI(t, n.api)
	a.awaitLeader()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, schedule := range []string{"0 5 * * *", "CRON_TZ=Europe/Berlin 0 5 * * *"} {
		job := newJob("early", schedule, &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}}, nil)
		if !strings.Contains(schedule, "TZ") {
			job.Spec.TimeZone = "Europe/Berlin"
		}
		next := call(a, leaderd.UpdateJob, &leaderdv1.UpdateJobRequest{Job: job, AllowMissing: true}).GetJob().GetNextSlot()
		require.Equal(t, "05:00", next.AsTime().In(berlin).Format("15:04"), schedule)
	}
	_, err = try(a, leaderd.UpdateJob, &leaderdv1.UpdateJobRequest{
		Job:          newJob("lost", "CRON_TZ=Europe/Atlantis 0 5 * * *", &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}}, nil),
		AllowMissing: true,
	})
	require.ErrorContains(t, err, "Atlantis")
}

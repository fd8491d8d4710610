package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// shell has a job run a script that writes nothing down.
func shell(name, script string, change ...func(*leaderdv1.JobSpec)) *leaderdv1.Job {
	return newJob(name, "", &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Command{Command: &leaderdv1.Command{Shell: script}}}, change)
}

func stopping(timeout, grace float64) func(*leaderdv1.JobSpec) {
	return func(s *leaderdv1.JobSpec) { s.Timeout, s.KillGrace = seconds(timeout), seconds(grace) }
}

// TestCommands runs commands of all kinds and looks at their records.
func TestCommands(t *testing.T) {
	t.Parallel()
	sleep := endless(t)
	c := newCluster(t, options{nodes: 1})
	pids := c.dir + "/pids"
	jobs := []*leaderdv1.Job{
		shell("env", `env | sort; pwd`, func(s *leaderdv1.JobSpec) {
			s.GetCommand().Env, s.GetCommand().Dir = map[string]string{"GREETING": "hello world"}, "/"
		}),
		shell("exit", `echo to stdout; echo to stderr >&2; exit 3`),
		shell("killed", `kill -9 $$`),
		newJob("missing", "", &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Command{Command: &leaderdv1.Command{Argv: []string{"no-such-program"}}}}, nil),
		shell("large", `head -c 6291456 /dev/zero | tr '\0' x; echo the end`),
		shell("line", `head -c 1048576 /dev/zero | tr '\0' y`),
		// R01: a child, one that ignores TERM, and one that left the group.
		shell("tree", strings.ReplaceAll(`sleep N & (trap "" TERM; sleep N) & setsid sleep N & echo $$ > `+pids+`; sleep N`, "N", sleep), stopping(2, 1)),
	}
	c.apply(jobs...)
	runs := map[string]string{}
	for _, j := range jobs {
		name := strings.TrimPrefix(j.GetName(), jobName(""))
		runs[name] = c.trigger(name)
	}
	done := func(job string, want leaderdv1.Run_State) (*leaderdv1.Run, *leaderdv1.Attempt) {
		t.Helper()
		r := c.awaitRun(runs[job])
		require.Equal(t, want, r.GetState(), "%v", r)
		require.Len(t, r.GetAttempts(), 1)
		return r, r.GetAttempts()[0]
	}

	r, a := done("env", leaderdv1.Run_STATE_SUCCEEDED)
	out := string(r.GetOutputTail())
	run := runs["env"][strings.LastIndexByte(runs["env"], '/')+1:]
	for _, line := range []string{
		"GREETING=hello world", "LEADERD_NAMESPACE=default", "LEADERD_JOB=env", "LEADERD_RUN=" + run, "LEADERD_ATTEMPT=1",
		"LEADERD_SHARD=0", "LEADERD_SHARDS=1", fmt.Sprintf("LEADERD_TOKEN=%d", a.GetToken()), "/",
	} {
		require.Contains(t, strings.Split(out, "\n"), line)
	}
	require.NotContains(t, out, "E2E_BINARY", "leaderd's own environment stays its own")
	require.Zero(t, a.GetExitCode())

	r, a = done("exit", leaderdv1.Run_STATE_FAILED)
	require.EqualValues(t, 3, a.GetExitCode())
	require.Contains(t, string(r.GetOutputTail()), "to stdout\n")
	require.Contains(t, string(r.GetOutputTail()), "to stderr\n")

	_, a = done("killed", leaderdv1.Run_STATE_FAILED)
	require.Contains(t, a.GetError(), "kill")
	_, a = done("missing", leaderdv1.Run_STATE_FAILED)
	require.Contains(t, a.GetError(), "no-such-program")
	require.Nil(t, a.ExitCode)

	r, _ = done("large", leaderdv1.Run_STATE_SUCCEEDED) // G02
	require.EqualValues(t, 6291456+len("the end\n"), r.GetOutputBytes())
	require.LessOrEqual(t, len(r.GetOutputTail()), 8<<10)
	require.True(t, strings.HasSuffix(string(r.GetOutputTail()), "xxxthe end\n"))
	r, _ = done("line", leaderdv1.Run_STATE_SUCCEEDED) // R05
	require.EqualValues(t, 1<<20, r.GetOutputBytes())

	r, a = done("tree", leaderdv1.Run_STATE_TIMED_OUT)
	require.FileExists(t, pids)
	took := a.GetEndTime().AsTime().Sub(a.GetStartTime().AsTime())
	require.GreaterOrEqual(t, took, 2*time.Second)
	t.Logf("timed out after %s: %s", took.Round(time.Millisecond), a.GetError())
	require.Empty(t, processes(t, sleep), "%v", r)

	code, stdout, stderr := c.cli("", "run", "list", "--job", "exit")
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^default/exit\s+`+run[:8]+`\S*\s+failed\s`, stdout)
}

// TestDrain ends a node by SIGTERM while it works (R10): what ends within the
// grace ends there; what does not is interrupted and begins anew elsewhere or,
// at-most-once, is interrupted for good. Slots go on meanwhile.
func TestDrain(t *testing.T) {
	t.Parallel()
	sleep := endless(t)
	c := newCluster(t, options{nodes: 2, flags: []string{"--executor-drain-grace=4s"}})
	work := "sleep " + sleep + " & wait"
	n1 := selecting("name", "n1")
	c.apply(someJobs(c.recorder, 10)...)
	c.apply(
		c.shellJob("brief", "", "sleep 2; echo done", n1),
		c.shellJob("long", "", work, n1),
		c.shellJob("once", "", work, n1, atMostOnce),
	)
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	brief, long, once := c.trigger("brief"), c.trigger("long"), c.trigger("once")
	for _, job := range []string{"brief", "long", "once"} {
		c.awaitStarts(job, 1)
	}
	c.apply(c.shellJob("long", "", work)) // its next attempt may run anywhere

	begun := time.Now()
	n := c.named("n1")
	require.Zero(t, n.terminate())
	took := time.Since(begun)
	t.Logf("drained in %s", took.Round(time.Millisecond))
	require.GreaterOrEqual(t, took, 4*time.Second)
	c.prefer(c.named("n2"))

	done := c.awaitRun(brief)
	require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, done.GetState())
	require.Len(t, done.GetAttempts(), 1)
	require.Equal(t, "done\n", string(done.GetOutputTail()))
	done = c.awaitRun(once)
	require.Equal(t, leaderdv1.Run_STATE_INTERRUPTED, done.GetState())
	second := c.awaitStarts("long", 2)
	t.Logf("what was handed over began anew %s after the end of the node", second.At.Sub(begun.Add(took)).Round(time.Millisecond))
	require.Less(t, second.At.Sub(begun.Add(took)), 5*time.Second)
	require.Equal(t, 2, second.Attempt)
	require.Equal(t, "n2", c.nodeOf(long).name)
	require.Equal(t, leaderdv1.Run_STATE_INTERRUPTED, c.run(long).GetAttempts()[0].GetState())
	await(t, "it sleeps there alone", func(context.Context) error {
		if n := len(processes(t, sleep)); n != 1 {
			return fmt.Errorf("%d sleep", n)
		}
		return nil
	})
	c.awaitWatermark(time.Now().Add(2 * time.Second))

	to := time.Now().Truncate(time.Second)
	h := c.pastOf(to, c.versions(), long)
	c.judge(h, from, to)
	counts := h.Count()
	require.Zero(t, counts["missed:outage"]+counts["missed:deadline"], "%v", counts)
	require.Less(t, h.Lateness(from, to).Max, 3*time.Second)
	require.Zero(t, c.named("n2").terminate())
	require.Empty(t, processes(t, sleep))
}

// TestInit runs a node as process 1 of a container (R03): it collects the orphans
// of its jobs, and takes no job's own exit code for one.
func TestInit(t *testing.T) {
	t.Parallel()
	unshare := []string{"--pid", "--fork", "--mount-proc", "--kill-child"}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(unshare, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no leave to make a pid namespace: %v: %s", err, out)
	}
	w := newWorkshop(t)
	n := w.node("init", embedded(t)...)
	n.startWith("unshare", append(append(unshare, binary), n.args...)...)
	n.ready()
	a := newAPI(t, n.api)
	a.awaitLeader()
	a.apply(shell("orphan", "(sleep 1 &) ; exit 3", allowOverlap))
	var runs []string
	for range 60 {
		runs = append(runs, a.trigger("orphan"))
	}
	for _, run := range runs {
		r := a.awaitRun(run)
		require.Equal(t, leaderdv1.Run_STATE_FAILED, r.GetState())
		require.EqualValues(t, 3, r.GetAttempts()[0].GetExitCode())
	}
	inside := children(t, n.cmd.Process.Pid)
	require.Len(t, inside, 1)
	await(t, "no zombie is left", func(context.Context) error {
		for _, p := range children(t, inside[0].pid) {
			if p.state == "Z" {
				return fmt.Errorf("process %d is one", p.pid)
			}
		}
		return nil
	})
}

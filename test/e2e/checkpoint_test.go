package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/leaderd/leaderd/examples"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// resumable is the example of that name, whose work is to write each item to a file.
func resumable(t testing.TB, file string, items int) *leaderdv1.Job {
	t.Helper()
	content, err := examples.Jobs.ReadFile("jobs/resumable.yaml")
	require.NoError(t, err)
	var example struct {
		Spec struct {
			Command struct{ Shell string }
		}
	}
	require.NoError(t, yaml.Unmarshal(content, &example))
	const work = `echo "attempt $LEADERD_ATTEMPT works on item $item"`
	require.Contains(t, example.Spec.Command.Shell, work)
	return shell("resumable", strings.Replace(example.Spec.Command.Shell, work, `echo "$LEADERD_ATTEMPT $item" >> "$OUT"`, 1), func(s *leaderdv1.JobSpec) {
		s.GetCommand().Env = map[string]string{"OUT": file, "ITEMS": strconv.Itoa(items), "PAUSE": "0.05"}
		s.Checkpoint = &leaderdv1.CheckpointPolicy{Keep: 5}
		s.Drain = leaderdv1.Drain_DRAIN_HANDOVER
		s.KillGrace = seconds(2)
	})
}

// accepted writes down all checkpoints that the store takes.
type accepted struct {
	numbers []int64
	values  []string
	broken  []string
}

func (c *cluster) watchCheckpoints(ctx context.Context) (all func() *accepted) {
	events := c.etcd.Client().Watch(ctx, prefix+"checkpoints/", clientv3.WithPrefix())
	done := make(chan *accepted, 1)
	go func() {
		a := &accepted{}
		for resp := range events {
			for _, e := range resp.Events {
				var p statev1.Checkpoint
				if e.GetType() != clientv3.EventTypePut || proto.Unmarshal(e.GetKv().GetValue(), &p) != nil || len(p.GetData()) == 0 {
					continue
				}
				if n := len(a.numbers); n > 0 && p.GetNumber() != a.numbers[n-1]+1 {
					a.broken = append(a.broken, fmt.Sprintf("number %d after %d", p.GetNumber(), a.numbers[n-1]))
				}
				a.numbers = append(a.numbers, p.GetNumber())
				a.values = append(a.values, strings.TrimSpace(string(p.GetData())))
			}
		}
		done <- a
	}()
	return func() *accepted { return <-done }
}

// TestResumableBatch runs the example of a batch over real processes, whose node is
// killed, stopped and drained in turn. Every item is done, only those after the last
// checkpoint that was accepted are done again, and none goes back.
func TestResumableBatch(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 1}) // it builds the workshop; executors follow
	bin := t.TempDir()
	require.NoError(t, os.Symlink(binary, filepath.Join(bin, "leaderd")))
	first := c.named("n1")
	for i := range 3 {
		e := c.node(fmt.Sprintf("e%d", i+1), "--roles=executor", "--control-addresses="+first.api, "--labels=work=yes", "--executor-drain-grace=20s")
		e.env = append(e.env, "PATH="+bin+":"+os.Getenv("PATH"))
		e.start()
	}
	for _, n := range c.nodes {
		n.ready()
	}
	c.awaitNodes(4)
	file := filepath.Join(c.dir, "items")
	const items = 50
	job := resumable(t, file, items)
	job.GetSpec().NodeSelector = map[string]string{"work": "yes"}
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	saved := c.watchCheckpoints(watching)
	c.apply(job)
	run := c.trigger("resumable")

	lines := func() [][2]int {
		content, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			return nil
		}
		require.NoError(t, err)
		var all [][2]int
		for line := range strings.Lines(string(content)) {
			var l [2]int
			_, err := fmt.Sscan(line, &l[0], &l[1])
			require.NoError(t, err, line)
			all = append(all, l)
		}
		return all
	}
	// working waits until an attempt of another node than before is at work, and has
	// come further.
	working := func(further int) (n *node, over bool) {
		await(t, "the run goes on", func(context.Context) error {
			r := c.run(run)
			if r.GetState() > leaderdv1.Run_STATE_WAITING {
				over = true
				return nil
			}
			all := lines()
			if r.GetState() != leaderdv1.Run_STATE_RUNNING || len(all) < further || all[len(all)-1][0] != len(r.GetAttempts()) {
				return fmt.Errorf("it is %s, at %d lines", r.GetState(), len(all))
			}
			n = c.nodeOf(run)
			return nil
		})
		return n, over
	}
	disturbed := 0
	for i := range 6 {
		n, over := working(len(lines()) + 5)
		if over {
			break
		}
		disturbed++
		switch i % 3 {
		case 0:
			n.kill()
		case 1:
			n.signal(syscall.SIGSTOP)
			_, over = working(len(lines()) + 5)
			n.signal(syscall.SIGCONT)
			if over {
				t.Log("it was over while its node stood still")
			}
			continue
		case 2:
			require.Zero(t, n.terminate())
		}
		n.start()
		n.ready()
	}
	r := c.awaitRun(run)
	require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, r.GetState(), "%v", r)
	pass(t, time.Second) // what a dead node left behind has found out
	stop()
	a := saved()
	require.Empty(t, a.broken, "a checkpoint went back")
	require.GreaterOrEqual(t, disturbed, 3)

	done := map[int]int{}
	all := lines()
	for _, l := range all {
		done[l[1]]++
	}
	for i := 1; i <= items; i++ {
		require.Positive(t, done[i], "item %d was not done", i)
	}
	again := len(all) - items
	t.Logf("%d attempts, %d times disturbed, %d items done again, %d checkpoints accepted", len(r.GetAttempts()), disturbed, again, len(a.values))
	require.LessOrEqual(t, again, 2*disturbed, "one at work, and one that an orphan began: %v", all)
	for i, v := range a.values {
		require.Equal(t, strconv.Itoa(i+1), v)
	}
	require.Len(t, a.values, items)
	last := r.GetAttempts()[len(r.GetAttempts())-1]
	require.EqualValues(t, items, last.GetProgress().GetTotal())

	code, stdout, stderr := c.cli("", "run", "get", "resumable", run[strings.LastIndexByte(run, '/')+1:])
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, fmt.Sprintf("%d/%d (100%%)", items, items))
	code, _, stderr = c.cli("", "run", "checkpoint", "resumable", run[strings.LastIndexByte(run, '/')+1:])
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no checkpoint", "they went with its success")
}

// TestCheckpointOfAJob has runs go on from where the run before them stopped, and shows
// what people see of that.
func TestCheckpointOfAJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 1})
	bin := t.TempDir()
	require.NoError(t, os.Symlink(binary, filepath.Join(bin, "leaderd")))
	n := c.named("n1")
	require.Zero(t, n.terminate())
	n.env = append(n.env, "PATH="+bin+":"+os.Getenv("PATH"))
	n.start()
	n.ready()
	c.awaitLeader()
	count := shell("count", `
		last=$(leaderd checkpoint get) || exit
		echo "from ${last:-0}"
		echo $((${last:-0} + 1)) | leaderd checkpoint put || exit
		leaderd progress 1/2 --message "half way" || exit
		leaderd progress nonsense; echo "code $?"
		head -c 262145 /dev/zero | leaderd checkpoint put; echo "code $?"
		exit ${EXIT:-0}`, func(s *leaderdv1.JobSpec) {
		s.Checkpoint = &leaderdv1.CheckpointPolicy{Scope: leaderdv1.CheckpointPolicy_SCOPE_JOB, Keep: 2}
	})
	c.apply(count)
	for i := range 3 {
		r := c.awaitRun(c.trigger("count"))
		require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, r.GetState(), "%v", r)
		out := string(r.GetOutputTail())
		require.Contains(t, out, fmt.Sprintf("from %d\n", i))
		require.Equal(t, 2, strings.Count(out, "code 2\n"), out)
		require.Equal(t, "half way", r.GetAttempts()[0].GetProgress().GetMessage())
	}
	code, stdout, stderr := c.cli("", "job", "checkpoint", "count")
	require.Zero(t, code, stderr)
	require.Equal(t, "3\n", stdout)
	code, stdout, stderr = c.cli("", "job", "checkpoint", "count", "--history")
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?s)^NUMBER\s.*\n3\s.*\n2\s[^\n]*\n$`, stdout)
	code, stdout, stderr = c.cli("", "job", "checkpoint", "count", "--number", "2")
	require.Zero(t, code, stderr)
	require.Equal(t, "2\n", stdout)
	code, _, stderr = c.cli("", "job", "checkpoint", "count", "--number", "1")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is not kept; the last one is 3")
	code, _, stderr = c.cli("", "job", "checkpoint", "count", "--delete")
	require.Zero(t, code, stderr)
	r := c.awaitRun(c.trigger("count"))
	require.Contains(t, string(r.GetOutputTail()), "from 0\n")
	code, _, stderr = c.cli("", "checkpoint", "get")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "LEADERD_SOCKET")
}

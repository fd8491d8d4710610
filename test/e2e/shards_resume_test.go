package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
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

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// progress is a checkpoint of a shard that the store has taken.
type progress struct {
	number, token int64
	done          int
}

// watchShards writes down the checkpoints of all shards, in the order of the store.
func (c *cluster) watchShards(ctx context.Context) (all func() map[int][]progress) {
	events := c.etcd.Client().Watch(ctx, prefix+"checkpoints/", clientv3.WithPrefix())
	result := make(chan map[int][]progress, 1)
	go func() {
		of := map[int][]progress{}
		for resp := range events {
			for _, e := range resp.Events {
				parts := strings.Split(strings.TrimPrefix(string(e.GetKv().GetKey()), prefix+"checkpoints/"), "/")
				var p statev1.Checkpoint
				if e.GetType() != clientv3.EventTypePut || len(parts) != 5 || proto.Unmarshal(e.GetKv().GetValue(), &p) != nil {
					continue
				}
				shard, err1 := strconv.Atoi(parts[3])
				done, err2 := strconv.Atoi(string(p.GetData()))
				if err1 == nil && err2 == nil {
					of[shard] = append(of[shard], progress{p.GetNumber(), p.GetToken(), done})
				}
			}
		}
		result <- of
	}()
	return func() map[int][]progress { return <-result }
}

// TestShardsResume runs 12 shards on four executors, of which one after another is
// killed, stopped or drained. Every item is done; an attempt does nothing again but what
// came after the last checkpoint that was accepted before it; and none goes back.
func TestShardsResume(t *testing.T) {
	t.Parallel()
	const shards, items = 12, 220 // items of each
	c := newCluster(t, options{nodes: 1})
	first := c.named("n1")
	var executors []*node
	for i := range 4 {
		e := c.node(fmt.Sprintf("e%d", i+1), "--roles=executor", "--control-addresses="+first.api, "--labels=work=yes")
		e.start()
		executors = append(executors, e)
	}
	for _, n := range c.nodes {
		n.ready()
	}
	c.awaitNodes(5)
	file := filepath.Join(c.dir, "items")
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	saved := c.watchShards(watching)
	c.must(fmt.Sprintf(`name: batch
spec:
  shards: {count: %d, range: {from: 1, to: %d}}
  checkpoint: {keep: 3}
  drain: handover
  nodeSelector: {work: "yes"}
  command:
    argv: [%s]
    env: {BATCH_OUT: %s}
`, shards, shards*items, batch, file), "job", "apply", "-f", "-")
	run := c.trigger("batch")

	dice := rand.New(rand.NewPCG(12, 4))
	kinds := []string{"killed", "stopped", "drained"}
	disturbed := map[string]int{}
	for i := range 5 {
		await(t, "all shards are at work", func(context.Context) error {
			if r := c.run(run); r.GetState() <= leaderdv1.Run_STATE_WAITING && r.GetShards().GetRunning() < shards {
				return fmt.Errorf("%v", r.GetShards())
			}
			return nil
		})
		n := executors[dice.IntN(len(executors))]
		how := kinds[dice.IntN(3)]
		if i < 3 {
			how = kinds[i] // each once at least
		}
		disturbed[how]++
		switch how {
		case "killed":
			n.kill()
		case "stopped":
			n.signal(syscall.SIGSTOP)
			c.awaitNodes(4) // its registration is over
			n.signal(syscall.SIGCONT)
		case "drained":
			require.Zero(t, n.terminate())
		}
		if how != "stopped" {
			n.start()
		}
		n.ready()
		c.awaitNodes(5)
		if c.run(run).GetState() > leaderdv1.Run_STATE_WAITING {
			break
		}
	}
	r := c.awaitRun(run)
	require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, r.GetState(), "%v", r)
	require.EqualValues(t, shards, r.GetShards().GetSucceeded())
	pass(t, time.Second) // what a dead node left behind has found out
	stop()
	checkpoints := saved()

	type attempt struct{ shard, number int }
	begun, done, lines := map[attempt]int{}, map[int]bool{}, 0
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		var a attempt
		var item int
		_, err := fmt.Sscan(line, &a.shard, &a.number, &item)
		require.NoError(t, err, line)
		if _, ok := begun[a]; !ok {
			begun[a] = item
		}
		done[item] = true
		lines++
	}
	for item := 1; item <= shards*items; item++ {
		require.True(t, done[item], "item %d was not done", item)
	}
	for shard, all := range checkpoints {
		for i := 1; i < len(all); i++ {
			was, is := all[i-1], all[i]
			require.True(t, is.number == was.number+1 && is.done >= was.done && is.token >= was.token,
				"a checkpoint of shard %d went back: %+v after %+v", shard, is, was)
		}
	}
	resumed := 0
	for _, a := range r.GetAttempts() {
		at, ok := begun[attempt{int(a.GetShard()), int(a.GetNumber())}]
		if !ok {
			continue // it was ended before its first item
		}
		last := int(a.GetShard()) * items
		for _, p := range checkpoints[int(a.GetShard())] {
			if p.token < a.GetToken() {
				last = p.done
			}
		}
		require.Equal(t, last+1, at, "attempt %d of shard %d", a.GetNumber(), a.GetShard())
		if a.GetNumber() > 1 {
			resumed++
		}
	}
	t.Logf("%v: %d attempts at %d shards, %d of them resumed; %d items done again of %d", disturbed, len(r.GetAttempts()), shards, resumed, lines-shards*items, shards*items)
	require.Positive(t, resumed)
}

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// TestShardsMove runs a job of 12 shards on four nodes, of which one is killed and one
// is drained in the midst: each shard ends once, those of the two move, the run has one
// verdict, and the command line shows it.
func TestShardsMove(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 4, flags: []string{"--executor-drain-grace=1s"}})
	marks := t.TempDir()
	c.must(fmt.Sprintf(`name: reindex
spec:
  shards: {count: 12, range: {from: 1, to: 1200}}
  command:
    shell: |
      echo "$LEADERD_ATTEMPT" >> %[1]s/begun-$LEADERD_SHARD
      sleep 6
      echo "$LEADERD_SHARD_FROM-$LEADERD_SHARD_TO of $LEADERD_SHARDS" >> %[1]s/done-$LEADERD_SHARD
`, marks), "job", "apply", "-f", "-")
	c.must("", "job", "trigger", "reindex")
	var run *leaderdv1.Run
	for run.GetShards().GetRunning() < 12 {
		run = c.awaitRunIn("reindex", leaderdv1.Run_STATE_RUNNING)
	}
	leader := c.leader()
	others := c.others(leader)
	leader.kill()
	require.Zero(t, others[0].terminate())
	run = c.awaitRunIn("reindex", leaderdv1.Run_STATE_SUCCEEDED)
	require.EqualValues(t, 12, run.GetShards().GetSucceeded())
	last := map[int32]*leaderdv1.Attempt{}
	for _, a := range run.GetAttempts() {
		last[a.GetShard()] = a
	}
	require.Len(t, last, 12)
	moved := 0
	for shard, a := range last {
		require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, a.GetState())
		if a.GetNumber() > 1 {
			moved++
		}
		done, err := os.ReadFile(filepath.Join(marks, fmt.Sprint("done-", shard)))
		require.NoError(t, err)
		require.Contains(t, string(done), fmt.Sprintf("%d-%d of 12\n", shard*100+1, shard*100+100))
	}
	require.GreaterOrEqual(t, moved, 3, "the killed node's shards at least")
	id := run.GetName()[strings.LastIndex(run.GetName(), "/")+1:]
	require.Equal(t, 13, strings.Count(c.must("", "run", "shards", "reindex", id), "\n"))
	require.Contains(t, c.must("", "run", "get", "reindex", id), "12 of 12 succeeded")
}

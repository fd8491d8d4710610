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

// TestShardsListed runs a job whose first step lists its shards, and kills the node that
// runs that: the next attempt lists, each shard runs once with what was listed for it, and
// the command line shows both. A run that lists nothing is over, and one that lists too
// much says so.
func TestShardsListed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 4})
	marks := t.TempDir()
	c.must(fmt.Sprintf(`name: import
spec:
  shards: {dynamic: {max: 3}}
  command:
    shell: |
      case "$LEADERD_STEP" in
      list)
        if [ "$LEADERD_ATTEMPT" = 1 ] && [ ! -e %[1]s/names ]; then exec sleep 30; fi
        cat %[1]s/names > "$LEADERD_RESULT_FILE" ;;
      shard)
        echo "$LEADERD_SHARD of $LEADERD_SHARDS" >> "%[1]s/done-$LEADERD_SHARD_PARAM_VALUE" ;;
      esac
`, marks), "job", "apply", "-f", "-")
	c.must("", "job", "trigger", "import")
	run := c.awaitRunIn("import", leaderdv1.Run_STATE_RUNNING)
	id := run.GetName()[strings.LastIndex(run.GetName(), "/")+1:]
	require.Contains(t, c.must("", "run", "shards", "import", id), "list")
	names := filepath.Join(marks, "names")
	require.NoError(t, os.WriteFile(names, []byte("eu\nus\nasia\n"), 0o600))
	c.named(run.GetAttempts()[0].GetNode()).kill()
	run = c.awaitRunIn("import", leaderdv1.Run_STATE_SUCCEEDED)
	require.EqualValues(t, 3, run.GetShards().GetSucceeded())
	steps := 0
	for _, a := range run.GetAttempts() {
		if a.GetShard() == -2 {
			steps++
		}
	}
	require.Equal(t, 2, steps)
	for i, name := range []string{"eu", "us", "asia"} {
		done, err := os.ReadFile(filepath.Join(marks, "done-"+name))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d of 3\n", i), string(done))
	}
	shown := c.must("", "run", "get", "import", id)
	require.Contains(t, shown, "3 of 3 succeeded")
	require.Contains(t, shown, "value=asia")
	require.Equal(t, 5, strings.Count(c.must("", "run", "shards", "import", id), "\n"), "a head, the first step and three shards")

	for name, x := range map[string]struct {
		list  string
		state leaderdv1.Run_State
		says  string
	}{
		"none": {":", leaderdv1.Run_STATE_SUCCEEDED, "the first step listed no shards"},
		"many": {"seq 4", leaderdv1.Run_STATE_FAILED, "the list of shards has 4 entries; at most 3 are allowed"},
	} {
		c.must(fmt.Sprintf(`name: %s
spec:
  shards: {dynamic: {max: 3, command: {shell: '%s > "$LEADERD_RESULT_FILE"'}}}
  command: {argv: ["true"]}
`, name, x.list), "job", "apply", "-f", "-")
		c.must("", "job", "trigger", name)
		run := c.awaitRunIn(name, x.state)
		require.Len(t, run.GetAttempts(), 1)
		require.Contains(t, c.must("", "run", "get", name, run.GetName()[strings.LastIndex(run.GetName(), "/")+1:]), x.says)
	}
}

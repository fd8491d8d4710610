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

// TestRetryFailedShards runs a job of which two shards of four fail, one of them after a
// checkpoint, and retries what failed from the command line, twice: only those run again,
// from their checkpoints, and what succeeded is told as carried over.
func TestRetryFailedShards(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	marks := t.TempDir()
	c.must(fmt.Sprintf(`name: reindex
spec:
  shards: {params: [{region: eu}, {region: us}, {region: asia}, {region: oceania}]}
  command:
    shell: |
      echo "$LEADERD_RUN $(%[2]s checkpoint get)" >> "%[1]s/$LEADERD_SHARD_PARAM_REGION"
      [ ! -e "%[1]s/bad-$LEADERD_SHARD" ] || { echo "at $LEADERD_RUN" | %[2]s checkpoint put -; exit 3; }
`, marks, binary), "job", "apply", "-f", "-")
	bad := func(shard int) string { return filepath.Join(marks, fmt.Sprint("bad-", shard)) }
	for _, shard := range []int{1, 3} {
		require.NoError(t, os.WriteFile(bad(shard), nil, 0o600))
	}
	idOf := func(line string) string { return strings.Fields(line)[1] }
	c.must("", "job", "trigger", "reindex")
	run := c.awaitRunIn("reindex", leaderdv1.Run_STATE_FAILED)
	first := run.GetName()[strings.LastIndex(run.GetName(), "/")+1:]
	require.EqualValues(t, 2, run.GetShards().GetFailed())

	require.NoError(t, os.Remove(bad(3)))
	said := c.must("", "run", "retry", "reindex", first, "--failed", "--key", "once")
	require.Contains(t, said, "retries "+first)
	second := idOf(said)
	require.Contains(t, c.must("", "run", "retry", "reindex", first, "--failed", "--key", "once"), second+" was made before, and retries "+first)
	code, _, _ := c.cli("", "run", "wait", "reindex", second)
	require.Equal(t, 1, code, "one shard fails still")
	shown := c.must("", "run", "get", "reindex", second)
	require.Contains(t, shown, "3 of 4 succeeded (2 carried over), 1 ended otherwise")
	require.Regexp(t, `repeats: +`+first, shown)
	require.Regexp(t, `carried over: +2 from `+first, shown)
	require.Equal(t, 2, strings.Count(c.must("", "run", "shards", "reindex", second), "carried from "+first))

	require.NoError(t, os.Remove(bad(1)))
	third := c.must("", "run", "retry", "reindex", second, "--failed", "--wait")
	require.Contains(t, third, "4 of 4 succeeded (3 carried over)")
	require.Regexp(t, `carried over: +2 from `+first+`, 1 from `+second, third)
	for region, want := range map[string][]string{
		"eu": {first + " "}, "asia": {first + " "},
		"oceania": {first + " ", second + " at " + first},
		"us":      {first + " ", second + " at " + first, ""},
	} {
		text, err := os.ReadFile(filepath.Join(marks, region))
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		require.Len(t, lines, len(want), region)
		for i, line := range want {
			if line != "" {
				require.Equal(t, line, lines[i])
			}
		}
	}
	succeeded := c.awaitRunIn("reindex", leaderdv1.Run_STATE_SUCCEEDED).GetName()
	code, _, stderr := c.cli("", "run", "retry", "reindex", succeeded[strings.LastIndex(succeeded, "/")+1:])
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "has succeeded: there is nothing to retry")
	c.must("", "verify")
}

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// TestRetryAndRequeue has a command fail until its attempts are used up, over the death
// of the leader, and runs the dead letter again by the command line, once its cause is
// mended.
func TestRetryAndRequeue(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	mended := filepath.Join(t.TempDir(), "mended")
	c.must(fmt.Sprintf(`name: flaky
spec:
  retry: {maxAttempts: 2, initialBackoff: 5s, jitter: 0, retryOn: ["exit:75"]}
  runTimeout: 10m
  deadLetter: true
  command: {shell: "test -e %s || exit 75"}
`, mended), "job", "apply", "-f", "-")
	c.must("", "job", "trigger", "flaky")
	first := c.awaitRunIn("flaky", leaderdv1.Run_STATE_WAITING)
	require.NotNil(t, first.GetNextAttemptTime())
	require.EqualValues(t, 1, first.GetTries())
	killed := c.leader()
	killed.kill()
	killed.start()
	failed := c.awaitRunIn("flaky", leaderdv1.Run_STATE_FAILED)
	require.Equal(t, "attempts", failed.GetReason())
	require.Equal(t, "2 of 2 attempts", failed.GetDetail())
	require.Len(t, failed.GetAttempts(), 2)
	require.EqualValues(t, 75, failed.GetAttempts()[1].GetExitCode())
	gap := failed.GetAttempts()[1].GetStartTime().AsTime().Sub(failed.GetAttempts()[0].GetEndTime().AsTime())
	require.GreaterOrEqual(t, gap.Seconds(), 5.0)

	id := failed.GetName()[strings.LastIndex(failed.GetName(), "/")+1:]
	require.Regexp(t, `(?m)^default/flaky +`+regexp.QuoteMeta(id)+` +failed +attempts .* 75 +exit code 75$`, c.must("", "dead", "list"))
	require.Contains(t, c.must("", "dead", "get", "flaky", id), "reason:      attempts 2 of 2 attempts")
	require.NoError(t, os.WriteFile(mended, nil, 0o600))
	require.Regexp(t, `^default/flaky `+regexp.QuoteMeta(id)+` requeued as \S+-trigger-\S+\n$`, c.must("", "dead", "requeue", "flaky", "--all"))
	again := c.awaitRunIn("flaky", leaderdv1.Run_STATE_SUCCEEDED)
	require.Equal(t, failed.GetName(), again.GetOrigin())
	require.NotContains(t, c.must("", "dead", "list", "flaky"), id)
	code, _, stderr := c.cli("", "dead", "requeue", "flaky", id)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "does not exist")
}

// awaitRunIn waits until a run of a job is in a state.
func (c *cluster) awaitRunIn(job string, s leaderdv1.Run_State) (found *leaderdv1.Run) {
	c.t.Helper()
	await(c.t, fmt.Sprintf("a run of %s is %s", job, s), func(context.Context) error {
		runs := c.runs(job)
		for _, r := range runs {
			if r.GetState() == s {
				found = r
				return nil
			}
		}
		return fmt.Errorf("the runs are %v", runs)
	})
	return found
}

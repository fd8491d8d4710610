package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
)

// TestVerify has `leaderd verify` look at a cluster whose leader was killed and
// whose jobs were changed meanwhile, and then at what somebody did to its store.
func TestVerify(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	addresses := c.nodes[0].api + "," + c.nodes[1].api
	verify := func(args ...string) (int, string) {
		code, stdout, stderr := runCLI(t, addresses, "", append([]string{"verify"}, args...)...)
		t.Logf("leaderd verify %s: exit status %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
		return code, stdout + stderr
	}
	c.apply(
		c.httpJob("heartbeat", "@every 1s", allowOverlap),
		c.httpJob("report", "*/2 * * * * *"),
		c.httpJob("once", "@every 1s", atMostOnce),
		c.shellJob("probe", "*/3 * * * * *", "", allowOverlap),
		c.httpJob("short", "@every 1s"),
	)
	from := settled()
	c.awaitWatermark(from.Add(2 * time.Second))
	c.remove("short")
	c.pause("report")
	c.apply(c.httpJob("heartbeat", "* * * * * *", allowOverlap))
	changed := time.Now()
	killed := c.leader()
	killed.kill()
	c.awaitLeader(killed.name)
	c.resume("report")
	c.awaitWatermark(time.Now().Add(4 * time.Second))
	killed.start()
	killed.ready()
	c.awaitNodes(2)
	// Of what has just changed it does not demand verdicts yet.
	c.awaitWatermark(changed.Add(15 * time.Second))

	code, out := verify()
	require.Zero(t, code)
	require.Contains(t, out, "jobs:        5\n")
	require.Contains(t, out, "violations:  none\n")
	code, _ = verify("--job", "short", "--since", "10m")
	require.Zero(t, code, "a deleted job's past is looked at too")

	// Two of the newest runs of the heartbeat that have their verdicts.
	var ids []string
	for _, r := range c.runs("heartbeat") {
		id := historic(r).ID
		if _, ok := history.Slot(id); ok && over(r.GetState()) && len(ids) < 2 {
			ids = append(ids, id)
		}
	}
	require.Len(t, ids, 2)
	c.awaitWatermark(time.Now())
	key := prefix + "history/default/heartbeat/"
	_, err := c.etcd.Client().Delete(t.Context(), key+ids[0])
	require.NoError(t, err)
	_, err = c.etcd.Client().Put(t.Context(), key+ids[1], "\xff")
	require.NoError(t, err)
	code, out = verify("--job", "heartbeat")
	require.Equal(t, 1, code)
	lines := strings.Join(strings.Fields(out), " ")
	require.Contains(t, lines, "2 unaccounted default/heartbeat "+ids[0]+" was due and has neither verdict nor record")
	require.Contains(t, lines, "6 unreadable default/heartbeat "+ids[1])

	code, out = verify("--address", freeAddress(t))
	require.Equal(t, 2, code)
	require.Contains(t, out, "no control node answers")
}

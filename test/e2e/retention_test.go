package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// TestRetention has a cluster find a long history: the leader removes what is beyond
// the job's limits and packs the rest, while a job that is due every second goes on.
func TestRetention(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2, flags: []string{"--retention-period=1s"}})
	c.must(`name: pages
spec:
  schedules: ["* * * * *"]
  retention: {maxRuns: 400}
  noop: {}
---
name: tick
spec:
  schedules: ["* * * * * *"]
  noop: {}
`, "job", "apply", "-f", "-")
	from := settled()
	const runs = 2000
	end := time.Now().UTC().Truncate(time.Minute).Add(-time.Hour)
	client := c.etcd.Client()
	slot := func(n int) time.Time { return end.Add(time.Duration(n-runs) * time.Minute) }
	for n := 0; n < runs; n += 100 {
		var ops []clientv3.Op
		for i := n; i < n+100; i++ {
			rec := state.Record{Generation: 1, State: state.StateSucceeded, Due: slot(i), Recorded: slot(i).Add(time.Second), Shards: 1}
			ops = append(ops, clientv3.OpPut(prefix+"history/default/pages/"+string(state.SlotRunID(slot(i))), string(codec.MarshalRecord(&rec))))
		}
		_, err := client.Txn(t.Context()).Then(ops...).Commit()
		require.NoError(t, err)
	}
	count := func(below string) int {
		res, err := client.Get(t.Context(), prefix+below, clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return int(res.Count)
	}
	require.Eventually(t, func() bool {
		return count("history/default/pages/") < 100 && count("swept/default/pages") == 1
	}, 3*time.Minute, 200*time.Millisecond, "the closed part moves once a minute")
	var listed int
	require.Eventually(t, func() bool {
		listed = strings.Count(c.must("", "run", "list", "--job", "pages", "--limit", "0"), "succeeded")
		return listed <= 450+2
	}, patience, time.Second)
	require.GreaterOrEqual(t, listed, 400)
	require.Positive(t, count("segments/default/pages/"))
	kept := c.must("", "run", "get", "pages", string(state.SlotRunID(slot(runs-200))))
	require.Contains(t, kept, "succeeded")
	code, _, stderr := c.cli("", "run", "get", "pages", string(state.SlotRunID(slot(3))))
	require.NotZero(t, code)
	require.Contains(t, stderr, "removed by retention")
	c.awaitWatermark(from.Add(5 * time.Second))
	// The history of pages is made up, so that the checker has nothing to say of it.
	for at := from.Truncate(time.Second).Add(time.Second); at.Before(from.Add(5 * time.Second)); at = at.Add(time.Second) {
		require.NotNil(t, c.run(jobName("tick")+"/runs/"+string(state.SlotRunID(at))), at)
	}
}

// TestSnapshot saves the jobs of a cluster and puts them into another one.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	old := newCluster(t, options{nodes: 1})
	old.must("name: holidays\nspec: {entries: [{name: new year, date: 01-01}]}\n", "calendar", "apply", "-f", "-")
	old.must(`name: a
spec:
  schedules: ["@daily"]
  excludedCalendars: [holidays]
  retention: {maxRuns: 7}
  noop: {}
---
name: b
spec: {schedules: ["@hourly"], noop: {}}
---
name: c
spec: {schedules: ["@yearly"], checkpoint: {scope: job}, noop: {}}
`, "job", "apply", "-f", "-")
	old.must("", "job", "pause", "b", "--reason", "holiday")
	require.Equal(t, "checkpoint 1 of default/c, shard 0, is set\n", old.must("to 4", "job", "checkpoint", "c", "--set", "-"))
	require.Equal(t, "checkpoint 2 of default/c, shard 0, is set\n", old.must("to 5", "job", "checkpoint", "c", "--set", "-"))
	file := filepath.Join(t.TempDir(), "jobs.snapshot")
	require.Contains(t, old.must("", "snapshot", "save", file), "3 jobs, 1 calendars, 1 checkpoints")

	c := newCluster(t, options{nodes: 1})
	dry := c.must("", "snapshot", "restore", file, "--dry-run")
	require.Equal(t, "calendar default/holidays: create (not done)\njob default/a: create (not done)\njob default/b: create (not done)\n"+
		"job default/c: create (not done)\ncheckpoint of default/c, shard 0: create (not done)\n", dry)
	require.NotContains(t, c.must("", "job", "list"), "default/a")
	c.must("", "snapshot", "restore", file)
	require.Contains(t, c.must("", "job", "get", "a", "-o", "yaml"), "maxRuns: 7")
	require.Contains(t, c.must("", "job", "get", "b", "-o", "yaml"), "pauseReason: holiday")
	require.Equal(t, "to 5", c.must("", "job", "checkpoint", "c"))
	require.Contains(t, c.must("", "job", "checkpoint", "c", "--history"), "2")
	require.NotContains(t, c.must("", "job", "get", "c", "-o", "yaml"), "paused")
	same := "calendar default/holidays: same\njob default/a: same\njob default/b: same\njob default/c: same\ncheckpoint of default/c, shard 0: same\n"
	require.Equal(t, same, c.must("", "snapshot", "restore", file))

	// As a restore leaves it that is cut short; the next one goes on.
	c.must("", "job", "checkpoint", "c", "--delete")
	c.must("", "job", "pause", "c", "--reason", "its checkpoints are being restored")
	require.Contains(t, c.must("", "snapshot", "restore", file), "job default/c: same\ncheckpoint of default/c, shard 0: create\n")
	require.NotContains(t, c.must("", "job", "get", "c", "-o", "yaml"), "paused")
	require.Equal(t, same, c.must("", "snapshot", "restore", file))

	// What was saved since is the newer one.
	c.must("to 6", "job", "checkpoint", "c", "--set", "-")
	code, stdout, stderr := c.cli("", "snapshot", "restore", file)
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "checkpoint of default/c, shard 0: conflict, it was changed after the snapshot\n")
	require.Contains(t, stderr, "1 of 5 differ")
	require.Contains(t, c.must("", "snapshot", "restore", file, "--on-conflict", "skip"), "checkpoint of default/c, shard 0: skip")
	require.Equal(t, "to 6", c.must("", "job", "checkpoint", "c"))
	require.Contains(t, c.must("", "snapshot", "restore", file, "--on-conflict", "replace"), "checkpoint of default/c, shard 0: replace")
	require.Equal(t, "to 5", c.must("", "job", "checkpoint", "c"))

	// What was changed since is not overwritten unless that is said.
	c.must("name: a\nspec: {schedules: [\"@weekly\"], noop: {}}\n", "job", "apply", "-f", "-")
	code, stdout, stderr = c.cli("", "snapshot", "restore", file)
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "job default/a: conflict, it was changed after the snapshot\n")
	require.Contains(t, stderr, "nothing was changed")
	require.Contains(t, c.must("", "snapshot", "restore", file, "--on-conflict", "skip"), "job default/a: skip")
	require.Contains(t, c.must("", "job", "get", "a", "-o", "yaml"), "@weekly")
	c.must("", "snapshot", "restore", file, "--on-conflict", "replace")
	require.Contains(t, c.must("", "job", "get", "a", "-o", "yaml"), "@daily")

	content, err := os.ReadFile(file)
	require.NoError(t, err)
	for name, damaged := range map[string]string{
		"cut":     string(content[:len(content)-10]),
		"changed": strings.Replace(string(content), "@daily", "@weekly", 1),
		"other":   "hello\n",
	} {
		bad := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(bad, []byte(damaged), 0o600))
		code, _, stderr := c.cli("", "snapshot", "restore", bad)
		require.Equal(t, 1, code, name)
		require.Contains(t, stderr, "snapshot", name)
	}
	code, _, stderr = c.cli("", "snapshot", "restore", file, "--max-age", "1ns")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "more than --max-age")
}

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// TestLimits has runs of two jobs share a limit while leaders are killed: there are never
// more at work than may be, the queue tells what each waits for, and all run in the end. One
// that needs a resource waits for that alone.
func TestLimits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 3, flags: []string{"--resources=gpu=1"}})
	told := filepath.Join(t.TempDir(), "told") // until it is there all of them are at work, or wait
	job := func(name, priority string) string {
		return fmt.Sprintf(`name: %s
spec:
  overlap: allow
  priority: %s
  limits: [{name: db, max: 2, scope: cluster}]
  command: {shell: "until [ -e %s ]; do sleep 0.1; done; sleep 2"}
`, name, priority, told)
	}
	c.must(job("urgent", "high")+"---\n"+job("idle", "low")+`---
name: train
spec:
  resources: {gpu: 1}
  nodeSelector: {name: n1}
  overlap: allow
  command: {shell: "until [ -e `+told+` ]; do sleep 0.1; done; sleep 10"}
`, "job", "apply", "-f", "-")
	const each = 6
	for range each {
		c.must("", "job", "trigger", "idle")
		c.must("", "job", "trigger", "urgent")
	}
	c.must("", "job", "trigger", "train")
	c.awaitRunIn("train", leaderdv1.Run_STATE_RUNNING)
	c.must("", "job", "trigger", "train")
	await(t, "the queue tells", func(context.Context) error {
		_, out, _ := c.cli("", "queue")
		for _, want := range []string{"limit db of the cluster: 2 of 2, held by default/", "too little gpu is free", " high ", " low "} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("%q is not in\n%s", want, out)
			}
		}
		return nil
	})
	require.NoError(t, os.WriteFile(told, nil, 0o600))
	for range 2 {
		pass(t, 2*time.Second)
		n := c.leader()
		n.kill()
		n.start()
	}
	var all []*leaderdv1.Run
	await(t, "all have run", func(context.Context) error {
		all = append(c.runs("urgent"), c.runs("idle")...)
		for _, r := range all {
			if r.GetState() != leaderdv1.Run_STATE_SUCCEEDED {
				return fmt.Errorf("run %s is %s", r.GetName(), r.GetState())
			}
		}
		return nil
	})
	require.Len(t, all, 2*each)
	for _, r := range all {
		last := r.GetAttempts()[len(r.GetAttempts())-1]
		beside := 0
		for _, o := range all {
			at := o.GetAttempts()[len(o.GetAttempts())-1]
			if !at.GetStartTime().AsTime().After(last.GetStartTime().AsTime()) && at.GetEndTime().AsTime().After(last.GetStartTime().AsTime()) {
				beside++ // itself, too
			}
		}
		require.LessOrEqual(t, beside, 2, "at the start of %s", r.GetName())
	}
}

// TestLimitPerKey has one customer submit far more than it may have at work: its runs wait
// for one another, which the queue tells, those of others do not wait for them, and a
// judge finds that each key's limit held.
func TestLimitPerKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 1})
	told := filepath.Join(t.TempDir(), "told") // until it is there all of them are at work, or wait
	c.must(`name: render
spec:
  overlap: allow
  limits: [{name: customer, max: 2, perKey: true}]
  command: {shell: "until [ -e `+told+` ]; do sleep 0.1; done"}
`, "job", "apply", "-f", "-")
	for range 6 {
		c.must("", "run", "submit", "render", "--limit-key", "acme")
	}
	c.must("", "run", "submit", "render", "--limit-key", "other")
	c.must("", "run", "submit", "render")
	await(t, "the queue tells", func(context.Context) error {
		_, running, _ := c.cli("", "run", "list", "--job", "render")
		if n := strings.Count(running, " running "); n != 4 {
			return fmt.Errorf("%d runs are at work:\n%s", n, running)
		}
		_, out, _ := c.cli("", "queue")
		if n := strings.Count(out, "limit customer for key acme: 2 of 2, held by 2"); n != 4 {
			return fmt.Errorf("%d wait:\n%s", n, out)
		}
		return nil
	})
	code, _, stderr := c.cli("name: free\nspec: {noop: }\n", "job", "apply", "-f", "-")
	require.Zero(t, code, stderr)
	code, _, stderr = c.cli("", "run", "submit", "free", "--limit-key", "acme")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "the job has no limit with perKey")
	require.NoError(t, os.WriteFile(told, nil, 0o600))
	await(t, "all have run", func(context.Context) error {
		_, out, _ := c.cli("", "run", "list", "--job", "render")
		if n := strings.Count(out, " succeeded "); n != 8 {
			return fmt.Errorf("%d have:\n%s", n, out)
		}
		return nil
	})
	require.Contains(t, c.must("", "verify", "--job", "render"), "violations:  none\n")
}

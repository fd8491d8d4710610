package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// TestCircuitBreaker has the command of a job fail until its circuit opens, over the death
// of the leader, and lets it start again by the command line once its cause is mended.
func TestCircuitBreaker(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	mended := filepath.Join(t.TempDir(), "mended")
	c.must(fmt.Sprintf(`name: calls
spec:
  circuitBreaker: {failures: 2, coolDown: 24h, target: billing}
  command: {shell: "test -e %s"}
`, mended), "job", "apply", "-f", "-")
	for range 2 {
		c.must("", "job", "trigger", "calls")
		c.awaitRunIn("calls", leaderdv1.Run_STATE_FAILED)
	}
	await(t, "the circuit is open", func(context.Context) error {
		if out := c.must("", "job", "get", "calls"); !strings.Contains(out, "open until") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	killed := c.leader()
	killed.kill()
	killed.start()
	c.must("", "job", "trigger", "calls")
	skipped := c.awaitRunIn("calls", leaderdv1.Run_STATE_SKIPPED)
	require.Equal(t, "circuit_open", skipped.GetReason())
	require.Contains(t, skipped.GetDetail(), "2 runs in a row failed")
	require.Regexp(t, `(?m)^circuit: +open until \S+: 2 runs in a row failed, the last of them \S+ of calls \(target billing\)$`, c.must("", "job", "get", "calls"))

	require.NoError(t, os.WriteFile(mended, nil, 0o600))
	require.Equal(t, "default/calls circuit is closed, it was open\n", c.must("", "job", "reset-circuit", "calls"))
	c.must("", "job", "trigger", "calls")
	c.awaitRunIn("calls", leaderdv1.Run_STATE_SUCCEEDED)
	require.Regexp(t, `(?m)^circuit: +closed \(target billing\)$`, c.must("", "job", "get", "calls"))
}

// TestChainWithHooks applies a chain in one file, in no order, and runs it while its
// leader dies: what the first run left is given to the second, its failure is followed
// by another job, hooks run once each, and the whole chain is listed.
func TestChainWithHooks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	dir := t.TempDir()
	seen, hooks := filepath.Join(dir, "seen"), filepath.Join(dir, "hooks")
	file := fmt.Sprintf(`- name: load
  spec:
    after: {jobs: [extract]}
    command: {shell: "echo \"$LEADERD_UPSTREAM $(cat)\" >>%s"}
- name: alert
  spec:
    after: {jobs: [load, extract], mode: any, condition: failure}
    noop:
- name: extract
  spec:
    keepResult: true
    hooks:
      onSuccess: {command: {shell: "echo \"$LEADERD_HOOK $LEADERD_RUN $LEADERD_OUTCOME\" >>%s; echo told"}}
      onExit: {command: {shell: "exit 3"}, timeout: 5s}
    command: {shell: "printf 'row %%s' $LEADERD_RUN >$LEADERD_RESULT_FILE"}
`, seen, hooks)
	out := c.must(file, "job", "apply", "-f", "-")
	require.Less(t, strings.Index(out, "extract created"), strings.Index(out, "load created"))
	code, _, stderr := c.cli("name: extract\nspec: {after: {jobs: [load]}, noop: }\n", "job", "apply", "-f", "-")
	require.NotZero(t, code)
	require.Contains(t, stderr, "in a circle: extract -> load -> extract")
	code, _, stderr = c.cli("name: x\nspec: {after: {jobs: [nobody]}, noop: }\n", "job", "apply", "-f", "-")
	require.NotZero(t, code)
	require.Contains(t, stderr, `spec.after.jobs[0]: there is no job "nobody" in the namespace, nor in the files`)
	code, _, stderr = c.cli("", "job", "delete", "extract")
	require.NotZero(t, code)
	require.Contains(t, stderr, "other jobs run after it: alert, load")

	const runs = 4
	for i := range runs {
		c.must("", "job", "trigger", "extract")
		if i == runs/2 {
			killed := c.leader()
			killed.kill()
			killed.start()
		}
		await(t, "the run was followed", func(context.Context) error {
			done := 0
			for _, r := range c.runs("load") {
				if r.GetState() == leaderdv1.Run_STATE_SUCCEEDED {
					done++
				}
			}
			if done <= i {
				return fmt.Errorf("%d runs", done)
			}
			return nil
		})
	}
	// Each run of the first made one of the second, which got what it had left.
	text, err := os.ReadFile(seen)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, c.runs("load"), runs)
	first := map[string]bool{}
	for _, r := range c.runs("extract") {
		require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, r.GetState())
		first[r.GetName()[strings.LastIndex(r.GetName(), "/")+1:]] = true
	}
	require.Len(t, first, runs)
	require.Len(t, lines, runs)
	for _, line := range lines {
		run := line[strings.LastIndexByte(line, ' ')+1:]
		require.Equal(t, "extract/"+run+"/succeeded row "+run, line, "the run before, and its result")
		require.True(t, first[run])
	}
	require.Empty(t, c.runs("alert"))

	one := c.runs("load")[0]
	require.Len(t, one.GetUpstream(), 1)
	list := c.must("", "run", "list", "--correlation", one.GetCorrelation())
	require.Equal(t, 3, strings.Count(list, "\n"), "%s", list)
	require.Contains(t, list, "default/extract")
	require.Contains(t, list, "default/load")

	// The second hook's end is the last that is noted.
	id := strings.TrimPrefix(one.GetCorrelation(), "extract/")
	await(t, "the hooks are noted", func(context.Context) error {
		if out := c.must("", "run", "get", "extract", id); strings.Contains(out, "not known") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	shown := c.must("", "run", "get", "extract", id)
	require.Regexp(t, `(?m)^onSuccess +succeeded .* 0 +- +told$`, shown)
	require.Regexp(t, `(?m)^onExit +failed .* 3 +exit code 3 +-$`, shown)
	text, err = os.ReadFile(hooks)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), "onSuccess "+id+" succeeded\n"))
}

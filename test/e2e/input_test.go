package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
)

// cli runs the command line against the cluster and answers its exit status and
// what it printed.
func (c *cluster) cli(stdin string, args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	return runCLI(c.t, strings.Join(c.addresses, ","), stdin, args...)
}

func runCLI(t testing.TB, address, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out, err bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &err
	cmd.Env = append(cmd.Environ(), "LEADERD_ADDRESS="+address)
	failed := cmd.Run()
	if exit := (*exec.ExitError)(nil); failed != nil && !errors.As(failed, &exit) {
		require.NoError(t, failed)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// TestBadInput gives the command line what it must refuse: each time it names the
// field, and ends with status 2.
func TestBadInput(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 1})
	job := func(lines ...string) string {
		return "name: bad\nspec:\n  " + strings.Join(lines, "\n  ") + "\n"
	}
	const noop = "noop: {}"
	for name, b := range map[string]struct{ yaml, field string }{
		"step beyond the field": {job(`schedules: ["*/60 * * * *"]`, noop), "spec.schedules[0]"},
		"30 February":           {job(`schedules: ["0 0 30 2 *"]`, noop), "spec.schedules[0]"},
		"TZ alone":              {job(`schedules: ["TZ="]`, noop), "spec.schedules[0]"},
		"interval of 0":         {job(`schedules: ["@every 0s"]`, noop), "spec.schedules[0]"},
		"zone nobody knows":     {job(`schedules: ["@daily"]`, "timeZone: Mars/Olympus", noop), "spec.time_zone"},
		"second schedule":       {job(`schedules: ["@daily", "61 * * * *"]`, noop), "spec.schedules[1]"},
		"no target":             {job(`schedules: ["@daily"]`), "spec"},
		"no URL":                {job("http: {url: 'ftp://x/'}"), "spec.http.url"},
		"status 99":             {job("http: {url: 'http://x/', expectedCodes: [99]}"), "spec.http.expected_codes"},
		"reserved variable":     {job("command: {argv: ['true'], env: {LEADERD_TOKEN: '1'}}"), "spec.command.env"},
		"argv and shell":        {job("command: {argv: ['true'], shell: 'true'}"), "spec.command"},
		"relative directory":    {job("command: {argv: ['true'], dir: here}"), "spec.command.dir"},
		"negative timeout":      {job("timeout: -1s", noop), "spec.timeout"},
		"deadline too short":    {job("startDeadline: 10ms", noop), "spec.start_deadline"},
		"policy nobody knows":   {job("overlap: sometimes", noop), "overlap"},
		"field nobody knows":    {job("shedules: ['@daily']", noop), "shedules"},
		"text too long":         {job("description: "+strings.Repeat("x", 1025), noop), "spec.description"},
		"body too large":        {job("http: {url: 'http://x/', body: " + strings.Repeat("eHh4", 90_000) + "}"), "spec.http.body"},
		"name with a space":     {"name: a b\nspec: {noop: {}}\n", "name"},
	} {
		code, _, stderr := c.cli(b.yaml, "job", "apply", "-f", "-")
		require.Equal(t, 2, code, "%s: %s", name, stderr)
		require.Contains(t, camel(stderr), camel(b.field), "%s", name)
		require.NotContains(t, stderr, "panic", name)
	}
	code, stdout, stderr := c.cli("", "job", "list")
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout, "bad")

	code, _, stderr = c.cli("", "job", "get", "nobody")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "nobody")
	code, _, _ = c.cli("", "job", "frobnicate")
	require.Equal(t, 2, code)
	code, _, stderr = runCLI(t, freeAddress(t), "", "job", "list", "--timeout=1s")
	require.Equal(t, 1, code)
	require.NotEmpty(t, stderr)
}

// camel makes names of fields comparable however they are written.
func camel(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }

// TestBadConfiguration starts nodes with settings that cannot work: they say
// which, and end with status 2.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	for flag, field := range map[string]string{
		"--election-ttl=1s":              "election.ttl",
		"--planner-horizon=3s":           "planner.horizon",
		"--roles=boss":                   "roles",
		"--listen=nowhere":               "listen",
		"--executor-drain-grace=-1s":     "executor.drain_grace",
		"--etcd-embedded-quota-bytes=1k": "etcd.embedded.quota_bytes",
	} {
		n := w.node("bad", flag)
		n.start()
		require.Equal(t, 2, n.wait(patience), flag)
		require.True(t, n.logged(field), "%s: %s", flag, logTail(n.logPath))
	}
}

const spoiltRun = "pending/default/good/20261130T020000Z-trigger-00000001"

// TestCorruptJob writes rubbish into a stored job: that job alone stands still,
// the lists say so, and mending it sets it going again.
func TestCorruptJob(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	c.apply(c.httpJob("good", "@every 1s"), c.httpJob("spoilt", "@every 1s"))
	from := settled()
	c.awaitWatermark(from.Add(time.Second))
	for key, value := range map[string]string{
		"jobs/default/spoilt": "\xff\xffrubbish", "jobs/default/born-spoilt": "\x0a\x05hi", "jobs/default/empty": "",
		spoiltRun: "\xff", "nodes/ghost": "\xff\xff",
	} {
		_, err := c.etcd.Client().Put(t.Context(), prefix+key, value)
		require.NoError(t, err)
	}
	await(t, "the quarantine is told", func(context.Context) error {
		if n := c.status().GetQuarantinedJobs(); n != 3 {
			return fmt.Errorf("%d jobs are quarantined", n)
		}
		return nil
	})
	code, stdout, stderr := c.cli("", "cluster", "status")
	require.Zero(t, code, stderr)
	require.Regexp(t, `quarantined:\s+3`, stdout)
	code, stdout, stderr = c.cli("", "job", "list")
	require.Zero(t, code, stderr)
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, "spoilt") {
			require.Contains(t, strings.ToLower(line), "quarantine", stdout)
		}
	}
	require.Contains(t, stdout, "born-spoilt")

	// It survives a failover, too.
	old := c.leader()
	require.Zero(t, old.terminate())
	c.awaitLeader(old.name)
	spoilt := len(c.startsOf("spoilt"))
	c.awaitWatermark(settled().Add(3 * time.Second))
	require.Len(t, c.startsOf("spoilt"), spoilt, "starts of the spoilt job")

	c.apply(c.httpJob("spoilt", "@every 1s"))
	await(t, "the mended job runs", func(context.Context) error {
		if len(c.startsOf("spoilt")) == spoilt {
			return errors.New("it does not")
		}
		return nil
	})
	require.EqualValues(t, 2, c.status().GetQuarantinedJobs())
	_, err := c.etcd.Client().Delete(t.Context(), prefix+spoiltRun) // it would never be over
	require.NoError(t, err)
	to := settled()
	h := c.past(to)
	delete(h.Jobs, "spoilt") // what etcd was told behind leaderd's back has no version
	h.Runs = keep(h.Runs, func(r history.Run) bool { return r.Job == "good" })
	h.Starts = keep(h.Starts, func(s history.Start) bool { return s.Job == "good" })
	c.judge(h, from, to)
}

func keep[T any](all []T, want func(T) bool) []T {
	return slices.DeleteFunc(all, func(v T) bool { return !want(v) })
}

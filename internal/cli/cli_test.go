package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/internal/config"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const twoJobs = `# jobs of the billing team
name: billing
spec:
  schedules: ["*/5 * * * *"]
  timeZone: Europe/Berlin
  noop: {}
--- # the second
name: ops/cleanup
spec: {schedules: ['@hourly', "0 3 * * *"], command: {argv: [rm, -rf, /tmp/x]}, start_deadline: 10m, overlap: allow}
`

func TestApplyTellsOfSchedulesThatAreOver(t *testing.T) {
	_, addr := startFake(t)
	over := "name: once\nspec:\n  schedules: ['@at 2020-01-01T00:00:00Z']\n  noop: {}\n"
	require.Equal(t, "default/once created; no slot is due any more (dry run)\n", succeed(t, addr, over, "job", "apply", "-f", "-", "--dry-run"))
	require.Equal(t, "default/once created; no slot is due any more\n", succeed(t, addr, over, "job", "apply", "-f", "-"))
	require.Equal(t, "default/manual created\n", succeed(t, addr, "name: manual\nspec: {noop: {}}\n", "job", "apply", "-f", "-"), "it never has any")
}

func TestJobLifecycle(t *testing.T) {
	f, addr := startFake(t)
	require.Equal(t, "default/billing created (dry run)\nops/cleanup created (dry run)\n",
		succeed(t, addr, twoJobs, "job", "apply", "-f", "-", "--dry-run"))
	require.Empty(t, f.jobs)
	require.Equal(t, "default/billing created\nops/cleanup created\n", succeed(t, addr, twoJobs, "job", "apply", "-f", "-"))
	require.Equal(t, "default/billing unchanged\nops/cleanup unchanged\n", succeed(t, addr, twoJobs, "job", "apply", "-f", "-"))
	require.Equal(t, 10*time.Minute, f.jobs["namespaces/ops/jobs/cleanup"].GetSpec().GetStartDeadline().AsDuration())
	require.Equal(t, leaderdv1.Overlap_OVERLAP_ALLOW, f.jobs["namespaces/ops/jobs/cleanup"].GetSpec().GetOverlap())

	require.Equal(t, `JOB              SCHEDULE     ZONE           TARGET  STATE   NEXT
default/billing  */5 * * * *  Europe/Berlin  noop    active  -
`, succeed(t, addr, "", "job", "list"))
	require.Contains(t, succeed(t, addr, "", "job", "ls", "-A"), "ops/cleanup      @hourly +1")
	require.Equal(t, "ops/cleanup paused\ndefault/billing paused\n",
		succeed(t, addr, "", "job", "pause", "ops/cleanup", "namespaces/default/jobs/billing", "--reason", "calm down"))
	require.Contains(t, succeed(t, addr, "", "job", "get", "billing"), "paused:      by ada: calm down\n")
	require.Equal(t, "ops/cleanup resumed\n", succeed(t, addr, "", "job", "resume", "cleanup", "-n", "ops"))
	require.Equal(t, "default/billing triggered r1\n", succeed(t, addr, "", "job", "trigger", "billing", "--allow-overlap"))

	code, stdout, stderr := cmdline(t, addr, "", "job", "delete", "nope", "billing")
	require.Equal(t, 1, code)
	require.Equal(t, "default/billing deleted\n", stdout, "one missing job keeps no other from being deleted")
	require.Equal(t, "error: default/nope: namespaces/default/jobs/nope does not exist\n", stderr)
	require.NotEmpty(t, f.actors)
}

// What get and list print goes back in.
func TestJobOutputCanBeApplied(t *testing.T) {
	_, addr := startFake(t)
	succeed(t, addr, twoJobs, "job", "apply", "-f", "-")
	for _, args := range [][]string{
		{"job", "get", "ops/cleanup", "-o", "yaml"},
		{"job", "get", "ops/cleanup", "-o", "json"},
		{"job", "list", "-A", "-o", "yaml"},
		{"job", "list", "-A", "-o", "json"},
	} {
		printed := succeed(t, addr, "", args...)
		require.Contains(t, succeed(t, addr, printed, "job", "apply", "-f", "-"), "ops/cleanup unchanged\n", printed)
	}
	stale := `{"name": "billing", "etag": "old", "spec": {"noop": {}}}`
	code, stdout, stderr := cmdline(t, addr, stale, "job", "apply", "-f", "-")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Equal(t, "error: standard input: document 1: the job changed in between\n", stderr)
}

func TestJSONIsStable(t *testing.T) {
	_, addr := startFake(t)
	require.Equal(t, "[]\n", succeed(t, addr, "", "job", "list", "-o", "json"))
	succeed(t, addr, twoJobs, "job", "apply", "-f", "-")
	var jobs []map[string]any
	require.NoError(t, json.Unmarshal([]byte(succeed(t, addr, "", "job", "list", "-A", "-o", "json")), &jobs))
	require.Len(t, jobs, 2)
	//nolint:testifylint // the spaces are the point
	require.Equal(t, `{
  "name": "namespaces/default/jobs/billing",
  "spec": {
    "schedules": [
      "*/5 * * * *"
    ],
    "timeZone": "Europe/Berlin",
    "noop": {}
  },
  "uid": "u1",
  "generation": "1",
  "etag": "e1",
  "createTime": "2026-11-30T02:00:00Z",
  "updateTime": "2026-11-30T02:00:00Z",
  "updatedBy": "somebody"
}
`, succeed(t, addr, "", "job", "get", "billing", "-o", "json"))
}

func TestApplyReportsAllBeforeItChangesAny(t *testing.T) {
	f, addr := startFake(t)
	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	write("a.yaml", "name: good\nspec: {noop: {}}\n---\nname: bad\nspec: {schedules: ['@daily']}\n")
	write("b.json", "{\n\t\"name\": \"worse\",\n\t\"spec\": {}\n}\n") // tabs, which YAML refuses
	write("c.txt", "not a job")
	write(".hidden.yaml", "not a job either")
	code, stdout, stderr := cmdline(t, addr, "", "job", "apply", "-f", dir)
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Empty(t, f.jobs)
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.json")
	require.Equal(t, "error: "+a+": document 2: spec: has no target\n"+
		"error: "+a+": document 2: spec.timeZone: is bad too\n"+
		"error: "+b+": document 1: spec: has no target\n"+
		"error: "+b+": document 1: spec.timeZone: is bad too\n", stderr)
}

func TestApplySaysHowFarItCame(t *testing.T) {
	f, addr := startFake(t)
	updates := 0
	f.fail = func(method string) error {
		if updates++; method == "UpdateJob" && updates == 4 { // both were checked, and one was applied
			return status.Error(codes.Internal, "disk on fire")
		}
		return nil
	}
	code, stdout, stderr := cmdline(t, addr, twoJobs, "job", "apply", "-f", "-")
	require.Equal(t, exitFailure, code)
	require.Equal(t, "default/billing created\n", stdout)
	require.Equal(t, "error: standard input: document 2: disk on fire (1 of 2 jobs were applied)\n", stderr)
}

func TestUsageErrorsExitWith2(t *testing.T) {
	_, addr := startFake(t)
	for _, args := range [][]string{
		{"jb"},
		{"job", "lst"},
		{"job", "list", "extra"},
		{"job", "get"},
		{"job", "list", "--nope"},
		{"job", "list", "-o", "xml"},
		{"job", "apply"},
		{"job", "apply", "-f", "/nonexistent"},
		{"job", "get", "a/b/c"},
		{"job", "get", "ns/"},
		{"job", "get", "a/b", "-n", "c"},
		{"job", "get", "-"},
		{"job", "list", "-A", "-n", "x"},
		{"job", "list", "--address", "nowhere"},
		{"job", "list", "--timeout", "0s"},
		{"run", "get", "a", "b/c"},
		{"run", "list", "--limit", "-1"},
		{"serve", "--election-ttl", "1s"},
		{"serve", "--horizon", "1s"},
		{"dev", "--listen", "x"},
		{"dev", "--listen", "127.0.0.1:0"},
		{"dev", "--log-level", "loud"},
		{"version", "x"},
	} {
		code, stdout, stderr := cmdline(t, addr, "", args...)
		require.Equal(t, 2, code, "%v", args)
		require.Empty(t, stdout, "%v", args)
		require.Regexp(t, `^error: .+\n`, stderr, "%v", args)
	}
}

func TestTransportErrorsAreExplained(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := l.Addr().String()
	require.NoError(t, l.Close())
	code, _, stderr := cmdline(t, dead, "", "cluster", "status")
	require.Equal(t, 1, code)
	require.Equal(t, "error: no control node answers at "+dead+": connection refused\n", stderr)

	f, addr := startFake(t)
	f.fail = func(string) error {
		return apiErr(codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_JOB_PAUSED, "the job is paused:\n calm down")
	}
	_, _, stderr = cmdline(t, addr, "", "job", "trigger", "x")
	require.Equal(t, "error: default/x: the job is paused: calm down\n", stderr)
	f.fail = func(string) error { return status.Error(codes.Unimplemented, "unknown service") }
	_, _, stderr = cmdline(t, addr, "", "job", "list")
	require.Equal(t, "error: "+addr+" does not know this request: is it a leaderd of this version?\n", stderr)
	f.fail = func(string) error { return status.Error(codes.DeadlineExceeded, "context deadline exceeded") }
	_, _, stderr = cmdline(t, addr, "", "job", "list", "--timeout", "7s")
	require.Equal(t, "error: no answer from "+addr+" within 7s\n", stderr)
}

func TestClientFailsOver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := l.Addr().String()
	require.NoError(t, l.Close())
	live, addr := startFake(t)
	leaving, other := startFake(t)
	leaving.fail = func(string) error {
		return apiErr(codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_NODE_UNAVAILABLE, "the node is shutting down")
	}
	require.Contains(t, succeed(t, dead+", "+other+","+addr, "", "cluster", "status"), "leader:")

	// Also a trigger, where the node says that it did nothing.
	live.jobs["namespaces/default/jobs/x"] = &leaderdv1.Job{Name: "namespaces/default/jobs/x"}
	succeed(t, dead+","+other+","+addr, "", "job", "trigger", "x")

	// But not where it may have been carried out.
	leaving.fail = func(string) error { return status.Error(codes.Unavailable, "connection reset") }
	code, _, stderr := cmdline(t, other+","+addr, "", "job", "trigger", "x")
	require.Equal(t, 1, code)
	require.Equal(t, "error: default/x: no control node answers at "+other+","+addr+": connection reset\n", stderr)
	succeed(t, other+","+addr, "", "job", "get", "x", "-o", "json")
}

// A control node without etcd says so until etcd has elected a leader.
func TestClientWaitsForTheStore(t *testing.T) {
	f, addr := startFake(t)
	tries := 0
	f.fail = func(string) error {
		if tries++; tries < 3 {
			return apiErr(codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, "the store cannot be reached")
		}
		return nil
	}
	succeed(t, addr, twoJobs, "job", "apply", "-f", "-")
	f.fail = func(string) error {
		return apiErr(codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, "the store cannot be reached")
	}
	code, _, stderr := cmdline(t, addr, "", "job", "list", "--timeout", "1s")
	require.Equal(t, 1, code)
	require.Equal(t, "error: the store cannot be reached\n", stderr)
}

func TestRuns(t *testing.T) {
	f, addr := startFake(t)
	const a, b = "namespaces/default/jobs/a", "namespaces/default/jobs/b"
	ok := runOf(a, slot.Add(time.Minute), leaderdv1.Run_STATE_SUCCEEDED, 3*time.Millisecond, 1500*time.Millisecond)
	bad := runOf(a, slot, leaderdv1.Run_STATE_FAILED, 2*time.Second, time.Second)
	bad.Attempts[0].Error = "exit status 1\x1b[31m"
	bad.OutputTail, bad.OutputBytes = []byte("line 1\nline\x1b[2J 2"), 100
	missed := &leaderdv1.Run{
		Name: b + "/runs/20261130T020000Z", State: leaderdv1.Run_STATE_MISSED, Reason: "outage", SlotCount: 12,
		DueTime: f0(slot), UntilTime: f0(slot.Add(time.Hour)),
	}
	f.runs = []*leaderdv1.Run{ok, bad, missed}
	require.Equal(t, `JOB        RUN               STATE       REASON  DUE                   LATE  TOOK  TRIES  NODE
default/a  20261130T020100Z  succeeded   -       2026-11-30T02:01:00Z  +3ms  1.5s  1      n1
default/a  20261130T020000Z  failed      -       2026-11-30T02:00:00Z  +2s   1s    1      n1
default/b  20261130T020000Z  missed x12  outage  2026-11-30T02:00:00Z  -     -     0      -
`, succeed(t, addr, "", "run", "list"))
	require.NotContains(t, succeed(t, addr, "", "run", "list", "--job", "a"), "default/b")
	require.NotContains(t, succeed(t, addr, "", "run", "list", "--limit", "2"), "default/b")
	require.Equal(t, "JOB  RUN  STATE  REASON  DUE  LATE  TOOK  TRIES  NODE\n", succeed(t, addr, "", "run", "list", "-n", "x"))

	got := succeed(t, addr, "", "run", "get", "a", "20261130T020000Z")
	require.Contains(t, got, "state:       failed\n")
	require.Contains(t, got, "late:        +2s\n")
	require.Contains(t, got, "1    failed  n1    -        2026-11-30T02:00:02Z  1s    1     42     7     exit status 1\uFFFD[31m\n")
	require.Contains(t, got, "output (last 17 of 100 bytes):\nline 1\nline\uFFFD[2J 2\n")
	require.Contains(t, succeed(t, addr, "", "run", "get", "b", "20261130T020000Z"), "until:       2026-11-30T03:00:00Z\n")
	code, _, stderr := cmdline(t, addr, "", "run", "get", "a", "x")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "error: there is no run")
}

func TestClusterStatus(t *testing.T) {
	_, addr := startFake(t)
	require.Equal(t, `leader:         n1
term:           7
watermark:      2026-11-30T02:00:00Z
watermark lag:  40ms
jobs:           0
quarantined:    1
lateness:       p50 1ms, p99 3ms, max 4ms (9 starts)
answered by:    n2
zone data:      2025c

NODE         ROLES             ADDRESS  CAPACITY  VERSION  STARTED               LABELS
n1 (leader)  control,executor  n1:7400  256       v1       2026-11-30T02:00:00Z  a=1,b=2
`, succeed(t, addr, "", "cluster", "status"))
}

func TestVersionHelpAndCompletion(t *testing.T) {
	require.Equal(t, "v1.2.3\n", succeed(t, "x:1", "", "version"))
	require.Contains(t, succeed(t, "x:1", ""), "Usage:")
	require.Contains(t, succeed(t, "x:1", "", "job"), "apply")
	require.Contains(t, succeed(t, "x:1", "", "completion", "bash"), "bash completion")
	require.Contains(t, succeed(t, "x:1", "", "serve", "--help"), "--etcd-embedded-quota-bytes size")
}

func TestServeGetsItsConfiguration(t *testing.T) {
	var got config.Config
	var out, errs bytes.Buffer
	d := Deps{
		Environ: []string{"LEADERD_CAPACITY=9", "LEADERD_LOG_FORMAT=json"}, Stdout: &out, Stderr: &errs,
		Serve: func(_ context.Context, cfg config.Config, log hclog.Logger) error {
			got = cfg
			log.Info("node is up", "node", cfg.Name)
			return context.DeadlineExceeded
		},
	}
	require.Equal(t, 1, Main(t.Context(), d, []string{"serve", "--name", "n7"}))
	require.Equal(t, "n7", got.Name)
	require.Equal(t, 9, got.Capacity)
	require.Contains(t, errs.String(), `"@message":"node is up"`)
	require.Contains(t, errs.String(), "error: context deadline exceeded\n")

	errs.Reset()
	require.Equal(t, 2, Main(t.Context(), d, []string{"serve", "--capacity", "0", "--roles", "x"}))
	require.Equal(t, "error: roles[0]: \"x\" is not one of control, executor\nerror: capacity: 0 is outside 1–1048576\n"+
		"error: control_addresses: a node without the role control needs the address of at least one control node\n", errs.String())
}

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func TestMistakesAreToldInOurWords(t *testing.T) {
	_, addr := startFake(t)
	for line, want := range map[string]string{
		"jobz":                           `leaderd has no command "jobz", did you mean job?`,
		"job aply":                       `leaderd job has no command "aply", did you mean apply?`,
		"completion tcsh":                `leaderd completion has no command "tcsh"`,
		"completion bash x":              `leaderd completion bash takes no argument, but got "x"`,
		"help job gett":                  `leaderd job has no command "gett", did you mean get?`,
		"job list extra more":            `leaderd job list takes no argument, but got "extra" "more"`,
		"job get":                        `leaderd job get: JOB is missing`,
		"job get a b":                    `leaderd job get takes JOB, but got "b" besides`,
		"job pause":                      `leaderd job pause: JOB is missing`,
		"run get a":                      `leaderd run get: RUN is missing`,
		"run get":                        `leaderd run get: JOB and RUN is missing`,
		"version x":                      `leaderd version takes no argument, but got "x"`,
		"job list --outptu json":         `leaderd job list has no flag --outptu, did you mean --output?`,
		"job list -z":                    `leaderd job list has no flag -z (in -z)`,
		"run list --limit":               `--limit needs a value`,
		"run list --limit many":          `--limit: "many": must be a whole number`,
		"job list --timeout soon":        `--timeout: "soon": must be a duration such as 500ms, 90s, 10m or 24h`,
		"job list -o xml":                `--output: "xml": want table, json or yaml`,
		"job list -A=perhaps":            `--all-namespaces: "perhaps": must be true or false`,
		"job list -A -n x":               `--all-namespaces and --namespace exclude each other: give one of them`,
		"run list --state faild":         `--state: "faild" is not one of pending, running, waiting, succeeded, failed, timed_out, cancelled, interrupted, lost, skipped, missed, unreadable, did you mean failed?`,
		"run list --since yesterday":     `--since: "yesterday" is neither a duration such as 90m, 24h or 7d, nor a time such as 2026-11-30T02:00:00Z, 2026-11-30T02:00, 2026-11-30 or 18:00`,
		"run list --state unspecified":   `--state: "unspecified" is not one of pending`,
		"job apply -f x --dry-run=maybe": `--dry-run: "maybe": must be true or false`,
	} {
		code, stdout, stderr := cmdline(t, addr, "", strings.Fields(line)...)
		require.Equal(t, 2, code, line)
		require.Empty(t, stdout, line)
		require.Contains(t, stderr, "error: "+want, line)
	}
	require.Equal(t, "v1.2.3\n", succeed(t, addr, "", "--version"))
	require.Contains(t, succeed(t, addr, "", "help", "job", "get"), "leaderd job get JOB")
	require.Contains(t, succeed(t, addr, "", "completion"), "bash")
}

func TestNamesAreCompleted(t *testing.T) {
	f, addr := startFake(t)
	for _, name := range []string{"default/a", "default/ab", "ops/z"} {
		ns, job, _ := strings.Cut(name, "/")
		full := "namespaces/" + ns + "/jobs/" + job
		f.jobs[full] = &leaderdv1.Job{Name: full}
	}
	f.runs = []*leaderdv1.Run{{Name: "namespaces/default/jobs/a/runs/20261130T020000Z"}}
	for line, want := range map[string]string{
		"job get":                    "a ab",
		"job get -n ops":             "z",
		"job get a":                  "",
		"job pause a":                "ab",
		"job trigger":                "a ab",
		"run get a":                  "20261130T020000Z",
		"run list --job":             "a ab",
		"run list --namespace":       "default ops",
		"run list --node":            "n1",
		"job list --namespace":       "default ops",
		"verify --job":               "a ab",
		"job get --address nowhere:": "",
	} {
		args := append([]string{"__complete"}, strings.Fields(line)...)
		_, stdout, _ := cmdline(t, addr, "", append(args, "")...)
		var got []string
		for l := range strings.Lines(stdout) {
			if l = strings.TrimSpace(l); !strings.HasPrefix(l, ":") && l != "" {
				got = append(got, l)
			}
		}
		require.Equal(t, want, strings.Join(got, " "), line)
	}
	_, stdout, _ := cmdline(t, addr, "", "__complete", "job", "get", "ops/")
	require.Contains(t, stdout, "ops/z\n")
}

func TestRunListSelects(t *testing.T) {
	f, addr := startFake(t)
	var asked *leaderdv1.ListRunsRequest
	f.listed = func(r *leaderdv1.ListRunsRequest) { asked = r }
	succeed(t, addr, "", "run", "list")
	require.Equal(t, leaderdv1.ListRunsRequest_ORDER_NEWEST, asked.GetOrder())
	require.Nil(t, asked.GetSinceTime())
	before := time.Now()
	succeed(t, addr, "", "run", "ls", "-A", "--state", "failed,timed-out", "--state", "MISSED", "--node", "n2", "--since", "90m")
	require.Equal(t, []leaderdv1.Run_State{
		leaderdv1.Run_STATE_FAILED, leaderdv1.Run_STATE_TIMED_OUT, leaderdv1.Run_STATE_MISSED,
	}, asked.GetStates())
	require.Equal(t, "n2", asked.GetNode())
	require.WithinRange(t, asked.GetSinceTime().AsTime(), before.Add(-91*time.Minute), time.Now().Add(-89*time.Minute))
	succeed(t, addr, "", "run", "list", "--since", "2026-11-30T03:00:00+01:00")
	require.True(t, asked.GetSinceTime().AsTime().Equal(slot))
}

func TestRunningRunsShowWhenTheyWereClaimed(t *testing.T) {
	const job = "namespaces/default/jobs/a"
	due := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	running := func(claimed time.Time) *leaderdv1.Run {
		r := runOf(job, due, leaderdv1.Run_STATE_RUNNING, 0, 0)
		a := r.GetAttempts()[0]
		a.StartTime, a.EndTime, a.ExitCode, a.ClaimTime = nil, nil, nil, timestamppb.New(claimed)
		return r
	}
	inTime, late := running(due.Add(-time.Second)), running(due.Add(90*time.Second))
	require.Empty(t, lateness(inTime))
	require.Equal(t, "~1h0m0s...", took(inTime, due.Add(time.Hour)))
	require.Equal(t, "~1m30s", lateness(late))
	require.Equal(t, "~58m30s...", took(late, due.Add(time.Hour)))
	late.Attempts[0].State = leaderdv1.Run_STATE_LOST
	require.Empty(t, lateness(late), "it may never have started")
	require.Empty(t, took(late, due.Add(time.Hour)))

	f, addr := startFake(t)
	f.runs = []*leaderdv1.Run{inTime}
	require.Contains(t, succeed(t, addr, "", "run", "get", "a", due.Format("20060102T150405Z")),
		"running  n1    "+due.Add(-time.Second).Format(time.RFC3339)+"  -")
}

func TestClusterStatusShowsWhatIsLate(t *testing.T) {
	f, addr := startFake(t)
	f.late = &leaderdv1.LateRuns{
		Runs: 3, WorstJob: "namespaces/ops/jobs/z", WorstDueTime: timestamppb.New(slot), Worst: durationpb.New(42 * time.Second),
		Reason: "no_capacity",
	}
	require.Contains(t, succeed(t, addr, "", "cluster", "status"),
		"late now:       3 runs, the worst ops/z, due 2026-11-30T02:00:00Z (42s ago): no_capacity, the executors that may run it were full\n")
}

func TestClusterStatusShowsClocksThatAreOff(t *testing.T) {
	var out strings.Builder
	require.NoError(t, printStatus(&out, &leaderdv1.GetClusterStatusResponse{Nodes: []*leaderdv1.Node{
		{Name: "n1"}, {Name: "w1", ClockAhead: durationpb.New(-2310 * time.Millisecond)},
	}}))
	require.Regexp(t, `(?m)^clock off: +w1, -2\.31s against the leader's$`, out.String())
	require.Equal(t, 1, strings.Count(out.String(), "clock off"))
}

func TestFilesTellEverythingAtOnce(t *testing.T) {
	_, addr := startFake(t)
	// The fake server refuses what has no target, and a time zone then.
	code, stdout, stderr := cmdline(t, addr, "name: a\nspec: {timeout: 5, schedules: ['@daily']}\n", "job", "apply", "-f", "-")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Equal(t, `error: standard input: document 1: spec.timeout: must be a duration such as 500ms, 90s, 10m or 24h, not 5
error: standard input: document 1: spec.timeZone: is bad too
`, stderr, "that there is no target may come from what could not be read")

	code, _, stderr = cmdline(t, "127.0.0.1:1", "name: a\nspec: {timeout: 5, noop: {}}\n", "job", "apply", "-f", "-")
	require.Equal(t, 2, code)
	require.NotContains(t, stderr, "control node", "the file is wrong whoever answers")
}

func TestDirectoryWithBrokenLinks(t *testing.T) {
	f, addr := startFake(t)
	dir := t.TempDir()
	require.NoError(t, os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")))
	require.NoError(t, os.Symlink("nothing", filepath.Join(dir, "gone.yaml")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "z.yaml"), []byte("name: z\nspec: {noop: {}, shedules: []}\n"), 0o600))
	code, _, stderr := cmdline(t, addr, "", "job", "apply", "-f", dir)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "loop.yaml: is a link that leads back to itself\n")
	require.Contains(t, stderr, "gone.yaml: is a link to a file that does not exist\n")
	require.Contains(t, stderr, "spec.shedules: no such field, did you mean schedules?\n")
	require.Empty(t, f.jobs)
	code, _, stderr = cmdline(t, addr, "", "job", "apply", "-f", filepath.Join(dir, "nobody.yaml"))
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "nobody.yaml: there is no such file\n")
}

func TestWhatPeopleWriteInFiles(t *testing.T) {
	f, addr := startFake(t)
	succeed(t, addr, `name: a
spec:
  noop:
---
name: b
spec:
  noop:
  command: {argv: ["true"]}
---
name: c
spec:
  http: {url: "http://x/", bodyText: "grüß dich"}
`, "job", "apply", "-f", "-")
	require.NotNil(t, f.jobs["namespaces/default/jobs/a"].GetSpec().GetNoop())
	require.NotNil(t, f.jobs["namespaces/default/jobs/b"].GetSpec().GetCommand())
	require.Equal(t, "grüß dich", string(f.jobs["namespaces/default/jobs/c"].GetSpec().GetHttp().GetBody()))

	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		prev := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+prev+",", 9), ",") + "]\n"
	}
	for text, want := range map[string]string{
		"name: a\nspec:\n\tnoop: {}\n": "line 3: is indented by a tab; YAML takes spaces only",
		bomb:                           "its aliases (*name) repeat so much that it is not read",
		"name: a\nspec: {schedules: [* * * * *], noop: {}}\n":             "must stand in quotes",
		"name: a\nspec: {http: {url: u, bodyText: 5}}\n":                  "spec.http.bodyText: must be text, not 5: put it in quotes",
		"name: a\nspec: {http: {url: u, bodyText: x, body: eA==}}\n":      "spec.http.bodyText: stands beside body",
		"name: a\nspec: {schedules: ['@daily'], noop: {}, noop: {}}\n":    "already set in map",
		"name: a\nspec:\n  schedules: ['*/5 * * * *']\n  noop: {}\n x: 1": "did not find expected",
	} {
		code, _, stderr := cmdline(t, addr, text, "job", "apply", "-f", "-")
		require.Equal(t, 2, code, stderr)
		require.Contains(t, stderr, want)
	}
}

func TestClusterStatusOfALeaderThatIsGone(t *testing.T) {
	var out strings.Builder
	require.NoError(t, printStatus(&out, &leaderdv1.GetClusterStatusResponse{Leader: "n1", Nodes: []*leaderdv1.Node{{Name: "n2"}}}))
	require.Regexp(t, `(?m)^leader: +n1 \(last known; it is not registered any more\)$`, out.String())
}

// The words of other schedulers lead to ours.
func TestWordsOfOtherSchedulers(t *testing.T) {
	for field, want := range map[string]string{
		"concurrencyPolicy: Forbid":   "spec.concurrencyPolicy: no such field, did you mean overlap?",
		"startingDeadlineSeconds: 10": "spec.startingDeadlineSeconds: no such field, did you mean startDeadline?",
		"timezone: UTC":               "spec.timezone: no such field, did you mean timeZone?",
		"cron: '@daily'":              "spec.cron: no such field, did you mean schedules?",
		"suspend: true":               `spec.suspend: no such field: a job is paused with "leaderd job pause"`,
		"retries: 3":                  "spec.retries: no such field, did you mean retry.maxAttempts?",
		"deadLetter: maybe":           `spec.deadLetter: must have fields, not "maybe"`,
		"retry: {jitter: much}":       `spec.retry.jitter: must be a number, not "much"`,
		"overlpa: skip":               "spec.overlpa: no such field, did you mean overlap?",
		"http: {url: x, body: 'a b'}": "spec.http.body: must be base64; text as it is goes into bodyText",
	} {
		_, err := parse(t, "name: a\nspec:\n  noop: {}\n  "+field+"\n")
		require.ErrorContains(t, err, want)
	}
}

func TestCalendarOfStandardInput(t *testing.T) {
	code, _, stderr := cmdline(t, "127.0.0.1:1", "name: a\nspec: {entrees: []}\n", "calendar", "apply", "-f", "-")
	require.NotZero(t, code)
	require.Contains(t, stderr, "standard input: document 1: ")
}

func TestListTellsTheEndOfAPause(t *testing.T) {
	j := &leaderdv1.Job{Paused: true}
	require.Equal(t, "paused", listedState(j))
	j.PausedUntil = timestamppb.New(slot)
	require.Equal(t, "paused until 2026-11-30T02:00:00Z", listedState(j))
}

func TestZoneErrorsOfCalendarsNameNoSchedule(t *testing.T) {
	_, err := parseICS([]byte("BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;TZID=Mars/Base:20261130T020000\r\nDTEND;TZID=Mars/Base:20261130T030000\r\n"+
		"END:VEVENT\r\nEND:VCALENDAR\r\n"), "")
	require.ErrorContains(t, err, "zone")
	require.ErrorContains(t, err, "Mars/Base")
	require.NotContains(t, err.Error(), "schedule")
}

// A job that is not there, and never had a run, is an error, with the name that was
// meant where there is a close one.
func TestMisspeltJobs(t *testing.T) {
	_, addr := startFake(t)
	succeed(t, addr, twoJobs, "job", "apply", "-f", "-")
	for _, args := range [][]string{{"job", "get", "biling"}, {"run", "list", "--job", "biling"}} {
		code, _, stderr := cmdline(t, addr, "", args...)
		require.NotZero(t, code, args)
		require.Equal(t, "error: namespaces/default/jobs/biling does not exist, did you mean billing?\n", stderr)
	}
	code, _, stderr := cmdline(t, addr, "", "run", "list", "--job", "zzzzzz")
	require.NotZero(t, code)
	require.Equal(t, "error: namespaces/default/jobs/zzzzzz does not exist\n", stderr)
	succeed(t, addr, "", "run", "list", "--job", "billing")
}

// A shard is named by its number, or, the first step, as run shards names it.
func TestShardNumber(t *testing.T) {
	for text, want := range map[string]shardNumber{"0": 0, "17": 17, "list": listShard, "-2": listShard} {
		var n shardNumber
		require.NoError(t, n.Set(text))
		require.Equal(t, want, n)
	}
	for _, bad := range []string{"", "-1", "first", "1.5", "99999999999"} {
		require.ErrorContains(t, new(shardNumber).Set(bad), "is neither a number from 0 nor list")
	}
}

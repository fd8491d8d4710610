package docs_test

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/internal/api"
	"github.com/leaderd/leaderd/internal/cli"
	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/planner/schedule"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

func TestSchedules(t *testing.T) {
	p := readPage(t, "docs/schedules.md")
	examples := rows(p.section(t, "## Examples"))
	require.Greater(t, len(examples), 35)
	for _, row := range examples {
		require.Len(t, row, 4)
		from, err := time.Parse(time.RFC3339, row[2])
		require.NoError(t, err)
		s, err := schedule.Parse(unquoted(row[0]), schedule.Options{Zone: row[1], Anchor: from, Job: "default/report"})
		require.NoError(t, err)
		at := from
		for want := range strings.SplitSeq(row[3], ", ") {
			at = s.Next(at)
			got := "never"
			if !at.IsZero() {
				got = at.Format(time.RFC3339)
			}
			require.Equal(t, want, got, row[0])
		}
	}
	refused := rows(p.section(t, "## What is refused"))
	require.Greater(t, len(refused), 25)
	for _, row := range refused {
		require.Len(t, row, 3)
		_, err := schedule.Parse(unquoted(row[0]), schedule.Options{Zone: row[1]})
		require.Error(t, err, row[0])
		_, why, _ := strings.Cut(err.Error(), `": `)
		require.Equal(t, why, row[2])
	}
}

// checker is the API as far as a dry run needs it, with its rules on specs.
type checker struct {
	leaderdv1.UnimplementedJobServiceServer
}

func (checker) UpdateJob(_ context.Context, req *leaderdv1.UpdateJobRequest) (*leaderdv1.UpdateJobResponse, error) {
	spec := codec.SpecFromProto(req.GetJob().GetSpec())
	if err := spec.Validate(api.ScheduleChecks); err != nil || !req.GetValidateOnly() {
		return nil, status.Errorf(codes.InvalidArgument, "refused: %v", err)
	}
	return &leaderdv1.UpdateJobResponse{Job: req.GetJob(), Result: leaderdv1.UpdateJobResponse_RESULT_CREATED}, nil
}

// calendarChecker is the same for calendars.
type calendarChecker struct {
	leaderdv1.UnimplementedCalendarServiceServer
}

func (calendarChecker) UpdateCalendar(_ context.Context, req *leaderdv1.UpdateCalendarRequest) (*leaderdv1.UpdateCalendarResponse, error) {
	spec := codec.CalendarSpecFromProto(req.GetCalendar().GetSpec())
	if err := spec.Validate(api.ScheduleChecks); err != nil || !req.GetValidateOnly() {
		return nil, status.Errorf(codes.InvalidArgument, "refused: %v", err)
	}
	return &leaderdv1.UpdateCalendarResponse{Calendar: req.GetCalendar(), Result: leaderdv1.UpdateCalendarResponse_RESULT_CREATED}, nil
}

// TestYAML reads every YAML example: its first line says what it is.
func TestYAML(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	leaderdv1.RegisterJobServiceServer(server, checker{})
	leaderdv1.RegisterCalendarServiceServer(server, calendarChecker{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		require.NoError(t, <-served)
	}()

	read := 0
	for _, p := range pages(t) {
		for _, text := range p.yaml {
			read++
			kind, _, _ := strings.Cut(text, "\n")
			switch kind {
			case "# job":
				var stdout, stderr bytes.Buffer
				code := cli.Main(t.Context(), cli.Deps{
					Environ: []string{}, Stdin: strings.NewReader(text), Stdout: &stdout, Stderr: &stderr,
				}, []string{"job", "apply", "-f", "-", "--dry-run", "--address", listener.Addr().String()})
				require.Zero(t, code, "%s: %s%s", p.name, text, &stderr)
			case "# calendar":
				var stdout, stderr bytes.Buffer
				code := cli.Main(t.Context(), cli.Deps{
					Environ: []string{}, Stdin: strings.NewReader(text), Stdout: &stdout, Stderr: &stderr,
				}, []string{"calendar", "apply", "-f", "-", "--dry-run", "--address", listener.Addr().String()})
				require.Zero(t, code, "%s: %s%s", p.name, text, &stderr)
			case "# config":
				file := filepath.Join(t.TempDir(), "node.yaml")
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
				flags := pflag.NewFlagSet("", pflag.ContinueOnError)
				config.Register(flags)
				require.NoError(t, flags.Set(config.ConfigFlag, file))
				_, err := config.Load(flags, nil)
				require.NoError(t, err, "%s: %s", p.name, text)
			case "# values":
				// Of the chart: test/kubernetes, which has Helm, renders it.
			default:
				require.Fail(t, "a YAML example must begin with # job, # calendar, # config or # values", "%s: %s", p.name, text)
			}
		}
	}
	require.GreaterOrEqual(t, read, 5)
}

// attempt is what work may be told of.
var attempt = runner.Task{
	Job: state.JobID{Namespace: "ns", Name: "job"}, Run: "20261130T020000Z",
	Slot: time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC), Shards: 1, Attempt: 1, Token: 4711,
	Part: &state.Part{HasRange: true, Params: map[string]string{"region": "eu"}},
	Chain: state.Chain{
		Correlation: "first/20261130T010000Z", Upstream: []state.Upstream{{Job: "first", Run: "20261130T010000Z", State: state.StateSucceeded}},
	},
}

// hook is what a hook is told beside.
var hook = &runner.HookOf{Hook: state.HookOnFailure, State: state.StateFailed, Reason: state.ReasonAttempts, Error: "exit code 1", Code: 1, HasCode: true}

// nothing is a runner.Keeper of work that says nothing.
type nothing struct{ runner.Keeper }

func (nothing) Checkpoint(context.Context) (state.SavedCheckpoint, error) {
	return state.SavedCheckpoint{Number: 1, Data: []byte("x")}, nil
}

// workVariables are the variables beginning with LEADERD_ that a command gets; after is
// set for that of a hook.
func workVariables(t *testing.T, after *runner.HookOf) map[string]string {
	t.Helper()
	task := attempt
	task.After = after
	task.Submitted, task.Step = true, state.StepList
	task.Command = &state.Command{Shell: "env"}
	task.Keeper = nothing{}
	sockets, remove, err := runner.PrepareSocketDir(t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, remove()) }()
	r := runner.New(runner.Config{SocketDir: sockets})
	defer r.Close()
	var out bytes.Buffer
	require.Equal(t, state.StateSucceeded, r.Run(t.Context(), task, &out).State)
	got := map[string]string{}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && strings.HasPrefix(name, config.EnvPrefix) {
			got[name] = value
		}
	}
	return got
}

func TestWhatWorkIsTold(t *testing.T) {
	p := readPage(t, "docs/jobs.md")
	table := map[string]bool{}
	for _, row := range rows(p.section(t, "### Environment")) {
		table[unquoted(row[0])] = true
	}
	told := workVariables(t, nil)
	for name := range told {
		require.True(t, table[name], "docs/jobs.md says nothing about %s", name)
	}
	require.Len(t, told, len(table), "docs/jobs.md has variables that do not exist")
	require.Equal(t, "2026-11-30T02:00:00Z", told["LEADERD_SLOT"])
	require.Equal(t, "first/20261130T010000Z/succeeded", told["LEADERD_UPSTREAM"])
	hooks := map[string]string{}
	_, section, _ := strings.Cut(readPage(t, "docs/runs.md").text, "\n## Hooks\n") // its example has a heading, as to section
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range rows(section) {
		hooks[unquoted(row[0])] = unquoted(row[1])
	}
	for name := range workVariables(t, hook) {
		if _, common := told[name]; !common {
			require.Contains(t, hooks, name, "docs/runs.md")
		}
	}
	for _, name := range runner.DefaultEnvironment {
		require.Contains(t, p.section(t, "### Environment"), "`"+name+"`")
	}

	headers := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header }))
	defer server.Close()
	task := attempt
	task.After = hook
	task.HTTP = &state.HTTP{URL: server.URL}
	task.Keeper, task.Checkpoint = nothing{}, &state.CheckpointPolicy{}
	r := runner.New(runner.Config{})
	defer r.Close()
	require.Equal(t, state.StateSucceeded, r.Run(t.Context(), task, nil).State)
	for name := range <-headers {
		if strings.HasPrefix(name, "Leaderd-") || name == "Idempotency-Key" {
			section := p.section(t, "## HTTP requests")
			for _, header := range hooks {
				section += "`" + header + "`"
			}
			require.Contains(t, section, "`"+name+"`")
		}
	}
}

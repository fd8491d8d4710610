package runner_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/output"
	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

// run runs the task to its own end.
func run(t testing.TB, task runner.Task) (runner.Outcome, string) {
	t.Helper()
	out := newScreen()
	o := runner.New(runner.Config{}).Run(t.Context(), task, out)
	require.False(t, o.Started.IsZero())
	require.False(t, o.Ended.Before(o.Started))
	require.Equal(t, o.State == state.StateSucceeded, o.Error == "", "%+v", o)
	require.NoError(t, o.OutputErr)
	return o, out.String()
}

func TestCommandSucceeds(t *testing.T) {
	o, out := run(t, argv("echo", "a b", "$HOME"))
	require.Equal(t, state.StateSucceeded, o.State)
	require.True(t, o.HasCode)
	require.Zero(t, o.ExitCode)
	require.Equal(t, "a b $HOME\n", out)

	_, out = run(t, shell("echo out; echo err >&2; cat; echo end"))
	require.Equal(t, "out\nerr\nend\n", out, "both outputs in order, and nothing on standard input")
}

func TestCommandWithoutOutput(t *testing.T) {
	o := runner.New(runner.Config{}).Run(t.Context(), shell("echo dropped"), nil)
	require.Equal(t, state.StateSucceeded, o.State)
}

func TestCommandFails(t *testing.T) {
	o, _ := run(t, shell("exit 3"))
	require.Equal(t, state.StateFailed, o.State)
	require.Equal(t, 3, o.ExitCode)
	require.Equal(t, "exit code 3", o.Error)

	o, _ = run(t, shell("kill -KILL $$"))
	require.Equal(t, state.StateFailed, o.State)
	require.True(t, o.HasCode)
	require.Equal(t, 137, o.ExitCode)
	require.Equal(t, "killed by signal: KILL", o.Error)
}

func TestCommandThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	plain := file("plain", "x", 0o644)
	orphan := file("orphan", "#!/no/such/interpreter\n", 0o755)
	garbage := file("garbage", "\x00\x01", 0o755)
	in := func(task runner.Task, dir string) runner.Task { task.Command.Dir = dir; return task }
	with := func(task runner.Task, name, value string) runner.Task {
		task.Command.Env = map[string]string{name: value}
		return task
	}
	for _, c := range []struct {
		task runner.Task
		text string
	}{
		{argv("no-such-program"), `command "no-such-program" not found in PATH (/`},
		{with(argv("plain"), "PATH", dir), "plain is not executable"},
		{with(argv("orphan"), "PATH", "rel:"), `not found in PATH (rel:)`},
		{argv("/no/such/file"), "start /no/such/file: no such file or directory"},
		{argv(plain), "permission denied"},
		{argv(orphan), "its interpreter (#! or loader) does not exist"},
		{argv(garbage), "exec format error"},
		{argv(), "the command is empty"},
		{in(shell("true"), filepath.Join(dir, "none")), "working directory: stat " + filepath.Join(dir, "none")},
		{in(shell("true"), plain), "is not a directory"},
		{argv("echo", "a\x00b"), "invalid argument"},
		{with(shell("true"), "A=B", "c"), `environment variable "A=B"`},
		{runner.Task{}, "nothing to run"},
	} {
		o, out := run(t, c.task)
		require.Equal(t, state.StateFailed, o.State)
		require.Contains(t, o.Error, c.text)
		require.False(t, o.HasCode)
		require.Empty(t, out)
	}
}

func TestCommandEnvironment(t *testing.T) {
	t.Setenv("LANG", "C.UTF-8")
	t.Setenv("HOME", "/nowhere")
	t.Setenv("LEADERD_SECRET", "must not leak")
	t.Setenv("TZ", "UTC")
	for _, name := range []string{"USER", "LOGNAME", "LC_ALL", "TMPDIR"} {
		t.Setenv(name, "x") // so that it comes back after the test
		require.NoError(t, os.Unsetenv(name))
	}
	task := argv("env")
	task.Slot = time.Date(2026, 11, 30, 3, 0, 0, 0, time.FixedZone("CET", 3600))
	task.Shard, task.Shards, task.Attempt, task.Token = 2, 4, 3, 77
	task.Command.Dir = "/"
	task.Command.Env = map[string]string{"HOME": "/job", "MINE": "1", "LEADERD_TOKEN": "forged", "LEADERD_X": "mine"}
	_, out := run(t, task)
	require.ElementsMatch(t, []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TZ=UTC", "HOME=/job", "MINE=1", "PWD=/", "LEADERD_X=mine",
		"LEADERD_NAMESPACE=ns", "LEADERD_JOB=job", "LEADERD_RUN=20261130T020000Z",
		"LEADERD_SLOT=2026-11-30T02:00:00Z", "LEADERD_ATTEMPT=3", "LEADERD_SHARD=2", "LEADERD_SHARDS=4", "LEADERD_TOKEN=77",
		"LEADERD_CORRELATION=job/20261130T020000Z",
	}, strings.Split(strings.TrimSpace(out), "\n"))

	_, out = run(t, argv("env"))
	require.Contains(t, out, "LEADERD_SLOT=\n", "no slot, but set")
}

func TestCommandSearchesItsOwnPath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("#!/bin/sh\npwd\n"), 0o755))
	task := argv("mine")
	task.Command.Env = map[string]string{"PATH": dir}
	o, _ := run(t, task)
	require.Equal(t, state.StateSucceeded, o.State)

	task = argv("./mine")
	task.Command.Dir = dir
	_, out := run(t, task)
	require.Equal(t, dir+"\n", out)
}

// A command gets descriptors 0, 1 and 2 and the limits leaderd itself was started
// with.
func TestCommandInheritsNothingElse(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	_, out := run(t, argv("ls", "/proc/self/fd"))
	require.Equal(t, "0\n1\n2\n3\n", out, "3 is the directory that ls reads")

	_, out = run(t, shell("ulimit -Sn; ulimit -Hn"))
	bare, err := exec.Command("/bin/sh", "-c", "ulimit -Sn; ulimit -Hn").Output()
	require.NoError(t, err)
	require.Equal(t, string(bare), out)
}

// Case R05.
func TestCommandWithMuchOutput(t *testing.T) {
	ring, err := output.Open(t.TempDir(), output.Options{MaxRunBytes: 1 << 20})
	require.NoError(t, err)
	for _, c := range []struct {
		script string
		bytes  int64
	}{
		{"head -c 104857600 /dev/zero", 100 << 20},
		{"head -c 1048576 /dev/zero | tr '\\0' x", 1 << 20}, // one line
		{"head -c 1048577 /dev/zero | tr '\\0' x", 1<<20 + 1},
	} {
		task := shell(c.script)
		key := output.Key{Job: task.Job, Run: task.Run, Attempt: task.Attempt}
		w, err := ring.Create(key)
		require.NoError(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o := runner.New(runner.Config{}).Run(t.Context(), task, w)
		runtime.ReadMemStats(&after)
		require.Equal(t, state.StateSucceeded, o.State, o.Error)
		require.Equal(t, c.bytes, w.Bytes())
		require.Equal(t, c.bytes > 1<<20, w.Truncated())
		require.Len(t, w.Tail(), state.MaxTailBytes)
		grown := int64(after.HeapSys) - int64(before.HeapSys) // may have shrunk
		require.Less(t, grown, int64(5<<20), "what the heap took from the system")
		require.NoError(t, w.Close())
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write(p []byte) (int, error) { return 0, w.err }

func TestFailingWriterDoesNotHarmTheCommand(t *testing.T) {
	o := runner.New(runner.Config{}).Run(t.Context(), shell("head -c 1000000 /dev/zero; exit 4"), failingWriter{syscall.ENOSPC})
	require.Equal(t, 4, o.ExitCode)
	require.ErrorIs(t, o.OutputErr, syscall.ENOSPC)
}

type crashingWriter func()

func (w crashingWriter) Write(p []byte) (int, error) { w(); return len(p), nil }

type badError struct{}

func (badError) Error() string { panic("again") }

// Case R09.
func TestCrashesFailTheAttemptOnly(t *testing.T) {
	r := runner.New(runner.Config{})
	for name, crash := range map[string]func(){
		"boom":   func() { panic(errors.New("boom")) },
		"nil":    func() { panic(nil) }, //nolint:govet // that is the case
		"again":  func() { panic(badError{}) },
		"Goexit": runtime.Goexit,
	} {
		arg := nap()
		o := r.Run(t.Context(), shell("echo x; exec sleep "+arg), crashingWriter(crash))
		require.Equal(t, state.StateFailed, o.State)
		require.Contains(t, o.Error, name)
		require.Error(t, o.OutputErr)
		require.Empty(t, withArgument(t, arg))
	}
}

// A leader that is asked to start much of nothing pays no thread a command.
func TestManyCommandsAtOnce(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs pidfds")
	}
	const n = 300
	r := runner.New(runner.Config{})
	kill := make(chan struct{})
	ctx, cancel := cancellable(t)
	outs, done := newScreen(), make(chan runner.Outcome, n)
	for range n {
		task := shell("echo up; exec sleep 300")
		task.Kill = kill
		go func() { done <- r.Run(ctx, task, outs) }()
	}
	outs.await("up", n)
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	require.Less(t, len(threads), 100)
	cancel(runner.ErrDrained)
	for range n {
		o := <-done
		require.Equal(t, state.StateInterrupted, o.State)
		require.Equal(t, 143, o.ExitCode)
	}
}

//go:build unix

package runner

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// notes is a Keeper in memory.
type notes struct {
	mu       sync.Mutex
	last     state.SavedCheckpoint
	err      error
	progress state.Progress
}

func (n *notes) Checkpoint(context.Context) (state.SavedCheckpoint, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last, n.err
}

func (n *notes) Save(_ context.Context, data []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		n.last = state.SavedCheckpoint{Number: n.last.Number + 1, Data: data, Saved: time.Now()}
	}
	return n.err
}

func (n *notes) Report(p state.Progress) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.progress = p
	return n.err
}

func withSockets(t *testing.T) *Runner {
	t.Helper()
	dir, remove, err := PrepareSocketDir(filepath.Join(t.TempDir(), "run"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, remove()) })
	r := New(Config{SocketDir: dir})
	t.Cleanup(r.Close)
	return r
}

// A command, and what it starts, save and read by the socket with nothing but curl. The
// socket is private, and gone with the command.
func TestCommandsUseTheirSocket(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	r := withSockets(t)
	n := &notes{}
	var out strings.Builder
	o := r.Run(t.Context(), Task{Keeper: n, Command: &state.Command{Shell: `
		ask() { curl -s -S --unix-socket "$LEADERD_SOCKET" "$@"; }
		ask -w '%{http_code}\n' http://run/checkpoint
		printf 16 | sh -c 'curl -s -S --unix-socket "$LEADERD_SOCKET" -T - http://run/checkpoint'
		printf 17 | ask -T - http://run/checkpoint
		ask http://run/checkpoint; echo
		ask -X PUT -d '{"done": 3, "total": 4, "message": "hm"}' http://run/progress
		ask -X PUT -d '{"dune": 3}' http://run/progress
		ask -w '%{http_code}\n' -o /dev/null -X POST http://run/checkpoint
		head -c 262145 /dev/zero | ask -T - http://run/checkpoint
		stat -c %a "$LEADERD_SOCKET" "$(dirname "$LEADERD_SOCKET")"
		echo "$LEADERD_SOCKET"`}}, &out)
	require.Equal(t, state.StateSucceeded, o.State, o.Error)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Equal(t, "204", lines[0])
	require.Equal(t, "17", lines[1])
	require.Contains(t, lines[2], `"INVALID"`)
	require.Contains(t, lines[2], `unknown field \"dune\"`)
	require.Equal(t, "405", lines[3])
	require.Contains(t, lines[4], "262144")
	require.Equal(t, []string{"600", "700"}, lines[5:7])
	require.NoFileExists(t, lines[7])
	require.Equal(t, "17", string(n.last.Data))
	require.Equal(t, state.Progress{Done: 3, Total: 4, Message: "hm"}, n.progress)
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
		reason string
	}{
		{ErrFenced, http.StatusGone, "FENCED"},
		{state.ErrCheckpointChanged, http.StatusConflict, "CONFLICT"},
		{ErrInvalid, http.StatusBadRequest, "INVALID"},
		{errors.New("away"), http.StatusServiceUnavailable, "UNAVAILABLE"},
	} {
		s := &socket{keeper: &notes{err: tc.err}}
		for _, call := range []func(http.ResponseWriter, *http.Request){s.getCheckpoint, s.putCheckpoint} {
			w := httptest.NewRecorder()
			call(w, httptest.NewRequest(http.MethodPut, "/checkpoint", strings.NewReader("x")))
			require.Equal(t, tc.status, w.Code)
			require.Contains(t, w.Body.String(), tc.reason)
		}
	}
}

// What a command says of what shall follow counts where it ended by itself.
func TestCommandsSayWhatFollows(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	r := withSockets(t)
	for script, want := range map[string]state.Directive{
		`ask permanent; exit 1`:          {Permanent: true},
		`ask snooze?for=10m`:             {Snooze: 10 * time.Minute},
		`ask retry-after?for=5m; exit 1`: {RetryAfter: 5 * time.Minute},
		`ask retry-after?for=-5m; ask snooze?for=1000000h; ask snooze?for=soon`: {},
	} {
		var out strings.Builder
		o := r.Run(t.Context(), Task{Keeper: &notes{}, Command: &state.Command{
			Shell: `ask() { curl -s -S --unix-socket "$LEADERD_SOCKET" -X POST "http://run/$1"; }; ` + script,
		}}, &out)
		require.Equal(t, want, o.Directive, script)
		if want == (state.Directive{}) {
			require.Equal(t, 3, strings.Count(out.String(), "INVALID"), out.String())
		}
	}
	o := r.Run(t.Context(), Task{Keeper: &notes{}, Timeout: 2 * time.Second, KillGrace: -1, Command: &state.Command{
		Shell: `curl -s --unix-socket "$LEADERD_SOCKET" -X POST http://run/snooze?for=1m; sleep 60`,
	}}, nil)
	require.Equal(t, state.StateTimedOut, o.State)
	require.Zero(t, o.Directive)
}

// Without a directory for sockets commands run as ever, but for those that rely on one.
func TestWithoutSockets(t *testing.T) {
	r := New(Config{NoSocket: errors.New("the disk is read-only")})
	t.Cleanup(r.Close)
	task := Task{Keeper: &notes{}, Command: &state.Command{Shell: `test -z "$LEADERD_SOCKET"`}}
	o := r.Run(t.Context(), task, nil)
	require.Equal(t, state.StateSucceeded, o.State, o.Error)
	task.Checkpoint = &state.CheckpointPolicy{}
	o = r.Run(t.Context(), task, nil)
	require.Equal(t, state.StateFailed, o.State)
	require.Contains(t, o.Error, "spec.checkpoint")
	require.Contains(t, o.Error, "the disk is read-only")
}

func TestSocketDirs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.Mkdir(path, 0o755))
	stale := filepath.Join(path, "old.sock")
	require.NoError(t, os.WriteFile(stale, nil, 0o600))
	// What a process that was killed left of a submitted command, and what is nobody's.
	given, err := newExchange(path, []byte("secret"))
	require.NoError(t, err)
	other := filepath.Join(path, "other")
	require.NoError(t, os.Mkdir(other, 0o700))
	dir, remove, err := PrepareSocketDir(path)
	require.NoError(t, err)
	require.NoError(t, remove())
	require.Equal(t, path, dir)
	require.NoFileExists(t, stale)
	require.NoDirExists(t, given.dir)
	require.DirExists(t, other)
	require.NoError(t, given.close())
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.EqualValues(t, 0o700, info.Mode().Perm())

	long, remove, err := PrepareSocketDir(filepath.Join(t.TempDir(), strings.Repeat("x", 100)))
	require.NoError(t, err)
	require.Less(t, len(long), 60)
	l, err := net.Listen("unix", filepath.Join(long, strings.Repeat("f", 16)+socketSuffix))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, remove())
	require.NoDirExists(t, long)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, _, err = PrepareSocketDir(file)
	require.ErrorContains(t, err, "directory of sockets")
}

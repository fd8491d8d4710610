package runner_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

func TestMain(m *testing.M) {
	if os.Getenv(asInitVar) != "" {
		asInit()
		return
	}
	goleak.VerifyTestMain(m)
}

var tokens int64

// shell is an attempt at a script, with an identity of its own.
func shell(script string) runner.Task {
	tokens++
	return runner.Task{
		Job: state.JobID{Namespace: "ns", Name: "job"}, Run: "20261130T020000Z", Shards: 1, Attempt: 1,
		Token: int64(os.Getpid())<<20 + tokens, Command: &state.Command{Shell: script},
	}
}

func sh(script string) *state.Command { return &state.Command{Shell: script} }

func argv(args ...string) runner.Task {
	t := shell("")
	t.Command = &state.Command{Argv: args}
	return t
}

// screen is an output that can be waited on.
type screen struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{}
}

func newScreen() *screen { return &screen{changed: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// await blocks until the text was printed n times.
func (s *screen) await(text string, n int) {
	for strings.Count(s.String(), text) < n {
		<-s.changed
	}
}

// withArgument is the pids of the live processes with that argument.
func withArgument(t testing.TB, arg string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(append([]byte{0}, line...), []byte("\x00"+arg+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

var naps int

// nap is an argument of sleep that no other process has.
func nap() string {
	naps++
	return fmt.Sprintf("300.%d%03d", os.Getpid(), naps)
}

// zombies is how many children of this process wait to be collected.
func zombies() int { return children("Z") }

// children is how many children of this process are in one of the states of
// /proc/<pid>/stat; in any, for "".
func children(states string) (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, f := range files {
		stat, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if (states == "" || strings.Contains(states, fields[0])) && fields[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

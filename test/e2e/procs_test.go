package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// process is one of the machine's, as /proc shows it.
type process struct {
	pid   int
	state string // Z for a zombie
	args  []string
}

// processes are those that have an argument, in a test's own namespace or below.
func processes(t testing.TB, argument string) []process {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var out []process
	for _, dir := range dirs {
		content, err := os.ReadFile(dir + "/cmdline")
		if err != nil {
			continue // gone
		}
		args := strings.Split(string(bytes.TrimRight(content, "\x00")), "\x00")
		found := false
		for _, a := range args {
			found = found || a == argument
		}
		if !found {
			continue
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(stat), ") ")
		out = append(out, process{pid, rest[:1], args})
	}
	return out
}

// lastSleep makes the argument of every sleep its own.
var lastSleep atomic.Int64

// endless is an argument for sleep that no other process has. What still has it at
// the end of the test is killed: commands outlive a leaderd that is killed. Call
// it before the nodes are made.
func endless(t testing.TB) string {
	t.Helper()
	argument := fmt.Sprintf("%d.%d", 300_000+os.Getpid(), lastSleep.Add(1))
	t.Cleanup(func() {
		for _, p := range processes(t, argument) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended meanwhile
		}
	})
	return argument
}

// pause is SIGSTOP; resume is SIGCONT.
func (n *node) pause() {
	n.t.Helper()
	n.signal(syscall.SIGSTOP)
}

func (n *node) resume() {
	n.t.Helper()
	n.signal(syscall.SIGCONT)
}

// children are the processes whose parent is pid, and their states.
func children(t testing.TB, pid int) []process {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var out []process
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(dir))
			require.NoError(t, err)
			out = append(out, process{pid: child, state: fields[0]})
		}
	}
	return out
}

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait for something that must happen; a test fails
// earlier where it asserts when.
const patience = 60 * time.Second

// tailLines is how much of a node's log a failed test prints.
const tailLines = 60

// nextPort gives ports below those that the system hands out to connections, so
// that nothing takes a node's port while the node is down.
var nextPort atomic.Int32

func init() { nextPort.Store(int32(10_000 + os.Getpid()%180*100)) }

func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := int(nextPort.Add(1))
		if port > 31_000 {
			nextPort.Store(10_000)
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func freeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", freePort(t))
}

// node is a place for a leaderd process: the process may die and come back.
// Its methods are the test goroutine's.
type node struct {
	t       testing.TB
	name    string
	api     string // host:port, also of one that serves none
	ops     string
	args    []string
	env     []string // beside the test's own
	logPath string

	cmd    *exec.Cmd
	exited chan struct{}
}

// newNode makes a place in dir. Extra are further flags of serve.
func newNode(t testing.TB, dir, name string, extra ...string) *node {
	t.Helper()
	n := &node{t: t, name: name, api: freeAddress(t), ops: freeAddress(t), logPath: filepath.Join(dir, name+".log")}
	n.args = append([]string{
		"serve", "--name=" + name, "--data-dir=" + filepath.Join(dir, name),
		"--listen=" + n.api, "--ops-listen=" + n.ops, "--log-level=debug",
		"--election-ttl=2s", "--planner-horizon=8s", "--executor-registration-ttl=2s",
	}, extra...)
	t.Cleanup(n.end)
	return n
}

// start starts the process; it does not wait for it to be ready.
func (n *node) start() {
	n.t.Helper()
	n.startWith(binary, n.args...)
}

func (n *node) startWith(program string, args ...string) {
	n.t.Helper()
	require.False(n.t, n.running(), "%s runs already", n.name)
	log, err := os.OpenFile(n.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(n.t, err)
	defer log.Close() // the process has its own
	n.cmd = exec.Command(program, args...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.cmd.Env = append(os.Environ(), n.env...)
	// A test that is killed leaves no node behind.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(n.t, startLocked(n.cmd))
	exited := make(chan struct{})
	n.exited = exited
	cmd := n.cmd
	go func() {
		_ = cmd.Wait() // its state says all
		close(exited)
	}()
}

func (n *node) running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// signal sends a signal to the process.
func (n *node) signal(s syscall.Signal) {
	n.t.Helper()
	require.NoError(n.t, n.cmd.Process.Signal(s), "signal %s", n.name)
}

// kill is SIGKILL; it returns when the process is gone.
func (n *node) kill() {
	n.t.Helper()
	n.signal(syscall.SIGKILL)
	<-n.exited
}

// terminate is SIGTERM; it waits for the process and answers its exit status.
func (n *node) terminate() int {
	n.t.Helper()
	n.signal(syscall.SIGTERM)
	return n.wait(patience)
}

// wait waits for the process to end by itself and answers its exit status.
func (n *node) wait(limit time.Duration) int {
	n.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-n.exited:
		return n.cmd.ProcessState.ExitCode()
	case <-timer.C:
		_ = n.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines go to the log
		n.t.Fatalf("%s did not end within %s", n.name, limit)
		return -1
	}
}

func (n *node) end() {
	if n.running() {
		_ = n.cmd.Process.Kill() // it may have ended meanwhile
		<-n.exited
	}
}

// health asks an ops endpoint: livez or readyz.
func (n *node) health(ctx context.Context, what string) (code int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ops+"/"+what, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := opsClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}

// opsClient keeps no connection, which a killed node would break.
var opsClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// ready waits until the node says that it is.
func (n *node) ready() {
	n.t.Helper()
	n.readyWithin(patience)
}

func (n *node) readyWithin(limit time.Duration) {
	n.t.Helper()
	awaitFor(n.t, limit, n.name+" is ready", func(ctx context.Context) error {
		if !n.running() {
			return fatal(fmt.Errorf("%s ended: %s", n.name, n.cmd.ProcessState))
		}
		code, body, err := n.health(ctx, "readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("readyz: %d: %s", code, body)
		}
		return err
	})
}

// metric is the sum of a metric's series, zero where there is none.
func (n *node) metric(ctx context.Context, name string) (float64, error) {
	_, body, err := n.health(ctx, "metrics")
	if err != nil {
		return 0, err
	}
	var sum float64
	for line := range strings.Lines(body) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		var value float64
		if _, err := fmt.Sscanf(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:], "%g", &value); err != nil {
			return 0, fmt.Errorf("metric %q: %w", line, err)
		}
		sum += value
	}
	return sum, nil
}

// logged tells whether the log has a line with all the words.
func (n *node) logged(words ...string) bool {
	n.t.Helper()
	content, err := os.ReadFile(n.logPath)
	require.NoError(n.t, err)
	for line := range bytes.Lines(content) {
		all := true
		for _, w := range words {
			all = all && bytes.Contains(line, []byte(w))
		}
		if all {
			return true
		}
	}
	return false
}

// logTail is the end of the log, without its debug lines.
func logTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	var lines []string
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if line := scanner.Text(); !strings.Contains(line, "[DEBUG]") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

package runner_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
)

// asInitVar makes the test binary run asInit instead of the tests.
const asInitVar = "LEADERD_TEST_AS_INIT"

// orphans runs 200 commands that each leave an orphan, some at a time, and answers
// what is wrong with them.
func orphans(ctx context.Context) (wrong []string) {
	r := runner.New(runner.Config{Linger: 10 * time.Millisecond})
	scripts := []string{
		"(sleep 1 &) ; exit 3",                          // stays in the group
		"(setsid sleep 0.2 >/dev/null 2>&1 &) ; exit 3", // leaves it
		"(sh -c 'exit 7' &); (setsid true &); exit 3",
	}
	const runs, atOnce = 200, 20
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan int)
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				o := r.Run(ctx, runner.Task{Token: int64(i), Command: sh(scripts[i%len(scripts)])}, newScreen())
				if o.ExitCode != 3 || o.Error != "exit code 3" {
					mu.Lock()
					wrong = append(wrong, fmt.Sprintf("%+v", o))
					mu.Unlock()
				}
			}
		})
	}
	for i := range runs {
		next <- i
	}
	close(next)
	wg.Wait()
	return wrong
}

// Case R03, as a subreaper.
func TestOrphansAreCollected(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runner.ReapOrphans(ctx) }()
	// A child of os/exec that is collected late keeps its status.
	other := exec.Command("/bin/sh", "-c", "exit 9")
	require.NoError(t, other.Start())
	require.Empty(t, orphans(t.Context()))
	// Some orphans outlive their command: all have ended, and but for other are
	// collected.
	require.Eventually(t, func() bool { return zombies() == 1 && children("") == 1 }, 30*time.Second, 50*time.Millisecond)
	require.Error(t, other.Wait())
	require.Equal(t, 9, other.ProcessState.ExitCode())
	cancel()
	require.NoError(t, <-done)
	require.Zero(t, zombies())
}

// Case R03, as PID 1.
func TestOrphansAreCollectedAsInit(t *testing.T) {
	unshare := func(args ...string) *exec.Cmd {
		return exec.Command("unshare", append([]string{"--pid", "--fork", "--kill-child", "--mount-proc"}, args...)...)
	}
	if err := unshare("true").Run(); err != nil {
		t.Skipf("no pid namespaces here: %v", err)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := unshare(self)
	cmd.Env = append(os.Environ(), asInitVar+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "pid 1: ok\n", string(out))
}

// asInit is the main function of the PID 1 test.
func asInit() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.ReapOrphans(ctx) }()
	fail := func(what ...any) {
		fmt.Println(what...)
		os.Exit(1)
	}
	if wrong := orphans(ctx); len(wrong) > 0 {
		fail(len(wrong), "runs went wrong, the first:", wrong[0])
	}
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	for children("") > 0 {
		if time.Now().After(deadline) {
			fail(zombies(), "zombies are left, of", children(""), "children")
		}
		<-tick.C
	}
	cancel()
	if err := <-done; err != nil {
		fail(err)
	}
	fmt.Printf("pid %d: ok\n", os.Getpid())
}

package e2e

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type fatalError struct{ error }

// fatal makes await give up.
func fatal(err error) error { return fatalError{err} }

// await asks until check answers nil, for patience at most.
func await(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	awaitFor(t, patience, what, check)
}

func awaitFor(t testing.TB, limit time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error // before the time was over, which is no reason
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if errors.As(err, &fatalError{}) {
			t.Fatalf("await that %s: %v", what, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("await that %s, for %s: %v", what, limit, last)
		}
	}
}

// pass lets time go by: where nothing is awaited, but a fault lasts, or work
// shall go on for a while.
func pass(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		require.NoError(t, t.Context().Err())
	}
}

// startLocked starts a process from a thread that does not end: its parent death
// signal is sent when that thread does.
func startLocked(cmd *exec.Cmd) error {
	result := make(chan error)
	starter <- func() { result <- cmd.Start() }
	return <-result
}

var starter = make(chan func())

func init() { go runStarter() }

func runStarter() {
	runtime.LockOSThread()
	for f := range starter {
		f()
	}
}

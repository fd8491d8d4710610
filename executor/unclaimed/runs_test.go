package unclaimed

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// work is a Runner.
type work func(ctx context.Context, t runner.Task) runner.Outcome

func (w work) Run(ctx context.Context, t runner.Task, _ io.Writer) runner.Outcome { return w(ctx, t) }

// lasting is work that takes d, and is interrupted where it is stopped before.
func lasting(d time.Duration) work {
	return func(ctx context.Context, _ runner.Task) runner.Outcome {
		o := runner.Outcome{State: state.StateSucceeded, Started: time.Now()}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			o.State, o.Error = state.StateInterrupted, context.Cause(ctx).Error()
		}
		o.Ended = time.Now()
		return o
	}
}

func open(t *testing.T, dir string, w work) *Runs {
	t.Helper()
	u, err := Open(Dir(dir), Config{Runner: w, Capacity: 2, Wall: time.Now, Logger: hclog.NewNullLogger()})
	require.NoError(t, err)
	return u
}

func start(name string, in time.Duration) Start {
	due := time.Now().Add(in)
	return Start{Key: Key{state.JobID{Namespace: "ns", Name: name}, state.SlotRunID(due)}, Due: due, Until: due.Add(10 * time.Second)}
}

func names(all []*Run) (out []string) {
	for _, r := range all {
		out = append(out, r.Job.Name)
	}
	return out
}

func TestRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		u := open(t, dir, func(ctx context.Context, task runner.Task) runner.Outcome {
			if task.Attempt == 13 {
				panic("unlucky")
			}
			return lasting(3*time.Second)(ctx, task)
		})
		begun := time.Now()
		bad := start("d", 30*time.Second)
		bad.Task.Attempt = 13
		u.Adopt([]Start{start("b", 2*time.Second), start("a", time.Second), start("c", time.Second+1), bad, start("late", -11*time.Second), start("e", time.Hour)})
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"a", "c"}, names(u.All()), "no more than there is room for, and nothing that is too late")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a", "c", "b"}, names(u.All()))
		a := u.All()[0]
		<-a.Ended()
		require.Equal(t, state.StateSucceeded, a.End().State)
		require.True(t, begun.Add(time.Second).Equal(a.End().Started))
		require.Same(t, a, u.Find(a.Key))
		u.Recorded(a)
		require.Nil(t, u.Find(a.Key))

		time.Sleep(time.Minute)
		d := u.All()[2]
		<-d.Ended()
		require.Equal(t, state.StateFailed, d.End().State)
		require.Contains(t, d.End().Error, "unlucky")
		u.Settle()
		time.Sleep(2 * time.Hour)
		require.Equal(t, []string{"c", "b", "d"}, names(u.All()), "the outage is over")
		require.NoError(t, u.Close(errors.New("gone"), time.Second))

		again := open(t, dir, lasting(0))
		require.Equal(t, []string{"c", "b", "d"}, names(again.All()), "until they are recorded")
		old := again.Find(d.Key)
		<-old.Ended()
		require.Equal(t, d.End(), old.End())
		for _, r := range again.All() {
			again.Noted(r)
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
		require.NoError(t, again.Close(errors.New("gone"), time.Second))
	})
}

// Whatever was at work when a process died counts as interrupted.
func TestRunsOfAnEarlierProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		u := open(t, dir, lasting(time.Hour))
		u.Adopt([]Start{start("a", time.Second)})
		time.Sleep(time.Minute)
		// The file is as a process leaves it that is killed now.
		later := open(t, dir, lasting(0))
		a := later.All()[0]
		<-a.Ended()
		require.Equal(t, state.StateInterrupted, a.End().State)
		require.Equal(t, a.Begun, a.End().Started)
		require.NoError(t, later.Close(errors.New("gone"), time.Second))
		require.NoError(t, u.Close(errors.New("drained"), time.Second))
		a = u.All()[0]
		<-a.Ended()
		require.Equal(t, "drained", a.End().Error)
	})
}

// Work does not begin that the disk does not know of, and a file that nobody can read is
// put aside.
func TestTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "unclaimed")
		u := open(t, dir, lasting(0))
		require.NoError(t, os.RemoveAll(dir))
		u.Adopt([]Start{start("a", time.Second)})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, u.All())
		require.NoError(t, u.Close(errors.New("gone"), time.Second))

		require.NoError(t, os.MkdirAll(dir, 0o700))
		for name, text := range map[string]string{"x.json": "{", "y.json": `{"namespace":"ns","job":"a"}`, "z.txt": "", "w.json.new": "{"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		u = open(t, dir, lasting(0))
		require.Empty(t, u.All())
		for _, name := range []string{"x.json" + unreadable, "y.json" + unreadable} {
			require.FileExists(t, filepath.Join(dir, name))
		}
		require.NoError(t, u.Close(errors.New("gone"), time.Second))
		_, err := Open(Dir(filepath.Join(dir, "z.txt")), Config{Capacity: 1, Logger: hclog.NewNullLogger()})
		require.ErrorContains(t, err, "z.txt")
	})
}

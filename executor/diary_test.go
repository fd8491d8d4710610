package executor

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

// stuck is a log's writer that blocks until it is let go.
type stuck struct {
	free chan struct{}
	mu   sync.Mutex
	text strings.Builder
}

func newStuck() *stuck { return &stuck{free: make(chan struct{})} }

func (s *stuck) Write(p []byte) (int, error) {
	<-s.free
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *stuck) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: s, Level: hclog.Debug})
}

func (s *stuck) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Nothing that an executor owes to others waits for its log.
func TestALogThatBlocksHoldsNothingUp(t *testing.T) {
	rigOf := func(t *testing.T, s *stuck) *rig {
		return newRig(t, func(_ *rig, c *Config) { c.Logger = s.logger() })
	}
	t.Run("neither starts and ends nor the registration", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStuck()
			r := rigOf(t, s)
			l := r.lead(5)
			due := soon(5 * time.Second)
			l.plan(noop(1, nil), slot(1, due))
			r.journal.set(func() {
				r.journal.keepAlive = func(context.Context) (time.Duration, error) { return 0, errors.New("away") }
			})
			until(due.Add(-3 * time.Second))
			r.journal.set(func() { r.journal.keepAlive = nil })
			until(due)
			require.Equal(t, steps(stepClaimed, stepFinished), l.steps())
			pass(time.Minute)
			require.Equal(t, 1, r.journal.made())
			r.close()
			close(s.free)
			synctest.Wait()
			require.Contains(t, s.said(), "keep-alive failed")
			require.Contains(t, s.said(), "run ended")
		})
	})
	t.Run("nor the end of work that is fenced", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStuck()
			r := rigOf(t, s)
			var stopped time.Time
			r.work.hook = func(ctx context.Context, task runner.Task) runner.Outcome {
				o := obedient(time.Hour)(ctx, task)
				stopped = time.Now()
				return o
			}
			l := r.lead(5)
			due := soon(5 * time.Second)
			l.plan(noop(1, nil), slot(1, due))
			until(due.Add(7300 * time.Millisecond))
			r.journal.set(func() {
				r.journal.keepAlive = func(context.Context) (time.Duration, error) { return 0, errors.New("away") }
			})
			pass(DefaultTTL)
			require.Less(t, stopped.Sub(r.journal.kept()), DefaultTTL)
			require.Len(t, r.journal.finished(), 1)
			r.journal.set(func() { r.journal.keepAlive = nil })
			pass(time.Minute)
			require.Equal(t, 2, r.journal.made(), "it registered anew")
			r.close()
			close(s.free)
		})
	})
	t.Run("nor a drain", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newStuck()
			r := rigOf(t, s)
			r.work.hook = func(_ context.Context, task runner.Task) runner.Outcome {
				<-task.Kill // it heeds nothing else
				return runner.Outcome{State: state.StateInterrupted}
			}
			l := r.lead(5)
			due := soon(5 * time.Second)
			l.plan(noop(1, nil), slot(1, due))
			until(due.Add(time.Second))
			begun := time.Now()
			r.close()
			require.LessOrEqual(t, time.Since(begun), DefaultDrainGrace+DefaultKillGrace+diaryGrace)
			require.Len(t, r.journal.finished(), 1)
			close(s.free)
		})
	})
}

// What a log has no room for is counted, and the rest keeps its order.
func TestDiaryDropsWhatFindsNoRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStuck()
		d := newDiary(s.logger())
		end := d.open()
		d.Info("first")
		synctest.Wait() // it is being written
		for range diaryLines + 7 {
			d.Info("more")
		}
		d.Debug("last")
		close(s.free)
		synctest.Wait()
		d.Warn("after", "n", 1)
		end()
		require.Equal(t, diaryLines, strings.Count(s.said(), "more"))
		require.Contains(t, s.said(), "lines were dropped: lines=8")
		require.NotContains(t, s.said(), "last")
		require.Greater(t, strings.Index(s.said(), "after: n=1"), strings.Index(s.said(), "first"))
	})
}

// An end that is fenced under a registration that stands is a mystery, and told;
// one that comes after the registration's end is not.
func TestAFencedEndIsToldWhileTheRegistrationStands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newStuck()
		close(s.free)
		r := newRig(t, func(_ *rig, c *Config) { c.Logger = s.logger() })
		r.journal.onFinish = func(context.Context, state.Finish) (state.TokenStatus, error) { return state.TokenFenced, nil }
		r.work.hook = obedient(20 * time.Second)
		const told = "was fenced although"
		l := r.lead(5)
		due := soon(5 * time.Second)
		l.plan(noop(1, nil), slot(1, due))
		until(due.Add(10 * time.Second))
		r.journal.set(func() {
			r.journal.keepAlive = func(context.Context) (time.Duration, error) { return 0, state.ErrNotRegistered }
		})
		pass(10 * time.Second)
		r.journal.set(func() { r.journal.keepAlive = nil })
		pass(time.Minute)
		require.NotContains(t, s.said(), told)

		r.work.hook = nil
		due = soon(5 * time.Second)
		r.fresh(5).plan(noop(1, nil), slot(1, due))
		until(due)
		require.Equal(t, 1, strings.Count(s.said(), told))
		r.close()
	})
}

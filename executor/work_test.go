package executor

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

// work is a Runner. Without a hook it succeeds at once.
type work struct {
	mu     sync.Mutex
	hook   func(ctx context.Context, t runner.Task) runner.Outcome
	starts []start
}

type start struct {
	at   time.Time
	task runner.Task
}

func (w *work) Run(ctx context.Context, t runner.Task, _ io.Writer) runner.Outcome {
	w.mu.Lock()
	w.starts = append(w.starts, start{time.Now(), t})
	hook := w.hook
	w.mu.Unlock()
	if hook != nil {
		return hook(ctx, t)
	}
	return runner.Outcome{State: state.StateSucceeded, Started: time.Now(), Ended: time.Now()}
}

func (w *work) started() []start {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]start(nil), w.starts...)
}

// obedient is work that takes d, or stops when it is told.
func obedient(d time.Duration) func(context.Context, runner.Task) runner.Outcome {
	return func(ctx context.Context, _ runner.Task) runner.Outcome {
		o := runner.Outcome{State: state.StateSucceeded, Started: time.Now()}
		if !sleep(ctx, d) {
			o.State, o.Error = state.StateInterrupted, context.Cause(ctx).Error()
		}
		o.Ended = time.Now()
		return o
	}
}

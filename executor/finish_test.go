package executor

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

func TestFinishIsRetriedUntilAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		tries := 0
		r.journal.onFinish = func(context.Context, state.Finish) (state.TokenStatus, error) {
			if tries++; tries < 8 {
				if tries == 2 {
					panic("journal")
				}
				return 0, errors.New("away")
			}
			return state.TokenStored, nil
		}
		l := r.lead(5)
		due := soon(5 * time.Second)
		l.plan(noop(1, nil), slot(1, due))
		until(due.Add(time.Minute))
		require.Equal(t, 8, tries)
		require.Equal(t, steps(stepClaimed, stepFinished), l.steps())

		r.journal.set(func() {
			r.journal.onFinish = func(context.Context, state.Finish) (state.TokenStatus, error) { return state.TokenFenced, nil }
		})
		due = soon(5 * time.Second)
		l.plan(nil, slot(1, due))
		until(due)
		reports := l.reports()
		require.Equal(t, stepFinished, reports[3].GetStep())
		require.Zero(t, reports[3].GetState(), "a fenced attempt has no verdict of ours")
		r.close()
	})
}

func TestWorkThatCrashesFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.work.hook = func(_ context.Context, task runner.Task) runner.Outcome {
			switch task.Shard {
			case 0:
				panic("boom")
			case 1:
				panic(nil) //nolint:govet // that is the case
			case 2:
				runtime.Goexit()
			case 3:
				return runner.Outcome{State: state.StateSkipped} // no end of a run
			}
			return runner.Outcome{State: state.StateSucceeded}
		}
		l := r.lead(5)
		due := soon(5 * time.Second)
		var entries []*workerv1.Entry
		for i := range int32(5) {
			entries = append(entries, &workerv1.Entry{Ref: 1, Due: due.UnixMicro(), Shard: i, Shards: 5})
		}
		l.plan(noop(1, nil), entries...)
		until(due.Add(time.Second))
		byShard := map[int]state.Attempt{}
		for _, f := range r.journal.finished() {
			byShard[f.Live.Shard] = f.Attempt
		}
		require.Len(t, byShard, 5)
		for i := range 4 {
			require.Equal(t, state.StateFailed, byShard[i].State, i)
			require.NotEmpty(t, byShard[i].Error)
		}
		require.Equal(t, "panic: boom", byShard[0].Error)
		require.Equal(t, state.StateSucceeded, byShard[4].State)
		r.close()
	})
}

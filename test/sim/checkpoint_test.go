package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/executor/runner"
	past "github.com/leaderd/leaderd/internal/history"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
)

// saves says that the runs of a job save a checkpoint after each of n equal parts of
// their time, and go on from the last one.
func (h *history) saves(j *job, takes time.Duration, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.work[j.id] = work{takes: takes, state: state.StateSucceeded, saves: n}
}

// resumes notes from where an attempt goes on; -1: it did not ask, or ended before it
// knew.
func (h *history) resumes(x *worker, t *runner.Task, from int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range slices.Backward(h.spans) {
		if s.worker == x && s.job == t.Job && s.run == t.Run && s.shard == t.Shard && s.attempt == t.Attempt {
			s.resumed = from
			return
		}
	}
}

var errTooLong = errors.New("it took too long")

// saving does work in parts, by what the executor offers to work of any kind.
func (x *worker) saving(ctx context.Context, t *runner.Task, w work, o *runner.Outcome) {
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.Timeout, errTooLong)
		defer cancel()
	}
	last, err := within(ctx, func() (state.SavedCheckpoint, error) { return t.Keeper.Checkpoint(ctx) })
	done := uint64(0)
	if err == nil {
		if last.Number > 0 {
			done = binary.BigEndian.Uint64(last.Data)
		}
		x.w.history.resumes(x, t, int64(done))
	}
	for err == nil && done < uint64(w.saves) {
		if !sleep(ctx, w.takes/time.Duration(w.saves)) {
			err = context.Cause(ctx)
			break
		}
		// What reports are refused for, checkpoints are too.
		next := done + 1
		_ = t.Keeper.Report(state.Progress{Done: int64(next), Total: int64(w.saves)})
		done, err = within(ctx, func() (uint64, error) {
			return next, t.Keeper.Save(ctx, binary.BigEndian.AppendUint64(nil, next))
		})
	}
	switch {
	case errors.Is(context.Cause(ctx), errTooLong):
		o.State, o.Error = state.StateTimedOut, "timed out after "+t.Timeout.String()
	case ctx.Err() != nil:
		o.State, o.Error = state.StateInterrupted, context.Cause(ctx).Error()
		if errors.Is(context.Cause(ctx), runner.ErrCancelled) {
			o.State = state.StateCancelled
		}
	case err != nil:
		o.State, o.Error = state.StateFailed, err.Error()
	}
}

// within calls the executor for work that ends with ctx, whether it has its answer or not:
// in a process that stands still it gets none, and does nothing either.
func within[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := call()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// checkpoint is what was saved, where the event is of that.
func (e *event) checkpoint() (past.Checkpoint, bool) {
	_, rest := e.part()
	parts := strings.Split(rest, "/")
	var p statev1.Checkpoint
	if len(parts) != 5 || e.Deleted || proto.Unmarshal(e.KV.Value, &p) != nil || len(p.GetData()) != 8 {
		return past.Checkpoint{}, false
	}
	shard, err := strconv.Atoi(parts[3])
	return past.Checkpoint{
		Job: parts[0] + "/" + parts[1], Run: parts[2], Shard: shard, Token: p.GetToken(), Revision: e.revision,
		Sequence: int64(binary.BigEndian.Uint64(p.GetData())),
	}, err == nil
}

// TestWorkGoesOn has a run lose its node again and again. It does nothing twice but what
// came after its last checkpoint, and what it saved is gone with its success.
func TestWorkGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("a")
		w.history.saves(j, 100*time.Second, 100)
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.worker("e2", place{})
		w.awaitLeader(0)
		w.pass(time.Second)
		run := w.trigger(j, 1, false)
		for i := range 4 {
			w.pass(15*time.Second + time.Duration(i)*300*time.Millisecond)
			live := w.entry(j, run).Live
			if len(live) == 0 || live[0].Owner.Node == "" {
				continue
			}
			name := live[0].Owner.Node
			w.workers[name].kill()
			w.worker(name, place{})
		}
		w.pass(2 * time.Minute)
		w.verify(true)
		require.Equal(t, "succeeded", w.verdict(j, run))
		spans := w.history.of(j)
		require.Greater(t, len(spans), 3)
		took := time.Duration(0)
		for i, s := range spans {
			took += s.ended.Sub(s.begun)
			if i > 0 {
				require.Greater(t, s.resumed, spans[i-1].resumed, "it got further each time")
			}
		}
		require.Less(t, took, 100*time.Second+time.Duration(len(spans))*1500*time.Millisecond)
		for _, prefix := range []string{"checkpoints", "progress"} {
			require.Empty(t, w.left(prefix), "what the run has saved is gone")
		}
	})
}

// left are the keys of a kind that are there.
func (w *world) left(kind string) (keys []string) {
	there := map[string]bool{}
	for _, e := range w.audit.all() {
		if k, _ := e.part(); k == kind {
			there[e.KV.Key] = !e.Deleted
		}
	}
	for key, is := range there {
		if is {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestHandover drains a node of which other work is awaited for long: the job that is
// handed over goes on elsewhere at once, from its last checkpoint.
func TestHandover(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		moves := newJob("moves").with(func(s *state.JobSpec) { s.Drain = state.DrainHandover })
		stays := newJob("stays")
		w.history.saves(moves, time.Minute, 60)
		w.history.saves(stays, time.Minute, 60)
		w.put(moves)
		w.put(stays)
		w.control("c1")
		one := w.worker("e1", place{grace: 5 * time.Minute})
		w.awaitLeader(0)
		w.pass(time.Second)
		first, second := w.trigger(moves, 1, false), w.trigger(stays, 1, false)
		w.pass(20 * time.Second)
		w.worker("e2", place{})
		w.pass(2 * time.Second)
		asked := time.Now()
		one.drain()
		w.pass(20 * time.Second)
		require.True(t, w.draining("e1"), "it waits for the other job")
		spans := w.history.of(moves)
		require.Len(t, spans, 2)
		require.Equal(t, "e2", spans[1].node)
		require.Less(t, spans[1].begun.Sub(asked), 2*time.Second)
		require.Greater(t, spans[1].resumed, int64(15))
		w.pass(2 * time.Minute)
		w.verify(true)
		require.Equal(t, "succeeded", w.verdict(moves, first))
		require.Equal(t, "succeeded", w.verdict(stays, second))
		require.Len(t, w.history.of(stays), 1)
	})
}

package executor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

var errAway = errors.New("the store is away")

// keep is a run that works, of the second attempt, and its journal.
func keep(t *testing.T, ofJob bool, attempt int32) (*run, *journal) {
	t.Helper()
	j := &journal{revision: 100}
	sp := &spec{checkpointOfJob: ofJob, checkpointsKept: 5}
	d := &desk{journal: Waiting(j), clock: time.Now, metrics: newMetrics(nil), log: newDiary(hclog.NewNullLogger()), final: t.Context()}
	r := &run{desk: d, entry: &entry{key: key{run: "r2", attempt: attempt}}, plan: &plan{spec: sp}}
	r.live = &state.Live{Job: state.JobID{Namespace: "default", Name: "a"}, Run: "r2", Token: 7}
	return r, j
}

func (j *journal) savedBy(run state.RunID, token, number int64, data string) {
	j.set(func() {
		j.revision++
		j.last = state.SavedCheckpoint{Number: number, Data: []byte(data), Token: token, Run: run, Revision: j.revision}
	})
}

func TestSavingGoesOnFromTheLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, j := keep(t, false, 2)
		j.savedBy("r2", 5, 3, "three")
		last, err := r.Checkpoint(t.Context())
		require.NoError(t, err)
		require.Equal(t, "three", string(last.Data))
		require.NoError(t, r.Save(t.Context(), []byte("four")))
		require.NoError(t, r.Save(t.Context(), []byte("five")))
		last, err = r.Checkpoint(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 5, last.Number)
		require.Equal(t, "five", string(last.Data))
		require.ErrorIs(t, r.Save(t.Context(), make([]byte, state.MaxCheckpoint+1)), runner.ErrInvalid)

		var f state.Finish
		r.letGo(&f)
		require.True(t, f.Saved)
		require.ErrorIs(t, r.Save(t.Context(), nil), errOver)
		require.ErrorIs(t, r.Report(state.Progress{}), errOver)
	})
}

// What it costs: a first attempt that saves reads nothing before, and one that says
// nothing leaves nothing to clear away.
func TestWhatSavesNothingLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, j := keep(t, false, 1)
		require.NoError(t, r.Save(t.Context(), []byte("one")))
		require.EqualValues(t, 0, j.saves[0].Previous)
		require.EqualValues(t, 1, j.saves[0].Number)

		r, _ = keep(t, false, 1)
		var f state.Finish
		r.letGo(&f)
		require.Equal(t, state.Finish{}, f)
	})
}

// A write whose outcome is not known was carried out, or not: the next one finds out.
func TestSavingAfterAnUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, carriedOut := range []bool{false, true} {
			r, j := keep(t, true, 1)
			require.NoError(t, r.Save(t.Context(), []byte("one")))
			j.set(func() {
				j.onSave = func(c state.Checkpoint) (state.CheckpointResult, error) {
					j.onSave = nil
					if carriedOut {
						j.revision++
						j.last = state.SavedCheckpoint{Number: c.Number, Data: c.Data, Token: 7, Run: "r2", Revision: j.revision}
					}
					return state.CheckpointResult{}, errAway
				}
			})
			require.ErrorIs(t, r.Save(t.Context(), []byte("two")), errAway)
			require.NoError(t, r.Save(t.Context(), []byte("three")))
			require.Equal(t, "three", string(j.last.Data))
		}
	})
}

// Where checkpoints outlive runs, a run replaces only what it has read itself.
func TestAnotherRunsCheckpointIsNotReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, j := keep(t, true, 1)
		j.savedBy("r1", 5, 3, "three")
		_, err := r.Checkpoint(t.Context())
		require.NoError(t, err)
		j.savedBy("r3", 9, 4, "four")
		for range 2 {
			require.ErrorIs(t, r.Save(t.Context(), []byte("mine")), state.ErrCheckpointChanged)
		}
		require.Equal(t, "four", string(j.last.Data))
		_, err = r.Checkpoint(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.Save(t.Context(), []byte("on from there")), "once it has read it")

		j.set(func() { j.last = state.SavedCheckpoint{} })
		require.ErrorContains(t, r.Save(t.Context(), []byte("x")), "deleted")
	})
}

func TestFencedWorkIsStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, what := range []string{"checkpoint", "progress"} {
			r, j := keep(t, false, 1)
			work, stop := context.WithCancelCause(t.Context())
			r.stop.Store(&stop)
			j.set(func() { j.fenced = true })
			if what == "checkpoint" {
				require.ErrorIs(t, r.Save(t.Context(), nil), runner.ErrFenced)
			} else {
				require.NoError(t, r.Report(state.Progress{Done: 1}))
			}
			<-work.Done()
			require.ErrorIs(t, context.Cause(work), runner.ErrFenced)
			r.letGo(&state.Finish{})
		}
	})
}

// Progress is written at once, and then every few seconds at most, the newest alone.
func TestProgressIsWrittenSeldom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, j := keep(t, false, 1)
		begun := time.Now().UTC()
		for i := range int64(100) {
			require.NoError(t, r.Report(state.Progress{Done: 10 + i, Total: 200, Message: "on it"}))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(progressPause)
		synctest.Wait()
		require.Len(t, j.reports, 3)
		last := j.reports[2].Progress
		require.EqualValues(t, 109, last.Done)
		require.EqualValues(t, 10, last.Begun)
		require.Equal(t, begun, last.BegunAt)
		end, ok := last.End()
		require.True(t, ok)
		require.WithinDuration(t, begun.Add(19*time.Second), end, time.Second)

		var f state.Finish
		r.letGo(&f)
		require.True(t, f.Reported)
		require.False(t, f.Saved)
		require.Equal(t, state.Attempt{Done: 109, Total: 200, Message: "on it"}, f.Attempt)

		r, _ = keep(t, false, 1)
		for _, bad := range []state.Progress{
			{Done: -1}, {Total: -1}, {Message: "\xff"}, {Message: strings.Repeat("x", state.MaxProgressMessage+1)},
		} {
			require.ErrorIs(t, r.Report(bad), runner.ErrInvalid)
		}
	})
}

// What is under way when the attempt ends is given up.
func TestTheEndOfAnAttemptEndsItsCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, j := keep(t, false, 1)
		slow := make(chan struct{})
		r.desk.journal = hanging{Waiting(j), slow}
		saved := make(chan error)
		go func() { saved <- r.Save(context.Background(), []byte("x")) }()
		<-slow
		r.letGo(&state.Finish{})
		require.ErrorIs(t, <-saved, errOver)
	})
}

type hanging struct {
	Journal
	called chan struct{}
}

func (h hanging) Checkpoint(ctx context.Context, _ state.Checkpoint) (state.CheckpointResult, error) {
	close(h.called)
	<-ctx.Done()
	return state.CheckpointResult{}, context.Cause(ctx)
}

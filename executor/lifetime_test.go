package executor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// Work must have been told to stop before the lease of its owner can have ended,
// whether keep-alives fail, hang, or learn that it is gone.
func TestAFencedExecutorStopsItsWorkInTime(t *testing.T) {
	faults := map[string]func(ctx context.Context) (time.Duration, error){
		"fails": func(context.Context) (time.Duration, error) { return 0, errors.New("away") },
		"hangs": func(ctx context.Context) (time.Duration, error) { <-ctx.Done(); return 0, ctx.Err() },
		"gone":  func(context.Context) (time.Duration, error) { return 0, fmt.Errorf("x: %w", state.ErrNotRegistered) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, nil)
				var cause error
				var stopped time.Time
				r.work.hook = func(ctx context.Context, task runner.Task) runner.Outcome {
					o := obedient(time.Hour)(ctx, task)
					cause, stopped = context.Cause(ctx), time.Now()
					return o
				}
				l := r.lead(5)
				due := soon(5 * time.Second)
				l.plan(noop(1, nil), slot(1, due), slot(1, due.Add(time.Hour)))
				until(due.Add(7300 * time.Millisecond))
				require.Len(t, r.work.started(), 1)
				r.journal.set(func() { r.journal.keepAlive = fault })
				pass(DefaultTTL)
				synctest.Wait()
				require.ErrorIs(t, cause, runner.ErrFenced)
				require.Less(t, stopped.Sub(r.journal.kept()), DefaultTTL)

				// The token decides what became of it; meanwhile it may start anew.
				finishes := r.journal.finished()
				require.Len(t, finishes, 1)
				require.Equal(t, state.StateInterrupted, finishes[0].Attempt.State)
				require.NotZero(t, finishes[0].Retry)

				r.journal.set(func() { r.journal.keepAlive = nil })
				pass(time.Minute)
				reg, ok := r.x.Current()
				require.True(t, ok)
				require.Greater(t, reg.Owner.Revision, int64(1))
				require.Greater(t, r.journal.made(), 1)
				require.Equal(t, steps(stepClaimed), l.steps(), "the session went with the registration")
				l = r.fresh(5)
				require.Equal(t, reg.Owner.Revision, l.hello.GetOwnerRevision())
				require.Empty(t, l.hello.GetHeld())
				r.work.hook = nil
				due = soon(3 * time.Second)
				l.plan(noop(1, nil), slot(1, due))
				until(due)
				require.Equal(t, steps(stepClaimed, stepFinished), l.steps())
				r.close()
			})
		})
	}
}

func TestADisownedClaimEndsTheRegistration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.work.hook = obedient(time.Hour)
		r.journal.onClaim = func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
			if c.Live.Shard == 1 {
				return state.ClaimResult{Status: state.ClaimDisowned}, nil
			}
			return r.journal.grant(c), nil
		}
		l := r.lead(5)
		due := soon(5 * time.Second)
		l.plan(noop(1, nil), slot(1, due), &workerv1.Entry{Ref: 1, Due: due.Add(2 * time.Second).UnixMicro(), Shard: 1})
		until(due.Add(2 * time.Second))
		require.Len(t, r.journal.finished(), 1)
		require.Equal(t, state.StateInterrupted, r.journal.finished()[0].Attempt.State)
		pass(time.Second)
		require.Equal(t, 2, r.journal.made())
		r.close()
	})
}

// A run that is fenced between its claim and its slot never starts.
func TestFencedBeforeItsSlotNeverStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(r *rig, _ *Config) { r.journal.latency = time.Second })
		l := r.lead(5)
		due := soon(5 * time.Second)
		l.plan(noop(1, func(s *state.JobSpec) { s.Guarantee = state.AtMostOnce }),
			slot(1, due), slot(1, due.Add(time.Second)), slot(1, due.Add(2*time.Second)))
		until(due.Add(1500 * time.Millisecond)) // by now claims are a second ahead
		started := len(r.work.started())
		r.journal.set(func() {
			r.journal.keepAlive = func(context.Context) (time.Duration, error) { return 0, state.ErrNotRegistered }
		})
		pass(time.Minute)
		finishes := r.journal.finished()
		for _, f := range finishes[min(started, len(finishes)):] {
			require.NotZero(t, f.Retry, "an attempt that never started may be tried again")
			require.Zero(t, f.Attempt.Started)
		}
		r.close()
	})
}

func TestDrain(t *testing.T) {
	for _, atMostOnce := range []bool{false, true} {
		t.Run(fmt.Sprintf("at_most_once=%t", atMostOnce), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(r *rig, _ *Config) { r.journal.latency = 300 * time.Millisecond })
				r.work.hook = func(ctx context.Context, task runner.Task) runner.Outcome {
					return obedient(time.Duration(task.Shard)*time.Second)(ctx, task)
				}
				l := r.lead(5)
				due := soon(5 * time.Second)
				entry := func(shard int32, after time.Duration) *workerv1.Entry {
					return &workerv1.Entry{Ref: 1, Due: due.Add(after).UnixMicro(), Shard: shard, Shards: 1000}
				}
				l.plan(noop(1, func(s *state.JobSpec) {
					if atMostOnce {
						s.Guarantee = state.AtMostOnce
					}
				}), entry(5, 0), entry(500, 0), entry(3, 2*time.Second), entry(7, time.Minute))
				until(due.Add(1800 * time.Millisecond)) // a claim is under way
				begun := time.Now()
				r.stop()
				synctest.Wait()
				select {
				case <-r.ended:
					t.Fatal("did not wait for its work")
				default:
				}
				require.Zero(t, r.journal.gone())
				require.NoError(t, <-r.ended)
				took := time.Since(begun)
				require.True(t, took >= DefaultDrainGrace && took < DefaultDrainGrace+DefaultKillGrace, took)
				require.Equal(t, 1, r.journal.gone())

				byShard := map[int]state.Finish{}
				for _, f := range r.journal.finished() {
					byShard[f.Live.Shard] = f
				}
				require.Len(t, byShard, 3, "what was not claimed is dropped")
				require.Equal(t, state.StateSucceeded, byShard[5].Attempt.State)
				require.Equal(t, state.StateSucceeded, byShard[3].Attempt.State, "what is claimed proceeds")
				require.False(t, byShard[3].Attempt.Started.Before(due.Add(2*time.Second)))
				require.Equal(t, state.StateInterrupted, byShard[500].Attempt.State)
				require.Equal(t, atMostOnce, byShard[500].Retry.IsZero())
				require.Len(t, r.journal.claimed(), 3)
			})
		})
	}
}

func TestDrainOfAnIdleExecutorIsImmediate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.lead(5)
		l.plan(noop(1, nil), slot(1, soon(time.Hour)))
		begun := time.Now()
		r.close()
		require.Zero(t, time.Since(begun))
	})
}

// Work that nothing can end holds up neither a drain nor the next registration.
func TestWorkThatNeverEndsIsLeftBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, func(_ *rig, c *Config) { c.Node.Capacity = 2 })
		r.work.hook = func(ctx context.Context, task runner.Task) runner.Outcome {
			if task.Shard == 0 {
				<-task.Kill
				<-release
			}
			return runner.Outcome{State: state.StateSucceeded}
		}
		l := r.lead(5)
		due := soon(5 * time.Second)
		l.plan(noop(1, nil), slot(1, due))
		until(due.Add(time.Second))
		r.journal.set(func() {
			r.journal.keepAlive = func(context.Context) (time.Duration, error) { return 0, state.ErrNotRegistered }
		})
		pass(5 * time.Second)
		r.journal.set(func() { r.journal.keepAlive = nil })
		pass(time.Minute)
		require.Equal(t, 2, r.journal.made())
		require.EqualValues(t, 1, r.x.strays.Load())

		l = r.fresh(5)
		synctest.Wait()
		l.reports()
		require.EqualValues(t, 1, l.free)
		r.stop()
		// It was the earlier registration's: this one has nothing to wait for.
		require.NoError(t, <-r.ended)
		close(release)
		synctest.Wait()
		require.Zero(t, r.x.strays.Load())
	})
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, nil)
		r.work.hook = func(context.Context, runner.Task) runner.Outcome {
			<-release
			return runner.Outcome{State: state.StateSucceeded}
		}
		l := r.lead(5)
		due := soon(5 * time.Second)
		l.plan(noop(1, nil), slot(1, due))
		until(due.Add(time.Second))
		begun := time.Now()
		r.stop()
		require.ErrorIs(t, <-r.ended, ErrStuck)
		require.LessOrEqual(t, time.Since(begun), DefaultDrainGrace+DefaultKillGrace+2*finishGrace)
		close(release)
	})
}

func TestRegistrarAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		j := &journal{}
		_, err := NewRegistrar(j, RegistrarConfig{TTL: time.Second})
		require.ErrorContains(t, err, "Node.Name")
		require.ErrorContains(t, err, "TTL")

		reg, err := NewRegistrar(j, RegistrarConfig{Node: state.Node{Name: "c"}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- reg.Run(ctx, nil) }()
		pass(time.Hour)
		require.Equal(t, 1, j.made())
		require.Less(t, time.Since(j.kept()), DefaultTTL)
		j.set(func() {
			j.keepAlive = func(context.Context) (time.Duration, error) { return 0, state.ErrNotRegistered }
		})
		pass(10 * time.Second)
		j.set(func() { j.keepAlive = nil })
		pass(time.Minute)
		require.Greater(t, j.made(), 1)
		now, ok := reg.Current()
		require.True(t, ok)
		require.EqualValues(t, j.made(), now.Owner.Revision)
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, 1, j.gone())

		// What the holder finds wrong ends it.
		broken := errors.New("broken")
		require.ErrorIs(t, reg.Run(t.Context(), func(context.Context, state.Registration) error { return broken }), broken)
		require.Equal(t, 2, j.gone())
	})
}

// A process whose name a later one has taken ends, and does not stay without a
// registration for ever; but the key of the process before it may stand for a TTL.
func TestRegistrarGivesATakenNameUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		j := &journal{}
		reg, err := NewRegistrar(j, RegistrarConfig{Node: state.Node{Name: "c"}})
		require.NoError(t, err)
		j.set(func() { j.taken = true })
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- reg.Run(ctx, nil) }()
		pass(DefaultTTL)
		j.set(func() { j.taken = false })
		pass(10 * time.Second)
		require.Equal(t, 1, j.made(), "it was its own, of an earlier process")
		j.set(func() {
			j.taken = true
			j.keepAlive = func(context.Context) (time.Duration, error) { return 0, state.ErrNotRegistered }
		})
		pass(3 * DefaultTTL)
		require.ErrorIs(t, <-ended, state.ErrNameTaken)
		stop()
	})
}

// Many runs of one exclusive job at once: one claim is under way at a time, and
// the others hold nothing that another job's run needs.
func TestOneClaimOfAnExclusiveJobAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(_ *rig, c *Config) { c.Node.Capacity = 4 })
		l := r.lead(5)
		var under, most atomic.Int64
		r.journal.set(func() {
			r.journal.onClaim = func(context.Context, state.Claim) (state.ClaimResult, error) {
				most.Store(max(most.Load(), under.Add(1)))
				time.Sleep(50 * time.Millisecond)
				under.Add(-1)
				return state.ClaimResult{Status: state.ClaimSkipped}, nil
			}
		})
		due := soon(0)
		entries := make([]*workerv1.Entry, 20)
		for i := range entries {
			entries[i] = slot(1, due)
			entries[i].Run, entries[i].Pending = fmt.Sprintf("%s-trigger-%08x", state.SlotRunID(due), i), 1
		}
		l.plan(noop(1, func(s *state.JobSpec) { s.Overlap = state.OverlapSkip }), entries...)
		pass(3 * time.Second)
		require.EqualValues(t, 1, most.Load())
		require.Len(t, r.journal.claimed(), len(entries), "and all of them come to it")
		require.NotContains(t, l.steps(), stepBusy, "none found the executor without room")
		r.close()
	})
}

package executor

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/executor/unclaimed"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// outageRig is a rig whose executor may begin runs without a claim, kept in dir.
func outageRig(t *testing.T, dir string) *rig {
	t.Helper()
	return newRig(t, func(r *rig, c *Config) {
		var err error
		c.Unclaimed, err = unclaimed.Open(unclaimed.Dir(dir), unclaimed.Config{
			Runner: r.work, Capacity: 4, Wall: time.Now, Logger: hclog.NewNullLogger(),
		})
		require.NoError(t, err)
	})
}

func runPlanned(s *state.JobSpec) { s.StoreOutage = state.OutageRunPlanned }

// cutOff lets nothing of the store's answer until the function that it answers is called.
func (r *rig) cutOff() (back func()) {
	over := make(chan struct{})
	silent := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return kv.ErrUnknown
		}
	}
	r.journal.set(func() {
		r.journal.noRegister = func(ctx context.Context) error { return silent(ctx) }
		r.journal.keepAlive = func(ctx context.Context) (time.Duration, error) { return 0, silent(ctx) }
		r.journal.onClaim = func(ctx context.Context, _ state.Claim) (state.ClaimResult, error) {
			return state.ClaimResult{}, silent(ctx)
		}
	})
	return func() {
		close(over)
		r.journal.set(func() { r.journal.noRegister, r.journal.keepAlive, r.journal.onClaim = nil, nil, nil })
	}
}

// What is planned begins on time without a claim while the store is silent, where the
// job wants that, and is recorded once the leader plans it again: as it ended, without a
// second start.
func TestPlannedRunsBeginWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := outageRig(t, t.TempDir())
		r.work.hook = func(ctx context.Context, task runner.Task) runner.Outcome {
			if task.Run == "" || task.Token != 0 {
				t.Errorf("%s was claimed, token %d", task.Run, task.Token)
			}
			return obedient(3*time.Second)(ctx, task)
		}
		l := r.lead(5)
		due := soon(8 * time.Second)
		held := noop(2, nil)
		held[0].Job = "held"
		l.plan(append(noop(1, runPlanned), held...), slot(1, due), slot(1, due.Add(4*time.Second)), slot(1, due.Add(time.Hour)), slot(2, due))
		back := r.cutOff()
		until(due)
		starts := r.work.started()
		require.Len(t, starts, 1, "the other job's runs are held")
		require.Equal(t, due, starts[0].at)
		require.Equal(t, due.UTC(), starts[0].task.Slot)
		until(due.Add(5 * time.Second))
		require.Len(t, r.work.started(), 2)
		require.Empty(t, r.journal.finished())

		back()
		pass(6 * time.Second)
		l = r.fresh(6)
		synctest.Wait()
		told := l.hello.GetUnrecorded()
		require.Len(t, told, 2)
		require.Equal(t, "job", told[0].GetJob())
		require.Equal(t, string(state.SlotRunID(due)), told[0].GetRun())

		again := slot(1, due)
		again.ClosedRevision = 3 // caught up
		l.plan(noop(1, runPlanned), again, slot(1, due.Add(4*time.Second)))
		pass(time.Second)
		require.Len(t, r.work.started(), 2, "neither starts again")
		ends := r.journal.finished()
		require.Len(t, ends, 2)
		slices.SortFunc(ends, func(a, b state.Finish) int { return a.Live.Due.Compare(b.Live.Due) })
		for i, f := range ends {
			require.True(t, f.Attempt.Unclaimed)
			require.Equal(t, state.StateSucceeded, f.Attempt.State)
			require.Equal(t, due.Add(time.Duration(i)*4*time.Second).UTC(), f.Attempt.Started)
			require.True(t, f.Attempt.Claimed.After(f.Attempt.Started))
		}
		require.Empty(t, r.x.cfg.Unclaimed.All())
		until(due.Add(2 * time.Hour))
		require.Len(t, r.work.started(), 2, "what is due after the outage waits for a plan")
		r.close()
	})
}

// A process that was stopped has not heard of the store either; that is no outage.
func TestNothingBeginsWithoutAClaimWhereTheStoreAnswers(t *testing.T) {
	for _, answer := range []error{nil, state.ErrNotRegistered} {
		bubble(t, func(t *testing.T) {
			r := outageRig(t, t.TempDir())
			l := r.lead(5)
			due := soon(8 * time.Second)
			l.plan(noop(1, runPlanned), slot(1, due))
			back := r.cutOff()
			until(due.Add(-4*time.Second - time.Millisecond)) // the trust is about to end
			r.journal.set(func() {
				r.journal.keepAlive = func(context.Context) (time.Duration, error) { return 0, answer }
			})
			until(due.Add(time.Minute))
			require.Empty(t, r.work.started())
			back()
			r.close()
		})
	}
}

// What a process has begun and not ended, its successor tells of as interrupted; what
// was decided meanwhile is noted with its record.
func TestUnclaimedRunsOutliveTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		r := outageRig(t, dir)
		r.work.hook = obedient(time.Hour)
		l := r.lead(5)
		due := soon(8 * time.Second)
		l.plan(noop(1, runPlanned), slot(1, due))
		back := r.cutOff()
		until(due.Add(time.Second))
		require.Len(t, r.work.started(), 1)
		r.close() // it stops the work
		back()

		r = outageRig(t, dir)
		l = r.lead(6)
		synctest.Wait()
		require.Len(t, l.hello.GetUnrecorded(), 1)
		r.journal.set(func() {
			r.journal.onClaim = func(context.Context, state.Claim) (state.ClaimResult, error) {
				return state.ClaimResult{Status: state.ClaimDecided}, nil
			}
			r.journal.noteDouble = func(d state.DoubleReport) error {
				if len(r.journal.doubles) == 0 {
					r.journal.doubles = append(r.journal.doubles, d)
					return kv.ErrUnknown
				}
				r.journal.doubles = append(r.journal.doubles, d)
				return nil
			}
		})
		l.plan(noop(1, runPlanned), slot(1, due))
		pass(3 * noteEvery)
		require.Len(t, r.journal.doubles, 2, "until it is noted, and no more")
		a := r.journal.doubles[1].Attempt
		require.Equal(t, state.StateInterrupted, a.State)
		require.Equal(t, "n1", a.Node)
		require.True(t, a.Unclaimed)
		require.Equal(t, due.UTC(), a.Started)
		require.Equal(t, state.SlotRunID(due), r.journal.doubles[1].Run)
		require.Empty(t, r.x.cfg.Unclaimed.All())
		r.close()
	})
}

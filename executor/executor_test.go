package executor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

const (
	stepClaimed  = workerv1.Progress_STEP_CLAIMED
	stepDecided  = workerv1.Progress_STEP_DECIDED
	stepFinished = workerv1.Progress_STEP_FINISHED
	stepBusy     = workerv1.Progress_STEP_BUSY
	stepStale    = workerv1.Progress_STEP_STALE
	stepRefused  = workerv1.Progress_STEP_REFUSED
)

func steps(s ...workerv1.Progress_Step) []workerv1.Progress_Step { return s }

func TestStartsAtTheSlotAndClaimsBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.lead(5)
		due := soon(10 * time.Second)
		l.plan(noop(1, func(s *state.JobSpec) { s.Guarantee = state.AtMostOnce; s.Timeout = time.Minute }), slot(1, due))
		require.Empty(t, r.journal.claimed())

		until(due.Add(-time.Millisecond))
		claims := r.journal.claimed()
		require.Len(t, claims, 1)
		ahead := due.Sub(claims[0].at)
		require.True(t, ahead >= minLead && ahead <= maxLead, ahead)
		require.Equal(t, state.Claim{
			Job: state.JobID{Namespace: "ns", Name: "job"}, JobRevision: 7,
			Live: state.Live{
				Job: state.JobID{Namespace: "ns", Name: "job"}, Run: state.SlotRunID(due), Shards: 1, Generation: 3,
				State: state.StateRunning, Attempt: 1, Owner: state.Owner{Node: "n1", Revision: 1}, Term: 5,
				Due: due.UTC(), Claimed: claims[0].at.UTC(), AtMostOnce: true,
			},
		}, claims[0].Claim)
		require.Empty(t, r.work.started())

		until(due)
		starts := r.work.started()
		require.Len(t, starts, 1)
		require.True(t, starts[0].at.Equal(due), starts[0].at)
		task := starts[0].task
		require.Equal(t, due.UTC(), task.Slot)
		require.Equal(t, state.SlotRunID(due), task.Run)
		require.EqualValues(t, 2, task.Token)
		require.Equal(t, time.Minute, task.Timeout)

		finishes := r.journal.finished()
		require.Len(t, finishes, 1)
		a := finishes[0].Attempt
		require.Equal(t, state.StateSucceeded, a.State)
		require.EqualValues(t, 2, a.Token)
		require.EqualValues(t, 5, a.Term)
		require.Zero(t, finishes[0].Retry)

		reports := l.reports()
		require.Len(t, reports, 2)
		require.Equal(t, stepClaimed, reports[0].GetStep())
		require.Equal(t, stepFinished, reports[1].GetStep())
		require.EqualValues(t, state.StateSucceeded, reports[1].GetState())
		require.Equal(t, due.UnixMicro(), reports[1].GetDue())
		require.Empty(t, reports[1].GetRun())
		r.close()
		require.Equal(t, 1, r.journal.gone())
	})
}

func TestAnEntryPlannedAgainIsClaimedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.lead(5)
		due := soon(10 * time.Second)
		// The slot's run under its full name is the same run.
		named := slot(1, due)
		named.Run = string(state.SlotRunID(due))
		l.plan(noop(1, nil), slot(1, due), slot(1, due), named)
		l.hangUp()

		l = r.lead(6)
		l.plan(noop(9, nil), slot(9, due))
		until(due)
		require.Len(t, r.journal.claimed(), 1)
		require.Len(t, r.work.started(), 1)
		require.EqualValues(t, 6, r.journal.claimed()[0].Live.Term)
		require.Equal(t, steps(stepClaimed, stepFinished), l.steps())
		require.EqualValues(t, 9, l.reports()[0].GetRef())
		r.close()
	})
}

func TestPlannedAgainIsAnsweredFromMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.work.hook = func(ctx context.Context, task runner.Task) runner.Outcome {
			if task.Slot.Second()%2 == 0 {
				return obedient(time.Hour)(ctx, task)
			}
			return runner.Outcome{State: state.StateFailed, Error: "x"}
		}
		r.journal.onClaim = func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
			if c.Live.Shard == 1 {
				return state.ClaimResult{Status: state.ClaimLive}, nil
			}
			return r.journal.grant(c), nil
		}
		l := r.lead(5)
		even := time.Now().Truncate(2 * time.Second).Add(10 * time.Second)
		other := slot(1, even)
		other.Shard = 1
		l.plan(noop(1, nil), slot(1, even), slot(1, even.Add(time.Second)), other)
		until(even.Add(2 * time.Second))
		require.Len(t, r.journal.claimed(), 3)
		l.hangUp()

		l = r.lead(6)
		require.Len(t, l.hello.GetHeld(), 1)
		require.Equal(t, string(state.SlotRunID(even)), l.hello.GetHeld()[0].GetRun())
		l.plan(noop(2, nil), slot(2, even), slot(2, even.Add(time.Second)), &workerv1.Entry{Ref: 2, Due: even.UnixMicro(), Shard: 1})
		reports := l.reports()
		require.Len(t, reports, 3)
		require.Equal(t, stepClaimed, reports[0].GetStep())
		require.Equal(t, stepFinished, reports[1].GetStep())
		require.EqualValues(t, state.StateFailed, reports[1].GetState())
		require.Equal(t, stepDecided, reports[2].GetStep())
		require.Len(t, r.journal.claimed(), 3)

		// What was decided because its slot was closed is asked again when a
		// leader catches it up; and what is long over is forgotten.
		caught := &workerv1.Entry{Ref: 2, Due: even.UnixMicro(), Shard: 1, ClosedRevision: 44}
		l.plan(nil, caught)
		require.Len(t, l.reports(), 4)
		require.Len(t, r.journal.claimed(), 4)
		require.EqualValues(t, 44, r.journal.claimed()[3].ClosedRevision)
		pass(2 * time.Minute)
		l.plan(nil, slot(2, even.Add(time.Second)))
		pass(time.Second)
		require.Len(t, r.journal.claimed(), 5)
		r.close()
	})
}

func TestAHeldGateIsAskedAgainWhenDue(t *testing.T) {
	for _, freed := range []bool{false, true} {
		t.Run(fmt.Sprintf("freed=%t", freed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.journal.onClaim = func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
					switch {
					case !c.ApplyOverlap:
						return state.ClaimResult{Status: state.ClaimHeld}, nil
					case freed:
						return r.journal.grant(c), nil
					}
					return state.ClaimResult{Status: state.ClaimSkipped}, nil
				}
				l := r.lead(5)
				due := soon(5 * time.Second)
				l.plan(noop(1, func(s *state.JobSpec) { s.Overlap = state.OverlapSkip }), slot(1, due))
				until(due.Add(time.Second))
				claims := r.journal.claimed()
				require.Len(t, claims, 2)
				require.True(t, claims[0].Exclusive)
				require.False(t, claims[0].ApplyOverlap)
				require.True(t, claims[1].ApplyOverlap)
				require.True(t, claims[1].at.Equal(due), claims[1].at)
				if freed {
					require.Equal(t, steps(stepClaimed, stepFinished), l.steps())
				} else {
					require.Equal(t, steps(stepDecided), l.steps())
				}
				r.close()
			})
		})
	}
}

func TestFurtherAttemptsAndTriggersAreClaimedAsPlanned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.lead(5)
		long := time.Now().Add(-24 * time.Hour).Truncate(time.Second)
		id := string(state.TriggerRunID(long, 1))
		l.plan(noop(1, func(s *state.JobSpec) { s.Overlap = state.OverlapSkip }),
			&workerv1.Entry{Ref: 1, Due: long.UnixMicro(), Attempt: 2, Token: 99, Shard: 1, Shards: 3},
			&workerv1.Entry{Ref: 1, Due: long.UnixMicro(), Run: id, Pending: 12, AllowOverlap: true},
			slot(1, long)) // its start deadline has passed
		pass(time.Second)
		claims := r.journal.claimed()
		require.Len(t, claims, 2)
		if claims[0].Pending != 0 {
			claims[0], claims[1] = claims[1], claims[0]
		}
		require.EqualValues(t, 99, claims[0].Token)
		require.Equal(t, 2, claims[0].Live.Attempt)
		require.Equal(t, 3, claims[0].Live.Shards)
		require.True(t, claims[0].ApplyOverlap)
		require.True(t, claims[0].Exclusive)
		require.EqualValues(t, 12, claims[1].Pending)
		require.False(t, claims[1].Exclusive)
		require.EqualValues(t, id, claims[1].Live.Run)
		for _, s := range r.work.started() {
			if s.task.Attempt == 2 {
				require.Equal(t, long.UTC(), s.task.Slot)
			} else {
				require.Zero(t, s.task.Slot)
			}
		}
		r.close()
	})
}

func TestRefusedClaimsAreReportedOnceAndTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		due := soon(5 * time.Second)
		r.journal.onClaim = func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
			if time.Since(due) < 10*time.Second {
				if c.Live.Shard == 1 {
					panic("journal")
				}
				return state.ClaimResult{}, errors.New("no space")
			}
			return r.journal.grant(c), nil
		}
		l := r.lead(5)
		l.plan(noop(1, nil), slot(1, due), &workerv1.Entry{Ref: 1, Due: due.UnixMicro(), Shard: 1})
		until(due.Add(time.Second))
		require.Equal(t, steps(stepRefused, stepRefused), l.steps())
		l.plan(nil, slot(1, due)) // planned again, it is reported again
		until(due.Add(40 * time.Second))
		require.Equal(t, steps(stepRefused, stepRefused, stepRefused, stepClaimed, stepFinished, stepClaimed, stepFinished), l.steps())
		require.Len(t, r.work.started(), 2)
		require.Less(t, len(r.journal.claimed()), 16)
		r.close()
	})
}

// A claim without an answer may be ours: it is asked until there is one, and
// gets a verdict, but is not started too late.
func TestAClaimInDoubtIsNeverForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		due := soon(5 * time.Second)
		r.journal.onClaim = func(ctx context.Context, c state.Claim) (state.ClaimResult, error) {
			if time.Since(due) < time.Minute {
				<-ctx.Done()
				return state.ClaimResult{}, ctx.Err()
			}
			return r.journal.grant(c), nil
		}
		l := r.lead(5)
		l.plan(noop(1, func(s *state.JobSpec) { s.StartDeadline = 3 * time.Second }), slot(1, due))
		until(due.Add(2 * time.Second))
		l.revoke(1)
		until(due.Add(4 * time.Minute))
		require.Empty(t, r.work.started())
		finishes := r.journal.finished()
		require.Len(t, finishes, 1)
		require.Equal(t, state.StateCancelled, finishes[0].Attempt.State)
		require.Equal(t, state.ReasonDeadline, finishes[0].Reason)
		require.Zero(t, finishes[0].Attempt.Started)
		r.close()
	})
}

func TestStaleAndRevoked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.journal.latency = 50 * time.Millisecond
		r.journal.onClaim = func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
			if c.JobRevision == 7 {
				return state.ClaimResult{Status: state.ClaimStale}, nil
			}
			return r.journal.grant(c), nil
		}
		l := r.lead(5)
		due := soon(5 * time.Second)
		l.plan(noop(1, nil), slot(1, due))
		until(due.Add(-minLead / 2))
		require.Len(t, r.journal.claimed(), 1)
		require.Empty(t, r.work.started())
		// The job is edited while the claim is under way.
		edited := noop(2, nil)
		edited[0].JobRevision = 8
		l.revoke(1)
		l.plan(edited, slot(2, due), slot(2, due.Add(time.Second)))
		l.revoke(2)
		stale := noop(3, nil)
		l.plan(append(stale, &workerv1.Spec{Ref: 4, Namespace: "ns", Job: "job", JobRevision: 8, Spec: edited[0].GetSpec()}),
			slot(4, due), slot(3, due.Add(2*time.Second)))
		until(due.Add(5 * time.Second))
		claims := r.journal.claimed()
		require.Len(t, claims, 3, "the revoked entry is not claimed")
		require.Len(t, r.work.started(), 1)
		require.False(t, r.work.started()[0].at.Before(due))
		require.Equal(t, steps(stepClaimed, stepFinished, stepStale), l.steps())
		r.close()
	})
}

func TestCapacityIsKeptAndWantOfRoomIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var running, most atomic.Int32
		r := newRig(t, func(_ *rig, c *Config) { c.Node.Capacity = 2 })
		r.work.hook = func(ctx context.Context, task runner.Task) runner.Outcome {
			n := running.Add(1)
			defer running.Add(-1)
			if n > most.Load() {
				most.Store(n)
			}
			return obedient(time.Second)(ctx, task)
		}
		l := r.lead(5)
		due := soon(5 * time.Second)
		var entries []*workerv1.Entry
		for i := range int32(10) {
			entries = append(entries, &workerv1.Entry{Ref: 1, Due: due.UnixMicro(), Shard: i, Shards: 10})
		}
		l.plan(noop(1, nil), entries...)
		until(due.Add(500 * time.Millisecond))
		count := func() map[workerv1.Progress_Step]int {
			n := map[workerv1.Progress_Step]int{}
			for _, s := range l.steps() {
				n[s]++
			}
			return n
		}
		require.Equal(t, map[workerv1.Progress_Step]int{stepClaimed: 2, stepBusy: 8}, count())
		require.Zero(t, r.x.strays.Load())
		until(due.Add(8 * time.Second))
		require.Equal(t, map[workerv1.Progress_Step]int{stepClaimed: 10, stepFinished: 10, stepBusy: 8}, count())
		require.EqualValues(t, 2, most.Load())
		require.EqualValues(t, 2, l.free)
		r.close()
	})
}

package executor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// newBareDesk is a desk of an executor that does not run.
func newBareDesk(t require.TestingT, cfg Config) *desk {
	cfg.Node.Name, cfg.Node.Executor = "n1", true
	x, err := New(Waiting(&journal{}), &leaders{changed: make(chan struct{})}, &work{}, nil, cfg)
	require.NoError(t, err)
	return newDesk(context.Background(), context.Background(), x, state.Owner{Node: "n1", Revision: 1}, func(error) {})
}

// entryDue is an entry of a job of its own that overlaps freely.
func entryDue(sp *spec, n int, due int64) *entry {
	return &entry{
		key:   key{job: sp.job, run: state.TriggerRunID(time.Unix(0, due), uint32(n)), attempt: 1},
		plan:  &plan{spec: sp, due: due, start: due, shards: 1},
		until: due + int64(time.Hour),
	}
}

// The pace claims all whose time has come, in whichever heap, and looks again at a
// time that is still to come.
func TestDispatchLeavesNothingDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newBareDesk(t, Config{})
		sp := newSpec(&session{}, noop(1, nil)[0])
		now := time.Now().UnixNano()
		span := rapid.Int64Range(-int64(time.Second), int64(10*time.Second))
		for n := range rapid.IntRange(0, 12).Draw(t, "entries") {
			e := entryDue(sp, n, now+span.Draw(t, "due"))
			d.entries[e.key] = e
			if rapid.Bool().Draw(t, "later") {
				d.enqueue(e, later, now+span.Draw(t, "at"))
			} else {
				d.enqueue(e, ahead, e.plan.due)
			}
		}
		_, next := d.dispatch(now)
		require.Greater(t, next, now)
		for _, e := range d.entries {
			if e.place == later {
				require.Greater(t, e.at, now)
			}
			if e.place == ahead {
				require.Greater(t, e.at, now+int64(minLead))
			}
		}
	})
}

// An entry that is to be claimed again now does not wait for one that is due
// earlier, but is not to be claimed yet.
func TestDispatchDoesNotWaitForAnEarlierSlot(t *testing.T) {
	d := newBareDesk(t, Config{})
	sp := newSpec(&session{}, noop(1, nil)[0])
	now := time.Now().UnixNano()
	again, earlier := entryDue(sp, 1, now+int64(8*time.Second)), entryDue(sp, 2, now+int64(5*time.Second))
	d.enqueue(again, later, now)
	d.enqueue(earlier, ahead, earlier.plan.due)
	runs, next := d.dispatch(now)
	require.Len(t, runs, 1)
	require.Same(t, again, runs[0].entry)
	require.Equal(t, now+int64(tick), next)

	// Of two that are to be claimed now the one that is due earlier goes first.
	now += int64(5 * time.Second)
	third := entryDue(sp, 3, now+int64(time.Second))
	d.enqueue(third, later, now)
	runs, _ = d.dispatch(now)
	require.Len(t, runs, 2)
	require.Same(t, earlier, runs[0].entry)
	require.Same(t, third, runs[1].entry)
}

// That the wall clock is set tells nothing of the journal's rate.
func TestLeadIsMeasuredByAClockThatNobodySets(t *testing.T) {
	measure := func(t *testing.T, step time.Duration) (rate float64) {
		bubble(t, func(t *testing.T) {
			var offset atomic.Int64
			d := newBareDesk(t, Config{Wall: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }})
			sp := newSpec(&session{}, noop(1, nil)[0])
			var runs []*run
			for n := range 4 * loaded {
				e := entryDue(sp, n, d.wall())
				d.entries[e.key] = e
				runs = append(runs, d.begin(e, d.wall(), false))
			}
			for i, r := range runs {
				if i == 2*loaded {
					offset.Store(int64(step))
				}
				time.Sleep(time.Millisecond) // 1,000 answers a second
				r.live = &state.Live{Token: 1}
				d.settle(r, &state.ClaimResult{Status: state.Claimed}, nil, time.Millisecond, false)
			}
			rate = d.lead.rate
		})
		return rate
	}
	steady := measure(t, 0)
	require.Less(t, steady, float64(assumedRate))
	require.InDelta(t, steady, measure(t, time.Hour), 0)
	require.InDelta(t, steady, measure(t, -time.Hour), 0)
}

// Where claims that nobody answers take all the room, the leader is not told that the
// executor is full: no run is at work, and more capacity would help nobody.
func TestRoomTakenByClaimsWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(_ *rig, c *Config) { c.Node.Capacity = 2 })
		back := make(chan struct{})
		r.journal.onClaim = func(_ context.Context, c state.Claim) (state.ClaimResult, error) {
			<-back
			return r.journal.grant(c), nil
		}
		r.work.hook = obedient(time.Minute)
		l := r.lead(5)
		due := soon(5 * time.Second)
		var entries []*workerv1.Entry
		for i := range int32(5) {
			entries = append(entries, &workerv1.Entry{Ref: 1, Due: due.UnixMicro(), Shard: i, Shards: 5})
		}
		l.plan(noop(1, nil), entries...)
		last := func() map[workerv1.Progress_Step]int {
			of, n := map[int32]workerv1.Progress_Step{}, map[workerv1.Progress_Step]int{}
			for _, p := range l.reports() {
				of[p.GetShard()] = p.GetStep()
			}
			for _, step := range of {
				n[step]++
			}
			return n
		}
		until(due.Add(500 * time.Millisecond))
		require.Equal(t, map[workerv1.Progress_Step]int{stepBusy: 3}, last(), "nobody knows yet")
		until(due.Add(5 * time.Second))
		require.Equal(t, map[workerv1.Progress_Step]int{stepRefused: 3}, last())
		told := len(l.reports())
		l.plan(nil, entries...) // the leader tries again
		until(due.Add(8 * time.Second))
		require.Equal(t, map[workerv1.Progress_Step]int{stepRefused: 3}, last())
		require.Len(t, l.reports(), told+3, "once for each plan")

		close(back)
		until(due.Add(9 * time.Second))
		l.plan(nil, entries...)
		until(due.Add(10 * time.Second))
		require.Equal(t, map[workerv1.Progress_Step]int{stepClaimed: 2, stepBusy: 3}, last(), "now runs take it")
		r.close()
	})
}

package sim

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	past "github.com/leaderd/leaderd/internal/history"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// redo retries any run that has not succeeded, as a whole or what failed of it: rather
// one of which some shards succeeded.
func (c *chaos) redo() {
	c.nonce++
	failed, which, resume := c.chance(80), c.rng.IntN(100), c.chance(50)
	found := c.failedRuns(func(r *state.Record) bool {
		return slices.ContainsFunc(r.Ends, func(l state.Live) bool { return l.State == state.StateSucceeded })
	})
	if len(found) == 0 || which < 20 {
		found = c.failedRuns(func(r *state.Record) bool { return len(r.Attempts)+len(r.Ends) > 0 })
	}
	if len(found) == 0 {
		return
	}
	e := found[which%len(found)]
	j := c.jobs[slices.IndexFunc(c.jobs, func(j *job) bool { return j.id == e.Job })]
	if resume { // a paused job refuses, and so does a run of whose shards none was listed
		c.w.resume(j)
	}
	_, _, _ = c.w.api.Repeat(c.w.ctx, repeatOf(c.w, j, e.Run, c.nonce, failed))
}

// failedRuns are some of the newest that have not succeeded, of jobs that are there.
func (c *chaos) failedRuns(match func(*state.Record) bool) []store.RunEntry {
	page, err := c.w.api.ListRuns(c.w.ctx, store.ListRuns{
		Namespace: c.anyJob().id.Namespace, Limit: 20, NewestFirst: true,
		Match: func(e *store.RunEntry) bool {
			return e.Record != nil && e.Record.State != state.StateSucceeded && match(e.Record) &&
				slices.ContainsFunc(c.jobs, func(j *job) bool { return j.id == e.Job })
		},
	})
	if err != nil {
		return nil
	}
	return page.Runs
}

// uneven has one shard of a job's runs fail, or none.
func (c *chaos) uneven(j *job, takes time.Duration) {
	c.w.history.alike(j)
	if shard, fails := c.rng.IntN(4), c.chance(50); fails && j.spec.Shards != nil {
		c.w.history.shardDoes(j, shard, takes, state.StateFailed)
	}
}

// alike has all shards of a job's runs do the same from now on.
func (h *history) alike(j *job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.parts, j.id)
}

func repeatOf(w *world, j *job, origin state.RunID, nonce uint32, failed bool) state.Repeat {
	now := time.Now()
	run := state.TriggerRunID(now, nonce)
	if origin.Kind().Given() {
		run = state.SubmitRunID(now, uint64(nonce))
	}
	return state.Repeat{
		Pending:    state.Pending{Job: j.id, Run: run, Origin: origin, Requested: now, Actor: "chaos"},
		FailedOnly: failed, Key: fmt.Sprint("retry ", nonce), KeyTTL: time.Hour, Now: w.client.wall(),
	}
}

// repeat retries what failed of a run.
func (w *world) repeat(j *job, origin state.RunID, nonce uint32) state.RunID {
	w.t.Helper()
	run, _, err := w.api.Repeat(w.ctx, repeatOf(w, j, origin, nonce, true))
	require.NoError(w.t, err)
	return run
}

// repeats checks the header of a run that repeats some shards of another: it has as many,
// each is given what it was given there, and those are carried over that succeeded.
func (c *checker) repeats(l *state.Live) {
	k := runKey{l.Job, l.Run}
	of, ok := c.records[runKey{l.Job, l.Origin}]
	if len(l.Split.Carried)+len(l.Split.Resumed) == 0 {
		return
	}
	c.listed[k] = l.Split
	if !ok || of.Split == nil || len(of.Ends) != l.Split.Total() || l.Split.Needed() != of.Split.Needed() {
		c.fail(past.Changed, k, "has %d shards at revision %d, and repeats %s, which has not so many", l.Split.Total(), l.Token, l.Origin)
		return
	}
	for i := range of.Ends {
		was, is := of.Split.Part(i), l.Split.Part(i)
		if was.Range != is.Range || was.Node != is.Node || !maps.Equal(was.Params, is.Params) {
			c.fail(past.Changed, k, "shard %d is given %v, and in %s %v", i, is, l.Origin, was)
		}
		if (of.Ends[i].State == state.StateSucceeded) != (l.Split.CarriedFrom(i) != "") {
			c.fail(past.Changed, k, "shard %d is carried over from %q, and is %s in %s", i, l.Split.CarriedFrom(i), of.Ends[i].State, l.Origin)
		}
	}
}

// TestRepeatShards has the shards of a run made again that failed, and no others, until all
// have succeeded: also where the job is another one by then, and the leader dies.
func TestRepeatShards(t *testing.T) {
	for name, j := range map[string]*job{
		"counted":   sharded("a", "0 0 1 1 *", 4, func(s *state.Shards) { s.Range = &state.ShardRange{From: 1, To: 100} }),
		"listed":    listing("a", "0 0 1 1 *"),
		"broadcast": sharded("a", "0 0 1 1 *", 0, func(s *state.Shards) { s.Broadcast = true }),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.history.does(j, 3*time.Second, state.StateSucceeded)
				w.history.listsShards(j, "a\nb\nc\nd\n")
				w.history.shardDoes(j, 1, 2*time.Second, state.StateFailed)
				w.history.shardDoes(j, 3, 2*time.Second, state.StateFailed)
				w.put(j)
				leader := w.fleet()
				w.pass(time.Second)
				first := w.trigger(j, 1, false)
				w.pass(15 * time.Second)
				require.Equal(t, "failed", w.verdict(j, first))

				j.with(func(s *state.JobSpec) { s.Shards = nil }) // a run of one piece from now on
				w.put(j)
				w.history.shardDoes(j, 3, 8*time.Second, state.StateSucceeded)
				second := w.repeat(j, first, 2)
				w.pass(time.Second)
				require.Equal(t, map[int]int{1: 1, 3: 1}, w.startsOf(j, second))
				leader.kill()
				w.pass(40 * time.Second)
				require.Equal(t, "failed", w.verdict(j, second))
				rec := w.record(j, second)
				require.Equal(t, "3 of 4 shards succeeded, 4 were needed; not 1", rec.Detail)
				require.Equal(t, first, rec.Origin)

				w.history.shardDoes(j, 1, 2*time.Second, state.StateSucceeded)
				third := w.repeat(j, second, 3)
				w.pass(10 * time.Second)
				require.Equal(t, "succeeded", w.verdict(j, third))
				require.Equal(t, map[int]int{1: 1}, w.startsOf(j, third))
				rec = w.record(j, third)
				require.Equal(t, []state.ShardsOf{{Run: first, Shards: []int{0, 2}}, {Run: second, Shards: []int{3}}}, rec.Split.Carried)
				w.pass(20 * time.Second)
				w.verify(true)
			})
		})
	}
}

// TestRepeatStartsSoon has the last shards of a retry end it at once.
func TestRepeatStartsSoon(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := sharded("a", "0 0 1 1 *", 3)
		w.history.does(j, time.Second, state.StateSucceeded)
		w.history.shardDoes(j, 2, time.Second, state.StateFailed)
		w.put(j)
		w.fleet()
		w.pass(time.Second)
		first := w.trigger(j, 1, false)
		w.pass(5 * time.Second)
		w.history.shardDoes(j, 2, time.Second, state.StateSucceeded)
		asked := time.Now()
		second := w.repeat(j, first, 2)
		w.pass(5 * time.Second)
		require.Equal(t, "succeeded", w.verdict(j, second))
		require.Less(t, w.record(j, second).Recorded.Sub(asked), 2*time.Second)
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestRepeatGoesOn has retries go on from the last checkpoints of what they repeat, of a
// shard and of a run of one piece.
func TestRepeatGoesOn(t *testing.T) {
	for name, j := range map[string]*job{"shard": sharded("a", "0 0 1 1 *", 2), "one piece": newJob("a", "0 0 1 1 *")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.history.saves(j, 10*time.Second, 10)
				j.with(func(s *state.JobSpec) { s.Timeout = 4500 * time.Millisecond })
				w.put(j)
				w.fleet()
				w.pass(time.Second)
				first := w.trigger(j, 1, false)
				w.pass(10 * time.Second)
				require.Equal(t, "timed_out", w.verdict(j, first))
				second := w.repeat(j, first, 2)
				w.pass(10 * time.Second)
				require.Equal(t, "timed_out", w.verdict(j, second))
				third := w.repeat(j, second, 3)
				w.pass(10 * time.Second)
				require.Equal(t, "succeeded", w.verdict(j, third))
				from := map[state.RunID]int64{}
				for _, s := range w.history.of(j) {
					from[s.run] = s.resumed
				}
				require.Equal(t, map[state.RunID]int64{first: 0, second: 4, third: 8}, from)
				kept, err := w.api.ListCheckpoints(w.ctx, state.CheckpointRef{Job: j.id, Run: third})
				require.NoError(t, err)
				require.Empty(t, kept, "they go with the success")
				w.pass(20 * time.Second)
				w.verify(true)
			})
		})
	}
}

// TestRepeatCancelled has nothing of a retry be made any more, and what was carried over
// stay so.
func TestRepeatCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := sharded("a", "0 0 1 1 *", 3)
		w.history.does(j, time.Second, state.StateSucceeded)
		w.history.shardDoes(j, 1, time.Second, state.StateFailed)
		w.put(j)
		w.fleet()
		w.pass(time.Second)
		first := w.trigger(j, 1, false)
		w.pass(5 * time.Second)
		w.history.shardDoes(j, 1, time.Minute, state.StateSucceeded)
		second := w.repeat(j, first, 2)
		w.pass(2 * time.Second)
		_, err := w.api.CancelRun(w.ctx, state.Cancel{Job: j.id, Run: second, Requested: time.Now(), Actor: "me", Reason: state.ReasonRequested})
		require.NoError(t, err)
		w.pass(5 * time.Second)
		require.Equal(t, "cancelled:requested", w.verdict(j, second))
		rec := w.record(j, second)
		require.Equal(t, []state.RunState{state.StateSucceeded, state.StateCancelled, state.StateSucceeded},
			[]state.RunState{rec.Ends[0].State, rec.Ends[1].State, rec.Ends[2].State})
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

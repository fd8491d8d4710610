package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// sharded is a job whose runs have n shards.
func sharded(name, schedule string, n int, with ...func(*state.Shards)) *job {
	return newJob(name, schedule).with(func(s *state.JobSpec) {
		s.Shards = &state.Shards{Count: n}
		for _, do := range with {
			do(s.Shards)
		}
	})
}

// fleet is a cluster of two control nodes and four executors.
func (w *world) fleet() *control {
	w.control("c1")
	w.control("c2")
	for i := range 4 {
		w.worker(fmt.Sprint("e", i+1), place{grace: time.Second})
	}
	return w.awaitLeader(0)
}

// byNode counts a run's starts by node.
func (w *world) byNode(j *job, run state.RunID) map[string]int {
	out := map[string]int{}
	for _, s := range w.history.of(j) {
		if s.run == run {
			out[s.node]++
		}
	}
	return out
}

// allAt checks that so many shards of a slot's run started, each once, not later than late.
func (w *world) allAt(j *job, slot time.Time, n int, late time.Duration) {
	w.t.Helper()
	seen := map[int]bool{}
	for _, s := range w.history.of(j) {
		if s.run == state.SlotRunID(slot) {
			require.False(w.t, seen[s.shard], "shard %d started twice", s.shard)
			require.LessOrEqual(w.t, s.begun.Sub(slot), late, "shard %d was late", s.shard)
			seen[s.shard] = true
		}
	}
	require.Len(w.t, seen, n)
}

// TestShards has each shard run once, all at their slot, and spread evenly.
func TestShards(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := sharded("a", "*/10 * * * * *", 12)
		w.history.does(j, 3*time.Second, state.StateSucceeded)
		w.put(j)
		w.fleet()
		w.pass(15 * time.Second)
		first := time.Now().Truncate(10 * time.Second).Add(10 * time.Second)
		w.until(first.Add(time.Second))
		e := w.entry(j, state.SlotRunID(first))
		require.Len(t, e.Live, 13)
		require.True(t, e.Live[0].IsHeader())
		w.until(first.Add(5 * time.Second))
		require.Equal(t, "succeeded", w.slotVerdict(j, first))
		require.Equal(t, map[string]int{"e1": 3, "e2": 3, "e3": 3, "e4": 3}, w.byNode(j, state.SlotRunID(first)))
		w.allAt(j, first, 12, 20*time.Millisecond)
		rec := w.entry(j, state.SlotRunID(first)).Record
		require.Len(t, rec.Ends, 12)
		for i := range rec.Ends {
			require.Equal(t, state.StateSucceeded, rec.Ends[i].State)
			require.Len(t, rec.Ends[i].Attempts, 1)
		}
		w.pause(j)
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestShardsWithoutLeader has the leader die before the slot: no shard is late, and the
// next leader gives the run its verdict.
func TestShardsWithoutLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := sharded("a", "*/30 * * * * *", 8)
		w.history.does(j, 2*time.Second, state.StateSucceeded)
		w.put(j)
		c := w.fleet()
		first := time.Now().Truncate(30 * time.Second).Add(60 * time.Second)
		w.until(first.Add(-4 * time.Second))
		c.kill()
		w.until(first.Add(500 * time.Millisecond))
		w.allAt(j, first, 8, 20*time.Millisecond)
		w.pass(25 * time.Second)
		require.Equal(t, "succeeded", w.slotVerdict(j, first))
		w.pause(j)
		w.pass(30 * time.Second)
		w.verify(true)
	})
}

// TestShardsOfLostExecutors loses two executors of four in the middle of a run: their
// shards move, the others go on.
func TestShardsOfLostExecutors(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := sharded("a", "*/5 * * * *", 12)
		w.history.does(j, 40*time.Second, state.StateSucceeded)
		w.put(j)
		w.fleet()
		first := time.Now().Truncate(5 * time.Minute).Add(5 * time.Minute)
		w.until(first.Add(5 * time.Second))
		w.workers["e1"].kill()
		w.workers["e2"].drain()
		w.until(first.Add(100 * time.Second))
		require.Equal(t, "succeeded", w.slotVerdict(j, first))
		again := 0
		for _, end := range w.entry(j, state.SlotRunID(first)).Record.Ends {
			again += len(end.Attempts) - 1
		}
		require.Equal(t, 6, again, "only theirs were tried again")
		w.pause(j)
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestShardsFullCluster has more shards than there is room for: they wait, and hold up
// neither the watermark nor other jobs.
func TestShardsFullCluster(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, other := sharded("a", "*/5 * * * *", 20), newJob("b", "*/10 * * * * *")
		w.history.does(j, 20*time.Second, state.StateSucceeded)
		w.put(j)
		w.put(other)
		w.control("c1")
		w.worker("e1", place{capacity: 4})
		w.worker("e2", place{capacity: 4})
		w.awaitLeader(0)
		first := time.Now().Truncate(5 * time.Minute).Add(5 * time.Minute)
		w.until(first.Add(30 * time.Second))
		require.Equal(t, "running", w.slotVerdict(j, first))
		w.until(first.Add(90 * time.Second))
		require.Equal(t, "succeeded", w.slotVerdict(j, first))
		w.pause(j)
		w.pause(other)
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestShardsOverlap has the run as a whole hold the job's gate.
func TestShardsOverlap(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		skip := sharded("skip", "*/10 * * * * *", 3).with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip })
		queue := sharded("queue", "*/10 * * * * *", 3).with(func(s *state.JobSpec) { s.Overlap = state.OverlapQueue })
		two := sharded("two", "*/10 * * * * *", 3).with(func(s *state.JobSpec) { s.Overlap, s.MaxConcurrent = state.OverlapAllow, 2 })
		for _, j := range []*job{skip, queue, two} {
			w.history.does(j, 25*time.Second, state.StateSucceeded)
			w.put(j)
		}
		w.fleet()
		first := time.Now().Truncate(10 * time.Second).Add(30 * time.Second)
		for _, j := range []*job{skip, queue, two} {
			w.pause(j)
		}
		w.until(first.Add(-time.Second))
		for _, j := range []*job{skip, queue, two} {
			w.resume(j)
		}
		w.until(first.Add(36 * time.Second))
		require.Equal(t, []string{"succeeded", "skipped:overlap", "skipped:overlap", "running"}, w.verdictsFrom(skip, first, 10*time.Second, 4))
		require.Equal(t, []string{"succeeded", "running", "skipped:overlap", "queued"}, w.verdictsFrom(queue, first, 10*time.Second, 4))
		require.Equal(t, []string{"succeeded", "succeeded", "skipped:overlap", "running"}, w.verdictsFrom(two, first, 10*time.Second, 4))
		for _, j := range []*job{skip, queue, two} {
			w.pause(j)
		}
		w.pass(100 * time.Second)
		w.verify(false)
	})
}

// TestShardsAskedFor has a trigger's run split, too, and a cancelled one end as a whole.
func TestShardsAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := sharded("a", "0 0 1 1 *", 5)
		w.history.does(j, 20*time.Second, state.StateSucceeded)
		w.put(j)
		w.fleet()
		run := w.trigger(j, 1, false)
		w.pass(3 * time.Second)
		require.Len(t, w.entry(j, run).Live, 6)
		_, err := w.api.CancelRun(w.ctx, state.Cancel{Job: j.id, Run: run, Requested: time.Now(), Actor: "me", Reason: state.ReasonRequested})
		require.NoError(t, err)
		w.pass(5 * time.Second)
		require.Equal(t, "cancelled:requested", w.verdict(j, run))
		run = w.trigger(j, 2, false)
		w.pass(25 * time.Second)
		require.Equal(t, "succeeded", w.verdict(j, run))
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestShardsPolicy has runs succeed with enough shards, and stop when that is out of
// reach.
func TestShardsPolicy(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		enough := sharded("enough", "*/5 * * * *", 4, func(s *state.Shards) { s.MinSuccess = 2 })
		stops := sharded("stops", "*/5 * * * *", 4, func(s *state.Shards) { s.StopOnFailure = true })
		for _, j := range []*job{enough, stops} {
			w.history.does(j, 30*time.Second, state.StateSucceeded)
			w.put(j)
		}
		w.history.shardDoes(enough, 0, 5*time.Second, state.StateFailed)
		w.history.shardDoes(enough, 1, 5*time.Second, state.StateFailed)
		w.history.shardDoes(stops, 2, 5*time.Second, state.StateFailed)
		w.fleet()
		first := time.Now().Truncate(5 * time.Minute).Add(5 * time.Minute)
		w.until(first.Add(8 * time.Second))
		require.Equal(t, "failed", w.slotVerdict(stops, first))
		ends := w.entry(stops, state.SlotRunID(first)).Record.Ends
		require.Equal(t, state.StateCancelled, ends[0].State)
		require.Equal(t, state.ReasonShardFailed, ends[0].End.Reason)
		require.Equal(t, state.StateFailed, ends[2].State)
		w.until(first.Add(35 * time.Second))
		require.Equal(t, "succeeded", w.slotVerdict(enough, first))
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestBroadcast has one shard on each executor that matches.
func TestBroadcast(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := sharded("a", "*/5 * * * *", 0, func(s *state.Shards) { s.Broadcast = true })
		j.with(func(s *state.JobSpec) { s.Selector = map[string]string{"zone": "a"} })
		w.history.does(j, 40*time.Second, state.StateSucceeded)
		w.put(j)
		w.control("c1")
		for i := range 4 {
			w.worker(fmt.Sprint("e", i+1), place{labels: map[string]string{"zone": map[bool]string{true: "a", false: "b"}[i < 3]}, grace: time.Second})
		}
		w.awaitLeader(0)
		first := time.Now().Truncate(5 * time.Minute).Add(5 * time.Minute)
		w.until(first.Add(50 * time.Second))
		require.Equal(t, "succeeded", w.slotVerdict(j, first))
		require.Equal(t, map[string]int{"e1": 1, "e2": 1, "e3": 1}, w.byNode(j, state.SlotRunID(first)))
		// A node that is gone in the middle of a run ends its shard.
		second := first.Add(5 * time.Minute)
		w.until(second.Add(5 * time.Second))
		w.workers["e2"].kill()
		w.until(second.Add(60 * time.Second))
		require.Equal(t, "lost", w.slotVerdict(j, second))
		require.Equal(t, map[string]int{"e1": 1, "e2": 1, "e3": 1}, w.byNode(j, state.SlotRunID(second)))
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestShardsOfChangedJobs has the job edited, paused and deleted while shards wait for
// room.
func TestShardsOfChangedJobs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j, gone := sharded("a", "*/10 * * * *", 8), sharded("b", "*/10 * * * *", 8)
		for _, j := range []*job{j, gone} {
			w.history.does(j, 10*time.Second, state.StateSucceeded)
			w.put(j)
		}
		w.control("c1")
		w.worker("e1", place{capacity: 4})
		w.awaitLeader(0)
		first := time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute)
		w.until(first.Add(5 * time.Second))
		j.with(func(s *state.JobSpec) { s.Shards = nil })
		w.put(j)
		w.delete(gone)
		w.pass(20 * time.Second)
		w.pause(j)
		w.pass(20 * time.Second)
		w.resume(j)
		w.pass(60 * time.Second)
		require.Equal(t, "succeeded", w.slotVerdict(j, first), "what it was split into stays")
		require.Len(t, w.entry(j, state.SlotRunID(first)).Record.Ends, 8)
		require.Equal(t, "cancelled:deleted", w.slotVerdict(gone, first))
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestVerdictMeetsShard has a leader give a run its verdict by what it saw before another
// shard was claimed: the run goes on.
func TestVerdictMeetsShard(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := sharded("a", "*/10 * * * *", 2)
		w.history.does(j, 10*time.Second, state.StateSucceeded)
		w.put(j)
		c := w.control("c1")
		w.worker("e1", place{capacity: 1})
		w.awaitLeader(0)
		first := time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute)
		run := state.SlotRunID(first)
		w.until(first.Add(5 * time.Second))
		w.pause(j)
		w.until(first.Add(15 * time.Second))
		seen, err := w.api.RunShards(w.ctx, j.id, run)
		require.NoError(t, err)
		require.Len(t, seen.Shards, 1, "the other one waits for the pause to end")
		w.resume(j)
		w.pass(5 * time.Second)
		require.Len(t, w.entry(j, run).Live, 3)
		ends := []state.Live{{State: state.StateCancelled}, {Shard: 1, State: state.StateCancelled}}
		ends[seen.Shards[0].Shard] = seen.Shards[0]
		ok, err := c.store.Conclude(w.ctx, state.Term{Number: c.term.Load(), Key: *c.key.Load()}, *seen.Header, state.Record{
			State: state.StateCancelled, Due: first, Recorded: time.Now(), Shards: 2, Split: seen.Header.Split, Ends: ends,
		}, seen.Seen)
		require.NoError(t, err)
		w.pass(20 * time.Second)
		w.verify(true)
		require.False(t, ok)
		require.Equal(t, "succeeded", w.verdict(j, run))
	})
}

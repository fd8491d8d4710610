package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

// listing is a job whose runs list their shards.
func listing(name, schedule string, with ...func(*state.Shards)) *job {
	return sharded(name, schedule, 0, append([]func(*state.Shards){func(s *state.Shards) { s.Dynamic = &state.Listing{} }}, with...)...)
}

// startsOf counts the starts of a run by shard, its first step being one.
func (w *world) startsOf(j *job, run state.RunID) map[int]int {
	out := map[int]int{}
	for _, s := range w.history.of(j) {
		if s.run == run {
			out[s.shard]++
		}
	}
	return out
}

// TestListedShardsPerKey has runs that list their shards count at a limit that is per key:
// each as one run of its key, from its first step to its verdict, also after a failover.
func TestListedShardsPerKey(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := listing("a", "@every 1000h").with(func(s *state.JobSpec) {
			s.Overlap, s.Limits = state.OverlapAllow, []state.Limit{{Name: "customer", Max: 1, PerKey: true}}
		})
		w.history.does(j, 5*time.Second, state.StateSucceeded)
		w.history.listsShards(j, `["a", "b"]`)
		w.put(j)
		w.fleet()
		w.pass(2 * time.Second)
		begun := time.Now()
		runs := map[string][]state.RunID{}
		for n, key := range []string{"acme", "acme", "other", "acme"} {
			run, err := w.submitFor(j, key, uint64(n)+1, 0, "")
			require.NoError(t, err)
			runs[key] = append(runs[key], run)
			w.pass(100 * time.Millisecond)
		}
		whole := map[int]int{state.ListShard: 1, 0: 1, 1: 1}
		w.until(begun.Add(9 * time.Second))
		require.Equal(t, whole, w.startsOf(j, runs["acme"][0]))
		require.Empty(t, w.startsOf(j, runs["acme"][1]), "another of its key has shards at work")
		require.Equal(t, whole, w.startsOf(j, runs["other"][0]), "nobody of its key is at work")
		w.leader().kill()
		w.control("c9")
		w.pass(time.Minute)
		for key := range runs {
			for _, run := range runs[key] {
				require.Equal(t, "succeeded", w.verdict(j, run))
				require.Equal(t, whole, w.startsOf(j, run))
				require.Equal(t, key, w.record(j, run).LimitKey)
			}
		}
		w.verify(true)
	})
}

// TestListedShards has runs list their shards, whether they hold the job's gate, a place,
// or nothing: each of them runs once, and is given what was listed for it.
func TestListedShards(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		jobs := []*job{
			listing("gate", "*/5 * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapSkip }),
			listing("place", "*/5 * * * *").with(func(s *state.JobSpec) { s.Overlap, s.MaxConcurrent = state.OverlapAllow, 2 }),
			listing("none", "*/5 * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapAllow }),
			listing("some", "*/5 * * * *", func(s *state.Shards) { s.MinSuccess = 2 }),
		}
		for _, j := range jobs {
			w.history.does(j, 5*time.Second, state.StateSucceeded)
			w.history.listsShards(j, `["a", {"b": 1, "c": "d"}, "e"]`)
			w.put(j)
		}
		w.history.shardDoes(jobs[3], 1, time.Second, state.StateFailed)
		w.fleet()
		first := time.Now().Truncate(5 * time.Minute).Add(5 * time.Minute)
		run := state.SlotRunID(first)
		w.until(first.Add(time.Second))
		for _, j := range jobs {
			require.Equal(t, map[int]int{state.ListShard: 1}, w.startsOf(j, run), "its first step alone")
		}
		w.until(first.Add(7 * time.Second))
		for _, j := range jobs {
			e := w.entry(j, run)
			require.Len(t, e.Live, 4)
			require.True(t, e.Live[0].IsHeader())
		}
		w.until(first.Add(15 * time.Second))
		for _, j := range jobs {
			require.Equal(t, "succeeded", w.slotVerdict(j, first))
			require.Equal(t, map[int]int{state.ListShard: 1, 0: 1, 1: 1, 2: 1}, w.startsOf(j, run))
			rec := w.entry(j, run).Record
			require.Len(t, rec.Attempts, 1)
			require.Len(t, rec.Ends, 3)
			require.Equal(t, map[string]string{"b": "1", "c": "d"}, rec.Split.Part(1).Params)
		}
		for _, j := range jobs {
			w.pause(j)
		}
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestListOfNothing has a run that lists nothing succeed, one whose list is not allowed
// fail, after all its attempts, and say why.
func TestListOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		none, bad := listing("none", "*/5 * * * *"), listing("bad", "*/5 * * * *", func(s *state.Shards) { s.Dynamic.Max = 2 })
		bad.with(func(s *state.JobSpec) { s.Retry = &state.Retry{MaxAttempts: 2, InitialBackoff: time.Second} })
		for _, j := range []*job{none, bad} {
			w.history.does(j, time.Second, state.StateSucceeded)
			w.put(j)
		}
		w.history.listsShards(none, "\n")
		w.history.listsShards(bad, strings.Repeat("x\n", 3))
		w.fleet()
		first := time.Now().Truncate(5 * time.Minute).Add(5 * time.Minute)
		w.until(first.Add(10 * time.Second))
		run := state.SlotRunID(first)
		rec := w.entry(none, run).Record
		require.Equal(t, state.StateSucceeded, rec.State)
		require.Equal(t, "the first step listed no shards", rec.Detail)
		require.Zero(t, rec.Shards)
		rec = w.entry(bad, run).Record
		require.Equal(t, state.StateFailed, rec.State)
		require.Len(t, rec.Attempts, 2)
		require.Equal(t, "the list of shards has 3 entries; at most 2 are allowed", rec.Attempts[1].Error)
		require.Equal(t, map[int]int{state.ListShard: 2}, w.startsOf(bad, run))
		w.pause(none)
		w.pause(bad)
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestListAcrossLosses has the executor of the first step die, and the leader while the
// next attempt lists; the run goes on with the one list.
func TestListAcrossLosses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := listing("a", "*/10 * * * *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapAllow })
		w.history.does(j, 10*time.Second, state.StateSucceeded)
		w.history.listsShards(j, "a\nb\n")
		w.put(j)
		c := w.fleet()
		first := time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute)
		run := state.SlotRunID(first)
		w.until(first.Add(5 * time.Second))
		live := w.entry(j, run).Live
		require.Len(t, live, 1)
		w.workers[live[0].Owner.Node].kill()
		w.pass(10 * time.Second)
		live = w.entry(j, run).Live
		require.Len(t, live, 1)
		require.Equal(t, 2, live[0].Attempt)
		c.kill()
		w.pass(60 * time.Second)
		require.Equal(t, "succeeded", w.slotVerdict(j, first))
		rec := w.entry(j, run).Record
		require.Len(t, rec.Attempts, 2)
		require.NotEmpty(t, rec.Ends)
		w.pause(j)
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// TestListOfChangedJobs has jobs edited, paused, deleted and their runs cancelled while
// the first step lists, or waits for its turn.
func TestListOfChangedJobs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		edited, gone, stopped := listing("edited", "*/10 * * * *"), listing("gone", "*/10 * * * *"), listing("stopped", "*/10 * * * *")
		waits := listing("waits", "0 0 1 1 *").with(func(s *state.JobSpec) { s.Overlap = state.OverlapQueue })
		all := []*job{edited, gone, stopped, waits}
		for _, j := range all {
			w.history.does(j, 10*time.Second, state.StateSucceeded)
			w.history.listsShards(j, "a\nb\n")
			w.put(j)
		}
		w.fleet()
		first := time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute)
		run := state.SlotRunID(first)
		w.until(first.Add(-time.Second))
		one, two := w.trigger(waits, 1, false), w.trigger(waits, 2, false)
		w.until(first.Add(5 * time.Second))
		edited.with(func(s *state.JobSpec) { s.Shards = nil })
		w.put(edited)
		waits.with(func(s *state.JobSpec) { s.Shards = nil })
		w.put(waits)
		w.delete(gone)
		_, err := w.api.CancelRun(w.ctx, state.Cancel{Job: stopped.id, Run: run, Requested: time.Now(), Actor: "me", Reason: state.ReasonRequested})
		require.NoError(t, err)
		w.pass(50 * time.Second)
		require.Equal(t, "succeeded", w.slotVerdict(edited, first))
		require.Len(t, w.entry(edited, run).Record.Ends, 2, "its first step was at work, and has listed them")
		require.Equal(t, "cancelled:deleted", w.slotVerdict(gone, first))
		require.Equal(t, "cancelled:requested", w.slotVerdict(stopped, first))
		require.Equal(t, "succeeded", w.verdict(waits, one))
		require.Equal(t, "succeeded", w.verdict(waits, two))
		require.Equal(t, map[int]int{0: 1}, w.startsOf(waits, two), "one piece, as its job is now")
		w.pass(20 * time.Second)
		w.verify(true)
	})
}

// listsShards says what the first steps of a job's runs list.
func (h *history) listsShards(j *job, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lists == nil {
		h.lists = map[state.JobID]string{}
	}
	h.lists[j.id] = text
}

// list is what a first step lists: of a job of which nothing was said, each attempt
// something else, and now and then nothing, or what is no list.
func (h *history) list(t *runner.Task) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if text, ok := h.lists[t.Job]; ok {
		return []byte(text)
	}
	switch t.Token % 10 {
	case 0:
		return nil
	case 1:
		return []byte(`["one", `)
	}
	var list []byte
	for i := range 1 + t.Token%3 {
		list = fmt.Appendf(list, "%d-%d\n", t.Token, i)
	}
	return list
}

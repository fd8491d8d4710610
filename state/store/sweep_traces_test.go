package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// TestSweepOfCheckpoints: those that a run leaves go with its record, and no others.
func TestSweepOfCheckpoints(t *testing.T) {
	r := newRig(t)
	r.setJob(billing)
	term := r.lead("l")
	save := func(of state.CheckpointRef) string {
		key := r.s.keys.checkpoint(of)
		r.put(key, "x")
		r.put(checkpointSlot(key, 1), "y")
		return key
	}
	whole := save(state.CheckpointRef{Job: billing, OfJob: true})
	other := save(state.CheckpointRef{Job: state.JobID{Namespace: billing.Namespace, Name: billing.Name + "-1"}, Run: slotRun(1)})
	var keys []string
	for n := range 300 {
		writeRecord(t, r.s, billing, slotRun(n), state.Record{State: state.StateFailed, Due: slotAt(n)})
		if n%2 == 0 {
			keys = append(keys, save(state.CheckpointRef{Job: billing, Run: slotRun(n), Shard: n % 3}))
		}
	}
	there := func() (n int) {
		for _, key := range keys {
			if _, ok := r.get(key); ok {
				n++
			}
		}
		return n
	}
	sweeps(t, r.s, term, r.everything(billing, 1000))
	require.Len(t, keys, there(), "those that are kept")
	sweeps(t, r.s, term, r.everything(billing, 1))
	kept := 0
	for _, e := range runsOf(t, r.s, billing, 100) {
		if slot, _ := e.Run.Slot(); int(slot.Sub(slotAt(0))/time.Minute)%2 == 0 {
			kept++
		}
	}
	require.Equal(t, kept, there())
	for _, key := range []string{whole, other} {
		_, ok := r.get(key)
		require.True(t, ok)
	}
}

// TestSweepOfSubmittedRuns: what they were given and left goes with their records, and
// they are not packed.
func TestSweepOfSubmittedRuns(t *testing.T) {
	r := newRig(t)
	r.setJob(billing)
	term := r.lead("l")
	for n := range 300 {
		run := state.SubmitRunID(slotAt(n), uint64(n))
		writeRecord(t, r.s, billing, run, state.Record{State: state.StateFailed, Due: slotAt(n)})
		r.put(r.s.keys.payload(billing, run), "p")
		r.put(r.s.keys.result(billing, run), "r")
	}
	sweeps(t, r.s, term, r.everything(billing, 1000))
	require.Equal(t, 300, count(t, r.s, r.s.keys.historyOf(billing)))
	sweeps(t, r.s, term, r.everything(billing, 20))
	require.Equal(t, 20, count(t, r.s, r.s.keys.historyOf(billing)))
	require.Equal(t, 20, count(t, r.s, r.s.keys.payloads(billing)))
	require.Equal(t, 20, count(t, r.s, r.s.keys.results(billing)))
}

// TestSweepAwaitsHooks: what becomes of hooks, which may take long, finds the record, which
// is not packed before, but for hooks of which nobody will tell.
func TestSweepAwaitsHooks(t *testing.T) {
	r := newRig(t)
	r.setJob(billing)
	term := r.lead("l")
	for n := range 100 {
		writeRecord(t, r.s, billing, slotRun(n), state.Record{
			State: state.StateFailed, Due: slotAt(n), Recorded: slotAt(n), Attempts: []state.Attempt{{Number: 1, Token: 7, State: state.StateFailed}},
			Hooks: []state.HookRun{{Name: state.HookOnExit}},
		})
	}
	plain := func() int { return count(t, r.s, r.s.keys.historyOf(billing)) }
	sw := r.everything(billing, 1000)
	sw.Young = slotAt(150)
	sweeps(t, r.s, term, sw)
	require.Equal(t, 100, plain())
	require.NoError(t, r.s.NoteHook(t.Context(), state.HookReport{
		Job: billing, Run: slotRun(1), Token: 7, Hook: state.HookRun{Name: state.HookOnExit, State: state.StateSucceeded},
	}))
	sw.Young = slotAt(150).Add(24 * time.Hour)
	sweeps(t, r.s, term, sw)
	require.Less(t, plain(), 50)
}

// TestSweepOfSplitRuns: what the first shard of a run left goes with the run's record.
func TestSweepOfSplitRuns(t *testing.T) {
	r := newRig(t)
	term, owner := r.lead("l"), r.register("a")
	spec := specOf("@every 1m")
	spec.KeepResult, spec.Shards = true, &leaderdv1.Shards{Count: 1}
	put, err := r.s.PutJob(t.Context(), putOf(billing, spec))
	require.NoError(t, err)
	for n := range 50 {
		c := claimOf(billing, put.Entry.Job.Revision, owner, n, true)
		c.Split = true
		f := endOf(r.start(c), state.StateSucceeded)
		f.Result = []byte("r")
		require.Equal(t, state.TokenStored, r.finish(f))
		run, err := r.s.RunShards(t.Context(), billing, f.Live.Run)
		require.NoError(t, err)
		rec := verdictOf(run.Header, state.StateSucceeded, "", slotAt(n))
		rec.Job, rec.Run, rec.Split, rec.Ends = billing, f.Live.Run, run.Header.Split, run.Shards
		ok, err := r.s.Conclude(t.Context(), term, *run.Header, rec, run.Seen)
		require.NoError(t, err)
		require.True(t, ok)
	}
	results := func() int { return count(t, r.s, r.s.keys.results(billing)) }
	sweeps(t, r.s, term, r.everything(billing, 1000))
	require.Equal(t, 50, results())
	sweeps(t, r.s, term, r.everything(billing, 20))
	require.Equal(t, 20, results())
}

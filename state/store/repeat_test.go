package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// split puts billing as a job of n shards, and answers its revision.
func (r *rig) split(n int) int64 {
	r.t.Helper()
	spec := specOf()
	spec.Shards = &leaderdv1.Shards{Count: int32(n)}
	_, err := r.s.PutJob(r.t.Context(), putOf(billing, spec))
	require.NoError(r.t, err)
	e, err := r.s.GetJob(r.t.Context(), billing)
	require.NoError(r.t, err)
	return e.Job.Revision
}

// conclude ends a run of which each shard has ended as given; zero: it never started.
func (r *rig) conclude(term state.Term, run state.RunID, ends []state.RunState) {
	r.t.Helper()
	seen, err := r.s.RunShards(r.t.Context(), billing, run)
	require.NoError(r.t, err)
	require.NotNil(r.t, seen.Header)
	rec := state.Record{Job: billing, Run: run, State: state.StateFailed, Shards: len(ends), Split: seen.Header.Split, Due: seen.Header.Due, LimitKey: seen.Header.LimitKey, Origin: seen.Header.Origin}
	rec.Ends = make([]state.Live, len(ends))
	for i := range ends {
		rec.Ends[i] = state.Live{Shard: i, State: ends[i]}
	}
	for _, l := range seen.Shards {
		rec.Ends[l.Shard] = state.Live{Shard: l.Shard, State: l.State, Attempts: l.Attempts}
	}
	ok, err := r.s.Conclude(r.t.Context(), term, *seen.Header, rec, seen.Seen)
	require.NoError(r.t, err)
	require.True(r.t, ok)
}

// failed makes a run of three shards, the first of which has succeeded and left a result,
// the second has saved a checkpoint and failed, and the third never started.
func (r *rig) failed(revision int64, o state.Owner, n int, term state.Term) state.RunID {
	r.t.Helper()
	c := claimOf(billing, revision, o, n, true)
	c.Split = true
	first := r.start(c)
	f := endOf(first, state.StateSucceeded)
	f.Result = []byte("forty-two")
	require.Equal(r.t, state.TokenStored, r.finish(f))
	c.Live.Shard = 1
	second := r.start(c)
	for n := range int64(3) {
		key := r.s.keys.checkpoint(state.CheckpointRef{Job: billing, Run: second.Run, Shard: 1})
		at, _ := r.get(key)
		_, err := r.s.Checkpoint(r.t.Context(), state.Checkpoint{Live: second, Data: fmt.Append(nil, "at ", n+1), Number: n + 1, Keep: 2, Previous: at.ModRevision, Saved: slotAt(9)})
		require.NoError(r.t, err)
	}
	require.Equal(r.t, state.TokenStored, r.finish(endOf(second, state.StateFailed)))
	r.conclude(term, first.Run, []state.RunState{0, 0, state.StateCancelled})
	return first.Run
}

func repeatOf(run state.RunID, nonce uint32, failed bool) state.Repeat {
	now := slotAt(500)
	return state.Repeat{
		Pending:    state.Pending{Job: billing, Run: state.TriggerRunID(now, nonce), Origin: run, Requested: now, Actor: "ada"},
		FailedOnly: failed, KeyTTL: time.Hour, Now: now,
	}
}

// wished is the pending run of an id.
func (r *rig) wished(run state.RunID) state.Pending {
	r.t.Helper()
	found, ok := r.get(r.s.keys.pendingRun(billing, run))
	require.True(r.t, ok)
	p, err := r.s.DecodePending(found)
	require.NoError(r.t, err)
	return p
}

// shardOf claims a shard of a run that was asked for.
func (r *rig) shardOf(p state.Pending, revision int64, o state.Owner, shard int) state.ClaimResult {
	r.t.Helper()
	c := claimOf(billing, revision, o, 500, true)
	c.Split, c.Pending, c.Live.Run, c.Live.Shard, c.Live.Origin = true, p.Revision, p.Run, shard, p.Origin
	return r.claim(c)
}

// TestRepeatFailedShards retries the failed shards of a run, and then those of the retry:
// the run has what the first was split into, whatever the job is by then.
func TestRepeatFailedShards(t *testing.T) {
	r := newRig(t)
	term, a := r.lead("l"), r.register("a")
	origin := r.failed(r.split(3), a, 5, term)
	job := r.split(7) // it has other shards now

	run, duplicate, err := r.s.Repeat(t.Context(), repeatOf(origin, 1, true))
	require.NoError(t, err)
	require.False(t, duplicate)
	p := r.wished(run)
	require.Equal(t, origin, p.Origin)
	require.Equal(t, &state.Split{
		Shards:  state.Shards{Count: 3},
		Carried: []state.ShardsOf{{Run: origin, Shards: []int{0}}}, Resumed: []state.ShardsOf{{Run: origin, Shards: []int{1}}},
	}, p.Split)

	require.Equal(t, state.ClaimDecided, r.shardOf(p, job, a, 0).Status, "it is carried over, and its claim makes the header")
	second := r.shardOf(p, job, a, 1)
	require.Equal(t, state.Claimed, second.Status)
	require.Equal(t, 3, second.Live.Shards)
	last, err := r.s.GetCheckpoint(t.Context(), state.CheckpointRef{Job: billing, Run: run, Shard: 1})
	require.NoError(t, err)
	require.Equal(t, "at 3", string(last.Data))
	require.Equal(t, int64(3), last.Number)
	require.Equal(t, second.Live.Token, last.Revision, "it is there with the claim")
	saved(t, r, state.Checkpoint{Live: *second.Live, Data: []byte("at 4"), Number: 4, Previous: last.Revision, Keep: 2})
	require.Equal(t, state.ClaimDecided, r.shardOf(p, job, a, 3).Status, "there are three")
	require.Equal(t, state.TokenStored, r.finish(endOf(*second.Live, state.StateFailed)))
	third := r.shardOf(p, job, a, 2)
	require.Equal(t, state.Claimed, third.Status)
	require.Equal(t, state.TokenStored, r.finish(endOf(*third.Live, state.StateSucceeded)))
	r.conclude(term, run, []state.RunState{state.StateSucceeded, 0, 0})
	rec, _ := r.record(billing, run)
	require.True(t, rec.Result, "that of the first shard")
	result, err := r.s.GetResult(t.Context(), billing, run)
	require.NoError(t, err)
	require.Equal(t, "forty-two", string(result))

	again, _, err := r.s.Repeat(t.Context(), repeatOf(run, 2, true))
	require.NoError(t, err)
	require.Equal(t, &state.Split{
		Shards:  state.Shards{Count: 3},
		Carried: []state.ShardsOf{{Run: origin, Shards: []int{0}}, {Run: run, Shards: []int{2}}},
		Resumed: []state.ShardsOf{{Run: run, Shards: []int{1}}},
	}, r.wished(again).Split)
	got := r.shardOf(r.wished(again), job, a, 1)
	require.Equal(t, state.Claimed, got.Status)
	last, err = r.s.GetCheckpoint(t.Context(), state.CheckpointRef{Job: billing, Run: again, Shard: 1})
	require.NoError(t, err)
	require.Equal(t, "at 4", string(last.Data))
}

// TestRepeatOfUnstartedShard has a shard that was not made in the retry go on from the
// checkpoint that it has in the run before.
func TestRepeatOfUnstartedShard(t *testing.T) {
	r := newRig(t)
	term, a := r.lead("l"), r.register("a")
	job := r.split(3)
	origin := r.failed(job, a, 5, term)
	run, _, err := r.s.Repeat(t.Context(), repeatOf(origin, 1, true))
	require.NoError(t, err)
	third := r.shardOf(r.wished(run), job, a, 2)
	require.Equal(t, state.TokenStored, r.finish(endOf(*third.Live, state.StateFailed)))
	r.conclude(term, run, []state.RunState{state.StateSucceeded, state.StateCancelled, 0})
	again, _, err := r.s.Repeat(t.Context(), repeatOf(run, 2, true))
	require.NoError(t, err)
	require.Equal(t, []state.ShardsOf{{Run: origin, Shards: []int{1}}, {Run: run, Shards: []int{2}}}, r.wished(again).Split.Resumed)
}

// TestRepeatWithoutReadableCheckpoint has a shard begin anew whose checkpoint cannot be read.
func TestRepeatWithoutReadableCheckpoint(t *testing.T) {
	r := newRig(t)
	a := r.register("a")
	job := r.split(3)
	origin := r.failed(job, a, 5, r.lead("l"))
	r.put(r.s.keys.checkpoint(state.CheckpointRef{Job: billing, Run: origin, Shard: 1}), "\xff")
	run, _, err := r.s.Repeat(t.Context(), repeatOf(origin, 1, true))
	require.NoError(t, err)
	require.Equal(t, state.Claimed, r.shardOf(r.wished(run), job, a, 1).Status)
	last, err := r.s.GetCheckpoint(t.Context(), state.CheckpointRef{Job: billing, Run: run, Shard: 1})
	require.NoError(t, err)
	require.Zero(t, last)
}

// TestRepeatWaits has what a retry is split into stay while it waits for other runs.
func TestRepeatWaits(t *testing.T) {
	r := newRig(t)
	term, a := r.lead("l"), r.register("a")
	job := r.split(3)
	origin := r.failed(job, a, 5, term)
	c := claimOf(billing, job, a, 6, true)
	holder := r.start(c)
	run, _, err := r.s.Repeat(t.Context(), repeatOf(origin, 1, true))
	require.NoError(t, err)
	p := r.wished(run)
	c = claimOf(billing, job, a, 500, true)
	c.Split, c.Pending, c.Live.Run, c.ApplyOverlap = true, p.Revision, run, true
	c.Gate = state.Gate{Policy: state.OverlapQueue, QueueLimit: 3}
	require.Equal(t, state.ClaimQueued, r.claim(c).Status)
	waits := r.wished(run)
	require.Greater(t, waits.Revision, p.Revision)
	require.Equal(t, p.Split, waits.Split)
	r.end(holder)
	require.Equal(t, state.ClaimDecided, r.shardOf(waits, job, a, 0).Status)
	require.Equal(t, state.Claimed, r.shardOf(waits, job, a, 1).Status)
}

// TestRepeatOfOnePiece goes on from the last checkpoint, or from the beginning.
func TestRepeatOfOnePiece(t *testing.T) {
	r := newRig(t)
	_, err := r.s.PutJob(t.Context(), putOf(billing, specOf()))
	require.NoError(t, err)
	e, err := r.s.GetJob(t.Context(), billing)
	require.NoError(t, err)
	l := r.start(claimOf(billing, e.Job.Revision, r.register("a"), 5, true))
	saved(t, r, state.Checkpoint{Live: l, Data: []byte("x"), Number: 1})
	require.Equal(t, state.TokenStored, r.finish(endOf(l, state.StateTimedOut)))
	for nonce, failed := range []bool{false, true} {
		run, _, err := r.s.Repeat(t.Context(), repeatOf(l.Run, uint32(nonce), failed))
		require.NoError(t, err)
		require.Nil(t, r.wished(run).Split)
		last, err := r.s.GetCheckpoint(t.Context(), state.CheckpointRef{Job: billing, Run: run})
		require.NoError(t, err)
		require.Equal(t, failed, string(last.Data) == "x")
	}
}

// TestRepeatOfOnePieceIsSplit has the shards begin from the beginning, where the job has some
// by the time that a run of one piece is retried: its checkpoint is none of theirs.
func TestRepeatOfOnePieceIsSplit(t *testing.T) {
	r := newRig(t)
	_, err := r.s.PutJob(t.Context(), putOf(billing, specOf()))
	require.NoError(t, err)
	e, err := r.s.GetJob(t.Context(), billing)
	require.NoError(t, err)
	a := r.register("a")
	l := r.start(claimOf(billing, e.Job.Revision, a, 5, true))
	saved(t, r, state.Checkpoint{Live: l, Data: []byte("x"), Number: 1})
	require.Equal(t, state.TokenStored, r.finish(endOf(l, state.StateFailed)))
	run, _, err := r.s.Repeat(t.Context(), repeatOf(l.Run, 1, true))
	require.NoError(t, err)
	first := r.shardOf(r.wished(run), r.split(2), a, 0)
	require.Equal(t, state.Claimed, first.Status)
	require.Equal(t, 2, first.Live.Shards)
	last, err := r.s.GetCheckpoint(t.Context(), state.CheckpointRef{Job: billing, Run: run})
	require.NoError(t, err)
	require.Zero(t, last)
}

// TestRepeatTakesOver gives a retry what the run was given, and takes the dead letter.
func TestRepeatTakesOver(t *testing.T) {
	r := newRig(t)
	_, err := r.s.PutJob(t.Context(), putOf(billing, specOf()))
	require.NoError(t, err)
	origin := r.burySubmitted(4)
	now := slotAt(500)
	asked := repeatOf(origin, 0, false)
	asked.Pending.Run = state.SubmitRunID(now, 7)
	run, _, err := r.s.Repeat(t.Context(), asked)
	require.NoError(t, err)
	given, err := r.s.GetPayload(t.Context(), billing, run)
	require.NoError(t, err)
	require.Equal(t, "seven", string(given))
	_, err = r.s.GetDead(t.Context(), billing, origin)
	require.ErrorIs(t, err, ErrNotFound)
	given, err = r.s.GetPayload(t.Context(), billing, origin)
	require.NoError(t, err)
	require.Equal(t, "seven", string(given), "it goes with the record")
}

// TestRepeatOnce has retries with one key make one run.
func TestRepeatOnce(t *testing.T) {
	r := newRig(t)
	origin := r.failed(r.split(3), r.register("a"), 5, r.lead("l"))
	keyed := func(nonce uint32, failed bool) (state.RunID, bool, error) {
		asked := repeatOf(origin, nonce, failed)
		asked.Key = "k"
		return r.s.Repeat(t.Context(), asked)
	}
	run, duplicate, err := keyed(1, true)
	require.NoError(t, err)
	require.False(t, duplicate)
	again, duplicate, err := keyed(2, true)
	require.NoError(t, err)
	require.True(t, duplicate)
	require.Equal(t, run, again)
	_, _, err = keyed(3, false)
	require.ErrorIs(t, err, ErrKeyReused)
	r.remove(r.s.keys.historyRun(billing, origin))
	_, duplicate, err = keyed(4, true)
	require.NoError(t, err)
	require.True(t, duplicate, "though the run's record has gone")
	other, _, err := r.s.Repeat(t.Context(), repeatOf(run, 5, true))
	require.ErrorIs(t, err, ErrNotOver)
	require.Empty(t, other)
}

func TestRepeatRefuses(t *testing.T) {
	record := func(rec state.Record) func(*rig) {
		return func(r *rig) {
			rec.Due = slotAt(5)
			writeRecord(r.t, r.s, billing, slotRun(5), rec)
		}
	}
	listed := &state.Split{Shards: state.Shards{Dynamic: &state.Listing{}}}
	two := &state.Split{Shards: state.Shards{Count: 2}}
	good := []state.Live{{State: state.StateSucceeded}, {Shard: 1, State: state.StateSucceeded}}
	tried := []state.Attempt{{Number: 1, State: state.StateFailed}}
	for _, c := range []struct {
		name  string
		have  func(*rig)
		whole error // of a retry of all of it
		part  error // of the failed shards
	}{
		{"no run", func(*rig) {}, ErrNotFound, ErrNotFound},
		{"pending", func(r *rig) {
			value, err := marshalPending(&state.Pending{Requested: slotAt(5)})
			require.NoError(r.t, err)
			r.put(r.s.keys.pendingRun(billing, slotRun(5)), string(value))
		}, ErrNotOver, ErrNotOver},
		{"live", func(r *rig) {
			e, err := r.s.GetJob(r.t.Context(), billing)
			require.NoError(r.t, err)
			r.start(claimOf(billing, e.Job.Revision, r.register("a"), 5, true))
		}, ErrNotOver, ErrNotOver},
		{"succeeded", record(state.Record{State: state.StateSucceeded, Attempts: tried}), ErrSucceeded, ErrSucceeded},
		{"succeeded with enough shards", record(state.Record{State: state.StateSucceeded, Split: two, Ends: good}), ErrSucceeded, ErrSucceeded},
		{"one piece", record(state.Record{State: state.StateFailed, Attempts: tried}), nil, nil},
		{"one shard", record(state.Record{
			State: state.StateFailed, Split: &state.Split{Shards: state.Shards{Count: 1}}, Ends: []state.Live{{State: state.StateLost}},
		}), nil, nil},
		{"skipped", record(state.Record{State: state.StateSkipped, Reason: state.ReasonOverlap}), nil, ErrNoShards},
		{"none listed", record(state.Record{State: state.StateFailed, Split: listed, Attempts: tried}), nil, ErrNoShards},
		{"cancelled when all had succeeded", record(state.Record{State: state.StateCancelled, Split: two, Ends: good}), nil, ErrNoShards},
		{"ends that are not there", record(state.Record{State: state.StateFailed, Split: two, Ends: good[:1]}), nil, ErrNoShards},
		{"unreadable", func(r *rig) { r.put(r.s.keys.historyRun(billing, slotRun(5)), "\xff") }, ErrCorrupt, ErrCorrupt},
		{"paused", func(r *rig) {
			record(state.Record{State: state.StateFailed, Attempts: tried})(r)
			_, _, err := r.s.PauseJob(r.t.Context(), ChangeJob{ID: billing, Actor: "ada", Now: time.Now()})
			require.NoError(r.t, err)
		}, ErrPaused, ErrPaused},
		{"no job", func(r *rig) {
			record(state.Record{State: state.StateFailed, Attempts: tried})(r)
			r.removeJob(billing)
		}, ErrNoJob, ErrNoJob},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			_, err := r.s.PutJob(t.Context(), putOf(billing, specOf()))
			require.NoError(t, err)
			c.have(r)
			for nonce, want := range []error{c.whole, c.part} {
				run, _, err := r.s.Repeat(t.Context(), repeatOf(slotRun(5), uint32(nonce+1), nonce == 1))
				if want == nil {
					require.NoError(t, err)
					require.NotEmpty(t, run)
					continue
				}
				require.ErrorIs(t, err, want)
				require.ErrorContains(t, err, "retry "+billing.String()+" "+string(slotRun(5)))
			}
		})
	}
}

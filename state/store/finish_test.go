package store

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

func TestFinish(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for _, to := range []state.RunState{
			state.StateSucceeded, state.StateFailed, state.StateTimedOut, state.StateCancelled, state.StateInterrupted,
		} {
			t.Run(to.String(), func(t *testing.T) {
				r := newRig(t)
				l := r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive))
				f := endOf(l, to)
				f.Reason, f.Tail, f.OutputBytes = "because", []byte("tail"), 99
				f.Attempt.HasCode, f.Attempt.ExitCode, f.Attempt.Error = true, 3, "exit status 3"
				require.Equal(t, state.TokenStored, r.finish(f))
				rec, ok := r.record(billing, l.Run)
				require.True(t, ok)
				rec.Revision = 0
				require.Equal(t, state.Record{
					Job: billing, Run: l.Run, Generation: 1, State: to, Reason: "because", Due: l.Due, Recorded: f.Attempt.Ended,
					Shards: 1, Attempts: []state.Attempt{f.Attempt}, Tail: []byte("tail"), OutputBytes: 99,
				}, rec)
				stored, live := r.live(l)
				require.Equal(t, exclusive, live, "the gate's record stays")
				require.True(t, !live || stored.Token == l.Token)
				require.Equal(t, state.TokenStored, r.finish(f), "asked again")
				listed, err := r.s.ListLive(t.Context(), func(*state.Live) bool { return true })
				require.NoError(t, err)
				require.Empty(t, listed)
			})
		}
	})
}

func TestFinishFencing(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for name, spoil := range map[string]func(t *testing.T, r *rig, l *state.Live){
			"another token": func(_ *testing.T, _ *rig, l *state.Live) { l.Token++ },
			"no token":      func(_ *testing.T, _ *rig, l *state.Live) { l.Token = 0 },
			"no token, no record": func(_ *testing.T, _ *rig, l *state.Live) {
				l.Run, l.Token = slotRun(6), 0
				l.Job.Name = "never claimed"
			},
			"ended otherwise": func(_ *testing.T, r *rig, l *state.Live) {
				require.Equal(r.t, state.TokenStored, r.finish(endOf(*l, state.StateFailed)))
			},
			"lost": func(t *testing.T, r *rig, l *state.Live) {
				r.unregister(l.Owner)
				_, ok, err := r.s.MarkLost(t.Context(), r.lead("l"), *l, slotAt(6))
				require.NoError(t, err)
				require.True(t, ok)
			},
			"lost and claimed by another": func(t *testing.T, r *rig, l *state.Live) {
				r.unregister(l.Owner)
				w, ok, err := r.s.MarkLost(t.Context(), r.lead("l"), *l, slotAt(6))
				require.NoError(t, err)
				require.True(t, ok)
				r.start(again(w, r.setJob(billing), r.register("b")))
			},
			"the next run holds the gate": func(_ *testing.T, r *rig, l *state.Live) {
				require.Equal(r.t, state.TokenStored, r.finish(endOf(*l, state.StateFailed)))
				r.start(claimOf(billing, r.setJob(billing), r.register("b"), 6, exclusive))
			},
		} {
			t.Run(name, func(t *testing.T) {
				for _, f := range []func(state.Live) state.Finish{
					func(l state.Live) state.Finish { return endOf(l, state.StateSucceeded) },
					func(l state.Live) state.Finish { return endOf(l, state.StateTimedOut) },
					func(l state.Live) state.Finish {
						x := endOf(l, state.StateInterrupted)
						x.Retry = slotAt(7)
						return x
					},
				} {
					r := newRig(t)
					l := r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, exclusive))
					spoil(t, r, &l)
					before := r.dump()
					require.Equal(t, state.TokenFenced, r.finish(f(l)))
					c, err := r.s.Checkpoint(t.Context(), state.Checkpoint{Live: l, Data: []byte("x"), Saved: slotAt(6)})
					require.NoError(t, err)
					require.Equal(t, state.CheckpointResult{Status: state.TokenFenced}, c)
					require.Equal(t, before, r.dump(), "nothing was changed")
				}
			})
		}
	})
}

func TestFinishWithRetry(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		rev, a := r.setJob(billing), r.register("a")
		l := r.start(claimOf(billing, rev, a, 5, exclusive))
		var f state.Finish
		for n := 1; n <= state.MaxAttemptRecords+5; n++ {
			f = retryOf(l, slotAt(n+10))
			f.Attempt.HasCode, f.Attempt.ExitCode = true, n
			require.Equal(t, state.TokenStored, r.finish(f))
			require.Equal(t, state.TokenStored, r.finish(f), "asked again")
			w, ok := r.live(l)
			require.True(t, ok)
			require.Equal(t, state.StateWaiting, w.State)
			require.Equal(t, slotAt(n+10), w.NextTry)
			require.Zero(t, w.Owner)
			require.Greater(t, w.Token, l.Token)
			require.Equal(t, n, w.Attempts[len(w.Attempts)-1].ExitCode)
			next := r.start(again(w, rev, a))
			require.Greater(t, next.Token, w.Token)
			require.Equal(t, state.TokenStored, r.finish(f), "asked again after the next attempt began")
			l = next
		}
		r.end(l)
		require.Equal(t, state.TokenStored, r.finish(f), "asked again after the run's end")
		rec, ok := r.record(billing, l.Run)
		require.True(t, ok)
		require.Len(t, rec.Attempts, state.MaxAttemptRecords)
		require.Equal(t, 1, rec.Attempts[0].Number, "the first is kept")
		require.Equal(t, l.Attempt, rec.Attempts[len(rec.Attempts)-1].Number)
		for i := 1; i < len(rec.Attempts); i++ {
			require.Greater(t, rec.Attempts[i].Token, rec.Attempts[i-1].Token)
		}
	})
}

func TestFinishRefusesWhatIsNoEnd(t *testing.T) {
	r := newRig(t)
	l := r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, true))
	before := r.dump()
	for _, to := range []state.RunState{
		state.StateNone, state.StatePending, state.StateRunning, state.StateWaiting, state.StateSkipped, state.StateMissed, 77,
	} {
		_, err := r.s.Finish(t.Context(), endOf(l, to))
		require.ErrorContains(t, err, "cannot go from running to", to)
		f := endOf(l, to)
		f.Retry = slotAt(6)
		_, err = r.s.Finish(t.Context(), f)
		require.ErrorContains(t, err, "cannot go from running to", to)
	}
	require.Equal(t, before, r.dump())
}

// A shard that has started is not started again where the job's guarantee is
// at_most_once; one that has not, may be.
func TestFinishKeepsAtMostOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		rev, a := r.setJob(billing), r.register("a")
		c := claimOf(billing, rev, a, 5, exclusive)
		c.Live.AtMostOnce = true
		l := r.start(c)
		started := retryOf(l, slotAt(6))
		started.Attempt.Started = l.Due
		_, err := r.s.Finish(t.Context(), started)
		require.ErrorIs(t, err, ErrStartedOnce)
		require.Equal(t, state.TokenStored, r.finish(retryOf(l, slotAt(6))))
		w, _ := r.live(l)
		r.end(r.start(again(w, rev, a)))
	})
}

func TestFinishLimits(t *testing.T) {
	for name, x := range map[string]struct {
		at, over func(f *state.Finish)
	}{
		"tail": {
			func(f *state.Finish) { f.Tail = bytes.Repeat([]byte{7}, state.MaxTailBytes) },
			func(f *state.Finish) { f.Tail = append(f.Tail, 7) },
		},
		"error": {
			func(f *state.Finish) { f.Attempt.Error = strings.Repeat("x", state.MaxErrorBytes) },
			func(f *state.Finish) { f.Attempt.Error += "x" },
		},
		"reason": {
			func(f *state.Finish) { f.Reason = strings.Repeat("x", state.MaxReasonBytes) },
			func(f *state.Finish) { f.Reason += "x" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			f := endOf(r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, true)), state.StateFailed)
			x.at(&f)
			over := f
			x.over(&over)
			_, err := r.s.Finish(t.Context(), over)
			require.ErrorIs(t, err, ErrTooLarge)
			require.ErrorContains(t, err, name)
			require.Equal(t, state.TokenStored, r.finish(f))
		})
	}
}

func TestCheckpoints(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		rev, a := r.setJob(billing), r.register("a")
		l := r.start(claimOf(billing, rev, a, 5, exclusive))
		save := func(l state.Live, data string, previous, number int64) (state.CheckpointResult, error) {
			return r.s.Checkpoint(t.Context(), state.Checkpoint{Live: l, Data: []byte(data), Previous: previous, Number: number, Saved: slotAt(5)})
		}
		stored := func() (string, int64) {
			last, err := r.s.GetCheckpoint(t.Context(), state.CheckpointRef{Job: billing, Run: l.Run})
			require.NoError(t, err)
			return string(last.Data), last.Revision
		}
		_, none := stored()
		require.Zero(t, none)

		one, err := save(l, "one", 0, 1)
		require.NoError(t, err)
		require.Equal(t, state.TokenStored, one.Status)
		same, err := save(l, "one", 0, 1)
		require.NoError(t, err)
		require.Equal(t, one, same, "asked again")
		two, err := save(l, "two", one.Revision, 2)
		require.NoError(t, err)
		require.Greater(t, two.Revision, one.Revision)

		// A late duplicate of the first, and one that knows an older state.
		_, err = save(l, "one", 0, 1)
		require.ErrorIs(t, err, state.ErrCheckpointChanged)
		_, err = save(l, "three", one.Revision, 2)
		require.ErrorIs(t, err, state.ErrCheckpointChanged)
		data, at := stored()
		require.Equal(t, "two", data)
		require.Equal(t, two.Revision, at)

		// The next attempt goes on from the last accepted one; the earlier
		// attempt changes nothing any more.
		next := r.start(again(r.wait(l), rev, a))
		late, err := save(l, "late", two.Revision, 3)
		require.NoError(t, err)
		require.Equal(t, state.TokenFenced, late.Status)
		three, err := save(next, "three", two.Revision, 3)
		require.NoError(t, err)
		require.Equal(t, state.TokenStored, three.Status)
		r.end(next)
		late, err = save(next, "four", three.Revision, 4)
		require.NoError(t, err)
		require.Equal(t, state.TokenFenced, late.Status)
		data, _ = stored()
		require.Equal(t, "three", data)
	})
}

func TestCheckpointLimit(t *testing.T) {
	r := newRig(t)
	l := r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, true))
	c := state.Checkpoint{Live: l, Data: make([]byte, state.MaxCheckpoint+1)}
	_, err := r.s.Checkpoint(t.Context(), c)
	require.ErrorIs(t, err, ErrTooLarge)
	c.Data = c.Data[1:]
	res, err := r.s.Checkpoint(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, state.TokenStored, res.Status)
}

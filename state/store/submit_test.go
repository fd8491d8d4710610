package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/memkv"
)

// wish is the n-th submission to billing.
func wish(n uint64, key, payload string) state.Submission {
	now := time.Now().UTC()
	return state.Submission{
		Pending: state.Pending{Job: billing, Run: state.SubmitRunID(now, n), Requested: now, Actor: "ada"},
		Payload: []byte(payload), Key: key, KeyTTL: time.Hour, Now: now,
	}
}

func count(t *testing.T, s *Store, prefix string) int {
	t.Helper()
	res, err := s.kv.Range(t.Context(), prefix, end(prefix), kv.RangeOptions{})
	require.NoError(t, err)
	return len(res.KVs)
}

func TestSubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openMemory(t)
		ctx := t.Context()
		_, _, err := s.Submit(ctx, wish(1, "", ""))
		require.ErrorIs(t, err, ErrNotFound)
		require.Zero(t, count(t, s, s.keys.pending()))

		_, err = s.PutJob(ctx, putOf(billing, specOf()))
		require.NoError(t, err)
		first := wish(2, "order-7", "seven")
		run, duplicate, err := s.Submit(ctx, first)
		require.NoError(t, err)
		require.False(t, duplicate)
		require.Equal(t, first.Pending.Run, run)
		require.Equal(t, state.KindSubmit, run.Kind())
		payload, err := s.GetPayload(ctx, billing, run)
		require.NoError(t, err)
		require.Equal(t, "seven", string(payload))

		again, duplicate, err := s.Submit(ctx, wish(3, "order-7", "seven"))
		require.NoError(t, err)
		require.True(t, duplicate)
		require.Equal(t, run, again)
		_, _, err = s.Submit(ctx, wish(4, "order-7", "eight"))
		require.ErrorIs(t, err, ErrKeyReused)
		again, duplicate, err = s.Submit(ctx, first)
		require.NoError(t, err)
		require.False(t, duplicate, "it is the first wish itself, repeated")
		require.Equal(t, run, again)

		_, duplicate, err = s.Submit(ctx, wish(5, "", ""))
		require.NoError(t, err)
		require.False(t, duplicate)
		require.Equal(t, 2, count(t, s, s.keys.pending()))
		_, _, err = s.Submit(ctx, wish(6, "", string(make([]byte, state.MaxPayloadBytes+1))))
		require.ErrorIs(t, err, ErrTooLarge)
		_, _, err = s.Submit(ctx, wish(7, "", string(make([]byte, state.MaxPayloadBytes))))
		require.NoError(t, err)

		_, _, err = s.PauseJob(ctx, ChangeJob{ID: billing, Actor: "ada", Now: time.Now()})
		require.NoError(t, err)
		_, _, err = s.Submit(ctx, wish(8, "order-8", ""))
		require.ErrorIs(t, err, ErrPaused)
		again, duplicate, err = s.Submit(ctx, wish(9, "order-7", "seven"))
		require.NoError(t, err, "what was taken before stays so")
		require.True(t, duplicate)
		require.Equal(t, run, again)
	})
}

// A key is kept for as long as was asked for, and goes by itself.
func TestIdempotencyKeysGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openMemory(t)
		ctx := t.Context()
		_, err := s.PutJob(ctx, putOf(billing, specOf()))
		require.NoError(t, err)
		begun := time.Now()
		for i := range uint64(50) {
			_, _, err := s.Submit(ctx, wish(i, fmt.Sprint("k", i), ""))
			require.NoError(t, err)
		}
		require.Len(t, s.keyLeases.ends, 1, "they share a lease")
		time.Sleep(time.Hour - time.Since(begun))
		_, duplicate, err := s.Submit(ctx, wish(100, "k0", ""))
		require.NoError(t, err)
		require.True(t, duplicate)
		time.Sleep(time.Hour / keySteps * 2)
		require.Zero(t, count(t, s, s.keys.prefix+"unique/"))
		_, duplicate, err = s.Submit(ctx, wish(101, "k0", ""))
		require.NoError(t, err)
		require.False(t, duplicate)
	})
}

// A lease that somebody revoked keeps neither its own wish nor others in its batch
// from being taken.
func TestRevokedKeyLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := openMemory(t)
		ctx := t.Context()
		_, err := s.PutJob(ctx, putOf(billing, specOf()))
		require.NoError(t, err)
		_, _, err = s.Submit(ctx, wish(1, "a", ""))
		require.NoError(t, err)
		for _, lease := range s.keyLeases.ends {
			require.NoError(t, db.Revoke(ctx, lease))
		}
		var all sync.WaitGroup
		failed := make(chan error, 20)
		for i := range uint64(20) {
			all.Go(func() {
				key := ""
				if i%2 == 0 {
					key = fmt.Sprint("b", i)
				}
				_, duplicate, err := s.Submit(ctx, wish(10+i, key, ""))
				if err == nil && duplicate {
					err = errors.New("it is no duplicate")
				}
				failed <- err
			})
		}
		all.Wait()
		close(failed)
		for err := range failed {
			require.NoError(t, err)
		}
		require.Equal(t, 21, count(t, s, s.keys.pending()))
	})
}

// openLossy answers a store that loses the answer of every third transaction it sends, which
// was carried out, and another that loses none.
func openLossy(t *testing.T, seed int) (s, plain *Store) {
	db := memkv.New()
	t.Cleanup(db.Close)
	n := seed
	var mu sync.Mutex
	s = openStore(t, faulty.New(db, func(_ context.Context, call faulty.Call) faulty.Fault {
		mu.Lock()
		defer mu.Unlock()
		if n++; call.Op == faulty.OpTxn && n%3 == 0 {
			return faulty.Fault{After: kv.ErrUnknown}
		}
		return faulty.Fault{}
	}), "")
	return s, openStore(t, db, "")
}

// Wishes with one key that come at once, over a store that loses answers, make one
// run, which all of them name.
func TestSubmitAtOnce(t *testing.T) {
	for seed := range 20 {
		synctest.Test(t, func(t *testing.T) {
			s, plain := openLossy(t, seed)
			ctx := t.Context()
			_, err := plain.PutJob(ctx, putOf(billing, specOf()))
			require.NoError(t, err)
			runs := make(chan state.RunID, 40)
			var all sync.WaitGroup
			for i := range uint64(40) {
				all.Go(func() {
					run, _, err := s.Submit(ctx, wish(i, fmt.Sprint("k", i%4), "p"))
					if err != nil {
						run = state.RunID(err.Error())
					}
					runs <- run
				})
			}
			all.Wait()
			close(runs)
			different := map[state.RunID]bool{}
			for run := range runs {
				different[run] = true
			}
			require.Len(t, different, 4)
			require.Equal(t, 4, count(t, plain, plain.keys.pending()))
			require.Equal(t, 4, count(t, plain, plain.keys.prefix+"payloads/"))
		})
	}
}

// The payload goes with a success and stays with a failure; the result comes with the
// verdict.
func TestSubmittedRunEnds(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	_, err := r.s.PutJob(ctx, putOf(billing, specOf()))
	require.NoError(t, err)
	job, err := r.s.GetJob(ctx, billing)
	require.NoError(t, err)
	owner := r.register("x")
	for i, to := range []state.RunState{state.StateSucceeded, state.StateFailed} {
		sub := wish(uint64(i), "", "p")
		_, _, err := r.s.Submit(ctx, sub)
		require.NoError(t, err)
		entry, err := r.s.GetRun(ctx, billing, sub.Pending.Run)
		require.NoError(t, err)
		c := claimOf(billing, job.Job.Revision, owner, 1, false)
		c.Live.Run, c.Pending = sub.Pending.Run, entry.Pending.Revision
		res := r.claim(c)
		require.Equal(t, state.Claimed, res.Status)
		f := endOf(*res.Live, to)
		f.Result = []byte("done")
		status, err := r.s.Finish(ctx, f)
		require.NoError(t, err)
		require.Equal(t, state.TokenStored, status)
		payload, err := r.s.GetPayload(ctx, billing, sub.Pending.Run)
		require.NoError(t, err)
		result, err := r.s.GetResult(ctx, billing, sub.Pending.Run)
		if to == state.StateSucceeded {
			require.Nil(t, payload)
			require.NoError(t, err)
			require.Equal(t, "done", string(result))
		} else {
			require.Equal(t, "p", string(payload))
			require.ErrorIs(t, err, ErrNotFound)
		}
	}
	f := endOf(state.Live{Job: billing, Token: 1}, state.StateSucceeded)
	f.Result = bytes.Repeat([]byte("x"), state.MaxResultBytes+1)
	_, err = r.s.Finish(ctx, f)
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestWaitRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openMemory(t)
		ctx := t.Context()
		_, err := s.PutJob(ctx, putOf(billing, specOf()))
		require.NoError(t, err)
		sub := wish(1, "", "")
		_, err = s.WaitRun(ctx, billing, sub.Pending.Run)
		require.ErrorIs(t, err, ErrNotFound)
		_, _, err = s.Submit(ctx, sub)
		require.NoError(t, err)

		short, cancel := context.WithTimeout(ctx, time.Minute)
		entry, err := s.WaitRun(short, billing, sub.Pending.Run)
		cancel()
		require.NoError(t, err)
		require.NotNil(t, entry.Pending, "as it was when the time was up")

		done := make(chan RunEntry)
		go func() {
			entry, err := s.WaitRun(ctx, billing, sub.Pending.Run)
			if err != nil {
				panic(errors.Join(errors.New("wait"), err))
			}
			done <- entry
		}()
		synctest.Wait()
		_, err = s.CancelRun(ctx, state.Cancel{Job: billing, Run: sub.Pending.Run, Reason: state.ReasonRequested, Requested: time.Now()})
		require.NoError(t, err)
		require.Equal(t, state.StateCancelled, (<-done).Record.State)
	})
}

// A dead letter of a submitted run is requeued with what the run was to work on.
func TestRequeueSubmitted(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	_, err := r.s.PutJob(ctx, putOf(billing, specOf()))
	require.NoError(t, err)
	origin, again := state.SubmitRunID(slotAt(1), 1), state.SubmitRunID(slotAt(9), 2)
	r.put(r.s.keys.deadRun(billing, origin), string(codec.MarshalRecord(&state.Record{State: state.StateFailed, Due: slotAt(1)})))
	r.put(r.s.keys.payload(billing, origin), "seven")
	_, err = r.s.RequeueDead(ctx, state.Pending{Job: billing, Run: again, Requested: slotAt(9), Origin: origin})
	require.NoError(t, err)
	payload, err := r.s.GetPayload(ctx, billing, again)
	require.NoError(t, err)
	require.Equal(t, "seven", string(payload))
}

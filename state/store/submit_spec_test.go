package store

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// specWish is the n-th submission that brings a spec; without a name one is made up.
func specWish(n uint64, name, key, payload string) SubmitSpec {
	sub := SubmitSpec{Submission: wish(n, key, payload), Spec: specOf()}
	sub.Pending.Job = state.JobID{Namespace: billing.Namespace, Name: name}
	if name == "" {
		sub.MadeUp, sub.Pending.Job.Name = true, fmt.Sprintf("adhoc-%d", n)
	}
	return sub
}

func TestSubmitSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openMemory(t)
		ctx := t.Context()
		for _, name := range []string{"", "once"} {
			sub := specWish(uint64(len(name)), name, "order-7", "seven")
			job, run, duplicate, err := s.SubmitSpec(ctx, sub)
			require.NoError(t, err)
			require.False(t, duplicate)
			require.Equal(t, sub.Pending.Job, job)
			require.Equal(t, sub.Pending.Run, run)
			stored, err := s.GetJob(ctx, job)
			require.NoError(t, err)
			require.True(t, stored.Job.Adhoc)
			require.EqualValues(t, 1, stored.Job.Generation)
			versions, err := s.ListVersions(ctx, job, 0, 10)
			require.NoError(t, err)
			require.Len(t, versions, 1)
			require.Equal(t, "ada", versions[0].Version.Actor)
			entry, err := s.GetRun(ctx, job, run)
			require.NoError(t, err)
			require.Equal(t, stored.Job.Born, entry.Pending.Born, "both are there, or neither")
			payload, err := s.GetPayload(ctx, job, run)
			require.NoError(t, err)
			require.Equal(t, "seven", string(payload))

			again, same, duplicate, err := s.SubmitSpec(ctx, specWish(100+uint64(len(name)), name, "order-7", "seven"))
			require.NoError(t, err)
			require.True(t, duplicate)
			require.Equal(t, job, again)
			require.Equal(t, run, same)
			full := specWish(200, name, "order-7", "seven")
			full.Full = true
			_, _, duplicate, err = s.SubmitSpec(ctx, full)
			require.NoError(t, err, "what was taken before is answered")
			require.True(t, duplicate)
			full.Key = "order-8"
			_, _, _, err = s.SubmitSpec(ctx, full)
			require.ErrorIs(t, err, ErrTooManyAdhoc)

			other := specWish(300, name, "order-7", "seven")
			other.Spec.Description = "other"
			_, _, _, err = s.SubmitSpec(ctx, other)
			require.ErrorIs(t, err, ErrKeyReused)
			_, _, _, err = s.SubmitSpec(ctx, specWish(301, name, "order-7", "eight"))
			require.ErrorIs(t, err, ErrKeyReused)
		}
		_, _, _, err := s.SubmitSpec(ctx, specWish(9, "once", "", ""))
		require.ErrorIs(t, err, ErrExists)
		_, _, err = s.Submit(ctx, state.Submission{
			Pending: specWish(10, "once", "", "").Pending, Payload: []byte("seven"), Key: "order-7", KeyTTL: time.Hour, Now: time.Now(),
		})
		require.ErrorIs(t, err, ErrKeyReused, "to submit to the job is another wish")
		large := specWish(11, "", "", "")
		large.Spec.Description = string(make([]byte, state.MaxAdhocSpecBytes))
		_, _, _, err = s.SubmitSpec(ctx, large)
		require.ErrorIs(t, err, ErrTooLarge)
		require.Equal(t, 2, count(t, s, s.keys.jobs()))

		list := func(all bool) int {
			page, err := s.ListJobs(ctx, ListJobs{Limit: 10, Adhoc: all})
			require.NoError(t, err)
			return len(page.Jobs)
		}
		require.Zero(t, list(false))
		require.Equal(t, 2, list(true))
		id := state.JobID{Namespace: billing.Namespace, Name: "once"}
		_, _, err = s.PauseJob(ctx, ChangeJob{ID: id, Actor: "ada", Now: time.Now()})
		require.NoError(t, err)
		require.Zero(t, list(false))
		put, err := s.PutJob(ctx, putOf(id, specOf()))
		require.NoError(t, err)
		require.Equal(t, state.ChangeUpdate, put.Change, "it is one like others now")
		require.False(t, put.Entry.Job.Adhoc)
		require.Equal(t, 1, list(false))
	})
}

// Wishes with one key, or of one name, that come at once over a store that loses
// answers make one job and one run.
func TestSubmitSpecAtOnce(t *testing.T) {
	for seed := range 20 {
		synctest.Test(t, func(t *testing.T) {
			s, plain := openLossy(t, seed)
			ctx := t.Context()
			runs := make(chan string, 40)
			var all sync.WaitGroup
			for i := range uint64(40) {
				name := ""
				if i%4 < 2 {
					name = fmt.Sprint("n", i%4)
				}
				all.Go(func() {
					job, run, _, err := s.SubmitSpec(ctx, specWish(i, name, fmt.Sprint("k", i%4), "p"))
					if err != nil {
						runs <- err.Error()
						return
					}
					runs <- job.String() + " " + string(run)
				})
			}
			all.Wait()
			close(runs)
			different := map[string]bool{}
			for run := range runs {
				different[run] = true
			}
			require.Len(t, different, 4, different)
			for _, prefix := range []string{plain.keys.jobs(), plain.keys.versions(), plain.keys.pending(), plain.keys.prefix + "payloads/"} {
				require.Equal(t, 4, count(t, plain, prefix), prefix)
			}
		})
	}
}

// A job of a submission is deleted once it has no run in any state, by a leader that
// stands; a job that somebody has put never is.
func TestRetireJob(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	retire := func(id state.JobID) bool {
		done, err := r.s.RetireJob(ctx, term, id, time.Now())
		require.NoError(t, err)
		return done
	}
	sub := specWish(1, "", "", "p")
	sub.Pending.Job.Namespace = "ns"
	id := sub.Pending.Job
	require.False(t, retire(id), "there is none")
	_, run, _, err := r.s.SubmitSpec(ctx, sub)
	require.NoError(t, err)
	require.False(t, retire(id), "its run is pending")

	job, err := r.s.GetJob(ctx, id)
	require.NoError(t, err)
	entry, err := r.s.GetRun(ctx, id, run)
	require.NoError(t, err)
	c := claimOf(id, job.Job.Revision, r.register("x"), 1, false)
	c.Live.Run, c.Pending = run, entry.Pending.Revision
	res := r.claim(c)
	require.Equal(t, state.Claimed, res.Status)
	require.False(t, retire(id), "it is live")
	status, err := r.s.Finish(ctx, endOf(*res.Live, state.StateFailed))
	require.NoError(t, err)
	require.Equal(t, state.TokenStored, status)
	require.False(t, retire(id), "its verdict is kept")

	sw := r.everything(id, 10)
	sw.Before = slotAt(1_000_000)
	sweeps(t, r.s, term, sw)
	follower := r.mustAfter("after", id.Name)
	require.False(t, retire(id), "another job runs after it")
	require.NoError(t, r.s.DeleteJob(ctx, ChangeJob{ID: follower.ID, Actor: "ada", Now: time.Now()}))
	gone := r.lead("other")
	r.depose(gone)
	_, err = r.s.RetireJob(ctx, gone, id, time.Now())
	require.ErrorIs(t, err, state.ErrTermLost)
	_, err = r.s.RetireJob(ctx, state.Term{}, id, time.Now())
	require.ErrorIs(t, err, state.ErrTermLost)
	require.True(t, retire(id))
	_, err = r.s.GetJob(ctx, id)
	require.ErrorIs(t, err, ErrNotFound)
	last, err := r.s.LastVersion(ctx, id)
	require.NoError(t, err)
	require.Equal(t, state.ChangeDelete, last.Change)
	require.Equal(t, state.Leaderd, last.Actor)
	require.True(t, last.Job.Adhoc)
	require.Zero(t, count(t, r.s, r.s.keys.payloads(id)))

	_, err = r.s.PutJob(ctx, putOf(billing, specOf()))
	require.NoError(t, err)
	require.False(t, retire(billing), "nobody submitted it")
}

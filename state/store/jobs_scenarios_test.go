package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/memkv"
)

// TestParallelUpdates is scenario J05: 200 updaters on one job, half of which
// name the revision that they have seen.
func TestParallelUpdates(t *testing.T) {
	ctx := t.Context()
	s, _ := openMemory(t)
	made, err := s.PutJob(ctx, putOf(billing, specOf("@daily")))
	require.NoError(t, err)
	var (
		wg              sync.WaitGroup
		updated, losers atomic.Int64
		errs            = make(chan error, 200)
	)
	for i := range 200 {
		wg.Go(func() {
			spec := specOf("@daily")
			spec.Description = fmt.Sprint(i)
			p := putOf(billing, spec)
			if i%2 == 0 {
				p.Revision = made.Entry.Job.Revision
			}
			if i%10 == 1 {
				// The client is gone at once: applied or not, but never half.
				short, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				if _, err := s.PutJob(short, p); err != nil {
					return
				}
				updated.Add(1)
				return
			}
			switch res, err := s.PutJob(ctx, p); {
			case errors.Is(err, ErrChanged) && p.Revision != 0:
				losers.Add(1)
			case err != nil:
				errs <- err
			case res.Change == state.ChangeUpdate:
				updated.Add(1)
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	got, err := s.GetJob(ctx, billing)
	require.NoError(t, err)
	require.GreaterOrEqual(t, got.Job.Generation, 1+updated.Load(), "each update made a version")
	require.GreaterOrEqual(t, updated.Load(), int64(80))
	require.GreaterOrEqual(t, losers.Load(), int64(99))
	versions, err := s.ListVersions(ctx, billing, 0, 1000)
	require.NoError(t, err)
	require.Len(t, versions, state.MaxVersionsKept)
	for i, v := range versions {
		require.Equal(t, got.Job.Generation-int64(i), v.Version.Job.Generation)
	}
	require.True(t, proto.Equal(got.Message, versions[0].Message.GetJob()))
}

// TestRecreate is scenario J04: after each write every reader sees it.
func TestRecreate(t *testing.T) {
	ctx := t.Context()
	s, db := openMemory(t)
	readers := []*Store{s, openStore(t, db, ""), openStore(t, db, "")}
	uids := map[string]bool{}
	for i := range 100 {
		spec := specOf("@daily")
		spec.Description = fmt.Sprint(i)
		made, err := s.PutJob(ctx, putOf(billing, spec))
		require.NoError(t, err)
		require.False(t, uids[made.Entry.Job.UID])
		uids[made.Entry.Job.UID] = true
		for _, r := range readers {
			got, err := r.GetJob(ctx, billing)
			require.NoError(t, err)
			require.Equal(t, made.Entry.Job, got.Job)
		}
		require.NoError(t, s.DeleteJob(ctx, ChangeJob{ID: billing}))
		for _, r := range readers {
			_, err := r.GetJob(ctx, billing)
			require.ErrorIs(t, err, ErrNotFound)
		}
	}
}

// TestNamesKeepToTheirPlace is scenario E01: whatever names are, to delete one
// job changes nothing of another, in this cluster or one beside it.
func TestNamesKeepToTheirPlace(t *testing.T) {
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "ab", "a-b", "a/b", "a.b", "a%2Fb", "~", "-", "b"}),
		rapid.StringMatching(`[ab/~%.\-]{0,4}`),
	)
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		db := memkv.New()
		defer db.Close()
		cron, cron2 := openStore(t, db, "/cron/"), openStore(t, db, "/cron-2/")
		draw := rapid.Custom(func(rt *rapid.T) state.JobID {
			return state.JobID{Namespace: name.Draw(rt, "namespace"), Name: name.Draw(rt, "name")}
		})
		ids := rapid.SliceOfNDistinct(draw, 2, 6, rapid.ID).Draw(rt, "jobs")
		for _, s := range []*Store{cron, cron2} {
			for _, id := range ids {
				_, err := s.PutJob(ctx, putOf(id, specOf("@daily")))
				require.NoError(t, err)
				_, err = s.PutPending(ctx, state.Pending{Job: id, Run: "20000101T000000Z-trigger-00000001"})
				require.NoError(t, err)
			}
		}
		gone := rapid.SampledFrom(ids).Draw(rt, "gone")
		require.NoError(t, cron.DeleteJob(ctx, ChangeJob{ID: gone}))
		seen := func(s *Store) map[state.JobID]bool {
			page, err := s.ListJobs(ctx, ListJobs{Limit: 100})
			require.NoError(t, err)
			found := map[state.JobID]bool{}
			for _, e := range page.Jobs {
				require.NoError(t, e.Broken)
				found[e.Job.ID] = true
			}
			return found
		}
		for _, id := range ids {
			require.Equal(t, id != gone, seen(cron)[id])
			require.True(t, seen(cron2)[id])
			runs, err := cron.ListRuns(ctx, ListRuns{AfterJob: id, AfterRun: "3", Limit: 100})
			require.NoError(t, err)
			require.Equal(t, id, runs.Runs[0].Job)
		}
	})
}

func TestListJobsInPages(t *testing.T) {
	ctx := t.Context()
	s, _ := openMemory(t)
	var want []string
	for _, ns := range []string{"a", "a-b", "ab", "b"} {
		for i := range 70 {
			id := state.JobID{Namespace: ns, Name: fmt.Sprintf("job-%02d", i)}
			_, err := s.PutJob(ctx, putOf(id, specOf("@daily")))
			require.NoError(t, err)
			if ns == "a" {
				want = append(want, id.String())
			}
		}
	}
	var got []string
	l := ListJobs{Namespace: "a", Limit: 33}
	for more := true; more; {
		page, err := s.ListJobs(ctx, l)
		require.NoError(t, err)
		for _, e := range page.Jobs {
			got = append(got, e.Job.ID.String())
		}
		more, l.After = page.More, page.Jobs[len(page.Jobs)-1].Job.ID
	}
	require.Equal(t, want, got)
	page, err := s.ListJobs(ctx, ListJobs{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 280)
	require.False(t, page.More)
}

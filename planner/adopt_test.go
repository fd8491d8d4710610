package planner_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/planner"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

var asked = state.JobID{Namespace: "default", Name: "asked"}

// putAsked stores a job without slots, of which the catalog does not know.
func (s *site) putAsked() state.Job {
	put, err := s.store.PutJob(s.t.Context(), store.PutJob{
		ID: asked, AllowMissing: true, Now: time.Now(),
		Spec: &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}},
	})
	require.NoError(s.t, err)
	return put.Entry.Job
}

// deleteAsked deletes the job and answers the deletion's revision.
func (s *site) deleteAsked() int64 {
	require.NoError(s.t, s.store.DeleteJob(s.t.Context(), store.ChangeJob{ID: asked, Now: time.Now()}))
	gone, err := s.store.ListDeleted(s.t.Context())
	require.NoError(s.t, err)
	require.Len(s.t, gone, 1)
	return gone[0].Job.Revision
}

func (s *site) wish(nonce uint32) state.Pending {
	p, err := s.store.PutPending(s.t.Context(), state.Pending{
		Job: asked, Run: state.TriggerRunID(time.Now(), nonce), Requested: time.Now(),
	})
	require.NoError(s.t, err)
	p.Born = p.Revision // as it is read
	return p
}

// verdict is that of a run of the job, "" while it has none.
func (s *site) verdict(run state.RunID) string {
	got, err := s.store.GetRun(s.t.Context(), asked, run)
	require.NoError(s.t, err)
	if got.Record == nil {
		return ""
	}
	return got.Record.State.String() + ":" + got.Record.Reason
}

// settle lets the leader do what it does at once, or within seconds.
func settle() { time.Sleep(3 * time.Second); synctest.Wait() }

// TestWishOfAJobThatIsNews tells the leader of a run that was asked for before it
// knows of the job: it ends only with the job.
func TestWishOfAJobThatIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		defer s.lead("a")()
		settle()
		behind := make(chan struct{})
		s.behind = behind
		job := s.putAsked()
		p := s.wish(1)
		s.pending <- []state.Pending{p}
		settle()
		require.Empty(t, s.verdict(p.Run), "the news of the job is on its way")
		close(behind)
		settle()
		require.Empty(t, s.verdict(p.Run), "the job is stored")
		s.catalog.Set(planner.Stored{Job: job})
		settle()
		require.Empty(t, s.verdict(p.Run))
		s.catalog.Delete(asked, s.deleteAsked())
		settle()
		require.Equal(t, "cancelled:deleted", s.verdict(p.Run))
	})
}

// TestWishOfAJobThatIsMadeAgain has a job deleted and made again, and a run asked for
// before and after that, in news that come in either order.
func TestWishOfAJobThatIsMadeAgain(t *testing.T) {
	for name, known := range map[string]bool{"by the revision of its deletion": true, "by a list without it": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				defer s.lead("a")()
				s.catalog.Set(planner.Stored{Job: s.putAsked()})
				settle()
				before := s.wish(1)
				deleted := s.deleteAsked()
				again := s.putAsked()
				after := s.wish(2)
				s.pending <- []state.Pending{before, after}
				synctest.Wait()
				if known {
					s.catalog.Delete(asked, deleted)
				} else {
					s.catalog.Reset(func(yield func(planner.Stored) bool) { yield(planner.Stored{Job: s.job}) })
				}
				settle()
				s.catalog.Set(planner.Stored{Job: again})
				settle()
				require.Empty(t, s.verdict(after.Run))
				if known {
					require.Equal(t, "cancelled:deleted", s.verdict(before.Run))
				}
				s.catalog.Delete(asked, s.deleteAsked())
				settle()
				require.Equal(t, "cancelled:deleted", s.verdict(after.Run))
			})
		})
	}
}

// TestWishOfAnEarlierJob has a job deleted and made again while there is no leader: what
// was asked of the first does not run as the second.
func TestWishOfAnEarlierJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.putAsked()
		before := s.wish(1)
		s.deleteAsked()
		s.catalog.Set(planner.Stored{Job: s.putAsked()})
		after := s.wish(2)
		defer s.lead("a")()
		settle()
		s.pending <- []state.Pending{before, after}
		settle()
		require.Equal(t, "cancelled:deleted", s.verdict(before.Run))
		require.Empty(t, s.verdict(after.Run))
	})
}

// TestRetryOfAJobThatIsNews has a leader find a run that waits, of a job that it does
// not know.
func TestRetryOfAJobThatIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		job := s.putAsked()
		p := s.wish(1)
		res, err := s.store.Claim(t.Context(), state.Claim{
			Job: asked, JobRevision: job.Revision, Pending: p.Revision, Exclusive: true, Live: state.Live{
				Run: p.Run, Shards: 1, Generation: 1, Attempt: 1, Owner: s.owner, Due: time.Now(), Claimed: time.Now(),
			},
		})
		require.NoError(t, err)
		require.Equal(t, state.Claimed, res.Status)
		require.NoError(t, s.store.Deregister(t.Context(), s.reg))
		defer s.lead("a")()
		settle()
		got, err := s.store.GetRun(t.Context(), asked, p.Run)
		require.NoError(t, err)
		require.Nil(t, got.Record)
		require.Equal(t, state.StateWaiting, got.Live[0].State)
		s.deleteAsked()
		settle()
		require.Equal(t, "cancelled:deleted", s.verdict(p.Run))
	})
}

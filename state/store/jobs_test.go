package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/memkv"
)

var billing = state.JobID{Namespace: "default", Name: "billing"}

func openStore(t testing.TB, db kv.KV, prefix string) *Store {
	t.Helper()
	s, err := New(db, Config{Prefix: prefix})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func openMemory(t testing.TB) (*Store, *memkv.Store) {
	t.Helper()
	db := memkv.New()
	t.Cleanup(db.Close)
	return openStore(t, db, ""), db
}

func specOf(schedules ...string) *leaderdv1.JobSpec {
	return &leaderdv1.JobSpec{
		Schedules: schedules,
		Target:    &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
	}
}

func putOf(id state.JobID, spec *leaderdv1.JobSpec) PutJob {
	return PutJob{ID: id, Spec: spec, AllowMissing: true, Actor: "anna", Reason: "because", Now: time.Now()}
}

func TestJobLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, _ := openMemory(t)
		begun := time.Now().UTC()

		p := putOf(billing, specOf("@every 1m"))
		p.AllowMissing = false
		_, err := s.PutJob(ctx, p)
		require.ErrorIs(t, err, ErrNotFound)

		made, err := s.PutJob(ctx, putOf(billing, specOf("@every 1m")))
		require.NoError(t, err)
		require.Equal(t, state.ChangeCreate, made.Change)
		job := made.Entry.Job
		require.EqualValues(t, 1, job.Generation)
		require.NotEmpty(t, job.UID)
		require.Equal(t, "anna", job.UpdatedBy)
		for _, at := range []time.Time{job.Created, job.Updated, job.Effective, job.Anchor} {
			require.Equal(t, begun, at)
		}
		got, err := s.GetJob(ctx, billing)
		require.NoError(t, err)
		require.Equal(t, job, got.Job)

		time.Sleep(time.Hour)
		same, err := s.PutJob(ctx, putOf(billing, specOf("@every 1m")))
		require.NoError(t, err)
		require.Zero(t, same.Change)
		require.Equal(t, job, same.Entry.Job)

		// An edit of anything but the times leaves the anchor alone.
		labelled := specOf("@every 1m")
		labelled.Labels = map[string]string{"team": "a"}
		labelled.TimeZone = "UTC"
		up, err := s.PutJob(ctx, putOf(billing, labelled))
		require.NoError(t, err)
		require.Equal(t, state.ChangeUpdate, up.Change)
		require.Equal(t, begun, up.Entry.Job.Anchor)
		require.Equal(t, time.Now().UTC(), up.Entry.Job.Effective)
		require.Equal(t, job.UID, up.Entry.Job.UID)
		require.Equal(t, job.Created, up.Entry.Job.Created)

		stale := putOf(billing, specOf("@every 2m"))
		stale.Revision = job.Revision
		_, err = s.PutJob(ctx, stale)
		require.ErrorIs(t, err, ErrChanged)

		dry := putOf(billing, specOf("@every 2m"))
		dry.DryRun = true
		would, err := s.PutJob(ctx, dry)
		require.NoError(t, err)
		require.Equal(t, state.ChangeUpdate, would.Change)
		require.EqualValues(t, 3, would.Entry.Job.Generation)
		got, err = s.GetJob(ctx, billing)
		require.NoError(t, err)
		require.Equal(t, up.Entry.Job, got.Job)

		paused, changed, err := s.PauseJob(ctx, ChangeJob{ID: billing, Actor: "ben", Reason: "audit", Now: time.Now()})
		require.NoError(t, err)
		require.True(t, changed)
		require.True(t, paused.Job.Paused)
		require.Equal(t, "audit", paused.Job.PauseReason)
		_, changed, err = s.PauseJob(ctx, ChangeJob{ID: billing, Actor: "ben", Reason: "audit", Now: time.Now()})
		require.NoError(t, err)
		require.False(t, changed)

		up, err = s.PutJob(ctx, putOf(billing, specOf("@every 2m")))
		require.NoError(t, err)
		require.True(t, up.Entry.Job.Paused, "an edit keeps the pause")
		require.Equal(t, time.Now().UTC(), up.Entry.Job.Anchor)

		_, err = s.PutPending(ctx, state.Pending{Job: billing, Run: "20000101T000000Z-trigger-00000001"})
		require.ErrorIs(t, err, ErrPaused)

		time.Sleep(time.Minute)
		resumed, changed, err := s.ResumeJob(ctx, ChangeJob{ID: billing, Actor: "ben", Now: time.Now()})
		require.NoError(t, err)
		require.True(t, changed)
		require.False(t, resumed.Job.Paused)
		require.Empty(t, resumed.Job.PauseReason)
		require.Equal(t, time.Now().UTC(), resumed.Job.Effective)
		require.Equal(t, up.Entry.Job.Anchor, resumed.Job.Anchor)
		_, changed, err = s.ResumeJob(ctx, ChangeJob{ID: billing, Now: time.Now()})
		require.NoError(t, err)
		require.False(t, changed)

		require.ErrorIs(t, s.DeleteJob(ctx, ChangeJob{ID: billing, Revision: job.Revision}), ErrChanged)
		require.NoError(t, s.DeleteJob(ctx, ChangeJob{ID: billing, Actor: "cleo", Reason: "over", Now: time.Now()}))
		require.ErrorIs(t, s.DeleteJob(ctx, ChangeJob{ID: billing}), ErrNotFound)
		_, err = s.GetJob(ctx, billing)
		require.ErrorIs(t, err, ErrNotFound)

		again, err := s.PutJob(ctx, putOf(billing, specOf("@every 1m")))
		require.NoError(t, err)
		require.Equal(t, state.ChangeCreate, again.Change)
		require.NotEqual(t, job.UID, again.Entry.Job.UID)
		require.EqualValues(t, 7, again.Entry.Job.Generation, "goes on counting")

		versions, err := s.ListVersions(ctx, billing, 0, 100)
		require.NoError(t, err)
		var changes []string
		for _, v := range versions {
			require.NoError(t, v.Broken)
			changes = append(changes, fmt.Sprintf("%d %s %s", v.Version.Job.Generation, v.Version.Change, v.Version.Actor))
		}
		require.Equal(t, []string{
			"7 create anna", "6 delete cleo", "5 resume ben", "4 update anna", "3 pause ben", "2 update anna", "1 create anna",
		}, changes)
		require.Equal(t, []string{"@every 2m"}, versions[1].Version.Job.Spec.Schedules, "a delete tells what was deleted")
		older, err := s.ListVersions(ctx, billing, 6, 2)
		require.NoError(t, err)
		require.Len(t, older, 2)
		require.EqualValues(t, 5, older[0].Version.Job.Generation)
	})
}

func TestOnlyTheLastVersionsAreKept(t *testing.T) {
	s, _ := openMemory(t)
	for i := range state.MaxVersionsKept + 5 {
		_, err := s.PutJob(t.Context(), putOf(billing, specOf(fmt.Sprintf("@every %dm", i+1))))
		require.NoError(t, err)
	}
	versions, err := s.ListVersions(t.Context(), billing, 0, 1000)
	require.NoError(t, err)
	require.Len(t, versions, state.MaxVersionsKept)
	require.EqualValues(t, state.MaxVersionsKept+5, versions[0].Version.Job.Generation)
}

func TestUnknownFieldsSurvive(t *testing.T) {
	ctx := t.Context()
	s, db := openMemory(t)
	made, err := s.PutJob(ctx, putOf(billing, specOf("@daily")))
	require.NoError(t, err)
	value, err := proto.Marshal(made.Entry.Message)
	require.NoError(t, err)
	value = protowire.AppendTag(value, 1000, protowire.BytesType)
	value = protowire.AppendString(value, "of a later version")
	_, err = db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(s.keys.job(billing), value, 0)}})
	require.NoError(t, err)

	_, err = s.PutJob(ctx, putOf(billing, specOf("@hourly")))
	require.NoError(t, err)
	_, _, err = s.PauseJob(ctx, ChangeJob{ID: billing})
	require.NoError(t, err)
	_, _, err = s.ResumeJob(ctx, ChangeJob{ID: billing})
	require.NoError(t, err)
	got, err := s.GetJob(ctx, billing)
	require.NoError(t, err)
	require.Contains(t, string(got.Message.ProtoReflect().GetUnknown()), "of a later version")
}

func TestBrokenJob(t *testing.T) {
	ctx := t.Context()
	s, db := openMemory(t)
	other := state.JobID{Namespace: "default", Name: "other"}
	for _, id := range []state.JobID{billing, other} {
		_, err := s.PutJob(ctx, putOf(id, specOf("@daily")))
		require.NoError(t, err)
	}
	spoil := func() {
		_, err := db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(s.keys.job(billing), []byte("\xff\xff"), 0)}})
		require.NoError(t, err)
	}
	spoil()
	page, err := s.ListJobs(ctx, ListJobs{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 2, "one bad job harms no list")
	require.ErrorIs(t, page.Jobs[0].Broken, ErrCorrupt)
	require.Equal(t, billing, page.Jobs[0].Job.ID)
	require.NoError(t, page.Jobs[1].Broken)

	_, _, err = s.PauseJob(ctx, ChangeJob{ID: billing})
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = s.PutPending(ctx, state.Pending{Job: billing, Run: "x"})
	require.ErrorIs(t, err, ErrCorrupt)

	fixed, err := s.PutJob(ctx, putOf(billing, specOf("@daily")))
	require.NoError(t, err)
	require.Equal(t, state.ChangeUpdate, fixed.Change)
	require.EqualValues(t, 2, fixed.Entry.Job.Generation)
	spoil()
	require.NoError(t, s.DeleteJob(ctx, ChangeJob{ID: billing}))
}

// TestUnknownOutcome lets every transaction fail with an unknown outcome once or
// twice, applied or not: each change is made exactly once.
func TestUnknownOutcome(t *testing.T) {
	for name, fault := range map[string]faulty.Fault{
		"applied":     {After: kv.ErrUnknown},
		"not applied": {Before: kv.ErrUnknown},
		"unavailable": {Before: kv.ErrUnavailable},
		"overloaded":  {Before: kv.ErrTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				db := memkv.New()
				defer db.Close()
				left := 0
				s := openStore(t, faulty.New(db, func(_ context.Context, c faulty.Call) faulty.Fault {
					if c.Op == faulty.OpTxn && len(c.Txn.If) > 0 && left > 0 {
						left--
						return fault
					}
					return faulty.Fault{}
				}), "")
				left = 2
				made, err := s.PutJob(ctx, putOf(billing, specOf("@daily")))
				require.NoError(t, err)
				require.Equal(t, state.ChangeCreate, made.Change)
				left = 1
				p := putOf(billing, specOf("@hourly"))
				p.Revision = made.Entry.Job.Revision
				up, err := s.PutJob(ctx, p)
				require.NoError(t, err)
				require.Equal(t, state.ChangeUpdate, up.Change)
				got, err := s.GetJob(ctx, billing)
				require.NoError(t, err)
				require.Equal(t, up.Entry.Job, got.Job)

				left = 1
				pending, err := s.PutPending(ctx, state.Pending{Job: billing, Run: state.TriggerRunID(time.Now(), 1), Requested: time.Now()})
				require.NoError(t, err)
				require.NotZero(t, pending.Revision)
				left = 2
				require.NoError(t, s.DeleteJob(ctx, ChangeJob{ID: billing, Now: time.Now()}))
				versions, err := s.ListVersions(ctx, billing, 0, 100)
				require.NoError(t, err)
				require.Len(t, versions, 3)
			})
		})
	}
}

func TestOutcomeStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memkv.New()
		defer db.Close()
		s := openStore(t, faulty.New(db, func(_ context.Context, c faulty.Call) faulty.Fault {
			if c.Op == faulty.OpTxn && len(c.Txn.If) > 0 {
				return faulty.Fault{After: kv.ErrUnknown}
			}
			return faulty.Fault{}
		}), "")
		_, err := s.PutJob(t.Context(), putOf(billing, specOf("@daily")))
		require.ErrorIs(t, err, kv.ErrUnknown)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("caller gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		err = s.DeleteJob(ctx, ChangeJob{ID: billing, Now: time.Now()})
		require.ErrorIs(t, err, kv.ErrUnknown)
	})
}

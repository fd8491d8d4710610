package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// versions reads all versions below a parent, by pages of the given size.
func (s *served) versions(t *testing.T, parent string, size int32) []*leaderdv1.JobVersion {
	t.Helper()
	var all []*leaderdv1.JobVersion
	req := &leaderdv1.ListJobVersionsRequest{Parent: parent, PageSize: size}
	for {
		res, err := s.jobs.ListJobVersions(t.Context(), req)
		require.NoError(t, err)
		require.LessOrEqual(t, len(res.GetVersions()), int(size))
		all = append(all, res.GetVersions()...)
		if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
			return all
		}
	}
}

func TestListJobVersions(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.put(t, billing, spec("@every 1h"))
	s.put(t, billing, spec("@every 2h"))
	_, err := s.jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: billing, Reason: "disk swap"})
	require.NoError(t, err)
	_, err = s.jobs.ResumeJob(ctx, &leaderdv1.ResumeJobRequest{Name: billing})
	require.NoError(t, err)
	_, err = s.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: billing, Reason: "done"})
	require.NoError(t, err)
	for _, name := range []string{"namespaces/default/jobs/a", "namespaces/other/jobs/billing", "namespaces/other/jobs/z"} {
		s.put(t, name, spec("@hourly"))
	}

	got := s.versions(t, billing, 100)
	require.Len(t, got, 5)
	var changes []string
	for i, v := range got {
		require.Equal(t, fmt.Sprintf("%s/versions/%d", billing, 5-i), v.GetName())
		require.Equal(t, Anonymous, v.GetActor())
		require.Equal(t, got[0].GetUid(), v.GetUid())
		require.NotZero(t, v.GetRevision())
		if i > 0 {
			require.Less(t, v.GetRevision(), got[i-1].GetRevision())
			require.False(t, v.GetEffectiveTime().AsTime().After(got[i-1].GetEffectiveTime().AsTime()))
		}
		changes = append(changes, v.GetChange().String())
	}
	require.Equal(t, []string{"CHANGE_DELETE", "CHANGE_RESUME", "CHANGE_PAUSE", "CHANGE_UPDATE", "CHANGE_CREATE"}, changes)
	require.True(t, got[2].GetPaused())
	require.Equal(t, "disk swap", got[2].GetReason())
	require.Equal(t, got[2].GetChangeTime().AsTime(), got[2].GetEffectiveTime().AsTime(), "a pause ends what was due")
	require.Equal(t, []string{"@every 1h"}, got[4].GetSpec().GetSchedules())
	require.Equal(t, got[3].GetChangeTime().AsTime(), got[3].GetAnchorTime().AsTime())

	for parent, want := range map[string]int{
		"namespaces/default/jobs/-": 6, "namespaces/-/jobs/billing": 6, "namespaces/-/jobs/-": 8, "namespaces/other/jobs/-": 2,
		"namespaces/default/jobs/none": 0, "namespaces/none/jobs/-": 0,
	} {
		whole := s.versions(t, parent, 100)
		require.Len(t, whole, want, parent)
		for _, size := range []int32{1, 2, 3} {
			paged := s.versions(t, parent, size)
			require.Len(t, paged, want, "%s by %d", parent, size)
			for i := range paged {
				require.Equal(t, whole[i].GetName(), paged[i].GetName())
			}
		}
	}
}

func TestBrokenVersions(t *testing.T) {
	s := serve(t, nil)
	_, err := s.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{
		kv.Put(store.DefaultPrefix+"versions/default/billing/0000000000000001", []byte{0xff}, 0),
	}})
	require.NoError(t, err)
	s.write(t, "versions/default/billing/0000000000000002", &statev1.Version{
		Change: uint32(state.ChangeUpdate), Time: 1, Job: &statev1.Job{Generation: 2, Spec: spec("* * *")},
	})
	got := s.versions(t, billing, 100)
	require.Len(t, got, 2)
	require.Contains(t, got[0].GetQuarantine(), "3 fields")
	require.Equal(t, leaderdv1.JobVersion_CHANGE_UPDATE, got[0].GetChange())
	require.Contains(t, got[1].GetQuarantine(), "cannot be read")
	require.EqualValues(t, 1, got[1].GetGeneration())
	require.NotZero(t, got[1].GetRevision())
}

func TestVersionRequestsAreChecked(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.put(t, billing, spec("@hourly"))
	s.put(t, billing, spec("@daily"))
	res, err := s.jobs.ListJobVersions(ctx, &leaderdv1.ListJobVersionsRequest{Parent: billing, PageSize: 1})
	require.NoError(t, err)
	for field, req := range map[string]*leaderdv1.ListJobVersionsRequest{
		"parent":    {Parent: "namespaces/default"},
		"pageSize":  {Parent: billing, PageSize: -1},
		"pageToken": {Parent: "namespaces/default/jobs/-", PageToken: res.GetNextPageToken()},
	} {
		_, err := s.jobs.ListJobVersions(ctx, req)
		requireBadFields(t, err, field)
	}
	_, err = s.jobs.ListJobVersions(ctx, &leaderdv1.ListJobVersionsRequest{
		Parent: billing, PageToken: pageToken("versions of "+billing, "other", "billing", "2"),
	})
	requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
}

// TestChangesAreComplete holds the API's names of the changes to the domain's.
func TestChangesAreComplete(t *testing.T) {
	for c := state.ChangeCreate; c <= state.ChangeCalendar; c++ {
		require.Equal(t, "CHANGE_"+strings.ToUpper(c.String()), changes[c].String())
	}
	require.Len(t, changes, len(leaderdv1.JobVersion_Change_name))
}

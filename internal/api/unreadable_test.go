package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

func (s *served) writeRaw(t *testing.T, key, value string) int64 {
	t.Helper()
	res, err := s.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put(store.DefaultPrefix+key, []byte(value), 0)}})
	require.NoError(t, err)
	return res.Revision
}

// TestUnreadableIsTold spoils what is stored, key by key: what it was of is told
// with the key, and everything else is as before.
func TestUnreadableIsTold(t *testing.T) {
	ctx := t.Context()
	s := serve(t, nil)
	s.put(t, billing, spec("@daily"))
	for key, run := range map[string]string{
		"history/default/billing/20261130T020000Z":                  "20261130T020000Z",
		"pending/default/billing/20261130T030000Z-trigger-00000001": "20261130T030000Z-trigger-00000001",
		"active/default/billing/20261130T040000Z/0":                 "20261130T040000Z",
	} {
		s.writeRaw(t, key, "\xffrubbish")
		got, err := s.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: billing + "/runs/" + run})
		require.NoError(t, err)
		require.Equal(t, leaderdv1.Run_STATE_UNREADABLE, got.GetRun().GetState())
		require.Contains(t, got.GetRun().GetDetail(), store.DefaultPrefix+key)
		require.NotNil(t, got.GetRun().GetDueTime())
		wait, err := s.submissions.WaitRun(ctx, &leaderdv1.WaitRunRequest{Name: got.GetRun().GetName()})
		require.NoError(t, err)
		require.True(t, wait.GetDone(), "who waits would ask again at once, for ever")
	}
	runs, err := s.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: billing})
	require.NoError(t, err)
	require.Len(t, runs.GetRuns(), 3)
	for _, r := range runs.GetRuns() {
		require.Equal(t, leaderdv1.Run_STATE_UNREADABLE, r.GetState())
	}

	// Keys below a job's own are nobody's.
	s.writeRaw(t, "jobs/default/billing/more", "x")
	s.writeRaw(t, "jobs/default/billing/", "x")
	s.writeRaw(t, "jobs/default", "x")
	s.writeRaw(t, "jobs/default/bad%zz", "x")
	jobs, err := s.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: "namespaces/-"})
	require.NoError(t, err)
	require.Len(t, jobs.GetJobs(), 1)
	require.Empty(t, jobs.GetJobs()[0].GetQuarantine())

	// The watermark names jobs whose gate cannot be read.
	leader := state.Term{Key: store.DefaultPrefix + "leader/l", Number: s.writeRaw(t, "leader/l", "l")}
	mark := state.Watermark{
		Instant: time.Now(), Written: time.Now(), UnreadableGates: []state.JobID{{Namespace: "default", Name: "billing"}},
		Late: state.Late{Runs: 3, Worst: state.JobID{Namespace: "default", Name: "billing"}, Since: time.Now().Add(-time.Minute), Reason: state.ReasonNoMatchingNode},
	}
	require.NoError(t, s.store.PutWatermark(ctx, leader, mark))
	job, err := s.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: billing})
	require.NoError(t, err)
	require.Contains(t, job.GetJob().GetQuarantine(), store.DefaultPrefix+"active/default/billing/~")
	require.Nil(t, job.GetJob().GetNextSlot())
	jobs, err = s.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: "namespaces/-"})
	require.NoError(t, err)
	require.NotEmpty(t, jobs.GetJobs()[0].GetQuarantine())
	status, err := s.cluster.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 2, status.GetQuarantinedJobs())
	require.EqualValues(t, 3, status.GetLate().GetRuns())
	require.Equal(t, billing, status.GetLate().GetWorstJob())
	require.Equal(t, state.ReasonNoMatchingNode, status.GetLate().GetReason())
	require.GreaterOrEqual(t, status.GetLate().GetWorst().AsDuration(), time.Minute)

	// A watermark that cannot be read hides nothing else.
	s.writeRaw(t, "timeline/watermark", "\xff")
	status, err = s.cluster.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{})
	require.NoError(t, err)
	require.Equal(t, "n1", status.GetLeader())
	require.Nil(t, status.GetWatermark())
	_, err = s.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: billing})
	require.NoError(t, err)
}

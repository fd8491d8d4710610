package planner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// A further attempt stays where the run's record is: one that does not hold the
// gate, because it was allowed to overlap, does not ask for it.
func TestFurtherAttemptsAreToldWhereTheirRecordIs(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		s := newSession(state.Owner{Node: "n", Revision: 1})
		job := newTimed(&Job{ID: state.JobID{Namespace: "ns", Name: "job"}, Revision: 3})
		w := &state.Live{Job: job.job.ID, Run: "r", Attempt: 1, Token: 9, Exclusive: exclusive}
		s.plan(&entry{entryKey: entryKey{job: job, run: w.Run}, version: job.job, waiting: w})
		require.Len(t, s.unsent, 1)
		require.EqualValues(t, 2, s.unsent[0].GetAttempt())
		require.Equal(t, !exclusive, s.unsent[0].GetAllowOverlap())
	}
}

package planner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// A message that is too large would end the session of every executor that gets it, and
// the next session would be told the same.
func TestPlanOfRunsAfterOthersComesInParts(t *testing.T) {
	s := newSession(state.Owner{Node: "n", Revision: 1})
	job := newTimed(&Job{ID: state.JobID{Namespace: "ns", Name: "job"}, Revision: 3})
	chain := state.Chain{Correlation: strings.Repeat("c", state.MaxNameBytes)}
	for range state.MaxAfter {
		chain.Upstream = append(chain.Upstream, state.Upstream{Job: strings.Repeat("j", state.MaxNameBytes), Run: "20261130T020000Z-trigger-5f3a9c01"})
	}
	const runs = planEntries
	for i := range runs {
		p := &state.Pending{Job: job.job.ID, Run: state.RunID(fmt.Sprintf("20261130T020000Z-after-%08d", i)), Revision: 5, Chain: chain}
		s.plan(&entry{entryKey: entryKey{job: job, run: p.Run}, version: job.job, pending: p})
	}
	told := 0
	for len(s.unsent) > 0 {
		n, specs := s.nextPlan()
		size := proto.Size(&workerv1.Plan{Entries: s.unsent[:n], Specs: specs})
		require.LessOrEqual(t, size, planBytes+planBytes/4, "%d entries", n)
		require.Positive(t, n)
		for _, spec := range specs {
			delete(s.specs, spec.GetRef())
		}
		s.unsent, told = s.unsent[n:], told+n
	}
	require.Equal(t, runs, told)
}

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

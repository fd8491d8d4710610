package planner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// A job whose slots cannot be computed is quarantined, in the catalog and in the
// running term, and what was planned of it is taken back.
func TestPanickingJobIsQuarantined(t *testing.T) {
	c := NewCatalog()
	spec := state.JobSpec{Schedules: []string{"* * * * * *"}, NoOp: true}
	id := state.JobID{Namespace: "ns", Name: "bad"}
	c.Set(Stored{Job: state.Job{ID: id, Generation: 1, Revision: 5, Spec: spec, Effective: epoch, Anchor: epoch}})
	tm := newTestTerm(t)
	tm.sources.Catalog = c
	all, changes := c.follow()
	defer changes.close()
	j := all[0]
	tm.change(change{id: id, job: j, revision: 5}, epoch)
	e := tm.opened(tm.jobs[id], epoch.Add(time.Hour))

	require.True(t, j.guarded(func(time.Time) time.Time { panic("no such day") }, epoch).IsZero())
	jobs, broken := c.Len()
	require.Equal(t, []int{1, 1}, []int{jobs, broken})
	require.ErrorContains(t, c.Get(id).Broken, "no such day")
	taken := changes.take()
	require.Len(t, taken, 1)
	tm.change(taken[0], epoch)
	require.Error(t, tm.jobs[id].job.Broken)
	require.True(t, e.done, "it was due after the job was quarantined")
	require.True(t, tm.timeline.first().IsZero())

	// News of the same version mend nothing; a newer version does.
	tm.change(change{id: id, job: j, revision: 5}, epoch)
	require.Error(t, tm.jobs[id].job.Broken)
	require.True(t, j.guarded(func(time.Time) time.Time { panic("again") }, epoch).IsZero())
	require.ErrorContains(t, c.Get(id).Broken, "no such day", "once")
	c.Set(Stored{Job: state.Job{ID: id, Generation: 2, Revision: 7, Spec: spec, Effective: epoch, Anchor: epoch}})
	_, broken = c.Len()
	require.Zero(t, broken)
}

func TestPanicInCompilingIsTheJobsAlone(t *testing.T) {
	id := state.JobID{Namespace: "ns", Name: "bad"}
	j := compileSafely(id, 5, func() *Job { panic("no such rule") })
	require.ErrorContains(t, j.Broken, "no such rule")
	require.Equal(t, id, j.ID)
	require.EqualValues(t, 5, j.Revision)
}

// A panic of the leader's work ends the term, not the process.
func TestPanicEndsTheTerm(t *testing.T) {
	require.ErrorIs(t, safely(func() error { panic("bug") }), errPanic)
	require.NoError(t, safely(func() error { return nil }))
}

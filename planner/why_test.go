package planner

import (
	"testing"

	"github.com/stretchr/testify/require"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
)

// A verdict on a start deadline says what kept the run.
func TestWhatKeptARunBeyondItsDeadline(t *testing.T) {
	tm := newTestTerm(t)
	picky := testJob(t, "picky", "* * * * * *")
	picky.Selector = selector(map[string]string{"disk": "ssd"})
	e := tm.opened(newTimed(testJob(t, "a", "* * * * * *")), epoch)
	p := tm.opened(newTimed(picky), epoch)
	require.Equal(t, "no executor attended the leader", tm.whyLate(e))
	tm.attending("n")
	tm.turn(epoch)
	require.Equal(t, "no executor matches the nodeSelector and the resources", tm.whyLate(p))
	require.Equal(t, "an executor had it in its plan and did not claim it", tm.whyLate(e))
	e.last = workerv1.Progress_STEP_BUSY
	require.Equal(t, "all executors that may run it were full", tm.whyLate(e))
	e.last = workerv1.Progress_STEP_REFUSED
	require.Equal(t, "the store refused the claims", tm.whyLate(e))
	require.Equal(t, "it waited for other runs of the job", whyQueued(e))
}

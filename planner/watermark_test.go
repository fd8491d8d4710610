package planner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is done behind a slot that is open for long is not kept, and the first open
// slot is found all the same.
func TestDoneEntriesAreNotKept(t *testing.T) {
	job := newTimed(testJob(t, "a", "* * * * * *"))
	tm := newTestTerm(t)
	at := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }
	var open []*entry
	for n := range 4 * maxDone {
		e := &entry{entryKey: entryKey{job: job, due: at(n).UnixMicro()}, version: job.job}
		require.True(t, tm.add(e, at(n)))
		if n%maxDone == 0 {
			open = append(open, e)
		} else {
			tm.close(e)
		}
		if n%100 == 0 {
			_, held := tm.hold()
			require.True(t, held)
		}
	}
	require.LessOrEqual(t, tm.byDue.Len(), 2*len(tm.open)+maxDone+100)
	for _, e := range open {
		hold, held := tm.hold()
		require.True(t, held)
		require.Equal(t, micros(e.due).Add(-time.Second), hold)
		tm.close(e)
	}
	_, held := tm.hold()
	require.False(t, held)
}

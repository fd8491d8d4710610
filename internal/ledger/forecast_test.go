package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// Runs of 25 minutes, due every ten: what each policy makes of the slots.
func TestCourseByPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		spec state.JobSpec
		want []string
	}{
		"skip":  {state.JobSpec{}, []string{"", "skipped", "skipped", "", "skipped", "skipped"}},
		"allow": {state.JobSpec{Overlap: state.OverlapAllow}, []string{"", "starts beside 1", "starts beside 2", "starts beside 2", "starts beside 2", "starts beside 2"}},
		"allow, at most 2 at a time": {
			state.JobSpec{Overlap: state.OverlapAllow, MaxConcurrent: 2}, []string{"", "starts beside 1", "skipped", "starts beside 1", "starts beside 1", "skipped"},
		},
		"queue, at most 1 wait": {state.JobSpec{Overlap: state.OverlapQueue}, []string{
			"", "waits in the queue", "skipped: the queue is full", "waits in the queue", "skipped: the queue is full", "waits in the queue",
		}},
		"cancel": {state.JobSpec{Overlap: state.OverlapCancel}, []string{
			"", "stops the live run", "stops the live run", "stops the live run", "stops the live run", "stops the live run",
		}},
		"replace": {state.JobSpec{Overlap: state.OverlapReplace}, []string{
			"", "waits, and is replaced", "waits in the place of the one before", "waits, and is replaced", "waits in the place of the one before", "waits for the live run",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := c.spec.WithDefaults()
			require.Equal(t, name, Policy(&spec))
			course := NewCourse(&spec, 25*time.Minute)
			var all []*Overlap
			for n := range c.want {
				all = append(all, course.Due(minute(10*n)))
			}
			var got []string
			for n, o := range all {
				require.Equal(t, o.Fate != "", o.Live, n)
				got = append(got, o.Fate)
			}
			require.Equal(t, c.want, got)
		})
	}
}

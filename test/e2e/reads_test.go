package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// TestReadsEverywhere changes a job and reads it at once from every node: each
// tells the new version and its next slot (J02), and that of a job that was made
// anew under its old name (J04).
func TestReadsEverywhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 3})
	service := leaderdv1.NewJobServiceClient
	read := func() (all []*leaderdv1.Job) {
		t.Helper()
		for _, conn := range c.conns {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			resp, err := service(conn).GetJob(ctx, &leaderdv1.GetJobRequest{Name: jobName("daily")})
			cancel()
			require.NoError(t, err)
			all = append(all, resp.GetJob())
		}
		return all
	}
	nextAt := func(j *leaderdv1.Job) string { return j.GetNextSlot().AsTime().Format("15:04") }
	uids := map[string]bool{}
	for i := range 100 {
		hour := i % 24
		made := call(c.api, leaderd.UpdateJob, &leaderdv1.UpdateJobRequest{
			Job: c.httpJob("daily", fmt.Sprintf("0 %d * * *", hour)), AllowMissing: true,
		}).GetJob()
		require.False(t, uids[made.GetUid()], "a job that was made anew has its uid from before")
		uids[made.GetUid()] = true
		for at, j := range read() {
			require.Equal(t, made.GetUid(), j.GetUid(), "round %d, node %d", i, at)
			require.Equal(t, fmt.Sprintf("%02d:00", hour), nextAt(j), "round %d, node %d", i, at)
		}
		call(c.api, leaderd.UpdateJob, &leaderdv1.UpdateJobRequest{Job: c.httpJob("daily", fmt.Sprintf("30 %d * * *", hour))})
		for at, j := range read() {
			require.Equal(t, fmt.Sprintf("%02d:30", hour), nextAt(j), "round %d, node %d", i, at)
		}
		c.remove("daily")
	}
	// What is left of all those versions starts nothing.
	c.apply(c.httpJob("daily", "@every 1s", marked("last")))
	from := settled()
	c.awaitWatermark(from.Add(2 * time.Second))
	c.check(from, time.Now().Truncate(time.Second))
}

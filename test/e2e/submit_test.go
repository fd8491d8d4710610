package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leaderd/leaderd/client"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// TestSubmissions has a program submit through the Go client, each wish three times
// and from several goroutines, while leaders are killed: each key's work was done once
// (the job is at most once), what was handed over is what the work got, and what the
// work left comes back.
func TestSubmissions(t *testing.T) {
	c := newCluster(t, options{nodes: 3})
	seen := filepath.Join(t.TempDir(), "seen")
	c.apply(&leaderdv1.Job{Name: jobName("send"), Spec: &leaderdv1.JobSpec{
		Overlap: leaderdv1.Overlap_OVERLAP_ALLOW, Guarantee: leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE,
		Target: &leaderdv1.JobSpec_Command{Command: &leaderdv1.Command{
			Shell: fmt.Sprintf(`read order; echo "$order" >>%s; printf 'receipt %%s' "$order" >"$LEADERD_RESULT_FILE"`, seen),
		}},
	}})
	var addresses []string
	for _, n := range c.nodes {
		addresses = append(addresses, n.api)
	}
	api, err := client.Dial(strings.Join(addresses, ","), insecure.NewCredentials())
	require.NoError(t, err)
	defer func() { require.NoError(t, api.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	const keys, copies = 120, 3
	runs := make([][copies]string, keys)
	failed := make(chan error, keys*copies)
	var all sync.WaitGroup
	for copied := range copies {
		all.Go(func() {
			for i := range keys {
				sent, err := api.Submit(ctx, client.Submission{
					Job: "send", Key: fmt.Sprint("order-", i), Payload: fmt.Appendf(nil, "%d\n", i), Delay: time.Duration(i%5) * time.Second,
				})
				if err != nil {
					failed <- err
					return
				}
				runs[i][copied] = sent.Run
			}
		})
	}
	for range 2 {
		pass(t, time.Second)
		n := c.leader()
		n.kill()
		n.start()
	}
	all.Wait()
	close(failed)
	require.NoError(t, <-failed)

	succeeded := 0
	for i := range keys {
		require.Equal(t, runs[i][0], runs[i][1])
		require.Equal(t, runs[i][0], runs[i][2])
		run, err := api.Wait(ctx, runs[i][0])
		require.NoError(t, err)
		if run.GetState() != leaderdv1.Run_STATE_SUCCEEDED {
			// It was at work when its node was killed, or lost its registration.
			require.Contains(t, []leaderdv1.Run_State{leaderdv1.Run_STATE_LOST, leaderdv1.Run_STATE_INTERRUPTED}, run.GetState())
			continue
		}
		succeeded++
		receipt, err := api.Result(ctx, run.GetName())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("receipt ", i), string(receipt))
	}
	require.Greater(t, succeeded, keys/2)
	content, err := os.ReadFile(seen)
	require.NoError(t, err)
	times := map[string]int{}
	for line := range bytes.Lines(content) {
		times[strings.TrimSpace(string(line))]++
	}
	require.GreaterOrEqual(t, len(times), succeeded)
	for order, n := range times {
		require.Equal(t, 1, n, "order %s was sent twice", order)
	}
}

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leaderd/leaderd/client"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// TestSubmittedSpecs has programs and people run what is no job's: once for each key,
// whichever node leads, with what they hand over, and by jobs that no list shows unless
// it is asked for them.
func TestSubmittedSpecs(t *testing.T) {
	c := newCluster(t, options{nodes: 3})
	var addresses []string
	for _, n := range c.nodes {
		addresses = append(addresses, n.api)
	}
	api, err := client.Dial(strings.Join(addresses, ","), insecure.NewCredentials())
	require.NoError(t, err)
	defer func() { require.NoError(t, api.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	spec := &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Command{Command: &leaderdv1.Command{
		Shell: `read order; printf 'receipt %s' "$order" >"$LEADERD_RESULT_FILE"`,
	}}}
	const keys = 30
	var wishes []client.Submission
	for i := range 2 * keys {
		wishes = append(wishes, client.Submission{Spec: spec, Key: fmt.Sprint("k", i%keys), Payload: fmt.Appendf(nil, "%d\n", i%keys), Delay: 2 * time.Second})
	}
	sent, err := api.SubmitAll(ctx, wishes[:keys])
	require.NoError(t, err)
	n := c.leader()
	n.kill()
	n.start()
	again, err := api.SubmitAll(ctx, wishes[keys:])
	require.NoError(t, err)
	jobs := map[string]bool{}
	for i := range keys {
		require.NoError(t, sent[i].Err)
		require.NoError(t, again[i].Err)
		require.Equal(t, sent[i].Run, again[i].Run)
		require.True(t, again[i].Duplicate)
		job, _, _ := strings.Cut(sent[i].Run, "/runs/")
		jobs[job] = true
		run, err := api.Wait(ctx, sent[i].Run)
		require.NoError(t, err)
		require.Equal(t, leaderdv1.Run_STATE_SUCCEEDED, run.GetState(), run)
		receipt, err := api.Result(ctx, sent[i].Run)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("receipt ", i), string(receipt))
	}
	require.Len(t, jobs, keys)

	code, stdout, stderr := c.cli("command: {shell: 'cat >\"$LEADERD_RESULT_FILE\"'}\n",
		"run", "submit", "shop/copy", "-f", "-", "--data", "seven", "--wait", "--result")
	require.Zero(t, code, stderr)
	require.Equal(t, "seven", stdout)
	code, _, stderr = c.cli("noop:\n", "run", "submit", "shop/copy", "-f", "-")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "there is a job namespaces/shop/jobs/copy already")
	code, _, stderr = c.cli("noop:\nschedules: ['@daily']\n", "run", "submit", "-f", "-")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "spec.schedules: is not allowed in a submission")
	code, stdout, stderr = c.cli("", "job", "list", "-A")
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout, "adhoc-")
	require.NotContains(t, stdout, "shop/copy")
	code, stdout, stderr = c.cli("", "job", "list", "-A", "--adhoc")
	require.Zero(t, code, stderr)
	require.Equal(t, keys, strings.Count(stdout, "default/adhoc-"))
	require.Regexp(t, `shop/copy +.*active, ad hoc`, stdout)
	code, _, stderr = c.cli("", "job", "delete", "shop/copy")
	require.Zero(t, code, stderr)
}

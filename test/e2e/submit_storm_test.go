package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leaderd/leaderd/client"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// TestSubmissionStorm has four programs submit in bulk as fast as they are answered,
// each wish by two of them in different orders, while three leaders are killed. Of each
// key there is one run, known to both; that of a job that is at most once started once,
// or was lost and says so; that of a job that is at least once succeeded.
func TestSubmissionStorm(t *testing.T) {
	c := newCluster(t, options{nodes: 3})
	const keys, together = 1200, 60
	guarantees := map[string]leaderdv1.Guarantee{
		"once":  leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE,
		"again": leaderdv1.Guarantee_GUARANTEE_AT_LEAST_ONCE,
	}
	for name, g := range guarantees {
		c.apply(c.httpJob(name, "", func(s *leaderdv1.JobSpec) {
			s.Overlap, s.Guarantee = leaderdv1.Overlap_OVERLAP_ALLOW, g
		}))
	}
	var addresses []string
	for _, n := range c.nodes {
		addresses = append(addresses, n.api)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	// Whoever asks for a key, and the run that it was told.
	var mu sync.Mutex
	runs := map[string]map[string]int{}
	var taken atomic.Int64
	submit := func(job string, order *rand.Rand) error {
		api, err := client.Dial(strings.Join(addresses, ","), insecure.NewCredentials())
		if err != nil {
			return err
		}
		defer func() { _ = api.Close() }() // what was asked for is answered
		wishes := make([]client.Submission, keys)
		for i, n := range order.Perm(keys) {
			wishes[i] = client.Submission{Job: job, Key: fmt.Sprint("key-", n)}
		}
		for ; len(wishes) > 0; wishes = wishes[together:] {
			answers, err := api.SubmitAll(ctx, wishes[:together])
			if err != nil {
				return err
			}
			mu.Lock()
			for i, a := range answers {
				if a.Err != nil {
					mu.Unlock()
					return a.Err
				}
				key := job + " " + wishes[i].Key
				if runs[key] == nil {
					runs[key] = map[string]int{}
				}
				runs[key][a.Run]++
			}
			mu.Unlock()
			taken.Add(together)
		}
		return nil
	}
	begun := time.Now()
	var all errgroup.Group
	for i := range 2 {
		for name := range guarantees {
			all.Go(func() error { return submit(name, rand.New(rand.NewPCG(1, uint64(i)))) })
		}
	}
	for kill := range int64(3) {
		await(t, "wishes are taken", func(context.Context) error {
			if n := taken.Load(); n < (kill*2+1)*2*keys/3 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		n := c.leader()
		n.kill()
		n.start()
	}
	require.NoError(t, all.Wait())
	t.Logf("%d wishes were taken in %s, while three leaders were killed", taken.Load(), time.Since(begun).Round(time.Millisecond))

	api, err := client.Dial(strings.Join(addresses, ","), insecure.NewCredentials())
	require.NoError(t, err)
	defer func() { require.NoError(t, api.Close()) }()
	require.Len(t, runs, 2*keys)
	ended := map[string]leaderdv1.Run_State{}
	for key, of := range runs {
		require.Len(t, of, 1, "%s has runs %v", key, of)
		for run := range of {
			got, err := api.Wait(ctx, run)
			require.NoError(t, err)
			ended[run[strings.LastIndexByte(run, '/')+1:]] = got.GetState()
		}
	}
	require.Len(t, ended, 2*keys)
	lost := 0
	for name, g := range guarantees {
		starts := map[string]int{}
		for _, s := range c.startsOf(name) {
			starts[s.Run]++
			require.Contains(t, ended, s.Run, "a run of %s that nobody was told of", name)
		}
		for key, of := range runs {
			if !strings.HasPrefix(key, name+" ") {
				continue
			}
			for run := range of {
				run = run[strings.LastIndexByte(run, '/')+1:]
				n, state := starts[run], ended[run]
				switch {
				case state == leaderdv1.Run_STATE_SUCCEEDED:
					require.Positive(t, n, "%s succeeded and never started", run)
				case g == leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE:
					lost++
					require.Contains(t, []leaderdv1.Run_State{leaderdv1.Run_STATE_LOST, leaderdv1.Run_STATE_INTERRUPTED}, state)
				default:
					require.Fail(t, "a run that starts again was given up", "%s is %s", run, state)
				}
				if g == leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE {
					require.LessOrEqual(t, n, 1, "%s started twice", run)
				}
			}
		}
	}
	t.Logf("%d of %d runs that are at most once were lost with their node, and say so", lost, keys)
}

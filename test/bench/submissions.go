package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leaderd/leaderd/client"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	// submitters wait for the answer to one wish each.
	submitters = 256
	// bulkSubmitters wait for the answer to bulkWishes in one call each.
	bulkSubmitters, bulkWishes = 4, 1000
	submittedBytes             = 256
	// submissionPuts are the keys that a wish writes: itself, its payload and its key.
	submissionPuts = 3
)

// submissions measures how many wishes for runs a second a node with embedded etcd
// takes from the Go client, each with a payload and an idempotency key. The runs are due
// much later, so that taking them is all that the node does.
func submissions(ctx context.Context, s *settings) (rows []row, err error) {
	raw, err := rawRate(ctx, s, true)
	if err != nil {
		return nil, err
	}
	wish := client.Submission{Job: "bench/job-000000", Payload: make([]byte, submittedBytes), Delay: 24 * time.Hour}
	ways := []struct {
		what         string
		at, together int
		submit       func(context.Context, *client.Client) error
	}{
		{"submissions/s, one a call", submitters, 1, func(ctx context.Context, api *client.Client) error {
			_, err := api.Submit(ctx, wish)
			return err
		}},
		{fmt.Sprintf("submissions/s, %d a call", bulkWishes), bulkSubmitters, bulkWishes, func(ctx context.Context, api *client.Client) error {
			all := make([]client.Submission, bulkWishes)
			for i := range all {
				all[i] = wish
			}
			answers, err := api.SubmitAll(ctx, all)
			for i := range answers {
				if err == nil {
					err = answers[i].Err
				}
			}
			return err
		}},
	}
	for _, way := range ways {
		err := withNode(ctx, s, true, func(r *running, _ *etcdChild) error {
			spec := func(int) *leaderdv1.JobSpec {
				return &leaderdv1.JobSpec{
					Overlap: leaderdv1.Overlap_OVERLAP_ALLOW, Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
				}
			}
			if err := r.put(ctx, 1, spec); err != nil {
				return err
			}
			perSecond, err := submitFor(ctx, client.New(r.conn), s.duration/2, way.at, way.together, way.submit)
			rows = append(rows, row{
				way.what, "–", fmt.Sprintf("%.0f, by %d callers", perSecond, way.at),
				fmt.Sprintf("raw puts %.0f, %d of them a submission: ratio %.2f", raw, submissionPuts, submissionPuts*perSecond/raw),
			})
			return err
		})
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func submitFor(
	ctx context.Context, api *client.Client, d time.Duration, callers, together int, submit func(context.Context, *client.Client) error,
) (perSecond float64, err error) {
	var taken atomic.Int64
	begun := time.Now()
	group, gctx := errgroup.WithContext(ctx)
	for range callers {
		group.Go(func() error {
			for time.Since(begun) < d {
				if err := submit(gctx, api); err != nil {
					return err
				}
				taken.Add(int64(together))
			}
			return nil
		})
	}
	err = group.Wait()
	return float64(taken.Load()) / time.Since(begun).Seconds(), err
}

package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func runRetry(d Deps, o *dialer) *cobra.Command {
	var (
		ns     namespace
		failed bool
		key    string
		beside bool
		reason string
		wait   bool
		f      format
	)
	c := &cobra.Command{
		Use:   "retry JOB RUN",
		Short: "Run again what has not succeeded, or only the shards of it that have not",
		Long: `Run again what has ended and has not succeeded. The new run is given what the old one
was given, and names it. Without --failed it is a run of the job as it is now, from the
beginning.

With --failed only those shards are made again that have not succeeded, each from its last
checkpoint; those that have succeeded count in the new run as they did in the old one. A run
of one piece is made again from its last checkpoint.

Each command makes a run: with --key, only the first that has the same one.`,
		Example: `  leaderd run retry reindex 20261130T020000Z --failed --wait
  leaderd run retry report 20261130T060000Z --reason "disk swapped"`,
		Args: wantArgs("JOB", "RUN"),

		ValidArgsFunction: o.completeRun(&ns),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := ns.run(args[0], args[1])
			if err != nil {
				return err
			}
			if key == "" {
				key = "cli:" + rand.Text() // it may be sent to several nodes
			}
			resp, err := a.runs.RetryRun(ctx, &leaderdv1.RetryRunRequest{
				Name: name, FailedOnly: failed, IdempotencyKey: key, AllowOverlap: beside, Reason: reason,
			})
			switch {
			case err != nil:
				return err
			case wait:
				return waitRun(ctx, d, o, a, resp.GetRun(), f, false)
			case f != formatTable:
				return printOne(d.Stdout, f, resp)
			}
			what := "retries"
			if resp.GetDuplicate() {
				what = "was made before, and retries"
			}
			_, err = fmt.Fprintf(d.Stdout, "%s %s %s %s\n", shortJob(resp.GetRun()), runID(resp.GetRun()), what, args[1])
			return err
		}),
	}
	ns.bind(c, o)
	f.bind(c)
	c.Flags().BoolVar(&failed, "failed", false, "only the shards that have not succeeded")
	c.Flags().StringVar(&key, "key", "", "idempotency key: of retries of the run with the same one makes a run")
	c.Flags().BoolVar(&beside, "allow-overlap", false, "start even while another run of the job is live")
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	c.Flags().BoolVar(&wait, "wait", false, "wait for the verdict")
	return c
}

// carriedRow tells from which runs shards were carried over.
func carriedRow(r *leaderdv1.Run) string {
	var parts []string
	for _, of := range r.GetCarried() {
		parts = append(parts, fmt.Sprintf("%d from %s", len(of.GetShards()), runID(of.GetRun())))
	}
	return strings.Join(parts, ", ")
}

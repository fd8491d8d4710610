package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func queueCommand(d Deps) *cobra.Command {
	var (
		ns    namespace
		all   bool
		limit int
		f     format
	)
	o := &dialer{}
	c := &cobra.Command{
		Use:   "queue [JOB]",
		Short: "List the runs that have not started, and what each waits for",
		Long: `List the runs that are due, or will be by themselves, and have not started; and what
each waits for: other runs, room at a limit, a token of a rate, room or a resource on an
executor, an executor that matches, or a time. Those come first that have waited for
longest. The leader knows: without one there is no answer.`,
		Args: cobra.MaximumNArgs(1),

		ValidArgsFunction: o.completeJob(&ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			parent := "namespaces/" + ns.name
			switch {
			case limit < 1 || limit > pageSize:
				return usagef("--limit: %d is outside 1–%d", limit, pageSize)
			case len(args) > 0 && all:
				return usagef("a job's runs are in its namespace: --all-namespaces lists those of all jobs")
			case all:
				parent = "namespaces/-"
			case len(args) > 0:
				job, err := ns.job(args[0])
				if err != nil {
					return err
				}
				parent = job
			}
			resp, err := a.queue.ListQueue(ctx, &leaderdv1.ListQueueRequest{Parent: parent, PageSize: int32(limit)})
			if err != nil {
				return err
			}
			return printQueue(d, f, resp, time.Now())
		}),
	}
	o.bind(c.Flags(), d)
	ns.bind(c, o)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "runs of all namespaces")
	c.Flags().IntVar(&limit, "limit", 100, "how many to list")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	f.bind(c)
	return c
}

func printQueue(d Deps, f format, resp *leaderdv1.ListQueueResponse, now time.Time) error {
	if f != formatTable {
		return printOne(d.Stdout, f, resp)
	}
	p := &listPrinter[*leaderdv1.QueuedRun]{
		w: d.Stdout, f: f,
		table: newTable(d.Stdout, "JOB", "RUN", "SHARD", "PRIORITY", "WEIGHT", "SINCE", "FOR", "WAITS FOR", "DETAIL"),
		row: func(r *leaderdv1.QueuedRun) []string {
			shard, waited := "", ""
			if r.GetShard() > 0 {
				shard = strconv.Itoa(int(r.GetShard()))
			}
			if since := r.GetSince().AsTime(); since.Before(now) {
				waited = span(now.Sub(since).Truncate(time.Second))
			}
			return []string{
				shortJob(r.GetRun()), runID(r.GetRun()), shard, enumWord(r.GetPriority().String(), "PRIORITY_"),
				strconv.Itoa(int(r.GetWeight())), instant(r.GetSince()), waited,
				enumWord(r.GetWaitsFor().String(), "WAITS_FOR_"), queueDetail(r),
			}
		},
	}
	for _, r := range resp.GetRuns() {
		if err := p.print(r); err != nil {
			return err
		}
	}
	if err := p.end(); err != nil {
		return err
	}
	if more := resp.GetTotal() - int64(len(resp.GetRuns())); more > 0 {
		_, err := fmt.Fprintf(d.Stdout, "and %d more\n", more)
		return err
	}
	return nil
}

func enumWord(text, prefix string) string { return strings.ToLower(strings.TrimPrefix(text, prefix)) }

// queueDetail is what a run waits for, in a line.
func queueDetail(r *leaderdv1.QueuedRun) string {
	const most = 3
	parts := []string{r.GetDetail()}
	if r.GetUntil() != nil {
		parts = append(parts, "until "+instant(r.GetUntil()))
	}
	for i, by := range r.GetHeldBy() {
		switch {
		case i == 0:
			parts = append(parts, "held by "+heldName(r, by))
		case i < most:
			parts = append(parts, heldName(r, by))
		case i == most:
			parts = append(parts, "…")
		}
	}
	return strings.Join(parts, ", ")
}

// heldName names a run to another one's job.
func heldName(r *leaderdv1.QueuedRun, by string) string {
	if shortJob(by) == shortJob(r.GetRun()) {
		return runID(by)
	}
	return shortJob(by) + " " + runID(by)
}

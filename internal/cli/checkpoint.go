package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// checkpointSelection is which checkpoint is asked for.
type checkpointSelection struct {
	ns      namespace
	shard   shardNumber
	number  int64
	history bool
	f       format
}

func (q *checkpointSelection) bind(c *cobra.Command, o *dialer) {
	q.ns.bind(c, o)
	c.Flags().Var(&q.shard, "shard", "of this shard, from 0; list: of the first step that lists them")
	c.Flags().Int64Var(&q.number, "number", 0, "this one of those that are kept; 0: the last")
	c.Flags().BoolVar(&q.history, "history", false, "list those that are kept, the newest first")
	c.MarkFlagsMutuallyExclusive("number", "history")
	q.f.bind(c)
}

func runCheckpoint(d Deps, o *dialer) *cobra.Command {
	var q checkpointSelection
	c := &cobra.Command{
		Use:   "checkpoint JOB RUN",
		Short: "Write what a run has saved to the output",
		Long: `Write the last checkpoint of a run to the output, byte for byte. Those of a run that
has succeeded are gone; those that outlive runs are told by job checkpoint.`,
		Example: `  leaderd run checkpoint import 20261130T020000Z
  leaderd run checkpoint import 20261130T020000Z --history`,
		Args: wantArgs("JOB", "RUN"),

		ValidArgsFunction: o.completeRun(&q.ns),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			job, err := q.ns.job(args[0])
			if err != nil {
				return err
			}
			if args[1] == "" || strings.Contains(args[1], "/") {
				return usagef("%q is not a run's id, such as 20261130T020000Z", args[1])
			}
			return q.print(ctx, d, a, job+"/runs/"+args[1])
		}),
	}
	q.bind(c, o)
	return c
}

func jobCheckpoint(d Deps, o *dialer) *cobra.Command {
	var (
		q      checkpointSelection
		remove bool
		set    string
	)
	c := &cobra.Command{
		Use:   "checkpoint JOB",
		Short: "Write what a job's runs have saved for the next one to the output",
		Long: `Write the last checkpoint that outlives a job's runs (checkpoint.scope: job) to the
output, byte for byte; or remove all of them, so that the next run begins anew; or make
what a file has the last one. What a run that is live saves after that is refused as a
conflict.`,
		Example: `  leaderd job checkpoint import
  leaderd job checkpoint import --number 3 >third
  leaderd job checkpoint import --set third
  leaderd job checkpoint import --delete`,
		Args: wantArgs("JOB"),

		ValidArgsFunction: o.completeJob(&q.ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			job, err := q.ns.job(args[0])
			if err != nil {
				return err
			}
			if set != "" {
				return q.set(ctx, d, a, job, set)
			}
			if !remove {
				return q.print(ctx, d, a, job)
			}
			if _, err := a.saved.DeleteCheckpoints(ctx, &leaderdv1.DeleteCheckpointsRequest{Name: job}); err != nil {
				return err
			}
			_, err = fmt.Fprintf(d.Stdout, "checkpoints of %s are deleted\n", shortJob(job))
			return err
		}),
	}
	q.bind(c, o)
	c.Flags().BoolVar(&remove, "delete", false, "remove them")
	c.Flags().StringVar(&set, "set", "", "make the content of this file the last one; - is the input")
	c.MarkFlagsMutuallyExclusive("delete", "history", "set")
	c.MarkFlagsMutuallyExclusive("delete", "number", "set")
	return c
}

// set makes the content of a file the last checkpoint of a job's shard.
func (q *checkpointSelection) set(ctx context.Context, d Deps, a *api, job, path string) error {
	content, err := readFlagged(d, "set", path, state.MaxCheckpoint)
	if err != nil {
		return err
	}
	resp, err := a.saved.SetCheckpoint(ctx, &leaderdv1.SetCheckpointRequest{Name: job, Shard: int32(q.shard), Data: content, Replace: true})
	if err != nil {
		return err
	}
	what := "is set"
	if resp.GetResult() == leaderdv1.SetCheckpointResponse_RESULT_UNCHANGED {
		what = "is the same already"
	}
	_, err = fmt.Fprintf(d.Stdout, "checkpoint %d of %s, shard %s, %s\n", resp.GetCheckpoint().GetNumber(), shortJob(job), q.shard.String(), what)
	return err
}

func (q *checkpointSelection) print(ctx context.Context, d Deps, a *api, name string) error {
	resp, err := a.saved.GetCheckpoint(ctx, &leaderdv1.GetCheckpointRequest{Name: name, Shard: int32(q.shard), Number: q.number})
	if err != nil {
		return err
	}
	if !q.history {
		if q.f != formatTable {
			return printOne(d.Stdout, q.f, resp.GetCheckpoint())
		}
		_, err = d.Stdout.Write(resp.GetCheckpoint().GetData())
		return err
	}
	p := &listPrinter[*leaderdv1.Checkpoint]{
		w: d.Stdout, f: q.f,
		table: newTable(d.Stdout, "NUMBER", "SAVED", "BYTES", "RUN", "TOKEN"),
		row: func(c *leaderdv1.Checkpoint) []string {
			return []string{
				strconv.FormatInt(c.GetNumber(), 10), instant(c.GetSaveTime()), strconv.Itoa(int(c.GetSize())), c.GetRun(),
				strconv.FormatInt(c.GetToken(), 10),
			}
		},
	}
	for _, c := range resp.GetKept() {
		if err := p.print(c); err != nil {
			return err
		}
	}
	return p.end()
}

// progressCells are how far a try has come, when it may end, and what it says.
func progressCells(p *leaderdv1.Progress) []string {
	if p == nil {
		return []string{"", "", ""}
	}
	return []string{progressText(p), instant(p.GetEstimatedEndTime()), printableOutput(p.GetMessage())}
}

// progressText is "37/100 (37%)", or "37" where the total is not known.
func progressText(p *leaderdv1.Progress) string {
	done, total := p.GetDone(), p.GetTotal()
	if total <= 0 {
		if done == 0 {
			return ""
		}
		return strconv.FormatInt(done, 10)
	}
	return fmt.Sprintf("%d/%d (%.0f%%)", done, total, 100*float64(done)/float64(total))
}

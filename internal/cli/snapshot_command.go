package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func snapshotCommand(d Deps) *cobra.Command {
	o := &dialer{}
	c := group("snapshot", "Save jobs, calendars and checkpoints to a file, and put them back", snapshotSave(d, o), snapshotRestore(d, o))
	o.bind(c.PersistentFlags(), d)
	return c
}

func snapshotSave(d Deps, o *dialer) *cobra.Command {
	var checkpoints bool
	c := &cobra.Command{
		Use:   "save FILE",
		Short: "Save all jobs, calendars and checkpoints of jobs to a file",
		Long: `Save all jobs and calendars of all namespaces, with their pauses, to a file, and the
last checkpoint of each shard of the jobs whose checkpoints outlive runs
(checkpoint.scope: job). It has a version, the time and a checksum, and is written
whole or not at all. History, what single runs have saved, and output are not in it.`,
		Example: "  leaderd snapshot save jobs.snapshot",
		Args:    cobra.ExactArgs(1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			s, err := takeSnapshot(ctx, a, time.Now())
			if err != nil {
				return err
			}
			err = writeWhole(args[0], func(w io.Writer) error {
				return s.write(w, func(do func(*leaderdv1.JobCheckpoint) error) error {
					if !checkpoints {
						return nil
					}
					return s.eachCheckpoint(ctx, a, do)
				})
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(d.Stdout, "%s: %d jobs, %d calendars, %d checkpoints, as of %s\n",
				args[0], len(s.jobs), len(s.calendars), s.checkpoints, s.taken.Format(time.RFC3339))
			return err
		}),
	}
	c.Flags().BoolVar(&checkpoints, "checkpoints", true, "save the checkpoints of jobs too")
	return c
}

func snapshotRestore(d Deps, o *dialer) *cobra.Command {
	var (
		dryRun     bool
		onConflict string
		maxAge     time.Duration
	)
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put back the jobs, calendars and checkpoints of a file",
		Long: `Put back the jobs, calendars and checkpoints of a file that "snapshot save" wrote, into
an empty cluster or into one that runs: they are merged by name, and what the file does
not have is left alone. What exists and differs is a conflict: with --on-conflict fail
nothing at all is changed, with skip it stays, with replace it becomes as it was,
also where it was changed after the snapshot. Restored jobs are due from now on:
what they missed is not caught up; "job backfill" runs that. A job that is made anew
stays paused until its checkpoints are there.`,
		Example: `  leaderd snapshot restore jobs.snapshot --dry-run
  leaderd snapshot restore jobs.snapshot --on-conflict skip`,
		Args: cobra.ExactArgs(1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			if onConflict != "fail" && onConflict != "skip" && onConflict != "replace" {
				return usagef("--on-conflict: %q is not one of fail, skip, replace", onConflict)
			}
			f, err := os.Open(args[0])
			if err != nil {
				return fileProblem(err)
			}
			defer f.Close() //nolint:errcheck // it was only read
			s, err := decodeSnapshot(f, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if age := time.Since(s.taken); maxAge > 0 && age > maxAge {
				return fmt.Errorf("%s: it was taken %s ago, more than --max-age %s", args[0], age.Round(time.Second), maxAge)
			}
			r := &restorer{api: a, file: f, s: s}
			if err := r.compare(ctx); err != nil {
				return err
			}
			return restore(ctx, d, r, onConflict, dryRun)
		}),
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, change nothing")
	c.Flags().StringVar(&onConflict, "on-conflict", "fail", "what becomes of what exists and differs: fail, skip or replace")
	c.Flags().DurationVar(&maxAge, "max-age", 0, "refuse a snapshot that is older; 0: any")
	return c
}

// restore carries a restore out, and says each change.
func restore(ctx context.Context, d Deps, r *restorer, onConflict string, dryRun bool) error {
	conflicts := 0
	all := r.all()
	for _, x := range all {
		if x.how != "conflict" {
			continue
		}
		conflicts++
		switch onConflict {
		case "replace":
			x.how = "replace"
		case "skip":
			x.how = "skip"
		}
	}
	failed := onConflict == "fail" && conflicts > 0
	idle := dryRun || failed
	done := 0
	say := func(x *restoration) error {
		line := x.what + ": " + x.how
		if x.newer && x.how != "same" {
			line += ", it was changed after the snapshot"
		}
		if x.why != "" {
			line += ", " + x.why
		}
		if x.writes() && !idle {
			if err := x.do(ctx); err != nil {
				return fmt.Errorf("%s: %w (%d of %d were dealt with)", x.what, err, done, len(all))
			}
		} else if x.writes() {
			line += " (not done)"
		}
		done++
		_, err := fmt.Fprintln(d.Stdout, line)
		return err
	}
	first := all
	if !idle {
		first = all[:len(all)-len(r.checkpoints)]
	}
	for _, x := range first {
		if err := say(x); err != nil {
			return err
		}
	}
	if !idle {
		return r.finish(ctx, say)
	}
	if failed {
		return fmt.Errorf("%d of %d differ from the snapshot of %s: nothing was changed; say --on-conflict skip or replace",
			conflicts, len(all), r.s.taken.Format(time.RFC3339))
	}
	return nil
}

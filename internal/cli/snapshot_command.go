package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
)

func snapshotCommand(d Deps) *cobra.Command {
	o := &dialer{}
	c := group("snapshot", "Save all jobs and calendars to a file, and put them back", snapshotSave(d, o), snapshotRestore(d, o))
	o.bind(c.PersistentFlags(), d)
	return c
}

func snapshotSave(d Deps, o *dialer) *cobra.Command {
	return &cobra.Command{
		Use:   "save FILE",
		Short: "Save all jobs and calendars to a file",
		Long: `Save all jobs and calendars of all namespaces, with their pauses, to a file. It has
a version, the time and a checksum, and is written whole or not at all. History,
checkpoints and output are not in it.`,
		Example: "  leaderd snapshot save jobs.snapshot",
		Args:    cobra.ExactArgs(1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			s, err := takeSnapshot(ctx, a, time.Now())
			if err != nil {
				return err
			}
			content, err := s.encode()
			if err == nil {
				err = writeWhole(args[0], content)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(d.Stdout, "%s: %d jobs, %d calendars, as of %s\n", args[0], len(s.jobs), len(s.calendars), s.taken.Format(time.RFC3339))
			return err
		}),
	}
}

func snapshotRestore(d Deps, o *dialer) *cobra.Command {
	var (
		dryRun     bool
		onConflict string
		maxAge     time.Duration
	)
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put back the jobs and calendars of a file",
		Long: `Put back the jobs and calendars of a file that "snapshot save" wrote, into an empty
cluster or into one that runs: they are merged by name, and what the file does not
have is left alone. What exists and differs is a conflict: with --on-conflict fail
nothing at all is changed, with skip it stays, with replace it becomes as it was,
also where it was changed after the snapshot. Restored jobs are due from now on:
what they missed is not caught up; "job backfill" runs that.`,
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
			s, err := decodeSnapshot(f)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if age := time.Since(s.taken); maxAge > 0 && age > maxAge {
				return fmt.Errorf("%s: it was taken %s ago, more than --max-age %s", args[0], age.Round(time.Second), maxAge)
			}
			changes, err := diffSnapshot(ctx, a, s)
			if err != nil {
				return err
			}
			return restore(ctx, d, changes, s.taken, onConflict, dryRun)
		}),
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, change nothing")
	c.Flags().StringVar(&onConflict, "on-conflict", "fail", "what becomes of what exists and differs: fail, skip or replace")
	c.Flags().DurationVar(&maxAge, "max-age", 0, "refuse a snapshot that is older; 0: any")
	return c
}

// restore carries changes out, and says each.
func restore(ctx context.Context, d Deps, changes []restoration, taken time.Time, onConflict string, dryRun bool) error {
	conflicts := 0
	for i := range changes {
		x := &changes[i]
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
	for i := range changes {
		x := &changes[i]
		line := x.what + ": " + x.how
		if x.newer && x.how != "same" {
			line += ", it was changed after the snapshot"
		}
		if writes := x.how == "create" || x.how == "replace"; writes && !dryRun && !failed {
			if err := x.do(ctx); err != nil {
				return fmt.Errorf("%s: %w (%d of %d were dealt with)", x.what, err, i, len(changes))
			}
		} else if writes {
			line += " (not done)"
		}
		if _, err := fmt.Fprintln(d.Stdout, line); err != nil {
			return err
		}
	}
	if failed {
		return fmt.Errorf("%d of %d differ from the snapshot of %s: nothing was changed; say --on-conflict skip or replace",
			conflicts, len(changes), taken.Format(time.RFC3339))
	}
	return nil
}

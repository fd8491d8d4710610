package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func jobApply(d Deps, o *dialer) *cobra.Command {
	var (
		ns     namespace
		files  []string
		dryRun bool
		reason string
	)
	c := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Create or update jobs from files",
		Long: `Create or update jobs from YAML or JSON files. A directory stands for its
*.yaml, *.yml and *.json files, - for standard input. A file may have several
documents, and a document may be a job or a list of jobs. Nothing is changed
unless every job of every file is allowed.

A job that is so already is left alone. What "get -o yaml" prints can be edited
and applied: fields that only the server sets are not read, and the etag makes
sure that nobody else's change is overwritten.`,
		Example: `  leaderd job apply -f jobs/
  leaderd job apply -f backup.yaml --dry-run

  name: backup
  spec:
    schedules: ["0 2 * * *"]   # quotes: * and @ mean something else to YAML
    timeZone: Europe/Berlin
    timeout: 30m
    command:
      argv: [/usr/local/bin/backup, --full]`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(files) == 0 {
				return usagef("-f is required")
			}
			jobs, err := readJobs(files, d.Stdin, &ns)
			if err != nil {
				return o.complainAll(cmd, d, jobs, err, reason)
			}
			return o.with(func(ctx context.Context, a *api, _ []string) error {
				return applyJobs(ctx, d, a, jobs, dryRun, reason)
			})(cmd, args)
		},
	}
	ns.bind(c, o)
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, "file, directory or - for standard input; may be repeated")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, change nothing")
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	// It fails only for a flag that is not there.
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json")
	return c
}

// complainAll prints what is wrong with files, and what the server has against the
// rest of what is in them: all is told at once. Whether the server answers makes
// no difference otherwise.
func (o *dialer) complainAll(cmd *cobra.Command, d Deps, jobs []fileJob, wrong error, reason string) error {
	for _, line := range explain(wrong) {
		fmt.Fprintln(d.Stderr, "error: "+line)
	}
	err := o.with(func(ctx context.Context, a *api, _ []string) error {
		for _, j := range jobs {
			_, err := update(ctx, a, j.job, true, reason)
			switch {
			case err == nil:
			case isBadRequest(err):
				for _, line := range explain(err) {
					field, _, _ := strings.Cut(line, ": ")
					if !j.touches(field) {
						fmt.Fprintf(d.Stderr, "error: %s: %s\n", j.where, line)
					}
				}
			case !isConflict(err):
				return err // the same would happen to all
			}
		}
		return nil
	})(cmd, nil)
	if interrupted(err) {
		return err
	}
	return silentError{exitUsage}
}

// touches tells whether what the server says of a field may come from what could
// not be read: of that field, of one in it or of one that it is in. An entry of a map
// that could not be read leaves the others as they are, and so what is said of the map.
func (j *fileJob) touches(field string) bool {
	for _, bad := range j.bad {
		rest, _ := strings.CutPrefix(bad, field)
		if inside(bad, field) && !strings.HasPrefix(rest, "[") || inside(field, bad) {
			return true
		}
	}
	return false
}

// inside tells whether a path is another one or leads into it.
func inside(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// applyJobs lets the server check all jobs, and then writes them if all are
// allowed and it is not a dry run.
func applyJobs(ctx context.Context, d Deps, a *api, jobs []fileJob, dryRun bool, reason string) error {
	code := exitOK
	jobs = inOrder(jobs, func(j fileJob) *leaderdv1.Job { return j.job })
	checked := make([]*leaderdv1.UpdateJobResponse, len(jobs))
	for i, j := range jobs {
		resp, err := update(ctx, a, j.job, true, reason)
		if interrupted(err) {
			return err
		}
		if err != nil {
			if !isBadRequest(err) && !isConflict(err) {
				return fmt.Errorf("%s: %w", j.where, err) // the same would happen to all
			}
			code = max(code, complain(d, j, err))
		}
		checked[i] = resp
	}
	if code == exitOK {
		var err error
		if code, err = missingUpstream(ctx, d, a, jobs); err != nil {
			return err
		}
	}
	if code != exitOK {
		return silentError{code}
	}
	for i, j := range jobs {
		resp, suffix := checked[i], " (dry run)"
		if !dryRun {
			var err error
			suffix = ""
			if resp, err = update(ctx, a, j.job, false, reason); err != nil {
				return fmt.Errorf("%s: %w (%d of %d jobs were applied)", j.where, err, i, len(jobs))
			}
		}
		if _, err := fmt.Fprintf(d.Stdout, "%s %s%s%s\n", shortJob(j.job.GetName()), result(resp.GetResult()), neverDue(resp.GetJob()), suffix); err != nil {
			return err
		}
	}
	return nil
}

func update(ctx context.Context, a *api, job *leaderdv1.Job, check bool, reason string) (*leaderdv1.UpdateJobResponse, error) {
	return a.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{
		Job: job, AllowMissing: true, ValidateOnly: check, Reason: reason,
	})
}

// complain prints what is wrong with a job and answers the exit status for it.
func complain(d Deps, j fileJob, err error) int {
	for _, line := range explain(err) {
		fmt.Fprintf(d.Stderr, "error: %s: %s\n", j.where, line)
	}
	return exitStatus(err)
}

// neverDue says so of a job that has schedules, and no slot to come.
func neverDue(j *leaderdv1.Job) string {
	if j == nil || len(j.GetSpec().GetSchedules()) == 0 || j.GetNextSlot() != nil || j.GetQuarantine() != "" ||
		j.GetPaused() && j.GetPausedUntil() == nil {
		return ""
	}
	return "; no slot is due any more"
}

func result(r leaderdv1.UpdateJobResponse_Result) string {
	switch r {
	case leaderdv1.UpdateJobResponse_RESULT_CREATED:
		return "created"
	case leaderdv1.UpdateJobResponse_RESULT_UPDATED:
		return "updated"
	case leaderdv1.UpdateJobResponse_RESULT_UNCHANGED:
		return "unchanged"
	case leaderdv1.UpdateJobResponse_RESULT_UNSPECIFIED:
	}
	return "applied"
}

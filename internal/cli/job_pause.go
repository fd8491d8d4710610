package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// chosenJobs are the jobs that a command is about: those named, or all of a
// namespace (or of every one) that have some labels.
type chosenJobs struct {
	ns       namespace
	all      bool
	selector string
}

func (q *chosenJobs) bind(c *cobra.Command, o *dialer) {
	q.ns.bind(c, o)
	c.Flags().StringVarP(&q.selector, "selector", "l", "", "in place of names: all jobs with these labels, as in team=billing,tier=batch")
	c.Flags().BoolVarP(&q.all, "all-namespaces", "A", false, "with --selector: jobs of all namespaces")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// args is for commands that take names or a selector.
func (q *chosenJobs) args(cmd *cobra.Command, args []string) error {
	switch {
	case !cmd.Flags().Changed("selector") && q.all:
		return fmt.Errorf("%s: --all-namespaces needs --selector", cmd.CommandPath())
	case !cmd.Flags().Changed("selector"):
		return someArgs("JOB")(cmd, args)
	case len(args) > 0:
		return fmt.Errorf("%s takes jobs by name or by --selector, but got %s besides", cmd.CommandPath(), quoted(args))
	}
	return nil
}

// names are the resource names of the chosen jobs, in order.
func (q *chosenJobs) names(ctx context.Context, a *api, args []string) ([]string, error) {
	if len(args) > 0 {
		return q.ns.all(args)
	}
	want, err := parseSelector(q.selector)
	if err != nil {
		return nil, err
	}
	parent := "namespaces/" + q.ns.name
	if q.all {
		parent = "namespaces/-"
	}
	var names []string
	err = pages(func(token string) (string, error) {
		resp, err := a.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: parent, PageSize: pageSize, PageToken: token, ShowAdhoc: true})
		if err != nil {
			return "", err
		}
		for _, job := range resp.GetJobs() {
			if hasLabels(job.GetSpec().GetLabels(), want) {
				names = append(names, job.GetName())
			}
		}
		return resp.GetNextPageToken(), nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no job in %s has the labels %s", parent, q.selector)
	}
	return names, err
}

// parseSelector reads labels that a job must have: key=value, separated by commas.
func parseSelector(text string) (map[string]string, error) {
	want := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || strings.HasSuffix(key, "!") || strings.HasPrefix(value, "=") {
			return nil, usagef("--selector: %q is not key=value, the one form that there is; several are separated by commas", clip(part))
		}
		if why := state.CheckLabel(key, value); why != "" {
			return nil, usagef("--selector: %s", why)
		}
		if other, twice := want[key]; twice && other != value {
			return nil, usagef("--selector: %s is to be both %q and %q; no job is", key, clip(other), clip(value))
		}
		want[key] = value
	}
	return want, nil
}

func hasLabels(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func jobPause(d Deps, o *dialer) *cobra.Command {
	var (
		q             chosenJobs
		reason, until string
	)
	c := &cobra.Command{
		Use:   "pause JOB...",
		Short: "Stop jobs from starting runs; live runs go on",
		Long: `Stop jobs from starting runs; live runs go on. Slots in that time are not caught
up; "leaderd job backfill" runs them later, also while the job is paused.

With --until the jobs resume by themselves: slots after that instant are due,
whoever leads then. With --selector it is all jobs with these labels; each is
told of, and what fails for one does not keep the others.`,
		Example: `  leaderd job pause report --reason "disk swap" --until 2h
  leaderd job pause --selector team=billing,tier=batch --until 2026-12-01T06:00:00Z`,
		Args: q.args,

		ValidArgsFunction: o.completeJob(&q.ns, 0),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			end, err := pauseEnd(until, time.Now())
			if err != nil {
				return err
			}
			names, err := q.names(ctx, a, args)
			if err != nil {
				return err
			}
			done := "paused"
			if end != nil {
				done += " until " + instant(end)
			}
			return each(d, names, func(name string) (string, error) {
				_, err := a.jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: name, Reason: reason, Until: end})
				return done, err
			})
		}),
	}
	q.bind(c, o)
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	c.Flags().StringVar(&until, "until", "", "resume by itself after this time (2h) or then (2026-12-01T06:00:00Z)")
	return c
}

// pauseEnd reads --until; nil where it is not given.
func pauseEnd(text string, now time.Time) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // a pause without an end
	}
	at, err := readTime("--until", text, now, time.Local, func(d time.Duration) time.Time { return now.Add(d).Round(time.Second) })
	if err != nil {
		return nil, err
	}
	if d, err := parseSpan(text); err == nil && d <= 0 {
		return nil, usagef("--until: %q is not positive", clip(text))
	}
	return timestamppb.New(at), nil
}

func jobResume(d Deps, o *dialer) *cobra.Command {
	var (
		q      chosenJobs
		reason string
	)
	c := &cobra.Command{
		Use:   "resume JOB...",
		Short: "Undo pause",
		Args:  q.args,

		ValidArgsFunction: o.completeJob(&q.ns, 0),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			names, err := q.names(ctx, a, args)
			if err != nil {
				return err
			}
			return each(d, names, func(name string) (string, error) {
				_, err := a.jobs.ResumeJob(ctx, &leaderdv1.ResumeJobRequest{Name: name, Reason: reason})
				return "resumed", err
			})
		}),
	}
	q.bind(c, o)
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return c
}

// pauseText is who paused a job, why, and until when.
func pauseText(j *leaderdv1.Job) string {
	text := "by " + j.GetPauseActor()
	if j.GetPauseActor() == "" { // of an older version
		text = "by somebody"
	}
	if j.GetPausedUntil() != nil {
		text += ", until " + instant(j.GetPausedUntil())
	}
	if r := j.GetPauseReason(); r != "" {
		text += ": " + r
	}
	return text
}

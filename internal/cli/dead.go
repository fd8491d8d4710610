package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func deadCommand(d Deps) *cobra.Command {
	o := &dialer{}
	c := group("dead", "Look at runs that ended badly and were kept aside, and run them again",
		deadList(d, o), deadGet(d, o), deadRequeue(d, o), deadDrop(d, o))
	c.Long = `Look at runs that ended badly and were kept aside, and run them again.

Jobs with "deadLetter: true" leave a dead letter of each run whose verdict is
failed, timed_out or lost. It stays until it is requeued or dropped, or until the
job has more of them than it keeps.`
	o.bind(c.PersistentFlags(), d)
	return c
}

func deadList(d Deps, o *dialer) *cobra.Command {
	var (
		ns  namespace
		all bool
		f   format
	)
	c := &cobra.Command{
		Use:     "list [JOB]",
		Aliases: []string{"ls"},
		Short:   "List dead letters, by job, and those first that were due first",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: o.completeJob(&ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			parent := "namespaces/" + ns.name + "/jobs/-"
			switch {
			case len(args) > 0 && all:
				return usagef("a job's dead letters are in its namespace: --all-namespaces lists those of all jobs")
			case all:
				parent = "namespaces/-/jobs/-"
			case len(args) > 0:
				job, err := ns.job(args[0])
				if err != nil {
					return err
				}
				parent = job
			}
			p := &listPrinter[*leaderdv1.Run]{
				w: d.Stdout, f: f,
				table: newTable(d.Stdout, "JOB", "RUN", "STATE", "REASON", "DUE", "TRIES", "CODE", "ERROR"),
				row:   deadRow,
			}
			if err := eachDead(ctx, a, parent, p.print); err != nil {
				return err
			}
			return p.end()
		}),
	}
	ns.bind(c, o)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "those of all namespaces")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	f.bind(c)
	return c
}

func deadRow(r *leaderdv1.Run) []string {
	last, code := lastAttempt(r), ""
	if last != nil && last.ExitCode != nil {
		code = strconv.Itoa(int(last.GetExitCode()))
	}
	return []string{
		shortJob(r.GetName()), runID(r.GetName()), stateName(r.GetState()), r.GetReason(), instant(r.GetDueTime()),
		strconv.Itoa(len(r.GetAttempts())), code, last.GetError(),
	}
}

// eachDead calls f with the run of each dead letter of a parent.
func eachDead(ctx context.Context, a *api, parent string, f func(*leaderdv1.Run) error) error {
	return pages(func(token string) (string, error) {
		resp, err := a.dead.ListDeadLetters(ctx, &leaderdv1.ListDeadLettersRequest{Parent: parent, PageSize: pageSize, PageToken: token})
		if err != nil {
			return "", err
		}
		for _, letter := range resp.GetDeadLetters() {
			if err := f(letter.GetRun()); err != nil {
				return "", err
			}
		}
		return resp.GetNextPageToken(), nil
	})
}

func deadGet(d Deps, o *dialer) *cobra.Command {
	var (
		ns namespace
		f  format
	)
	c := &cobra.Command{
		Use:   "get JOB RUN",
		Short: "Show a dead letter",
		Args:  wantArgs("JOB", "RUN"),

		ValidArgsFunction: o.completeJob(&ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := deadName(&ns, args)
			if err != nil {
				return err
			}
			resp, err := a.dead.GetDeadLetter(ctx, &leaderdv1.GetDeadLetterRequest{Name: name})
			if err != nil {
				return err
			}
			if f != formatTable {
				return printOne(d.Stdout, f, resp.GetDeadLetter().GetRun())
			}
			return printRun(d, resp.GetDeadLetter().GetRun())
		}),
	}
	ns.bind(c, o)
	f.bind(c)
	return c
}

func deadName(ns *namespace, args []string) (string, error) {
	job, err := ns.job(args[0])
	if err != nil {
		return "", err
	}
	if args[1] == "" || strings.Contains(args[1], "/") {
		return "", usagef("%q is not a run's id, such as 20261130T020000Z", args[1])
	}
	return job + "/runs/" + args[1], nil
}

// chosenDead are the dead letters that a command is about: one, or all of some jobs.
type chosenDead struct {
	ns       namespace
	everyRun bool
	selector string
}

func (q *chosenDead) bind(c *cobra.Command, o *dialer) {
	q.ns.bind(c, o)
	c.Flags().BoolVar(&q.everyRun, "all", false, "all dead letters of JOB")
	c.Flags().StringVarP(&q.selector, "selector", "l", "", "all dead letters of all jobs with these labels, as in team=billing,tier=batch")
	c.MarkFlagsMutuallyExclusive("all", "selector")
}

// names are the resource names of their runs, those first that were due first.
func (q *chosenDead) names(ctx context.Context, a *api, args []string) ([]string, error) {
	var jobs []string
	switch {
	case q.selector != "" && len(args) > 0:
		return nil, usagef("--selector chooses jobs; leave JOB out")
	case q.selector != "":
		of := chosenJobs{ns: q.ns, selector: q.selector}
		var err error
		if jobs, err = of.names(ctx, a, nil); err != nil {
			return nil, err
		}
	case q.everyRun && len(args) == 1:
		job, err := q.ns.job(args[0])
		if err != nil {
			return nil, err
		}
		jobs = []string{job}
	case q.everyRun || len(args) != 2:
		return nil, usagef("JOB and RUN, or JOB and --all, or --selector are needed")
	default:
		name, err := deadName(&q.ns, args)
		return []string{name}, err
	}
	// All first: the run of one that is requeued may leave another.
	var names []string
	for _, job := range jobs {
		err := eachDead(ctx, a, job, func(r *leaderdv1.Run) error {
			names = append(names, r.GetName())
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

func deadRequeue(d Deps, o *dialer) *cobra.Command {
	var (
		q      chosenDead
		reason string
		beside bool
	)
	c := &cobra.Command{
		Use:   "requeue [JOB [RUN]]",
		Short: "Run dead letters again",
		Long: `Run dead letters again. Each becomes a new run of its job, as by "leaderd job
trigger", which names the old one, and is dropped in the same transaction: one is
requeued once, whoever asks. The job's newest version runs, and its overlap policy
applies; of many runs of a job with "overlap: skip" all but the first are skipped,
so wait, or use --allow-overlap.`,
		Example: `  leaderd dead requeue report 20261130T020000Z
  leaderd dead requeue report --all --reason "disk swapped"
  leaderd dead requeue --selector team=billing`,
		Args: cobra.MaximumNArgs(2),

		ValidArgsFunction: o.completeJob(&q.ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			names, err := q.names(ctx, a, args)
			if err != nil {
				return err
			}
			return eachRun(d, names, func(name string) (string, error) {
				resp, err := a.dead.RequeueDeadLetter(ctx, &leaderdv1.RequeueDeadLetterRequest{Name: name, AllowOverlap: beside, Reason: reason})
				return "requeued as " + runID(resp.GetRun()), err
			})
		}),
	}
	q.bind(c, o)
	c.Flags().BoolVar(&beside, "allow-overlap", false, "start beside live runs")
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return c
}

func deadDrop(d Deps, o *dialer) *cobra.Command {
	var q chosenDead
	c := &cobra.Command{
		Use:   "drop [JOB [RUN]]",
		Short: "Forget dead letters; the records of the runs stay",
		Example: `  leaderd dead drop report 20261130T020000Z
  leaderd dead drop report --all`,
		Args: cobra.MaximumNArgs(2),

		ValidArgsFunction: o.completeJob(&q.ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			names, err := q.names(ctx, a, args)
			if err != nil {
				return err
			}
			return eachRun(d, names, func(name string) (string, error) {
				_, err := a.dead.DropDeadLetter(ctx, &leaderdv1.DropDeadLetterRequest{Name: name})
				return "dropped", err
			})
		}),
	}
	q.bind(c, o)
	return c
}

// eachRun is each for runs.
func eachRun(d Deps, names []string, do func(name string) (string, error)) error {
	return eachNamed(d, names, func(name string) string { return shortJob(name) + " " + runID(name) }, do)
}

package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/leaderd/leaderd/client"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// pageSize is what lists ask for at a time.
const pageSize = 500

func jobCommand(d Deps) *cobra.Command {
	o := &dialer{}
	c := group("job", "Create, look at and steer jobs",
		jobApply(d, o),
		jobList(d, o),
		jobGet(d, o),
		jobPause(d, o),
		jobResume(d, o),
		jobDelete(d, o),
		jobTrigger(d, o),
		jobBackfill(d, o),
		jobLedger(d, o),
		jobExplain(d, o),
		jobSimulate(d, o),
		jobCheckpoint(d, o),
		jobResetCircuit(d, o),
	)
	c.Aliases = []string{"jobs"}
	o.bind(c.PersistentFlags(), d)
	return c
}

func jobList(d Deps, o *dialer) *cobra.Command {
	var (
		ns    namespace
		all   bool
		adhoc bool
		f     format
	)
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List jobs",
		Args:    noArgs,
		RunE: o.with(func(ctx context.Context, a *api, _ []string) error {
			parent := "namespaces/" + ns.name
			if all {
				parent = "namespaces/-"
			}
			p := &listPrinter[*leaderdv1.Job]{
				w: d.Stdout, f: f,
				table: newTable(d.Stdout, "JOB", "SCHEDULE", "ZONE", "TARGET", "STATE", "NEXT"),
				row:   jobRow,
			}
			err := pages(func(token string) (string, error) {
				resp, err := a.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{
					Parent: parent, PageSize: pageSize, PageToken: token, ShowAdhoc: adhoc,
				})
				if err != nil {
					return "", err
				}
				for _, job := range resp.GetJobs() {
					if err := p.print(job); err != nil {
						return "", err
					}
				}
				return resp.GetNextPageToken(), nil
			})
			if err != nil {
				return err
			}
			return p.end()
		}),
	}
	ns.bind(c, o)
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "jobs of all namespaces")
	c.Flags().BoolVar(&adhoc, "adhoc", false, "those that submissions made, too")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	f.bind(c)
	return c
}

func jobRow(j *leaderdv1.Job) []string {
	return []string{
		shortJob(j.GetName()), schedules(j.GetSpec()), j.GetSpec().GetTimeZone(),
		target(j.GetSpec()), listedState(j), instant(j.GetNextSlot()),
	}
}

// schedules is the first of them, and how many there are besides.
func schedules(s *leaderdv1.JobSpec) string {
	switch all := s.GetSchedules(); len(all) {
	case 0:
		return ""
	case 1:
		return all[0]
	default:
		return all[0] + " +" + strconv.Itoa(len(all)-1)
	}
}

func target(s *leaderdv1.JobSpec) string {
	switch s.GetTarget().(type) {
	case *leaderdv1.JobSpec_Command:
		return "command"
	case *leaderdv1.JobSpec_Http:
		return "http"
	case *leaderdv1.JobSpec_Noop:
		return "noop"
	}
	return "?" // of a newer version
}

func jobState(j *leaderdv1.Job) string {
	switch {
	case j.GetQuarantine() != "":
		return "quarantined"
	case j.GetPaused():
		return "paused"
	}
	return "active"
}

// listedState is the state with what a list has no row of its own for.
func listedState(j *leaderdv1.Job) string {
	text := jobState(j)
	if text == "paused" && j.GetPausedUntil() != nil {
		text += " until " + instant(j.GetPausedUntil())
	}
	if j.GetAdhoc() {
		text += ", ad hoc"
	}
	return text
}

func jobGet(d Deps, o *dialer) *cobra.Command {
	var (
		ns namespace
		f  format
	)
	c := &cobra.Command{
		Use:   "get JOB",
		Short: "Show a job",
		Args:  wantArgs("JOB"),

		ValidArgsFunction: o.completeJob(&ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := ns.job(args[0])
			if err != nil {
				return err
			}
			resp, err := a.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: name})
			if err != nil {
				return err
			}
			if f != formatTable {
				return printOne(d.Stdout, f, resp.GetJob())
			}
			var circuit *leaderdv1.Circuit
			if resp.GetJob().GetSpec().GetCircuitBreaker() != nil {
				resp, err := a.circuits.GetCircuit(ctx, &leaderdv1.GetCircuitRequest{Name: name})
				if err != nil && client.Reason(err) != leaderdv1.ErrorReason_ERROR_REASON_NO_CIRCUIT.String() {
					return err
				}
				circuit = resp.GetCircuit()
			}
			return printJob(d, resp.GetJob(), circuit)
		}),
	}
	ns.bind(c, o)
	f.bind(c)
	return c
}

func printJob(d Deps, j *leaderdv1.Job, circuit *leaderdv1.Circuit) error {
	t := newTable(d.Stdout)
	t.row("name:", shortJob(j.GetName()))
	t.row("state:", jobState(j))
	if j.GetPaused() {
		t.row("paused:", pauseText(j))
	}
	if q := j.GetQuarantine(); q != "" {
		t.row("quarantine:", q)
	}
	if circuit != nil {
		t.row("circuit:", circuitText(circuit))
	}
	if j.GetAdhoc() {
		t.row("ad hoc:", "a submission made it for its run; it goes when that and its retention are over")
	}
	t.row("next:", instant(j.GetNextSlot()))
	t.row("generation:", strconv.FormatInt(j.GetGeneration(), 10))
	t.row("uid:", j.GetUid())
	t.row("created:", instant(j.GetCreateTime()))
	t.row("updated:", fmt.Sprintf("%s by %s", instant(j.GetUpdateTime()), j.GetUpdatedBy()))
	if err := t.flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(d.Stdout, "spec:"); err != nil {
		return err
	}
	return printIndented(d.Stdout, j.GetSpec())
}

// change is a command that changes one job and may be told why.
func change(use, short, done string, d Deps, o *dialer,
	do func(ctx context.Context, a *api, name, reason string) error,
) *cobra.Command {
	var (
		ns     namespace
		reason string
	)
	c := &cobra.Command{
		Use:   use + " JOB...",
		Short: short,
		Args:  someArgs("JOB"),

		ValidArgsFunction: o.completeJob(&ns, 0),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			names, err := ns.all(args)
			if err != nil {
				return err
			}
			return each(d, names, func(name string) (string, error) {
				return done, do(ctx, a, name, reason)
			})
		}),
	}
	ns.bind(c, o)
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return c
}

// each does something with every job and prints what came of it. It goes on after
// an error, for what is asked of one job does not depend on another.
func each(d Deps, names []string, do func(name string) (string, error)) error {
	return eachNamed(d, names, shortJob, do)
}

// eachNamed is each for what has a short name of its own.
func eachNamed(d Deps, names []string, short func(name string) string, do func(name string) (string, error)) error {
	code := exitOK
	for _, name := range names {
		done, err := do(name)
		if interrupted(err) {
			return err
		}
		if err != nil {
			for _, line := range explain(err) {
				fmt.Fprintf(d.Stderr, "error: %s: %s\n", short(name), line)
			}
			code = max(code, exitStatus(err))
			continue
		}
		if _, err := fmt.Fprintf(d.Stdout, "%s %s\n", short(name), done); err != nil {
			return err
		}
	}
	if code != exitOK {
		return silentError{code}
	}
	return nil
}

func jobDelete(d Deps, o *dialer) *cobra.Command {
	return change("delete", "Delete jobs; live runs go on to their end", "deleted", d, o,
		func(ctx context.Context, a *api, name, reason string) error {
			_, err := a.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: name, Reason: reason})
			return err
		})
}

func jobTrigger(d Deps, o *dialer) *cobra.Command {
	var (
		ns      namespace
		overlap bool
		reason  string
		limit   string
	)
	c := &cobra.Command{
		Use:   "trigger JOB...",
		Short: "Ask for a run of each job now",
		Long: `Ask for a run of each job now. The command ends when the wish is durable; it
prints the run's id, for "leaderd run get".`,
		Args: someArgs("JOB"),

		ValidArgsFunction: o.completeJob(&ns, 0),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			names, err := ns.all(args)
			if err != nil {
				return err
			}
			return each(d, names, func(name string) (string, error) {
				resp, err := a.jobs.TriggerJob(ctx, &leaderdv1.TriggerJobRequest{Name: name, AllowOverlap: overlap, Reason: reason, LimitKey: limit})
				return "triggered " + runID(resp.GetRun()), err
			})
		}),
	}
	ns.bind(c, o)
	c.Flags().BoolVar(&overlap, "allow-overlap", false, "start even while another run of the job is live")
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	c.Flags().StringVar(&limit, "limit-key", "", "at which of the job's limits that are per key it counts, such as a customer's name")
	return c
}

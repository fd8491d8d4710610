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

func runCommand(d Deps) *cobra.Command {
	o := &dialer{}
	c := group("run", "Look at runs, live and past", runList(d, o), runGet(d, o))
	c.Aliases = []string{"runs"}
	o.bind(c.PersistentFlags(), d)
	return c
}

func runList(d Deps, o *dialer) *cobra.Command {
	var (
		ns    namespace
		all   bool
		job   string
		limit int
		f     format
	)
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List runs, the newest of a job first",
		Args:    cobra.NoArgs,
		RunE: o.with(func(ctx context.Context, a *api, _ []string) error {
			if limit < 0 {
				return usagef("--limit: %d is negative", limit)
			}
			parent := "namespaces/" + ns.name + "/jobs/-"
			if all {
				parent = "namespaces/-/jobs/-"
			}
			if job != "" {
				var err error
				if parent, err = ns.job(job); err != nil {
					return err
				}
			}
			p := &listPrinter[*leaderdv1.Run]{
				w: d.Stdout, f: f,
				table: newTable(d.Stdout, "JOB", "RUN", "STATE", "REASON", "DUE", "LATE", "TOOK", "TRIES", "NODE"),
				row:   func(r *leaderdv1.Run) []string { return runRow(r, time.Now()) },
			}
			err := pages(func(token string) (string, error) {
				size := int32(pageSize)
				if limit > 0 {
					size = int32(min(pageSize, limit-p.count))
				}
				resp, err := a.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: parent, PageSize: size, PageToken: token})
				if err != nil {
					return "", err
				}
				for _, run := range resp.GetRuns() {
					if err := p.print(run); err != nil {
						return "", err
					}
					if p.count == limit {
						return "", nil
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
	ns.bind(c.Flags())
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "runs of all namespaces")
	c.Flags().StringVar(&job, "job", "", "runs of this job alone")
	c.Flags().IntVar(&limit, "limit", 100, "at most this many; 0: all")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	c.MarkFlagsMutuallyExclusive("job", "all-namespaces")
	f.bind(c)
	return c
}

func runRow(r *leaderdv1.Run, now time.Time) []string {
	return []string{
		shortJob(r.GetName()), runID(r.GetName()), runState(r), r.GetReason(), instant(r.GetDueTime()),
		lateness(r), took(r, now), strconv.Itoa(len(r.GetAttempts())), lastAttempt(r).GetNode(),
	}
}

// runState is the state, and how many slots it stands for where these are
// several.
func runState(r *leaderdv1.Run) string {
	s := stateName(r.GetState())
	if n := r.GetSlotCount(); n > 1 {
		s += " x" + strconv.FormatInt(n, 10)
	}
	return s
}

func stateName(s leaderdv1.Run_State) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATE_"))
}

func lastAttempt(r *leaderdv1.Run) *leaderdv1.Attempt {
	if n := len(r.GetAttempts()); n > 0 {
		return r.GetAttempts()[n-1]
	}
	return nil
}

// lateness is how long after its due time the first try started.
func lateness(r *leaderdv1.Run) string {
	if len(r.GetAttempts()) == 0 || r.GetAttempts()[0].GetStartTime() == nil || r.GetDueTime() == nil {
		return ""
	}
	late := r.GetAttempts()[0].GetStartTime().AsTime().Sub(r.GetDueTime().AsTime())
	if late < 0 {
		return span(late)
	}
	return "+" + span(late)
}

// took is how long the last try ran, until now if it has not ended.
func took(r *leaderdv1.Run, now time.Time) string {
	a := lastAttempt(r)
	if a.GetStartTime() == nil {
		return ""
	}
	if a.GetEndTime() == nil {
		return span(now.Sub(a.GetStartTime().AsTime())) + "..."
	}
	return span(a.GetEndTime().AsTime().Sub(a.GetStartTime().AsTime()))
}

func runGet(d Deps, o *dialer) *cobra.Command {
	var (
		ns namespace
		f  format
	)
	c := &cobra.Command{
		Use:   "get JOB RUN",
		Short: "Show a run",
		Args:  cobra.ExactArgs(2),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			job, err := ns.job(args[0])
			if err != nil {
				return err
			}
			if args[1] == "" || strings.Contains(args[1], "/") {
				return usagef("%q is not a run's id, such as 20261130T020000Z", args[1])
			}
			resp, err := a.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: job + "/runs/" + args[1]})
			if err != nil {
				return err
			}
			if f != formatTable {
				return printOne(d.Stdout, f, resp.GetRun())
			}
			return printRun(d, resp.GetRun())
		}),
	}
	ns.bind(c.Flags())
	f.bind(c)
	return c
}

func printRun(d Deps, r *leaderdv1.Run) error {
	t := newTable(d.Stdout)
	t.row("job:", shortJob(r.GetName()))
	t.row("run:", runID(r.GetName()))
	t.row("state:", runState(r))
	if r.GetReason() != "" {
		t.row("reason:", strings.TrimSpace(r.GetReason()+" "+r.GetDetail()))
	}
	t.row("due:", instant(r.GetDueTime()))
	if r.GetUntilTime() != nil {
		t.row("until:", instant(r.GetUntilTime()))
	}
	t.row("late:", lateness(r))
	if r.GetNextAttemptTime() != nil {
		t.row("next try:", instant(r.GetNextAttemptTime()))
	}
	t.row("generation:", strconv.FormatInt(r.GetJobGeneration(), 10))
	if err := t.flush(); err != nil {
		return err
	}
	if err := printAttempts(d, r.GetAttempts()); err != nil {
		return err
	}
	tail := r.GetOutputTail()
	if len(tail) == 0 {
		return nil
	}
	text := printableOutput(string(tail))
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := fmt.Fprintf(d.Stdout, "\noutput (last %d of %d bytes):\n%s", len(tail), r.GetOutputBytes(), text)
	return err
}

func printAttempts(d Deps, attempts []*leaderdv1.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(d.Stdout); err != nil {
		return err
	}
	t := newTable(d.Stdout, "TRY", "STATE", "NODE", "STARTED", "TOOK", "CODE", "TOKEN", "TERM", "ERROR")
	for _, a := range attempts {
		code := ""
		if a.ExitCode != nil {
			code = strconv.Itoa(int(a.GetExitCode()))
		}
		one := &leaderdv1.Run{Attempts: []*leaderdv1.Attempt{a}}
		t.row(strconv.Itoa(int(a.GetNumber())), stateName(a.GetState()), a.GetNode(), instant(a.GetStartTime()),
			took(one, time.Now()), code, strconv.FormatInt(a.GetToken(), 10), strconv.FormatInt(a.GetTerm(), 10), a.GetError())
	}
	return t.flush()
}

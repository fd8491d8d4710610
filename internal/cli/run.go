package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/internal/suggest"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func runCommand(d Deps) *cobra.Command {
	o := &dialer{}
	c := group("run", "Ask for runs, look at them, live and past, and end them",
		runList(d, o), runGet(d, o), runShards(d, o), runSubmit(d, o), runWait(d, o), runResult(d, o), runCancel(d, o), runRetry(d, o), runCheckpoint(d, o))
	c.Aliases = []string{"runs"}
	o.bind(c.PersistentFlags(), d)
	return c
}

// runSelection is what run list is asked for.
type runSelection struct {
	ns     namespace
	all    bool
	job    string
	states []string
	node   string
	since  string
	limit  int
	chain  string
	wide   bool
	f      format
}

func runList(d Deps, o *dialer) *cobra.Command {
	var q runSelection
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List runs, the newest first",
		Example: `  leaderd run list --job backup --limit 10
  leaderd run list -A --state failed,missed --since 24h
  leaderd run list --node n1 --state running
  leaderd run list --correlation extract/20261130T020000Z`,
		Args: noArgs,
		RunE: o.with(func(ctx context.Context, a *api, _ []string) error {
			req, err := q.request(time.Now())
			if err != nil {
				return err
			}
			return listRuns(ctx, d, a, req, &q)
		}),
	}
	q.ns.bind(c, o)
	c.Flags().BoolVarP(&q.all, "all-namespaces", "A", false, "runs of all namespaces")
	c.Flags().StringVar(&q.job, "job", "", "runs of this job alone")
	c.Flags().StringSliceVar(&q.states, "state", nil, "only runs in these states, such as failed,missed")
	c.Flags().StringVar(&q.node, "node", "", "only runs that this node has or had a try at")
	c.Flags().StringVar(&q.since, "since", "", "only runs that were due in this time (24h) or since then (2026-11-30T02:00:00Z)")
	c.Flags().StringVar(&q.chain, "correlation", "", "only runs of this chain: the correlation of any of them, or JOB/RUN of its first")
	c.Flags().BoolVar(&q.wide, "wide", false, "tell how far runs have come, and when they may end")
	c.Flags().IntVar(&q.limit, "limit", 100, "at most this many; 0: all")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	c.MarkFlagsMutuallyExclusive("job", "all-namespaces")
	q.f.bind(c)
	complete(c, "job", o.completeJob(&q.ns, 0))
	complete(c, "node", o.nodes)
	complete(c, "state", cobra.FixedCompletions(stateNames(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// request is the selection as the API takes it.
func (q *runSelection) request(now time.Time) (*leaderdv1.ListRunsRequest, error) {
	if q.limit < 0 {
		return nil, usagef("--limit: %d is negative", q.limit)
	}
	req := &leaderdv1.ListRunsRequest{
		Parent: "namespaces/" + q.ns.name + "/jobs/-", Order: leaderdv1.ListRunsRequest_ORDER_NEWEST, Node: q.node, Progress: q.wide,
		Correlation: q.chain,
	}
	if q.all {
		req.Parent = "namespaces/-/jobs/-"
	}
	if q.job != "" {
		var err error
		if req.Parent, err = q.ns.job(q.job); err != nil {
			return nil, err
		}
	}
	var err error
	if req.States, err = statesOf(q.states); err != nil {
		return nil, err
	}
	if q.since != "" {
		since, err := readTime("--since", q.since, now, time.Local, ago(now))
		if err != nil {
			return nil, err
		}
		req.SinceTime = timestamppb.New(since)
	}
	return req, nil
}

// statesOf reads the names of states.
func statesOf(names []string) (states []leaderdv1.Run_State, err error) {
	for _, name := range names {
		value, ok := leaderdv1.Run_State_value["STATE_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))]
		if !ok || value == 0 {
			return nil, usagef("--state: %q is not one of %s%s", clip(name), strings.Join(stateNames(), ", "),
				suggest.Nearest(name, stateNames()))
		}
		states = append(states, leaderdv1.Run_State(value))
	}
	return states, nil
}

// listRuns prints the runs as their pages come.
func listRuns(ctx context.Context, d Deps, a *api, req *leaderdv1.ListRunsRequest, q *runSelection) error {
	p := &listPrinter[*leaderdv1.Run]{
		w: d.Stdout, f: q.f,
		table: newTable(d.Stdout, "JOB", "RUN", "STATE", "REASON", "DUE", "LATE", "TOOK", "TRIES", "NODE"),
		row:   func(r *leaderdv1.Run) []string { return runRow(r, time.Now()) },
	}
	if q.wide {
		p.table = newTable(d.Stdout, "JOB", "RUN", "STATE", "REASON", "DUE", "LATE", "TOOK", "TRIES", "NODE", "PROGRESS", "ETA", "MESSAGE")
		p.row = func(r *leaderdv1.Run) []string {
			return append(runRow(r, time.Now()), progressCells(lastAttempt(r).GetProgress())...)
		}
	}
	err := pages(func(token string) (string, error) {
		req.PageToken, req.PageSize = token, pageSize
		if q.limit > 0 {
			req.PageSize = int32(min(pageSize, q.limit-p.count))
		}
		resp, err := a.runs.ListRuns(ctx, req)
		if err != nil {
			return "", err
		}
		for _, run := range resp.GetRuns() {
			if err := p.print(run); err != nil {
				return "", err
			}
			if p.count == q.limit {
				return "", nil
			}
		}
		return resp.GetNextPageToken(), nil
	})
	if err == nil && p.count == 0 && q.job != "" {
		// Runs outlive their job, and so a job that is not there is asked for only now.
		_, err = a.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: req.GetParent()})
	}
	if err != nil {
		return err
	}
	return p.end()
}

// stateNames are the states that a run can be in.
func stateNames() []string {
	var names []string
	for value := range int32(len(leaderdv1.Run_State_name)) {
		if s := leaderdv1.Run_State(value); s != leaderdv1.Run_STATE_UNSPECIFIED {
			names = append(names, stateName(s))
		}
	}
	return names
}

func runRow(r *leaderdv1.Run, now time.Time) []string {
	return []string{
		shortJob(r.GetName()), runID(r.GetName()), runState(r), r.GetReason(), instant(r.GetDueTime()),
		lateness(r), took(r, now), strconv.Itoa(len(r.GetAttempts())), lastAttempt(r).GetNode(),
	}
}

// runState is the state, of a run that is split how many of its shards have succeeded,
// and how many slots it stands for where these are several.
func runState(r *leaderdv1.Run) string {
	s := stateName(r.GetState())
	if n := r.GetShards(); n != nil {
		s += fmt.Sprintf(" %d/%d", n.GetSucceeded(), n.GetTotal())
	}
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

// lateness is how long after its due time the first try started. A start is
// stored with the end of its try; until then the claim tells: work that was
// claimed in time starts when it is due, other work once it is claimed.
func lateness(r *leaderdv1.Run) string {
	if len(r.GetAttempts()) == 0 || r.GetDueTime() == nil {
		return ""
	}
	start, about := begun(r.GetAttempts()[0], r.GetDueTime().AsTime())
	if start.IsZero() || about && !start.After(r.GetDueTime().AsTime()) {
		return ""
	}
	late := start.Sub(r.GetDueTime().AsTime())
	if late < 0 {
		return span(late)
	}
	if about {
		return "~" + span(late)
	}
	return "+" + span(late)
}

// begun is when a try started, or about when.
func begun(a *leaderdv1.Attempt, due time.Time) (start time.Time, about bool) {
	if a.GetStartTime() != nil {
		return a.GetStartTime().AsTime(), false
	}
	if a.GetState() != leaderdv1.Run_STATE_RUNNING || a.GetClaimTime() == nil {
		return time.Time{}, false // it may never have started
	}
	start = a.GetClaimTime().AsTime()
	if start.Before(due) {
		start = due
	}
	return start, true
}

// took is how long the last try ran, until now if it has not ended.
func took(r *leaderdv1.Run, now time.Time) string {
	if r.GetShards() != nil {
		return tookTogether(r, now)
	}
	a := lastAttempt(r)
	start, about := begun(a, r.GetDueTime().AsTime())
	switch {
	case start.IsZero() || start.After(now):
		return ""
	case a.GetEndTime() != nil:
		return span(a.GetEndTime().AsTime().Sub(start))
	case about:
		return "~" + span(now.Sub(start)) + "..."
	}
	return span(now.Sub(start)) + "..."
}

func runGet(d Deps, o *dialer) *cobra.Command {
	var (
		ns namespace
		f  format
	)
	c := &cobra.Command{
		Use:   "get JOB RUN",
		Short: "Show a run",
		Args:  wantArgs("JOB", "RUN"),

		ValidArgsFunction: o.completeRun(&ns),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := ns.run(args[0], args[1])
			if err != nil {
				return err
			}
			resp, err := a.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: name})
			if err != nil {
				return err
			}
			if f != formatTable {
				return printOne(d.Stdout, f, resp.GetRun())
			}
			if err := printRun(d, resp.GetRun()); err != nil || resp.GetRun().GetShards() == nil {
				return err
			}
			if _, err := fmt.Fprintln(d.Stdout); err != nil {
				return err
			}
			return listShards(ctx, d, a, resp.GetRun().GetName(), formatTable, nil)
		}),
	}
	ns.bind(c, o)
	f.bind(c)
	return c
}

func runCancel(d Deps, o *dialer) *cobra.Command {
	var (
		ns     namespace
		reason string
	)
	c := &cobra.Command{
		Use:   "cancel JOB RUN",
		Short: "End a run that waits or runs",
		Long: `End a run that waits or runs. The command ends when the wish is durable; a run
that is at work is stopped as at its timeout, and has its verdict soon after.`,
		Args: wantArgs("JOB", "RUN"),

		ValidArgsFunction: o.completeRun(&ns),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := ns.run(args[0], args[1])
			if err != nil {
				return err
			}
			resp, err := a.runs.CancelRun(ctx, &leaderdv1.CancelRunRequest{Name: name, Reason: reason})
			if err != nil {
				return err
			}
			what := "is being stopped"
			switch resp.GetRun().GetState() { //nolint:exhaustive // all others have begun
			case leaderdv1.Run_STATE_PENDING, leaderdv1.Run_STATE_CANCELLED: // the latter by an earlier try
				what = "cancelled"
			default:
			}
			_, err = fmt.Fprintf(d.Stdout, "%s %s %s\n", shortJob(name), args[1], what)
			return err
		}),
	}
	ns.bind(c, o)
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return c
}

package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// backfillWish is what job backfill is asked for.
type backfillWish struct {
	ns          namespace
	from, to    string
	order       string
	concurrency int32
	override    bool
	missing     bool
	all         bool
	dryRun      bool
	reason      string
	f           format
}

func jobBackfill(d Deps, o *dialer) *cobra.Command {
	var q backfillWish
	c := &cobra.Command{
		Use:   "backfill JOB",
		Short: "Run past slots of a job",
		Long: `Run past slots of a job: those that its schedules, as they are now, name from --from
up to, but not at, --to. Each gets a run of its own, whose LEADERD_SLOT is the slot;
the slots' own verdicts stay as they are. By default it is the slots that were skipped,
missed or never due, and that no earlier backfill has run with success.

The command ends when the wish is durable; "leaderd backfill get" tells how far it is,
"leaderd backfill cancel" ends it. It goes on while the job is paused, and over
failovers. --dry-run lists the slots and changes nothing.`,
		Example: `  leaderd job backfill report --from 2026-10-01T00:00:00Z --to 2026-11-01T00:00:00Z --dry-run
  leaderd job backfill report --from 24h --concurrency 4 --override-overlap`,
		Args: wantArgs("JOB"),

		ValidArgsFunction: o.completeJob(&q.ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			req, err := q.request(args[0], time.Now())
			if err != nil {
				return err
			}
			resp, err := a.backfills.CreateBackfill(ctx, req)
			if err != nil {
				return err
			}
			return q.print(d, req.GetParent(), resp)
		}),
	}
	q.ns.bind(c, o)
	flags := c.Flags()
	flags.StringVar(&q.from, "from", "", "the first instant of the window: 2026-11-30T02:00:00Z, or so long ago (24h); required")
	flags.StringVar(&q.to, "to", "", "its end, which is no part of it; default: with the last slot that the cluster has decided")
	flags.StringVar(&q.order, "order", "oldest", "oldest or newest slot first")
	flags.Int32Var(&q.concurrency, "concurrency", 1, "at most so many runs at a time, 1-32")
	flags.BoolVar(&q.override, "override-overlap", false, "start beside live runs of the job; otherwise they are waited for")
	flags.BoolVar(&q.missing, "only-missing", true, "only slots that were skipped, missed or never due")
	flags.BoolVar(&q.all, "all", false, "all slots, also those that ran")
	flags.BoolVar(&q.dryRun, "dry-run", false, "list the slots and what would be done; change nothing")
	flags.StringVar(&q.reason, "reason", "", "why, for the record")
	c.MarkFlagsMutuallyExclusive("only-missing", "all")
	complete(c, "order", cobra.FixedCompletions([]string{"oldest", "newest"}, cobra.ShellCompDirectiveNoFileComp))
	q.f.bind(c)
	return c
}

func (q *backfillWish) request(job string, now time.Time) (*leaderdv1.CreateBackfillRequest, error) {
	name, err := q.ns.job(job)
	if err != nil {
		return nil, err
	}
	b := &leaderdv1.Backfill{
		Slots: leaderdv1.Backfill_SLOTS_MISSING, Concurrency: q.concurrency, OverrideOverlap: q.override, Reason: q.reason,
	}
	if q.from == "" {
		return nil, usagef("--from is missing: when the window begins")
	}
	if b.FromTime, err = pastTime("from", q.from, now); err != nil {
		return nil, err
	}
	if q.to != "" {
		if b.ToTime, err = pastTime("to", q.to, now); err != nil {
			return nil, err
		}
	}
	switch q.order {
	case "oldest":
		b.Order = leaderdv1.Backfill_ORDER_OLDEST
	case "newest":
		b.Order = leaderdv1.Backfill_ORDER_NEWEST
	default:
		return nil, usagef("--order: %q is neither oldest nor newest", clip(q.order))
	}
	if q.concurrency < 1 {
		return nil, usagef("--concurrency: %d is less than 1", q.concurrency)
	}
	if q.all || !q.missing {
		b.Slots = leaderdv1.Backfill_SLOTS_ALL
	}
	return &leaderdv1.CreateBackfillRequest{Parent: name, Backfill: b, ValidateOnly: q.dryRun}, nil
}

// pastTime reads an instant, or how long ago it was.
func pastTime(flag, text string, now time.Time) (*timestamppb.Timestamp, error) {
	at, err := readTime("--"+flag, text, now, time.Local, ago(now))
	if err != nil {
		return nil, err
	}
	return timestamppb.New(at), nil
}

func (q *backfillWish) print(d Deps, job string, resp *leaderdv1.CreateBackfillResponse) error {
	b := resp.GetBackfill()
	if q.f != formatTable {
		return printOne(d.Stdout, q.f, resp)
	}
	if q.dryRun {
		t := newTable(d.Stdout, "SLOT", "HAS", "DO")
		for _, s := range resp.GetSlots() {
			do := "leave"
			if s.GetRun() {
				do = "run"
			}
			t.row(instant(s.GetSlotTime()), s.GetHave(), do)
		}
		if err := t.flush(); err != nil {
			return err
		}
		_, err := fmt.Fprintf(d.Stdout, "%s would run %d of %d slots (dry run)\n", shortJob(job), b.GetTotal(), len(resp.GetSlots()))
		return err
	}
	if b.GetName() == "" {
		_, err := fmt.Fprintf(d.Stdout, "%s has no missing slot in that window\n", shortJob(job))
		return err
	}
	upTo := ""
	if q.to == "" {
		upTo = " up to " + instant(b.GetToTime())
	}
	_, err := fmt.Fprintf(d.Stdout, "%s backfill %s of %d slots%s\n", shortJob(job), runID(b.GetName()), b.GetTotal(), upTo)
	return err
}

func backfillCommand(d Deps) *cobra.Command {
	o := &dialer{}
	c := group("backfill", "Look at and cancel backfills; \"job backfill\" makes them",
		backfillList(d, o), backfillGet(d, o), backfillCancel(d, o))
	c.Aliases = []string{"backfills"}
	o.bind(c.PersistentFlags(), d)
	return c
}

func backfillList(d Deps, o *dialer) *cobra.Command {
	var (
		ns  namespace
		all bool
		job string
		f   format
	)
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List backfills, the newest of each job first",
		Args:    noArgs,
		RunE: o.with(func(ctx context.Context, a *api, _ []string) error {
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
			p := &listPrinter[*leaderdv1.Backfill]{
				w: d.Stdout, f: f,
				table: newTable(d.Stdout, "JOB", "BACKFILL", "STATE", "TOTAL", "SUCCEEDED", "FAILED", "CANCELLED", "ACTIVE", "REMAINING"),
				row:   backfillRow,
			}
			err := pages(func(token string) (string, error) {
				resp, err := a.backfills.ListBackfills(ctx, &leaderdv1.ListBackfillsRequest{Parent: parent, PageSize: pageSize, PageToken: token})
				if err != nil {
					return "", err
				}
				for _, b := range resp.GetBackfills() {
					if err := p.print(b); err != nil {
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
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "backfills of all namespaces")
	c.Flags().StringVar(&job, "job", "", "backfills of this job alone")
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	c.MarkFlagsMutuallyExclusive("job", "all-namespaces")
	complete(c, "job", o.completeJob(&ns, 0))
	f.bind(c)
	return c
}

func backfillState(b *leaderdv1.Backfill) string {
	return strings.ToLower(strings.TrimPrefix(b.GetState().String(), "STATE_"))
}

func backfillRow(b *leaderdv1.Backfill) []string {
	row := []string{shortJob(b.GetName()), runID(b.GetName()), backfillState(b)}
	for _, n := range []int32{b.GetTotal(), b.GetSucceeded(), b.GetFailed(), b.GetCancelled(), b.GetActive(), b.GetRemaining()} {
		row = append(row, strconv.Itoa(int(n)))
	}
	return row
}

// backfillName is the resource name of a backfill of a job.
func backfillName(ns *namespace, args []string) (string, error) {
	job, err := ns.job(args[0])
	if err != nil {
		return "", err
	}
	if args[1] == "" || strings.Contains(args[1], "/") {
		return "", usagef("%q is not a backfill's id, such as 20261130T020000Z-5f3a9c01", clip(args[1]))
	}
	return job + "/backfills/" + args[1], nil
}

func backfillGet(d Deps, o *dialer) *cobra.Command {
	var (
		ns namespace
		f  format
	)
	c := &cobra.Command{
		Use:   "get JOB BACKFILL",
		Short: "Show a backfill, and how far it is",
		Args:  wantArgs("JOB", "BACKFILL"),

		ValidArgsFunction: o.completeJob(&ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := backfillName(&ns, args)
			if err != nil {
				return err
			}
			resp, err := a.backfills.GetBackfill(ctx, &leaderdv1.GetBackfillRequest{Name: name})
			if err != nil {
				return err
			}
			if f != formatTable {
				return printOne(d.Stdout, f, resp.GetBackfill())
			}
			return printBackfill(d, resp.GetBackfill())
		}),
	}
	ns.bind(c, o)
	f.bind(c)
	return c
}

func printBackfill(d Deps, b *leaderdv1.Backfill) error {
	t := newTable(d.Stdout)
	t.row("job:", shortJob(b.GetName()))
	t.row("backfill:", runID(b.GetName()))
	t.row("state:", backfillState(b))
	t.row("window:", instant(b.GetFromTime())+" up to "+instant(b.GetToTime()))
	what := strings.ToLower(strings.TrimPrefix(b.GetSlots().String(), "SLOTS_")) + ", " +
		strings.ToLower(strings.TrimPrefix(b.GetOrder().String(), "ORDER_")) + " first, " + strconv.Itoa(int(b.GetConcurrency())) + " at a time"
	if b.GetOverrideOverlap() {
		what += ", beside live runs"
	}
	t.row("slots:", what)
	t.row("asked:", strings.TrimSuffix(fmt.Sprintf("%s by %s: %s", instant(b.GetCreateTime()), b.GetActor(), b.GetReason()), ": "))
	if b.GetCancelTime() != nil {
		cancelled := strings.TrimSuffix(fmt.Sprintf("%s by %s: %s", instant(b.GetCancelTime()), b.GetCancelActor(), b.GetCancelReason()), ": ")
		if b.GetCancelRunning() {
			cancelled += "; with the runs that were under way"
		}
		t.row("cancelled:", cancelled)
	}
	if b.GetEndTime() != nil {
		t.row("ended:", instant(b.GetEndTime()))
	}
	t.row("done:", fmt.Sprintf("%d of %d: %d succeeded, %d failed, %d cancelled",
		b.GetSucceeded()+b.GetFailed()+b.GetCancelled(), b.GetTotal(), b.GetSucceeded(), b.GetFailed(), b.GetCancelled()))
	t.row("under way:", strconv.Itoa(int(b.GetActive())))
	t.row("remaining:", strconv.Itoa(int(b.GetRemaining())))
	return t.flush()
}

func backfillCancel(d Deps, o *dialer) *cobra.Command {
	var (
		ns      namespace
		reason  string
		running bool
	)
	c := &cobra.Command{
		Use:   "cancel JOB BACKFILL",
		Short: "End a backfill",
		Long: `End a backfill: no further run of it is made, and those that have not started are
cancelled. Those that run go on; with --running they are cancelled too, which may be
asked for later as well.`,
		Args: wantArgs("JOB", "BACKFILL"),

		ValidArgsFunction: o.completeJob(&ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := backfillName(&ns, args)
			if err != nil {
				return err
			}
			resp, err := a.backfills.CancelBackfill(ctx, &leaderdv1.CancelBackfillRequest{Name: name, Reason: reason, CancelRunning: running})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(d.Stdout, "%s backfill %s %s\n", shortJob(name), args[1], backfillState(resp.GetBackfill()))
			return err
		}),
	}
	ns.bind(c, o)
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	c.Flags().BoolVar(&running, "running", false, "cancel its running runs too")
	return c
}

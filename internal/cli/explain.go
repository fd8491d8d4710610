package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func jobExplain(d Deps, o *dialer) *cobra.Command {
	var (
		ns namespace
		at string
		f  format
	)
	c := &cobra.Command{
		Use:   "explain JOB --at TIME",
		Short: "Say why a job ran at an instant, or why it did not",
		Long: `Says whether an instant is a slot of a job, by which schedule and version, what
became of it and why. For an instant that is none it names the field that excludes
it and the nearest slots; for one to come, what could keep it from starting.

A time without an offset is read as a clock of the job's zone shows it, a date as its
beginning; a time of the day is today's, and a span such as 90m is so long ago.`,
		Example: `  leaderd job explain backup --at 2026-11-30T02:00:00Z
  leaderd job explain backup --at 2027-03-28T02:30`,
		Args: wantArgs("JOB"),

		ValidArgsFunction: o.completeJob(&ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := ns.job(args[0])
			if err != nil {
				return err
			}
			req := &leaderdv1.ExplainSlotRequest{Name: name}
			if err := explainedTime(req, at, time.Now()); err != nil {
				return err
			}
			resp, err := a.timeline.ExplainSlot(ctx, req)
			if err != nil {
				return err
			}
			if f != formatTable {
				return printOne(d.Stdout, f, resp)
			}
			return printExplanation(d.Stdout, resp)
		}),
	}
	ns.bind(c, o)
	c.Flags().StringVar(&at, "at", "", "the instant, such as 2026-11-30T02:00:00Z, or 2026-11-30T02:00 by the job's zone")
	f.bind(c)
	return c
}

// explainedTime puts the time of --at into the request, in the forms that readTime
// takes; but what has no offset is for the job's zone, which the cluster knows.
func explainedTime(req *leaderdv1.ExplainSlotRequest, at string, now time.Time) error {
	if at == "" {
		return usagef("--at is required")
	}
	for i, form := range append(append([]string{}, localForms...), clockForms...) {
		local, err := time.Parse(form, at)
		if err != nil {
			continue
		}
		const seconds = "2006-01-02T15:04:05"
		if i >= len(localForms) {
			day := now.Local()
			local = time.Date(day.Year(), day.Month(), day.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
		}
		text := at
		if form != "2006-01-02T15:04" && form != seconds {
			text = local.Format(seconds)
		}
		req.At = &leaderdv1.ExplainSlotRequest_LocalTime{LocalTime: text}
		return nil
	}
	then, err := readTime("--at", at, now, time.UTC, func(d time.Duration) time.Time { return now.Add(-d).Truncate(time.Second) })
	if err != nil {
		return err
	}
	req.At = &leaderdv1.ExplainSlotRequest_Time{Time: timestamppb.New(then)}
	return nil
}

func printExplanation(w io.Writer, x *leaderdv1.ExplainSlotResponse) error {
	t := newTable(w)
	t.row("job:", shortJob(x.GetName()))
	t.row("at:", x.GetTime().AsTime().UTC().Format(time.RFC3339Nano))
	answer := "no slot"
	if s := x.GetSlot(); s != nil {
		answer = slotAnswer(s)
	}
	t.row("answer:", answer)
	if v := x.GetVersion(); v != nil {
		t.row("version:", strings.TrimPrefix(versionText(v), "version ")+", in force since "+instant(v.GetEffectiveTime()))
	}
	t.row("before:", instant(x.GetPreviousSlot()))
	t.row("after:", instant(x.GetNextSlot()))
	if err := t.flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", printable(x.GetSummary())); err != nil {
		return err
	}
	if err := section(w, len(x.GetSchedules()), []string{"SCHEDULE", "LOCAL TIME", "DUE", "WHY"}, func(i int) []string {
		s := x.GetSchedules()[i]
		due := "no"
		if s.GetDue() {
			due = "yes"
		}
		return []string{s.GetSchedule(), s.GetLocalTime(), due, strings.Join(s.GetReasons(), "; ")}
	}); err != nil {
		return err
	}
	if err := section(w, len(x.GetEvents()), []string{"TIME", "WHAT"}, func(i int) []string {
		e := x.GetEvents()[i]
		return []string{e.GetTime().AsTime().UTC().Format("2006-01-02T15:04:05.000Z"), e.GetWhat()}
	}); err != nil {
		return err
	}
	return section(w, len(x.GetObstacles()), []string{"COULD STOP IT", "WHY"}, func(i int) []string {
		o := x.GetObstacles()[i]
		return []string{o.GetReason(), o.GetDetail()}
	})
}

// section prints a table of n rows below an empty line, or nothing if there are none.
func section(w io.Writer, n int, header []string, row func(i int) []string) error {
	if n == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t := newTable(w, header...)
	for i := range n {
		t.row(row(i)...)
	}
	return t.flush()
}

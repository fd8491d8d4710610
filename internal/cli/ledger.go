package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func jobLedger(d Deps, o *dialer) *cobra.Command {
	var (
		ns       namespace
		from, to string
		limit    int
		f        format
	)
	c := &cobra.Command{
		Use:   "ledger JOB",
		Short: "Show every slot of a job and what became of it",
		Long: `Shows every slot of a window: its verdict, its live run, or why it has neither,
such as a pause or an edit. Slots in a row that share an answer are one line. The
window ends with what is planned for the next hour unless --to says otherwise.`,
		Example: `  leaderd job ledger backup --from 48h
  leaderd job ledger backup --from 2026-11-30T00:00:00Z --to 2026-12-01T00:00:00Z -o json`,
		Args: wantArgs("JOB"),

		ValidArgsFunction: o.completeJob(&ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := ns.job(args[0])
			if err != nil {
				return err
			}
			req := &leaderdv1.ListSlotsRequest{Parent: name, PageSize: pageSize}
			if req.StartTime, req.EndTime, err = window(time.Now(), from, to); err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit: %d is negative", limit)
			}
			return listSlots(ctx, d, a, req, limit, f)
		}),
	}
	ns.bind(c, o)
	c.Flags().StringVar(&from, "from", "24h", "first instant: a time, or so long ago")
	c.Flags().StringVar(&to, "to", "1h", "first instant after the window: a time, or so far ahead")
	c.Flags().IntVar(&limit, "limit", 10_000, "at most this many lines; 0: all")
	f.bind(c)
	return c
}

// window reads a time or a duration: ago for the start, ahead for the end.
func window(now time.Time, from, to string) (start, end *timestamppb.Timestamp, err error) {
	first, err := around("--from", from, now, ago(now))
	if err != nil {
		return nil, nil, err
	}
	last, err := around("--to", to, now, now.Add)
	if err != nil {
		return nil, nil, err
	}
	return timestamppb.New(first), timestamppb.New(last), nil
}

func around(flag, text string, now time.Time, away func(time.Duration) time.Time) (time.Time, error) {
	return readTime(flag, text, now, time.Local, away)
}

// errEnough ends a listing at its limit.
var errEnough = errors.New("enough lines")

// listSlots prints slots as their pages come, at most limit lines of them, 0: all.
func listSlots(ctx context.Context, d Deps, a *api, req *leaderdv1.ListSlotsRequest, limit int, f format) error {
	p := &listPrinter[*leaderdv1.Slot]{
		w: d.Stdout, f: f,
		table: newTable(d.Stdout, "SLOT", "UNTIL", "SLOTS", "ANSWER", "VERSION", "LATE", "NODE", "WHY"),
		row:   slotRow,
	}
	var held *leaderdv1.Slot // the last of a page, which may go on with the next one
	lines := 0
	err := pages(func(token string) (string, error) {
		req.PageToken = token
		resp, err := a.timeline.ListSlots(ctx, req)
		if err != nil {
			return "", err
		}
		for i, s := range resp.GetSlots() {
			if i == 0 && goesOn(held, s) {
				continue
			}
			if limit > 0 && lines == limit {
				fmt.Fprintf(d.Stderr, "stopped after %d lines; go on with --from %s, or raise --limit\n", limit, instant(s.GetSlotTime()))
				return "", errEnough
			}
			if held != nil {
				if err := p.print(held); err != nil {
					return "", err
				}
			}
			held = s
			lines++
		}
		return resp.GetNextPageToken(), nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if held != nil {
		if err := p.print(held); err != nil {
			return err
		}
	}
	return p.end()
}

// goesOn adds a slot that begins a page to the one before, if they are one range
// that the page's end cut.
func goesOn(before, s *leaderdv1.Slot) bool {
	if before == nil || before.GetAnswer() != s.GetAnswer() || before.GetJobGeneration() != s.GetJobGeneration() ||
		s.GetRun() != nil || s.GetAnswer() == leaderdv1.Slot_ANSWER_PLANNED || before.GetDetail() != s.GetDetail() {
		return false
	}
	before.UntilTime = s.GetUntilTime()
	if before.GetUntilTime() == nil {
		before.UntilTime = s.GetSlotTime()
	}
	before.SlotCount += s.GetSlotCount()
	return true
}

func slotRow(s *leaderdv1.Slot) []string {
	count := ""
	if n := s.GetSlotCount(); n != 1 {
		count = "?"
		if n > 1 {
			count = strconv.FormatInt(n, 10)
		}
	}
	version := ""
	if g := s.GetJobGeneration(); g > 0 {
		version = strconv.FormatInt(g, 10)
	}
	late := ""
	if s.GetRun() != nil {
		late = lateness(s.GetRun())
	}
	return []string{
		instant(s.GetSlotTime()), instant(s.GetUntilTime()), count, slotAnswer(s), version, late,
		lastAttempt(s.GetRun()).GetNode(), slotWhy(s),
	}
}

// slotAnswer is the run's state where there is one, and else what is known.
func slotAnswer(s *leaderdv1.Slot) string {
	r := s.GetRun()
	switch {
	case r == nil && s.GetExcluded() != "":
		return "excluded"
	case r == nil:
		return strings.ToLower(strings.TrimPrefix(s.GetAnswer().String(), "ANSWER_"))
	case r.GetReason() != "":
		return stateName(r.GetState()) + ":" + r.GetReason()
	}
	return stateName(r.GetState())
}

func slotWhy(s *leaderdv1.Slot) string {
	switch by := s.GetBy(); {
	case by != nil && s.GetDetail() != "" && s.GetAnswer() != leaderdv1.Slot_ANSWER_QUARANTINED:
		return versionText(by) + "; " + s.GetDetail()
	case s.GetDetail() != "":
		return s.GetDetail()
	case s.GetRun().GetDetail() != "":
		return s.GetRun().GetDetail()
	case by != nil:
		return versionText(by)
	}
	return ""
}

// versionText is who made a version, and why.
func versionText(v *leaderdv1.VersionRef) string {
	out := fmt.Sprintf("version %d, %s by %s", v.GetGeneration(), changeName(v.GetChange()), v.GetActor())
	if v.GetReason() != "" {
		out += ": " + v.GetReason()
	}
	return out
}

func changeName(c leaderdv1.JobVersion_Change) string {
	return strings.ToLower(strings.TrimPrefix(c.String(), "CHANGE_"))
}

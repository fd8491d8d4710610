package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/internal/ledger"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// simulateOptions are the flags of job simulate.
type simulateOptions struct {
	ns       namespace
	files    []string
	job      string
	from, to string
	most     int
	offline  bool
	f        format
}

func jobSimulate(d Deps, o *dialer) *cobra.Command {
	q := &simulateOptions{}
	c := &cobra.Command{
		Use:   "simulate -f FILE|-",
		Short: "Show what a job's spec would do, and what would change",
		Long: `Shows the slots that a new or changed spec would have over a window, with the
clock changes that concern them. Of a cluster it also says what would change against
the live version, which runs would overlap if they take as long as the last ones did,
and in which seconds many other jobs are due. Nothing is changed. With --offline no
cluster is asked.`,
		Example: `  leaderd job simulate -f backup.yaml
  leaderd job simulate -f backup.yaml --from 2027-03-27T00:00:00Z --to 2027-03-30T00:00:00Z --offline`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := q.request(d, time.Now())
			if err != nil {
				return err
			}
			if q.offline {
				resp, err := simulateHere(req, time.Now())
				if err != nil {
					return err
				}
				return q.print(d.Stdout, req, resp)
			}
			return o.with(func(ctx context.Context, a *api, _ []string) error {
				resp, err := a.timeline.SimulateJob(ctx, req)
				if err != nil {
					return err
				}
				return q.print(d.Stdout, req, resp)
			})(cmd, args)
		},
	}
	q.ns.bind(c, o)
	c.Flags().StringSliceVarP(&q.files, "filename", "f", nil, "file, directory or - for standard input; required")
	c.Flags().StringVar(&q.job, "job", "", "job to simulate, where the file has several")
	c.Flags().StringVar(&q.from, "from", "0s", "first instant: a time, or so long ago")
	c.Flags().StringVar(&q.to, "to", "168h", "first instant after the window: a time, or so far ahead")
	c.Flags().IntVar(&q.most, "slots", 20, "list at most this many slots")
	c.Flags().BoolVar(&q.offline, "offline", false, "ask no cluster")
	// It fails only for a flag that is not there.
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json")
	q.f.bind(c)
	return c
}

// request is what is asked for, as the API takes it.
func (q *simulateOptions) request(d Deps, now time.Time) (*leaderdv1.SimulateJobRequest, error) {
	if len(q.files) == 0 {
		return nil, usagef("-f is required")
	}
	if q.most < 1 || q.most > state.MaxSimulatedSlots {
		return nil, usagef("--slots: %d is outside 1–%d", q.most, state.MaxSimulatedSlots)
	}
	req := &leaderdv1.SimulateJobRequest{MaxSlots: int32(q.most)}
	var err error
	if req.StartTime, req.EndTime, err = window(now, q.from, q.to); err != nil {
		return nil, err
	}
	jobs, err := readJobs(q.files, d.Stdin, &q.ns)
	if err != nil {
		return nil, err
	}
	if q.job == "" {
		if len(jobs) > 1 {
			return nil, usagef("the files have %d jobs: choose one with --job", len(jobs))
		}
		req.Job = jobs[0].job
		return req, nil
	}
	name, err := q.ns.job(q.job)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if j.job.GetName() == name {
			req.Job = j.job
			return req, nil
		}
	}
	return nil, usagef("--job: %s is not in the files", shortJob(name))
}

// simulateHere is the API's SimulateJob without a cluster.
func simulateHere(req *leaderdv1.SimulateJobRequest, now time.Time) (*leaderdv1.SimulateJobResponse, error) {
	ns, name := splitJob(req.GetJob().GetName())
	sim := &ledger.Simulation{
		Job:  state.Job{ID: state.JobID{Namespace: ns, Name: name}, Spec: codec.SpecFromProto(req.GetJob().GetSpec()), Anchor: now},
		From: whole(req.GetStartTime()), To: whole(req.GetEndTime()), Most: int(req.GetMaxSlots()),
	}
	switch window := sim.To.Sub(sim.From); {
	case window <= 0:
		return nil, usagef("--to: %s is not after --from", sim.To.Format(time.RFC3339))
	case window > state.MaxSlotWindow:
		return nil, usagef("--to: the window is %s; at most %s are allowed", window, state.MaxSlotWindow)
	}
	if c := slices.Concat(sim.Job.Spec.ExcludedCalendars, sim.Job.Spec.OnlyCalendars); len(c) > 0 {
		return nil, usagef("calendar %s: calendars are in the cluster; leave --offline out", c[0])
	}
	resp, err := ledger.Simulate(sim)
	if err != nil {
		return nil, usageError{err}
	}
	return resp, nil
}

// whole is a time, rounded up to a whole second as the API does.
func whole(t *timestamppb.Timestamp) time.Time {
	at := t.AsTime()
	if cut := at.Truncate(time.Second); !cut.Equal(at) {
		return cut.Add(time.Second)
	}
	return at
}

func (q *simulateOptions) print(w io.Writer, req *leaderdv1.SimulateJobRequest, s *leaderdv1.SimulateJobResponse) error {
	if q.f != formatTable {
		return printOne(w, q.f, s)
	}
	t := newTable(w)
	t.row("job:", shortJob(req.GetJob().GetName()))
	t.row("window:", instant(s.GetStartTime())+" to "+instant(s.GetEndTime()))
	if s.GetComputedUntil().AsTime().Before(s.GetEndTime().AsTime()) {
		t.row("computed:", "up to "+instant(s.GetComputedUntil())+"; what follows is about that time")
	}
	slots := fmt.Sprint(s.GetSlotCount())
	if n := s.GetSkippedCount(); n > 0 {
		slots += fmt.Sprintf(", of which %d would be skipped", n)
	}
	t.row("slots:", slots)
	if diff := s.GetDiff(); diff != nil {
		t.row("against:", fmt.Sprintf("version %d: %d added, %d removed, %d unchanged", diff.GetGeneration(), diff.GetAdded(), diff.GetRemoved(), diff.GetUnchanged()))
	}
	if f := s.GetForecast(); f != nil {
		t.row("took:", fmt.Sprintf("p50 %s, p95 %s in %d runs", protoSpan(f.GetP50()), protoSpan(f.GetP95()), f.GetRuns()))
		text := fmt.Sprintf("%d at p50, %d at p95", f.GetOverlapsP50(), f.GetOverlapsP95())
		if f.GetFirstOverlap() != nil {
			text += ", the first at " + instant(f.GetFirstOverlap())
		}
		t.row("overlaps:", text)
		t.row("policy:", f.GetPolicy())
	}
	if c := s.GetCollisions(); c != nil {
		t.row("collisions:", fmt.Sprintf("looked at %d slots and %d other jobs", c.GetSlots(), c.GetJobs()))
	}
	if err := t.flush(); err != nil {
		return err
	}
	return printSimulated(w, s, overlapsOf(s))
}

// overlapsOf are what the forecast says of each listed slot: what becomes of it if runs
// take p50, or else if they take p95; nil where that is nothing of any.
func overlapsOf(s *leaderdv1.SimulateJobResponse) []string {
	out, any := make([]string, len(s.GetSlots())), false
	for i, one := range s.GetSlots() {
		switch at50, at95 := one.GetOverlapP50(), one.GetOverlapP95(); {
		case at50 != "":
			out[i], any = "p50: "+at50, true
		case at95 != "":
			out[i], any = "p95: "+at95, true
		}
	}
	if !any {
		return nil
	}
	return out
}

// printSimulated prints the lists of a simulation. overlaps are of the slots, or nil.
func printSimulated(w io.Writer, s *leaderdv1.SimulateJobResponse, overlaps []string) error {
	warnings := s.GetClockWarnings()
	if err := section(w, len(warnings), []string{"CLOCK CHANGE", "SCHEDULE", "EFFECT", "WHAT"}, func(i int) []string {
		c := warnings[i]
		return []string{instant(c.GetTime()), c.GetSchedule(), c.GetEffect(), c.GetDetail()}
	}); err != nil {
		return err
	}
	changed := map[int64]string{}
	var differs []*timestamppb.Timestamp
	for _, t := range s.GetDiff().GetFirstAdded() {
		differs, changed[t.GetSeconds()] = append(differs, t), "added"
	}
	for _, t := range s.GetDiff().GetFirstRemoved() {
		differs, changed[t.GetSeconds()] = append(differs, t), "removed"
	}
	slices.SortFunc(differs, func(a, b *timestamppb.Timestamp) int { return a.AsTime().Compare(b.AsTime()) })
	if err := section(w, len(differs), []string{"FIRST CHANGES", "WHAT"}, func(i int) []string {
		return []string{instant(differs[i]), changed[differs[i].GetSeconds()]}
	}); err != nil {
		return err
	}
	worst := s.GetCollisions().GetWorst()
	if err := section(w, len(worst), []string{"BUSY SECOND", "OTHERS", "SUCH AS"}, func(i int) []string {
		var names []string
		for _, name := range worst[i].GetNames() {
			names = append(names, shortJob(name))
		}
		return []string{instant(worst[i].GetTime()), fmt.Sprint(worst[i].GetOthers()), strings.Join(names, ", ")}
	}); err != nil {
		return err
	}
	header := []string{"SLOT", "LOCAL", "STARTS", "SKIPPED"}
	if overlaps != nil {
		header = append(header, "OVERLAP")
	}
	return section(w, len(s.GetSlots()), header, func(i int) []string {
		one := s.GetSlots()[i]
		starts := "+" + span(one.GetDueTime().AsTime().Sub(one.GetSlotTime().AsTime()))
		if one.GetSkipped() != "" {
			starts = ""
		}
		if overlaps != nil && strings.HasPrefix(overlaps[i], "p50: ") {
			starts = "" // or not at its time
			if fate := overlaps[i][len("p50: "):]; strings.HasPrefix(fate, "starts") || strings.HasPrefix(fate, "stops") {
				starts = "+" + span(one.GetDueTime().AsTime().Sub(one.GetSlotTime().AsTime()))
			}
		}
		row := []string{instant(one.GetSlotTime()), one.GetLocalTime(), starts, one.GetSkipped()}
		if overlaps != nil {
			row = append(row, overlaps[i])
		}
		return row
	})
}

package api

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leaderd/leaderd/internal/ledger"
	"github.com/leaderd/leaderd/planner"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/store"
)

const (
	// defaultSpan is how long a simulation's window is.
	defaultSpan = 7 * 24 * time.Hour
	// measuredRuns is how many of a job's last runs are measured.
	measuredRuns = 200
	// busiest is how many seconds are answered.
	busiest = 10
)

// SimulateJob implements leaderdv1.TimelineServiceServer.
func (s *timelineService) SimulateJob(ctx context.Context, req *leaderdv1.SimulateJobRequest) (*leaderdv1.SimulateJobResponse, error) {
	var v state.Violations
	id := parseJob(&v, "job.name", req.GetJob().GetName())
	checkSpec(&v, req.GetJob().GetSpec())
	sim := s.simulation(&v, req)
	if err := refuse(v); err != nil {
		return nil, err
	}
	sim.Job.ID = id
	entry, err := s.cfg.Reader.GetJob(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return nil, s.fail(ctx, req.GetJob().GetName(), err)
	case entry.Broken == nil: // with one that is broken nothing can be compared
		sim.Live = &entry.Job
		if slices.Equal(sim.Live.Spec.Schedules, sim.Job.Spec.Schedules) &&
			cmp.Or(sim.Live.Spec.TimeZone, state.DefaultTimeZone) == cmp.Or(sim.Job.Spec.TimeZone, state.DefaultTimeZone) {
			sim.Job.Anchor = sim.Live.Anchor
		}
	}
	if sim.Job.Calendars, err = s.calendarsOf(ctx, &v, id.Namespace, &sim.Job.Spec); err != nil {
		return nil, s.fail(ctx, req.GetJob().GetName(), err)
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	page, err := s.cfg.Runs.ListRuns(ctx, store.ListRuns{Namespace: id.Namespace, Job: id.Name, Limit: measuredRuns})
	if err != nil {
		return nil, s.fail(ctx, req.GetJob().GetName(), err)
	}
	sim.Durations = durationsOf(page.Runs)
	res, err := ledger.Simulate(sim)
	if err != nil {
		v.Add("job.spec", "%s", err)
		return nil, refuse(v)
	}
	res.Collisions = s.collisions(id, res.GetSlots())
	return res, nil
}

// calendarsOf are the calendars that a spec names, as they are now.
func (s *timelineService) calendarsOf(
	ctx context.Context, v *state.Violations, namespace string, spec *state.JobSpec,
) ([]state.JobCalendar, error) {
	var out []state.JobCalendar
	for _, name := range slices.Concat(spec.ExcludedCalendars, spec.OnlyCalendars) {
		entry, err := s.cfg.Calendars.GetCalendar(ctx, state.CalendarID{Namespace: namespace, Name: name})
		switch {
		case errors.Is(err, store.ErrNotFound):
			v.Add("job.spec", "there is no calendar %q in the job's namespace", name)
		case err != nil:
			return nil, err
		case entry.Broken != nil:
			v.Add("job.spec", "the stored calendar %q cannot be read", name)
		default:
			out = append(out, state.JobCalendar{Name: name, Revision: entry.Calendar.Revision, Spec: entry.Calendar.Spec})
		}
	}
	return out, nil
}

// simulation is what a request asks for.
func (s *timelineService) simulation(v *state.Violations, req *leaderdv1.SimulateJobRequest) *ledger.Simulation {
	now := s.cfg.Wall().UTC()
	sim := &ledger.Simulation{From: now.Truncate(time.Second).Add(time.Second), Most: defaultPage}
	sim.Job.Anchor = now
	if spec := req.GetJob().GetSpec(); spec != nil {
		sim.Job.Spec = codec.SpecFromProto(spec)
	}
	if req.GetStartTime() != nil {
		sim.From = checkedTime(v, "startTime", req.GetStartTime())
	}
	sim.To = sim.From.Add(defaultSpan)
	if req.GetEndTime() != nil {
		sim.To = checkedTime(v, "endTime", req.GetEndTime())
	}
	if !sim.From.IsZero() && !sim.To.IsZero() {
		checkWindow(v, sim.From, sim.To)
	}
	switch n := int(req.GetMaxSlots()); {
	case n < 0 || n > state.MaxSimulatedSlots:
		v.Add("maxSlots", "%d is outside 1–%d, or 0 for %d", n, state.MaxSimulatedSlots, defaultPage)
	case n > 0:
		sim.Most = n
	}
	return sim
}

// durationsOf are how long attempts that came to an end of their own took.
func durationsOf(runs []store.RunEntry) []time.Duration {
	var out []time.Duration
	for i := range runs {
		rec := runs[i].Record
		if rec == nil || len(rec.Attempts) == 0 {
			continue
		}
		a := &rec.Attempts[len(rec.Attempts)-1]
		ended := a.State == state.StateSucceeded || a.State == state.StateFailed || a.State == state.StateTimedOut
		if ended && !a.Started.IsZero() && a.Ended.After(a.Started) {
			out = append(out, a.Ended.Sub(a.Started))
		}
	}
	return out
}

// collisions are the seconds of slots in which most other jobs are due.
func (s *timelineService) collisions(id state.JobID, slots []*leaderdv1.SimulatedSlot) *leaderdv1.Collisions {
	instants := make([]time.Time, 0, len(slots))
	for _, slot := range slots {
		if slot.GetSkipped() == "" {
			instants = append(instants, slot.GetDueTime().AsTime())
		}
	}
	slices.SortFunc(instants, time.Time.Compare) // by jitter they may have changed places
	jobs, found := s.cfg.Jobs.Together(instants, id)
	res := &leaderdv1.Collisions{Jobs: int64(jobs), Slots: int64(len(found))}
	slices.SortStableFunc(found, func(a, b planner.Together) int { return cmp.Compare(b.Jobs, a.Jobs) })
	for _, t := range found[:min(len(found), busiest)] {
		if t.Jobs == 0 {
			break
		}
		second := &leaderdv1.BusySecond{Time: timeOf(t.At), Others: int64(t.Jobs)}
		for _, other := range t.Some {
			second.Names = append(second.Names, jobName(other))
		}
		res.Worst = append(res.Worst, second)
	}
	return res
}

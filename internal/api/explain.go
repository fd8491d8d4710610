package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/internal/ledger"
	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/planner/schedule"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// behind is how old a watermark may be before it is an obstacle: the leader writes it
// at least every few seconds.
const behind = 30 * time.Second

// Obstacles that are no reason of a verdict.
const (
	obstacleNoLeader = "no_leader"
	obstacleBehind   = "behind"
)

// ExplainSlot implements leaderdv1.TimelineServiceServer.
func (s *timelineService) ExplainSlot(ctx context.Context, req *leaderdv1.ExplainSlotRequest) (*leaderdv1.ExplainSlotResponse, error) {
	var v state.Violations
	id := parseJobName(&v, req.GetName())
	at := explained(&v, req)
	if err := refuse(v); err != nil {
		return nil, err
	}
	in, err := s.versions(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, req.GetName(), err)
	}
	note := ""
	if local := req.GetLocalTime(); local != "" {
		if at, note, err = localInstant(zoneThen(in.Spans), local); err != nil {
			v.Add("localTime", "%s", err)
			return nil, refuse(v)
		}
	}
	if at.Nanosecond() == 0 {
		page, err := s.cfg.Runs.ListSlots(ctx, store.ListSlots{Job: id, From: at, To: at.Add(time.Second), Limit: 1})
		if err != nil {
			return nil, s.fail(ctx, req.GetName(), err)
		}
		in.Records, in.Floor = page.Slots, page.Floor
	}
	x := ledger.Explain(in, at)
	res := explanationOf(&x)
	res.Name = req.GetName()
	if note != "" {
		res.Summary = note + " " + res.GetSummary()
	}
	if in.Mark.Revision != 0 {
		res.Watermark = timeOf(in.Mark.Instant)
	}
	if namesBlocker(&x) {
		blocker, err := s.blocker(ctx, id, at)
		if err != nil {
			return nil, s.fail(ctx, req.GetName(), err)
		}
		if blocker != "" {
			res.Summary += " " + blocker
		}
	}
	if err := s.addBackfills(ctx, res, id, at); err != nil {
		return nil, s.fail(ctx, req.GetName(), err)
	}
	if e := x.Entry; e != nil && (e.Answer == leaderdv1.Slot_ANSWER_PLANNED || e.Answer == leaderdv1.Slot_ANSWER_OPEN) {
		if res.Obstacles, err = s.obstacles(ctx, in, &x); err != nil {
			return nil, s.fail(ctx, req.GetName(), err)
		}
	}
	return res, nil
}

// explained is the instant that is asked about; zero for a local time.
func explained(v *state.Violations, req *leaderdv1.ExplainSlotRequest) time.Time {
	switch req.GetAt().(type) {
	case *leaderdv1.ExplainSlotRequest_Time:
		t := req.GetTime()
		if checkedTime(v, "time", t).IsZero() {
			return time.Time{}
		}
		return t.AsTime()
	case *leaderdv1.ExplainSlotRequest_LocalTime:
		if req.GetLocalTime() == "" {
			v.Add("localTime", "is empty; expected is one such as 2027-03-28T02:30")
		}
	default:
		v.Add("at", "is required: a time or a local time")
	}
	return time.Time{}
}

// zoneThen is the zone of a job's newest version.
func zoneThen(spans []ledger.Span) string {
	if n := len(spans); n > 0 && spans[n-1].Version.Job.Spec.TimeZone != "" {
		return spans[n-1].Version.Job.Spec.TimeZone
	}
	return state.DefaultTimeZone
}

// localInstant is the instant at which a zone's clock shows a local time, and what is
// to be said about that.
func localInstant(zone, local string) (at time.Time, note string, err error) {
	shown, err := schedule.Show(zone, local)
	switch {
	case err != nil:
		return time.Time{}, "", err
	case len(shown.At) == 0:
		return shown.Gap, fmt.Sprintf("The local time %s does not exist in %s; this is about the first instant after the gap, %s.",
			local, zone, shown.Gap.Format(time.RFC3339)), nil
	case len(shown.At) > 1:
		return shown.At[0], fmt.Sprintf("The local time %s occurs twice in %s, at %s and at %s; this is about the first.",
			local, zone, shown.At[0].Format(time.RFC3339), shown.At[1].Format(time.RFC3339)), nil
	}
	return shown.At[0], "", nil
}

// explanationOf is an explanation as it is answered.
func explanationOf(x *ledger.Explanation) *leaderdv1.ExplainSlotResponse {
	res := &leaderdv1.ExplainSlotResponse{
		Time: timeOf(x.At), Summary: x.Summary(), PreviousSlot: timeOf(x.Before), NextSlot: timeOf(x.After),
	}
	if x.Entry != nil {
		res.Slot = slotOf(x.Entry)
	}
	if x.Span != nil && x.Span.Kind != ledger.KindUnknown {
		res.Version = refOf(&x.Span.Version)
	}
	for _, a := range x.Schedules {
		answer := &leaderdv1.ScheduleAnswer{
			Schedule: a.Text, Due: a.Due, Zone: a.Zone, LocalTime: a.Wall, Previous: timeOf(a.Before), Next: timeOf(a.After),
		}
		for i, m := range a.Misses {
			if i == 0 {
				answer.ExcludedBy = m.Field
			}
			answer.Reasons = append(answer.GetReasons(), m.Why)
		}
		if a.Note != "" {
			answer.Reasons = append(answer.GetReasons(), a.Note)
		}
		res.Schedules = append(res.Schedules, answer)
	}
	for _, e := range x.Events() {
		res.Events = append(res.Events, &leaderdv1.SlotEvent{Time: timeOf(e.Time), What: e.What})
	}
	return res
}

// namesBlocker tells whether the slot was skipped since another run of its own job was
// live. The holder of a concurrency key may be of another job; the verdict names it.
func namesBlocker(x *ledger.Explanation) bool {
	e := x.Entry
	if e == nil || e.Run == nil || e.Run.Record == nil {
		return false
	}
	r := e.Run.Record
	return r.State == state.StateSkipped && r.Reason == state.ReasonOverlap && (x.Spec == nil || x.Spec.ConcurrencyKey == "")
}

// blockers is how many runs before a slot are looked at for the one that was live.
const blockers = 64

// blocker names the run that was live at a slot, empty if it is not found.
func (s *timelineService) blocker(ctx context.Context, id state.JobID, at time.Time) (string, error) {
	page, err := s.cfg.Runs.ListRuns(ctx, store.ListRuns{
		Namespace: id.Namespace, Job: id.Name, AfterJob: id, AfterRun: state.SlotRunID(at), Limit: blockers,
	})
	if err != nil {
		return "", err
	}
	for i := range page.Runs {
		e := &page.Runs[i]
		if len(e.Live) > 0 {
			return fmt.Sprintf("Run %s is live since %s.", e.Run, e.Live[0].Claimed.UTC().Format(time.RFC3339)), nil
		}
		if e.Record == nil || len(e.Record.Attempts) == 0 {
			continue
		}
		a := e.Record.Attempts
		if from, to := a[0].Claimed, a[len(a)-1].Ended; !from.After(at) && to.After(at) {
			return fmt.Sprintf("Run %s was live from %s to %s.", e.Run, from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339)), nil
		}
	}
	return "", nil
}

// obstacles are what could keep a slot from starting, as things are now.
func (s *timelineService) obstacles(ctx context.Context, in *ledger.Input, x *ledger.Explanation) ([]*leaderdv1.Obstacle, error) {
	job := &x.Span.Version.Job
	var out []*leaderdv1.Obstacle
	add := func(reason, format string, args ...any) {
		out = append(out, &leaderdv1.Obstacle{Reason: reason, Detail: fmt.Sprintf(format, args...)})
	}
	if leader, _ := s.cfg.Leadership.Leader(); leader == "" {
		add(obstacleNoLeader, "no node leads: executors start what they have in their plan, and nothing is planned anew")
	} else if lag := in.Now.Sub(in.Mark.Instant); in.Mark.Revision == 0 || lag > behind {
		add(obstacleBehind, "the leader %s is behind: the watermark is at %s", leader, in.Mark.Instant.UTC().Format(time.RFC3339))
	}
	executors, match := 0, 0
	selector := planner.Compile(job).Selector
	for _, n := range s.cfg.Nodes.Nodes() {
		if n.Executor && n.Capacity > 0 {
			executors++
			if selector.Matches(n.Labels, n.Resources) {
				match++
			}
		}
	}
	switch {
	case executors == 0:
		add(state.ReasonNoExecutor, "no executor is registered")
	case match == 0:
		add(state.ReasonNoMatchingNode, "none of %d executors has the labels of the nodeSelector and the resources: %s", executors, wanted(&job.Spec))
	}
	if !job.Spec.Exclusive() {
		return out, nil
	}
	holder, held, err := s.cfg.Runs.GateHolder(ctx, job.ID)
	if errors.Is(err, store.ErrCorrupt) {
		add(state.ReasonUnreadable, "the record of the job's last run cannot be read: key %q", s.cfg.Watermark.GateKey(job.ID))
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	if held && holder.Run != state.SlotRunID(x.At) {
		since := ""
		if holder.State == state.StateRunning {
			since = fmt.Sprintf(" on %s since %s", holder.Owner.Node, holder.Claimed.UTC().Format(time.RFC3339))
		}
		add(state.ReasonOverlap, "run %s is %s%s; while it is live no other run of the job starts", holder.Run, holder.State, since)
	}
	return out, nil
}

// wanted is what a job asks of executors.
func wanted(s *state.JobSpec) string {
	all := labels(s.Selector)
	if s.Resources != nil {
		all = strings.TrimPrefix(all+", "+s.Resources.String(), ", ")
	}
	return all
}

func labels(of map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, key+"="+of[key])
	}
	return strings.Join(out, ", ")
}

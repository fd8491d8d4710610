package ledger

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/planner/schedule"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

const (
	// maxSimulated is how many slots a simulation computes.
	maxSimulated = 100_000
	// maxWarnings bounds the clock changes that are told.
	maxWarnings = 100
	// maxDiffers bounds the slots that a comparison names.
	maxDiffers = 10
)

// Simulation is what Simulate is asked for.
type Simulation struct {
	// Job has the ID, the spec with its calendars, and what @every counts from.
	Job state.Job
	// Live is the version to compare with; nil for none.
	Live *state.Job
	// From and To are the window, [From, To), in whole seconds.
	From, To time.Time
	// Most is the most slots to list.
	Most int
	// Durations are those of the job's last runs, in any order; they are sorted.
	Durations []time.Duration
}

// Simulate says what a spec would do over a window. It looks at nothing but what it is
// given; a cluster's collisions are not in the answer. The error is what keeps the job
// from being planned.
func Simulate(s *Simulation) (*leaderdv1.SimulateJobResponse, error) {
	job := always(&s.Job, s.From)
	if job.Broken != nil {
		return nil, job.Broken
	}
	loc, err := schedule.Location(zoneOf(&s.Job.Spec))
	if err != nil {
		return nil, err
	}
	res := &leaderdv1.SimulateJobResponse{
		StartTime: stamp(s.From), EndTime: stamp(s.To), ComputedUntil: stamp(s.To), AnchorTime: stamp(s.Job.Anchor),
	}
	if res.ClockWarnings, err = clockWarnings(s); err != nil {
		return nil, err
	}
	var live *planner.Job
	if s.Live != nil {
		if live = always(s.Live, s.From); live.Broken == nil {
			res.Diff = &leaderdv1.SlotDiff{Generation: s.Live.Generation}
		}
	}
	f := newForecast(s)
	last := s.To.Add(-time.Second)
	after := s.From.Add(-time.Second)
	for range maxSimulated {
		slot := limited(job.NextSlot(after), last)
		var was time.Time
		if res.GetDiff() != nil {
			was = limited(live.NextSlot(after), last)
		}
		if slot.IsZero() && was.IsZero() {
			res.Forecast = f.answer()
			return res, nil
		}
		after = slot
		if slot.IsZero() || !was.IsZero() && was.Before(slot) {
			after = was
		}
		if d := res.GetDiff(); d != nil {
			compare(d, slot.Equal(after), was.Equal(after), after)
		}
		if !slot.Equal(after) {
			continue
		}
		res.SlotCount++
		bar, barred := job.Bar(slot)
		if why, paused := pausedThen(s.Live, slot); paused && !barred {
			bar, barred = planner.Bar{Reason: state.ReasonPaused, Detail: why}, true
		}
		var one *leaderdv1.SimulatedSlot
		if len(res.GetSlots()) < s.Most {
			one = &leaderdv1.SimulatedSlot{SlotTime: stamp(slot), LocalTime: slot.In(loc).Format(time.RFC3339), DueTime: stamp(job.Due(slot))}
			if barred {
				one.Skipped = bar.Reason + ": " + bar.Detail
			}
			res.Slots = append(res.Slots, one)
		}
		if barred {
			res.SkippedCount++
		} else {
			f.run(job.Due(slot), one)
		}
	}
	res.ComputedUntil = stamp(after.Add(time.Second))
	res.Forecast = f.answer()
	return res, nil
}

// pausedThen tells whether the live job is paused at a slot: a change leaves that as it
// is.
func pausedThen(live *state.Job, slot time.Time) (why string, paused bool) {
	switch {
	case live == nil || !live.Paused:
		return "", false
	case live.PausedUntil.IsZero():
		return "the job is paused", true
	case !slot.After(live.PausedUntil):
		return "the job is paused until " + live.PausedUntil.UTC().Format(time.RFC3339), true
	}
	return "", false
}

// always is a job as if its version had been in force since before an instant.
func always(j *state.Job, from time.Time) *planner.Job {
	c := *j
	c.Paused, c.PausedUntil, c.Effective = false, time.Time{}, from.Add(-time.Second)
	return planner.Compile(&c)
}

func zoneOf(spec *state.JobSpec) string {
	if spec.TimeZone == "" {
		return state.DefaultTimeZone
	}
	return spec.TimeZone
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func compare(d *leaderdv1.SlotDiff, is, was bool, at time.Time) {
	switch {
	case is && was:
		d.Unchanged++
	case is:
		if d.Added++; len(d.GetFirstAdded()) < maxDiffers {
			d.FirstAdded = append(d.FirstAdded, stamp(at))
		}
	default:
		if d.Removed++; len(d.GetFirstRemoved()) < maxDiffers {
			d.FirstRemoved = append(d.FirstRemoved, stamp(at))
		}
	}
}

func clockWarnings(s *Simulation) ([]*leaderdv1.ClockWarning, error) {
	options := planner.ScheduleOptions(&s.Job)
	if s.Job.Spec.MissingTime == state.MissingSkip {
		options.Missing = schedule.MissingSkip
	}
	var out []*leaderdv1.ClockWarning
	for _, text := range s.Job.Spec.Schedules {
		compiled, err := schedule.Parse(text, options)
		if err != nil {
			return nil, err
		}
		for _, c := range compiled.ClockChanges(s.From.Add(-time.Second), s.To.Add(-time.Second), maxWarnings-len(out)) {
			out = append(out, &leaderdv1.ClockWarning{
				Schedule: text, Time: stamp(c.At), OffsetBefore: durationpb.New(c.Before), OffsetAfter: durationpb.New(c.After),
				LocalTime: c.First, Count: c.Times, Effect: c.Effect.String(), Detail: clockWords(&c),
			})
		}
	}
	slices.SortStableFunc(out, func(a, b *leaderdv1.ClockWarning) int { return a.GetTime().AsTime().Compare(b.GetTime().AsTime()) })
	return out, nil
}

func clockWords(c *schedule.ClockChange) string {
	local := c.First
	if c.Times > 1 {
		local += fmt.Sprintf(" and %d more", c.Times-1)
	}
	from := c.At.UTC().Add(c.Before).Format(time.TimeOnly)
	to := c.At.UTC().Add(c.After).Format(time.TimeOnly)
	out := fmt.Sprintf("the clock is set from %s to %s: %s ", from, to, local)
	switch c.Effect {
	case schedule.EffectShifted:
		return out + "left out, run once right after"
	case schedule.EffectSkipped:
		return out + "left out, not made up for"
	case schedule.EffectFirst:
		return out + "come twice, run the first time"
	case schedule.EffectLast:
		return out + "come twice, run the second time"
	case schedule.EffectBoth:
	}
	return out + "come twice, run both times"
}

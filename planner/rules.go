package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/planner/calendar"
	"github.com/leaderd/leaderd/planner/schedule"
	"github.com/leaderd/leaderd/state"
)

// rules are what keeps slots from running at their instants.
type rules struct {
	jitter time.Duration
	// regular are the schedules without what they make up for after a gap; set
	// where the job skips that.
	regular []schedule.Schedule
	// excluded and only are the job's calendars.
	excluded, only []namedCalendar
}

type namedCalendar struct {
	name string
	*calendar.Calendar
}

func compileRules(j *state.Job, spec *state.JobSpec) (*rules, error) {
	r := &rules{jitter: spec.Jitter}
	var err error
	if spec.MissingTime == state.MissingSkip {
		if r.regular, err = parseAll(j, spec, schedule.MissingSkip); err != nil {
			return nil, err
		}
	}
	if r.excluded, err = compileCalendars(j, spec, spec.ExcludedCalendars); err != nil {
		return nil, fmt.Errorf("spec.excludedCalendars: %w", err)
	}
	if r.only, err = compileCalendars(j, spec, spec.OnlyCalendars); err != nil {
		return nil, fmt.Errorf("spec.onlyCalendars: %w", err)
	}
	if r.jitter == 0 && r.regular == nil && r.excluded == nil && r.only == nil {
		return nil, nil //nolint:nilnil // most jobs have none
	}
	return r, nil
}

func compileCalendars(j *state.Job, spec *state.JobSpec, names []string) ([]namedCalendar, error) {
	var out []namedCalendar
	for _, name := range names {
		i := slices.IndexFunc(j.Calendars, func(c state.JobCalendar) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("calendar %s: is not with the stored job", name)
		}
		c, err := calendar.Compile(&j.Calendars[i].Spec, spec.TimeZone)
		if err != nil {
			return nil, fmt.Errorf("calendar %s: %w", name, err)
		}
		out = append(out, namedCalendar{name, c})
	}
	return out, nil
}

// Bar is why a slot does not run.
type Bar struct {
	// Reason is state.ReasonDST or state.ReasonCalendar.
	Reason string
	// Detail names the calendar and the entry.
	Detail string
}

// Bar tells why a slot of the job does not run, and ok where that is so.
func (j *Job) Bar(slot time.Time) (bar Bar, ok bool) {
	r := j.rules
	if r == nil {
		return Bar{}, false
	}
	if r.regular != nil && !slices.ContainsFunc(r.regular, func(s schedule.Schedule) bool { return s.Prev(slot).Equal(slot) }) {
		return Bar{state.ReasonDST, "stands for local times that the clock left out, which the job skips"}, true
	}
	for i := range r.excluded {
		if entry, in := r.excluded[i].Covers(slot); in {
			return Bar{state.ReasonCalendar, fmt.Sprintf("in calendar %s: %s", r.excluded[i].name, entry)}, true
		}
	}
	if len(r.only) == 0 {
		return Bar{}, false
	}
	names := make([]string, len(r.only))
	for i := range r.only {
		if _, in := r.only[i].Covers(slot); in {
			return Bar{}, false
		}
		names[i] = r.only[i].name
	}
	return Bar{state.ReasonCalendar, "outside of calendar " + strings.Join(names, ", ")}, true
}

// steady is an instant after a slot that a calendar bars, before which calendars bar all
// others.
func (r *rules) steady(slot time.Time) time.Time {
	until := time.Time{}
	for _, all := range [][]namedCalendar{r.excluded, r.only} {
		for i := range all {
			if t := all[i].Steady(slot); until.IsZero() || t.Before(until) {
				until = t
			}
		}
	}
	return until
}

// Due is when a slot of the job is due: its instant and the job's jitter.
func (j *Job) Due(slot time.Time) time.Time {
	if j.rules == nil || j.rules.jitter == 0 {
		return slot
	}
	return slot.Add(state.Jitter(j.ID, slot, j.rules.jitter))
}

// jitter is how long after its instant a slot is due at most.
func (j *Job) jitter() time.Duration {
	if j.rules == nil {
		return 0
	}
	return j.rules.jitter
}

// firstOf is the first slot that may belong to a part, or the zero time: all that do
// are this one or later.
func (j *Job) firstOf(p part) time.Time {
	return j.NextSlot(later(p.after, p.from.Add(-j.jitter())))
}

// mayOwe tells whether slots of a part may be due.
func (j *Job) mayOwe(p part) bool {
	first := j.firstOf(p)
	return !first.IsZero() && !first.After(p.until)
}

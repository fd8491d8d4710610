package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// Event is something that happened to a slot.
type Event struct {
	Time time.Time
	What string
}

// Summary is the explanation in a sentence or two.
func (x *Explanation) Summary() string {
	if x.Entry == nil {
		return "No slot: " + x.excluded() + "." + x.Jittered
	}
	switch e := x.Entry; e.Answer {
	case leaderdv1.Slot_ANSWER_VERDICT, leaderdv1.Slot_ANSWER_LIVE:
		return x.recorded(e.Run)
	case leaderdv1.Slot_ANSWER_OPEN:
		return "It is due and has not started. No verdict is stored yet: the leader plans it, or decides it once its deadline or a newer slot says so."
	case leaderdv1.Slot_ANSWER_PLANNED:
		out := fmt.Sprintf("It will be due by version %d if nothing changes", e.Generation)
		if e.Detail != "" {
			out += "; " + e.Detail
		}
		return out + "."
	case leaderdv1.Slot_ANSWER_PAUSED:
		return fmt.Sprintf("It did not count: the job was paused, %s. Slots of a pause are not caught up.", whose(&e.By.By))
	case leaderdv1.Slot_ANSWER_SUPERSEDED:
		return fmt.Sprintf("It was a slot of version %d, which version %d superseded before it was due: %s.",
			e.Generation, e.By.Version.Job.Generation, whose(&e.By.Version))
	case leaderdv1.Slot_ANSWER_DELETED:
		return fmt.Sprintf("It did not count: the job was deleted, %s.", whose(&e.By.Version))
	case leaderdv1.Slot_ANSWER_QUARANTINED:
		return fmt.Sprintf("Not known: version %d cannot be planned and is due never: %v.", e.By.Version.Job.Generation, e.By.Broken)
	case leaderdv1.Slot_ANSWER_UNKNOWN:
		return fmt.Sprintf("Not known: of the job's versions the newest %d are kept, and they begin later.", state.MaxVersionsKept)
	case leaderdv1.Slot_ANSWER_REMOVED:
		return fmt.Sprintf("Its record was removed by retention, with others up to %s: what became of it is not known any more. spec.retention says for how long runs are kept.",
			x.Floor.UTC().Format(time.RFC3339))
	case leaderdv1.Slot_ANSWER_UNEXPLAINED, leaderdv1.Slot_ANSWER_UNSPECIFIED:
	}
	return "It was due, the watermark has passed it, and it has no record: somebody deleted the record, or it was lost. Run leaderd verify."
}

// whose is who made a version, when and why.
func whose(v *state.JobVersion) string {
	out := fmt.Sprintf("by %s at %s", v.Actor, Effective(v).UTC().Format(time.RFC3339))
	if v.Reason != "" {
		out += fmt.Sprintf(" (%s)", v.Reason)
	}
	return out
}

// excluded is why the instant is no slot.
func (x *Explanation) excluded() string {
	switch {
	case x.At.Nanosecond() != 0:
		return "a slot is a whole second"
	case !x.Created.IsZero():
		return fmt.Sprintf("the job came into being at %s", x.Created.UTC().Format(time.RFC3339))
	case x.Span == nil:
		return "there is no version of the job"
	case x.Span.Kind == KindDeleted:
		return "the job was deleted, " + whose(&x.Span.Version)
	case len(x.Schedules) == 0:
		return "the job has no schedule; it runs only when it is triggered"
	}
	var parts []string
	for _, s := range x.Schedules {
		if len(s.Misses) == 0 { // an instant before the version was in force is none of it
			continue
		}
		why := s.Misses[0].Why
		if len(x.Schedules) > 1 {
			why = fmt.Sprintf("of %q %s", s.Text, why)
		}
		parts = append(parts, why)
	}
	return strings.Join(parts, "; ")
}

func live(l *state.Live) string {
	if l.State == state.StateRunning {
		return fmt.Sprintf("It is running: attempt %d on %s, planned in term %d, claimed %s after it was due.", l.Attempt, l.Owner.Node, l.Term,
			rounded(l.Claimed.Sub(l.Due)))
	}
	return fmt.Sprintf("It is waiting for attempt %d, which comes not before %s.", l.Attempt+1, l.NextTry.UTC().Format(time.RFC3339))
}

// rounded is a duration that people read.
func rounded(d time.Duration) time.Duration {
	if d.Abs() < time.Minute {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// Events are what happened to the slot, in order.
func (x *Explanation) Events() []Event {
	var out []Event
	if x.Span != nil && x.Span.Kind != KindUnknown {
		v := &x.Span.Version
		out = append(out, Event{Effective(v), fmt.Sprintf("version %d came into force (%s by %s)", v.Job.Generation, v.Change, v.Actor)})
	}
	if x.Entry == nil || x.Entry.Run == nil {
		return out
	}
	e := x.Entry.Run
	due := x.At
	if e.Record != nil && e.Record.Count <= 1 && !e.Record.Due.IsZero() {
		due = e.Record.Due
	}
	out = append(out, Event{due, "due"})
	add := func(t time.Time, format string, args ...any) {
		if !t.IsZero() {
			out = append(out, Event{t, fmt.Sprintf(format, args...)})
		}
	}
	attempts := func(all []state.Attempt) {
		for i := range all {
			a := &all[i]
			without := ""
			if a.Unclaimed {
				without = " without a claim, since " + a.Node + " could not reach the store"
				add(a.Claimed, "attempt %d recorded by %s, planned in term %d, token %d", a.Number, a.Node, a.Term, a.Token)
			} else {
				add(a.Claimed, "attempt %d claimed by %s, planned in term %d, token %d", a.Number, a.Node, a.Term, a.Token)
			}
			add(a.Started, "attempt %d started%s, %s after it was due", a.Number, without, rounded(a.Started.Sub(due)))
			end := a.State.String()
			if a.HasCode {
				end += fmt.Sprintf(", code %d", a.ExitCode)
			}
			if a.Error != "" {
				end += ": " + a.Error
			}
			add(a.Ended, "attempt %d ended: %s", a.Number, end)
		}
	}
	switch {
	case e.Record != nil:
		attempts(e.Record.Attempts)
		for i := range e.Record.Doubles {
			d := &e.Record.Doubles[i]
			add(d.Started, "it started beside that without a claim on %s, which could not reach the store", d.Node)
			add(d.Ended, "what %s had started ended: %s", d.Node, d.State)
		}
		name := e.Record.State.String()
		if e.Record.Reason != "" {
			name += ":" + e.Record.Reason
		}
		add(e.Record.Recorded, "verdict %s stored", name)
	case len(e.Live) > 0:
		l := &e.Live[0]
		attempts(l.Attempts)
		if l.State == state.StateRunning {
			add(l.Claimed, "attempt %d claimed by %s, planned in term %d, token %d", l.Attempt, l.Owner.Node, l.Term, l.Token)
		} else {
			add(l.NextTry, "attempt %d may start", l.Attempt+1)
		}
	case e.Pending != nil:
		add(e.Pending.Requested, "put in the queue")
	}
	slices.SortStableFunc(out, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return out
}

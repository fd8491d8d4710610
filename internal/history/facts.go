package history

import (
	"slices"
	"time"
)

// Version is a job as it was stored at a revision.
type Version struct {
	// Revision is etcd's ModRevision of the change.
	Revision int64
	// Effective is the instant after which slots of this version are due.
	Effective time.Time
	// Slack is how far Effective may be off, for changes whose instant is not
	// stored. Slots nearer than that to it may have a run or not.
	Slack time.Duration
	// Schedules are "@every" and cron expressions in UTC; see Due.
	Schedules []string
	// Anchor is what @every counts from.
	Anchor          time.Time
	Paused, Deleted bool
	AtMostOnce      bool
	// Exclusive runs do not overlap.
	Exclusive bool
	// Mark is what the work of this version writes down to tell it from others.
	Mark string
	// NoWork is set where the work writes nothing down.
	NoWork bool
}

func (v *Version) live() bool { return !v.Paused && !v.Deleted }

// Start is a start as the work wrote it down.
type Start struct {
	Job, Run string
	Attempt  int
	Token    int64
	Mark     string
	At       time.Time
}

// Attempt is one try at a run, as the API tells it. States are in lower case:
// succeeded, timed_out.
type Attempt struct {
	Number         int
	Token          int64
	Node           string
	State          string
	Started, Ended time.Time
}

// Run is a run or verdict as the API tells it.
type Run struct {
	Job, ID, State, Reason string
	Due, Until             time.Time
	// Count is how many slots the verdict stands for, from Due to Until.
	Count    int64
	Attempts []Attempt
}

const slotLayout = "20060102T150405Z"

// Slot is the run's slot; ok is false for one that was asked for.
func Slot(run string) (slot time.Time, ok bool) {
	t, err := time.Parse(slotLayout, run)
	return t, err == nil
}

// Facts is all that is known of a cluster's past.
type Facts struct {
	// Jobs has the versions of each job in order of revision.
	Jobs   map[string][]Version
	Starts []Start
	Runs   []Run
}

// Lateness tells how long after their slots first attempts started.
type Lateness struct {
	Starts        int
	P50, P99, Max time.Duration
}

// Lateness of the starts of slots in [from, to].
func (h *Facts) Lateness(from, to time.Time) Lateness {
	var all []time.Duration
	for i := range h.Starts {
		s := &h.Starts[i]
		if slot, ok := Slot(s.Run); ok && s.Attempt == 1 && !slot.Before(from) && !slot.After(to) {
			all = append(all, s.At.Sub(slot))
		}
	}
	if len(all) == 0 {
		return Lateness{}
	}
	slices.Sort(all)
	return Lateness{Starts: len(all), P50: all[len(all)/2], P99: all[len(all)*99/100], Max: all[len(all)-1]}
}

// Count tells how many runs have each "state" or "state:reason"; a verdict on
// several slots counts for each.
func (h *Facts) Count() map[string]int64 {
	out := map[string]int64{}
	for i := range h.Runs {
		r := &h.Runs[i]
		name := r.State
		if r.Reason != "" {
			name += ":" + r.Reason
		}
		out[name] += max(r.Count, 1)
	}
	return out
}

// Nodes tells which executor had each attempt.
func (h *Facts) Nodes() map[Holder]string {
	out := map[Holder]string{}
	for i := range h.Runs {
		for _, a := range h.Runs[i].Attempts {
			out[Holder{h.Runs[i].Job, a.Token}] = a.Node
		}
	}
	return out
}

// Holder names an attempt: among those of a job a token is unique.
type Holder struct {
	Job   string
	Token int64
}

package ledger

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// Overlap is what a forecast says of a slot.
type Overlap struct {
	// Live is set where an earlier run of the job would still be live.
	Live bool
	// Fate is what the job's overlap policy makes of the slot, and of the runs that
	// are live; empty where it starts as if there were no other.
	Fate string
}

// Course follows the runs of a job that all take the same time, by its overlap policy.
// Runs of other jobs that share a concurrency key are not known to it.
type Course struct {
	took   time.Duration
	policy state.Overlap
	limit  int // runs at a time; 0: any number
	queue  int // runs that wait at most

	live    []time.Time // ends of the runs that are live
	waiting []*Overlap
}

// NewCourse begins with no run live.
func NewCourse(spec *state.JobSpec, took time.Duration) *Course {
	gate := spec.Gate()
	return &Course{took: took, policy: spec.Overlap, limit: spec.Limit(), queue: gate.QueueLimit}
}

// Due takes in a slot that is due at an instant; instants do not go back by more than
// jitter has it. The fate of a slot that waits may change with later ones.
func (c *Course) Due(due time.Time) *Overlap {
	c.advance(due)
	o := &Overlap{Live: len(c.live) > 0}
	if c.limit == 0 || len(c.live) < c.limit {
		if o.Live {
			o.Fate = fmt.Sprintf("starts beside %d", len(c.live))
		}
		c.start(due)
		return o
	}
	switch c.policy {
	case state.OverlapQueue:
		if len(c.waiting) >= c.queue {
			o.Fate = "skipped: the queue is full"
			return o
		}
		o.Fate = "waits in the queue"
		c.waiting = append(c.waiting, o)
	case state.OverlapCancel:
		o.Fate = "stops the live run"
		c.live = c.live[1:]
		c.start(due)
	case state.OverlapReplace:
		o.Fate = "waits for the live run"
		for _, w := range c.waiting {
			w.Fate = "waits, and is replaced"
			o.Fate = "waits in the place of the one before"
		}
		c.waiting = []*Overlap{o}
	case state.OverlapSkip, state.OverlapAllow:
		o.Fate = "skipped"
	}
	return o
}

func (c *Course) start(at time.Time) {
	c.live = append(c.live, at.Add(c.took))
	slices.SortFunc(c.live, time.Time.Compare)
}

// advance ends the runs that are over at an instant, and starts those that waited for
// them.
func (c *Course) advance(to time.Time) {
	for len(c.live) > 0 && !c.live[0].After(to) {
		at := c.live[0]
		c.live = c.live[1:]
		if len(c.waiting) > 0 {
			c.waiting = c.waiting[1:]
			c.start(at)
		}
	}
}

// Policy is a job's overlap policy in words, such as "queue, at most 3".
func Policy(spec *state.JobSpec) string {
	gate := spec.Gate()
	out := spec.Overlap.String()
	switch {
	case spec.Overlap == state.OverlapQueue:
		out += fmt.Sprintf(", at most %d wait", gate.QueueLimit)
	case spec.Overlap == state.OverlapAllow && spec.Limit() == 0:
		return out
	}
	if spec.Limit() > 1 || spec.Overlap == state.OverlapAllow {
		out += fmt.Sprintf(", at most %d at a time", spec.Limit())
	}
	if spec.ConcurrencyKey != "" {
		out += fmt.Sprintf("; other jobs of concurrencyKey %s are left out", spec.ConcurrencyKey)
	}
	return out
}

// forecast counts the slots at which an earlier run would still be live.
type forecast struct {
	durations []time.Duration
	courses   [2]*Course // by p50 and by p95
	overlaps  [2]int64
	first     time.Time
	policy    string
	listed    []listed
}

// listed is a slot of the answer with what becomes of it, which later slots may change.
type listed struct {
	slot *leaderdv1.SimulatedSlot
	at   [2]*Overlap
}

func newForecast(s *Simulation) *forecast {
	slices.Sort(s.Durations)
	f := &forecast{durations: s.Durations}
	if len(f.durations) > 0 {
		spec := s.Job.Spec.WithDefaults()
		f.policy = Policy(&spec)
		f.courses = [2]*Course{NewCourse(&spec, f.percentile(50)), NewCourse(&spec, f.percentile(95))}
	}
	return f
}

// percentile is the least duration that so many of a hundred runs took at most.
func (f *forecast) percentile(of int) time.Duration {
	return f.durations[(len(f.durations)*of+99)/100-1]
}

// run takes in a slot that runs. slot is what the answer lists of it, or nil.
func (f *forecast) run(due time.Time, slot *leaderdv1.SimulatedSlot) {
	if len(f.durations) == 0 {
		return
	}
	one := listed{slot: slot}
	for i, course := range f.courses {
		one.at[i] = course.Due(due)
		if !one.at[i].Live {
			continue
		}
		f.overlaps[i]++
		if i == 1 && f.first.IsZero() {
			f.first = due
		}
	}
	if slot != nil {
		f.listed = append(f.listed, one)
	}
}

// answer is the forecast. It writes into the listed slots what becomes of them.
func (f *forecast) answer() *leaderdv1.DurationForecast {
	if len(f.durations) == 0 {
		return nil
	}
	for _, l := range f.listed {
		for i, to := range []*string{&l.slot.OverlapP50, &l.slot.OverlapP95} {
			if l.at[i].Live {
				*to = l.at[i].Fate
			}
		}
	}
	return &leaderdv1.DurationForecast{
		Runs: int32(len(f.durations)),
		P50:  durationpb.New(f.percentile(50)), P95: durationpb.New(f.percentile(95)),
		OverlapsP50: f.overlaps[0], OverlapsP95: f.overlaps[1], FirstOverlap: stamp(f.first),
		Policy: f.policy,
	}
}

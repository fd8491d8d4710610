package planner

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

const (
	// maxGateChecks is how many gates are looked at at a time: in an outage of the
	// store every claim is refused.
	maxGateChecks = 16
	// gatesAgain is how often a gate is looked at that could not be read.
	gatesAgain = 5 * time.Second
	// suspectAfter is how late a run is at whose gate nobody has looked yet.
	suspectAfter = 2 * time.Second
	// lateGateAgain is how often a gate is looked at whose job is late and that could
	// be read.
	lateGateAgain = 30 * time.Second
)

// gates are jobs at whose gate lies a record that cannot be read. None of their
// runs can be claimed, so each gets the verdict skipped when it is due, and the
// timeline goes on. Somebody who knows that no run of the job is at work may
// delete the record; nobody else can tell.
type gates struct {
	bad      map[state.JobID]error
	checking map[state.JobID]bool
	// looked is when a gate was looked at since its job is late.
	looked map[state.JobID]time.Time
	swept  time.Time
}

// suspectGateAgain is suspectGate, unless that was done within again.
func (t *term) suspectGateAgain(id state.JobID, again time.Duration, now time.Time) {
	if last, ok := t.gates.looked[id]; ok && now.Sub(last).Abs() < again {
		return
	}
	if t.suspectGate(id) {
		if t.gates.looked == nil {
			t.gates.looked = make(map[state.JobID]time.Time)
		}
		t.gates.looked[id] = now
	}
}

// suspectGate looks whether a job's gate can be read; false if it does not look, as
// too many are looked at.
func (t *term) suspectGate(id state.JobID) bool {
	if t.gates.checking[id] || len(t.gates.checking) >= maxGateChecks {
		return false
	}
	if t.gates.checking == nil {
		t.gates.checking = make(map[state.JobID]bool)
	}
	t.gates.checking[id] = true
	t.task(func(ctx context.Context) func() {
		err := t.store.CheckGate(ctx, id)
		return func() {
			delete(t.gates.checking, id)
			switch {
			case errors.Is(err, state.ErrUnreadable):
				t.badGate(id, err)
			case err == nil:
				t.goodGate(id)
			}
		}
	})
	return true
}

func (t *term) badGate(id state.JobID, err error) {
	if t.gates.bad[id] == nil {
		t.cfg.Logger.Error("the record at a job's gate cannot be read: its runs are skipped until the key is deleted, "+
			"which is safe once no run of the job is at work", "job", id, "err", err)
		if t.gates.bad == nil {
			t.gates.bad = make(map[state.JobID]error)
		}
		t.gates.bad[id] = err
		t.metrics.badGates.Set(float64(len(t.gates.bad)))
	}
	job, now := t.jobs[id], t.now()
	if job == nil {
		return
	}
	for _, e := range slices.Clone(job.open) {
		if e.waiting == nil && e.verdict == state.StateNone && e.bar == nil && e.start <= now.UnixMicro() {
			t.decideVersion(e, state.StateSkipped, state.ReasonUnreadable, now)
		}
	}
}

func (t *term) goodGate(id state.JobID) {
	if t.gates.bad[id] == nil {
		return
	}
	delete(t.gates.bad, id)
	t.metrics.badGates.Set(float64(len(t.gates.bad)))
	t.cfg.Logger.Info("the record at a job's gate can be read again, or is gone: the job goes on", "job", id)
	if job := t.jobs[id]; job != nil {
		for _, e := range job.open {
			if len(e.holders) == 0 && !e.deciding {
				t.place(e)
			}
		}
	}
}

// sweepGates looks again at what could not be read.
func (t *term) sweepGates(now time.Time) {
	if now.Sub(t.gates.swept).Abs() < gatesAgain {
		return
	}
	t.gates.swept = now
	maps.DeleteFunc(t.gates.looked, func(_ state.JobID, last time.Time) bool { return now.Sub(last).Abs() >= lateGateAgain })
	for id := range t.gates.bad {
		t.suspectGate(id)
	}
}

// badGates names them, in order, for the watermark.
func (t *term) badGates() []state.JobID {
	ids := slices.SortedFunc(maps.Keys(t.gates.bad), func(a, b state.JobID) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return ids[:min(len(ids), state.MaxUnreadableGates)]
}

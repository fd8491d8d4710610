package sim

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/planner/schedule"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// version is a job as it was stored from a revision on.
type version struct {
	state.Job
	revision int64
	at       time.Time // when it was stored
	deleted  bool
	ended    time.Time // when it was deleted, as that was stored
	broken   bool
	// from and to are the window (from, to] of its slots.
	from, to time.Time

	schedules []schedule.Schedule
	// plan tells what becomes of slots.
	plan *planner.Job
}

// due is a slot that a version made due, at an instant.
type due struct {
	slot, at time.Time
	by       *version
}

// oracle knows what was due, from the stored versions alone.
type oracle struct {
	versions map[state.JobID][]*version
}

func newOracle(a *audit) (*oracle, error) {
	o := &oracle{versions: map[state.JobID][]*version{}}
	events := a.all()
	deletions := map[int64]time.Time{}
	for i := range events {
		e := &events[i]
		if kind, _ := e.part(); kind != "versions" || e.Deleted {
			continue
		}
		var v statev1.Version
		if err := proto.Unmarshal(e.KV.Value, &v); err != nil {
			return nil, err
		}
		if state.Change(v.GetChange()) == state.ChangeDelete {
			deletions[e.revision] = codec.Time(v.GetTime())
		}
	}
	for i := range events {
		e := &events[i]
		kind, rest := e.part()
		if kind != "jobs" {
			continue
		}
		id, _ := jobOf(rest)
		v := &version{revision: e.revision, at: e.at, deleted: e.Deleted}
		v.ID = id
		if at, ok := deletions[e.revision]; ok && e.Deleted {
			v.ended = at
		}
		if !e.Deleted {
			j, err := a.store.DecodeJob(e.KV)
			v.Job, v.broken = j, err != nil
			v.ID = id
		}
		spec := v.Spec.WithDefaults()
		v.plan = planner.Compile(&v.Job)
		repeated := map[state.RepeatedTime]schedule.Repeated{
			state.RepeatedLast: schedule.RepeatedLast, state.RepeatedBoth: schedule.RepeatedBoth,
		}[spec.RepeatedTime]
		for _, text := range spec.Schedules {
			s, err := schedule.Parse(text, schedule.Options{Zone: spec.TimeZone, Anchor: v.Anchor, Job: id.String(), Repeated: repeated})
			if err != nil {
				v.broken = true
				break
			}
			v.schedules = append(v.schedules, s)
		}
		o.versions[id] = append(o.versions[id], v)
	}
	for _, versions := range o.versions {
		to := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, v := range slices.Backward(versions) {
			v.from, v.to = v.Effective, to
			if begins := v.begins(); begins.Before(to) {
				to = begins
			}
		}
	}
	return o, nil
}

// begins is the instant after which the version is in force.
func (v *version) begins() time.Time {
	switch {
	case v.deleted && !v.ended.IsZero():
		return v.ended
	case v.deleted, v.broken:
		return v.at
	case v.Paused:
		return v.Updated
	}
	return v.Effective
}

// next is the version's first slot after an instant, whatever its window.
func (v *version) next(after time.Time) time.Time {
	var first time.Time
	if start := v.Spec.Start; !start.IsZero() && after.Before(start) {
		after = start.Add(-time.Nanosecond)
	}
	for _, s := range v.schedules {
		if t := s.Next(after); !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if end := v.Spec.End; !end.IsZero() && !first.Before(end) {
		return time.Time{}
	}
	return first
}

// names tells whether slot is one of the version's, whatever its window.
func (v *version) names(slot time.Time) bool {
	return v.next(slot.Add(-time.Second)).Equal(slot)
}

// due are a job's slots up to an instant, in order, each once: of the newest
// version that made it due.
func (o *oracle) due(id state.JobID, until time.Time) []due {
	var all []due
	for _, v := range o.versions[id] {
		if v.deleted || v.broken || v.Paused {
			continue
		}
		end := v.to
		if until.Before(end) {
			end = until
		}
		for t := v.next(v.from); !t.IsZero() && !t.After(end); t = v.next(t) {
			all = append(all, due{t, v.plan.Due(t), v})
		}
	}
	slices.SortStableFunc(all, func(a, b due) int { return a.slot.Compare(b.slot) })
	return slices.CompactFunc(all, func(a, b due) bool { return a.slot.Equal(b.slot) })
}

// at is the version that was stored just before a revision, nil for none.
func (o *oracle) at(id state.JobID, revision int64) *version {
	var found *version
	for _, v := range o.versions[id] {
		if v.revision < revision {
			found = v
		}
	}
	if found == nil || found.deleted {
		return nil
	}
	return found
}

// of is the version of a generation, nil for none.
func (o *oracle) of(id state.JobID, generation int64) *version {
	for _, v := range o.versions[id] {
		if !v.deleted && v.Generation == generation {
			return v
		}
	}
	return nil
}

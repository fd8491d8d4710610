package sim

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	past "github.com/leaderd/leaderd/internal/history"
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
}

// storedVersions are all that the events tell of, by job and in order.
func storedVersions(a *audit, events []event) (map[state.JobID][]*version, error) {
	all := map[state.JobID][]*version{}
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
		if e.Deleted {
			v.ended = deletions[e.revision]
		} else {
			j, err := a.store.DecodeJob(e.KV)
			v.Job, v.broken = j, err != nil || unreadable(&j)
		}
		v.ID = id
		all[id] = append(all[id], v)
	}
	return all, nil
}

// unreadable tells whether a schedule of a job cannot be read.
func unreadable(j *state.Job) bool {
	spec := j.Spec.WithDefaults()
	return slices.ContainsFunc(spec.Schedules, func(text string) bool {
		_, err := past.ParseJobSchedule(j.ID.String(), text, spec.TimeZone, j.Anchor, clockRules(&spec))
		return err != nil
	})
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

// inForce is the version of a job that was stored just before a revision, nil for
// none.
func (c *checker) inForce(id state.JobID, revision int64) *version {
	var found *version
	for _, v := range c.versions[id] {
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
func (c *checker) of(id state.JobID, generation int64) *version {
	for _, v := range c.versions[id] {
		if !v.deleted && v.Generation == generation {
			return v
		}
	}
	return nil
}

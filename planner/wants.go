package planner

import (
	"maps"

	"github.com/leaderd/leaderd/planner/placement"
	"github.com/leaderd/leaderd/state"
)

// wants is what few jobs ask for.
type wants struct {
	limits    []state.Limit
	preferred placement.Selector
	// ordered is set where the policy has runs wait in order of due.
	ordered bool
}

func wantsOf(s *state.JobSpec) *wants {
	if len(s.Limits) == 0 && len(s.Preference) == 0 {
		return nil
	}
	gate := s.Gate()
	w := &wants{limits: s.Limits, ordered: gate.Queues()}
	if len(s.Preference) > 0 {
		both := maps.Clone(s.Preference)
		maps.Copy(both, s.Selector)
		w.preferred = selector(both).Needing(s.Resources)
	}
	return w
}

// Limits are what the job's runs may wait for together with those of other jobs.
func (j *Job) Limits() []state.Limit {
	if j.wants == nil {
		return nil
	}
	return j.wants.limits
}

// Preferred matches the executors that come first; all, where the job prefers none.
func (j *Job) Preferred() placement.Selector {
	if j.wants == nil {
		return placement.Selector{}
	}
	return j.wants.preferred
}

package executor

import (
	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

// lists tells whether the run's attempt is at the first step of a run that lists its
// shards.
func (r *run) lists() bool { return r.entry.key.shard == state.ListShard }

// listing is what the record of a first step keeps of the job's shards: all but what is
// run. It is nil for a job whose runs list none: an attempt that was begun when they did
// is then made again as one of a run of one piece.
func (sp *spec) listing() *state.Shards {
	s := sp.policy.Shards
	if !s.Listed() {
		return nil
	}
	return &state.Shards{Dynamic: &state.Listing{Max: s.Dynamic.Max}, MinSuccess: s.MinSuccess, StopOnFailure: s.StopOnFailure}
}

// stepOf tells the work which step it is of a run that lists its shards.
func (r *run) stepOf(t *runner.Task) {
	s := r.plan.spec.policy.Shards
	switch {
	case !s.Listed():
	case !r.lists():
		if r.plan.split {
			t.Step = state.StepShard
		}
	default:
		t.Step, t.Submitted = state.StepList, true // its list is its result
		if own := s.Dynamic; own.Command != nil || own.HTTP != nil {
			t.Command, t.HTTP, t.NoOp = own.Command, own.HTTP, false
		}
	}
}

// list reads what a first step that has succeeded has listed. Where that is not allowed,
// it has failed.
func (r *run) list(o *runner.Outcome) (list []map[string]string) {
	if r.live.Listing == nil || o.State != state.StateSucceeded || o.Directive.Snooze > 0 && !o.Directive.Permanent {
		return nil
	}
	result, unkept := o.Result, o.Unkept
	o.Result, o.Unkept = nil, ""
	if unkept != "" {
		o.State, o.Error = state.StateFailed, "the list of shards: "+unkept
		return nil
	}
	list, err := r.live.Listing.Dynamic.ParseList(result, r.plan.spec.policy.HTTP != nil)
	if err != nil {
		o.State, o.Error = state.StateFailed, err.Error()
		return nil
	}
	return list
}

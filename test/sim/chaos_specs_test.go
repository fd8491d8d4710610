package sim

import (
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// breaker draws what keeps runs from starting, and what follows them.
func (c *chaos) breaker(s *state.JobSpec) {
	s.CircuitBreaker, s.Hooks = nil, nil
	if c.chance(25) {
		s.CircuitBreaker = &state.CircuitBreaker{
			Failures: pick(c, 1, 2, 5), CoolDown: pick(c, time.Second, 10*time.Second, time.Minute), Target: pick(c, "", "", "api"),
		}
		if c.chance(30) {
			s.CircuitBreaker.Failures, s.CircuitBreaker.Rate, s.CircuitBreaker.Window = 0, pick(c, 30, 100), pick(c, 2, 5)
		}
	}
	if s.Shards == nil && c.chance(20) {
		hook := &state.Hook{Command: &state.Command{Shell: "true"}, Timeout: 3 * time.Second}
		s.Hooks = pick(c, &state.Hooks{OnFailure: hook, OnExit: hook}, &state.Hooks{OnSuccess: hook}, &state.Hooks{OnExit: hook})
	}
}

// outlast has some jobs begin their runs without the store, where that is allowed.
func (c *chaos) outlast(s *state.JobSpec) {
	s.StoreOutage = state.OutageHold
	if s.Guarantee == state.AtLeastOnce && s.Overlap == state.OverlapAllow && s.MaxConcurrent == 0 && s.ConcurrencyKey == "" &&
		s.Shards == nil && s.CircuitBreaker == nil && s.Checkpoint == nil && len(s.Limits) == 0 && len(s.Resources) == 0 && c.chance(70) {
		s.StoreOutage = state.OutageRunPlanned
	}
}

// resetCircuit closes the circuit of a job that has one, open or not.
func (c *chaos) resetCircuit() {
	var with []*job
	for _, j := range c.jobs {
		if j.spec.CircuitBreaker != nil {
			with = append(with, j)
		}
	}
	if len(with) > 0 {
		_, _, _ = c.w.api.ResetCircuit(c.w.ctx, pick(c, with...).id) // its job may be gone
	}
}

// follow has some jobs run after others.
func (c *chaos) follow(j *job) {
	if len(c.jobs) == 0 || !c.chance(30) {
		return
	}
	a := &state.After{Mode: pick(c, state.AfterAll, state.AfterAny), On: pick(c, state.AfterSuccess, state.AfterCompletion, state.AfterFailure)}
	for _, i := range c.rng.Perm(len(c.jobs))[:min(len(c.jobs), pick(c, 1, 1, 2))] {
		a.Jobs = append(a.Jobs, c.jobs[i].id.Name)
	}
	j.with(func(s *state.JobSpec) { s.After = a })
}

// followed tells whether others run after a job, which then cannot be deleted.
func (c *chaos) followed(j *job) bool {
	return slices.ContainsFunc(c.jobs, func(o *job) bool { return o.spec.After != nil && slices.Contains(o.spec.After.Jobs, j.id.Name) })
}

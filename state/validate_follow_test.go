package state_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

func TestValidateWhatFollows(t *testing.T) {
	hook := &state.Hook{Command: &state.Command{Shell: "true"}}
	for name, c := range map[string]struct {
		spec state.JobSpec
		want []string // "field: what"
	}{
		"all is well": {state.JobSpec{
			CircuitBreaker: &state.CircuitBreaker{Failures: 1, Rate: 100, Window: 2, CoolDown: time.Second, Target: "api"},
			Hooks:          &state.Hooks{OnExit: hook}, After: &state.After{Jobs: []string{"a", "b"}},
		}, nil},
		"a breaker that never opens": {state.JobSpec{CircuitBreaker: &state.CircuitBreaker{}}, []string{
			"spec.circuitBreaker: never opens; failures or failureRate is required",
		}},
		"a breaker beyond its limits": {state.JobSpec{CircuitBreaker: &state.CircuitBreaker{
			Failures: 101, Rate: 101, Window: 1, CoolDown: time.Millisecond, Target: "a/b",
		}}, []string{
			"spec.circuitBreaker.failures: 101 is outside 1–100",
			"spec.circuitBreaker.failureRate: 101 is outside 1–100, percent",
			"spec.circuitBreaker.window: 1 is outside 2–100",
			"spec.circuitBreaker.coolDown: 1ms is outside 1s–24h0m0s",
			`spec.circuitBreaker.target: "a/b" contains "/"; allowed are letters, digits, '-', '_' and '.', beginning with a letter or a digit`,
		}},
		"a window of nothing": {state.JobSpec{CircuitBreaker: &state.CircuitBreaker{Failures: 1, Window: 9}}, []string{
			"spec.circuitBreaker.window: is only allowed beside failureRate, which it is for",
		}},
		"an outage that nothing stands against": {state.JobSpec{
			StoreOutage: state.OutageRunPlanned, Overlap: state.OverlapAllow, Hooks: &state.Hooks{OnExit: hook},
		}, nil},
		"an outage beside what only the store can uphold": {state.JobSpec{
			StoreOutage: state.OutageRunPlanned, Guarantee: state.AtMostOnce, ConcurrencyKey: "k",
			Shards: &state.Shards{Count: 2}, CircuitBreaker: &state.CircuitBreaker{Failures: 1}, Checkpoint: &state.CheckpointPolicy{},
		}, []string{
			"spec.storeOutage: run_planned is not allowed beside guarantee at_most_once, which nobody upholds without a claim",
			"spec.storeOutage: run_planned is not allowed beside an overlap policy other than allow (skip is the default), which nobody upholds without a claim",
			"spec.storeOutage: run_planned is not allowed beside concurrencyKey, which nobody upholds without a claim",
			"spec.storeOutage: run_planned is not allowed beside circuitBreaker, which nobody upholds without a claim",
			"spec.storeOutage: run_planned is not allowed beside shards, which nobody upholds without a claim",
			"spec.storeOutage: run_planned is not allowed beside checkpoint, which nobody upholds without a claim",
		}},
		"an outage beside limits": {state.JobSpec{
			StoreOutage: state.OutageRunPlanned, Overlap: state.OverlapAllow, MaxConcurrent: 2, Limits: []state.Limit{{Name: "l", Max: 1}},
			Resources: state.Resources{"gpu": 1},
		}, []string{
			"spec.storeOutage: run_planned is not allowed beside maxConcurrent, which nobody upholds without a claim",
			"spec.storeOutage: run_planned is not allowed beside limits, which nobody upholds without a claim",
			"spec.storeOutage: run_planned is not allowed beside resources, which nobody upholds without a claim",
		}},
		"no hook": {state.JobSpec{Hooks: &state.Hooks{}}, []string{
			"spec.hooks: has no hook; one of onSuccess, onFailure and onExit is required",
		}},
		"hooks that are wrong": {state.JobSpec{
			Shards: &state.Shards{Count: 2}, Hooks: &state.Hooks{
				OnSuccess: &state.Hook{}, OnFailure: &state.Hook{Command: &state.Command{}, Timeout: time.Hour},
				OnExit: &state.Hook{HTTP: &state.HTTP{URL: "ftp://x"}},
			},
		}, []string{
			"spec.hooks: is not allowed beside shards: the verdict of a run that is split is nobody's executor's",
			"spec.hooks.onSuccess: needs exactly one of command and http",
			"spec.hooks.onFailure.timeout: 1h0m0s is outside 1ms–10m0s",
			"spec.hooks.onFailure.command: runs nothing; exactly one of argv and shell is required",
			`spec.hooks.onExit.http.url: has the scheme "ftp"; an absolute http or https URL is required`,
		}},
		"after nothing": {state.JobSpec{After: &state.After{}}, []string{
			"spec.after.jobs: is empty; 1–8 names of jobs are required",
		}},
		"after too many": {state.JobSpec{After: &state.After{Jobs: many(9, "a")}}, []string{
			"spec.after.jobs: has 9 entries; at most 8 are allowed",
		}},
		"after what is no name": {state.JobSpec{After: &state.After{Jobs: []string{"a", "-", "a"}}}, []string{
			`spec.after.jobs[1]: job "-" begins with "-"; allowed are letters, digits, '-', '_' and '.', beginning with a letter or a digit`,
			`spec.after.jobs[2]: "a" is there twice`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := noop(c.spec)
			err := spec.Validate(checks)
			var v state.Violations
			errors.As(err, &v)
			var got []string
			for _, x := range v {
				got = append(got, x.Field+": "+x.Description)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// The id of a run that follows others is theirs alone, and sorts by time.
func TestAfterRunID(t *testing.T) {
	at := time.Date(2026, 11, 30, 2, 0, 0, 123, time.UTC)
	up := []state.Upstream{{Job: "a", Run: "20261130T010000Z", State: state.StateSucceeded}}
	id := state.AfterRunID(at, up)
	require.Regexp(t, `^20261130T020000Z-after-[0-9a-f]{16}$`, string(id))
	require.Equal(t, state.KindAfter, id.Kind())
	require.Equal(t, id, state.AfterRunID(at, up))
	up[0].Job = "b"
	require.NotEqual(t, id, state.AfterRunID(at, up))
}

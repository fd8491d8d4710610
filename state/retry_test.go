package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
)

var retryNow = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

func plainRetry(most int) *state.Retry {
	return &state.Retry{MaxAttempts: most, Jitter: new(0.0)}
}

func TestAfterAttempt(t *testing.T) {
	t.Parallel()
	command, request := &state.Command{Shell: "false"}, &state.HTTP{URL: "http://localhost"}
	ended := func(s state.RunState, code int) state.Attempt {
		return state.Attempt{State: s, ExitCode: code, HasCode: code != 0, Started: retryNow.Add(-time.Minute), Claimed: retryNow.Add(-time.Minute)}
	}
	failed := ended(state.StateFailed, 1)
	first := state.Live{Attempt: 1, Claimed: retryNow.Add(-time.Minute)}
	began := []state.Attempt{{Number: 1, Claimed: retryNow.Add(-time.Hour), Started: retryNow.Add(-time.Hour)}}
	in := func(wait time.Duration) state.Next {
		return state.Next{At: retryNow.Add(wait), State: state.StateFailed, Tries: 1}
	}
	final := func(reason string) state.Next { return state.Next{State: state.StateFailed, Reason: reason, Tries: 1} }
	for _, c := range []struct {
		name      string
		spec      state.JobSpec
		live      state.Live
		attempt   state.Attempt
		crashed   bool
		directive state.Directive
		want      state.Next
	}{
		{name: "success", spec: state.JobSpec{Retry: plainRetry(3)}, live: first, attempt: ended(state.StateSucceeded, 0), want: state.Next{State: state.StateSucceeded}},
		{name: "no policy", live: first, attempt: failed, want: final("")},
		{name: "first of three", spec: state.JobSpec{Retry: plainRetry(3)}, live: first, attempt: failed, want: in(10 * time.Second)},
		{
			name: "second of three", spec: state.JobSpec{Retry: plainRetry(3)}, live: state.Live{Attempt: 2, Tries: 1}, attempt: failed,
			want: state.Next{At: retryNow.Add(20 * time.Second), State: state.StateFailed, Tries: 2},
		},
		{
			name: "third of three", spec: state.JobSpec{Retry: plainRetry(3)}, live: state.Live{Attempt: 3, Tries: 2}, attempt: failed,
			want: state.Next{State: state.StateFailed, Reason: state.ReasonAttempts, Detail: "3 of 3 attempts", Tries: 3},
		},
		{
			name: "third of three, after a handover", spec: state.JobSpec{Retry: plainRetry(3)}, live: state.Live{Attempt: 3, Tries: 1}, attempt: failed,
			want: state.Next{At: retryNow.Add(20 * time.Second), State: state.StateFailed, Tries: 2},
		},
		{
			name: "capped", spec: state.JobSpec{Retry: plainRetry(100)}, live: state.Live{Attempt: 60, Tries: 59}, attempt: failed,
			want: state.Next{At: retryNow.Add(10 * time.Minute), State: state.StateFailed, Tries: 60},
		},
		{
			name: "timed out", spec: state.JobSpec{Retry: plainRetry(2)}, live: first, attempt: ended(state.StateTimedOut, 0),
			want: state.Next{At: retryNow.Add(10 * time.Second), State: state.StateTimedOut, Tries: 1},
		},
		{name: "cancelled", spec: state.JobSpec{Retry: plainRetry(2)}, live: first, attempt: ended(state.StateCancelled, 0), want: state.Next{State: state.StateCancelled}},
		{name: "permanent", spec: state.JobSpec{Retry: plainRetry(2)}, live: first, attempt: failed, directive: state.Directive{Permanent: true}, want: final(state.ReasonPermanent)},
		{name: "retry after", spec: state.JobSpec{Retry: plainRetry(2)}, live: first, attempt: failed, directive: state.Directive{RetryAfter: 3 * time.Second}, want: in(3 * time.Second)},
		{name: "retry after too long", spec: state.JobSpec{Retry: plainRetry(2)}, live: first, attempt: failed, directive: state.Directive{RetryAfter: 1000 * time.Hour}, want: in(24 * time.Hour)},
		{name: "retry after without a policy", live: first, attempt: failed, directive: state.Directive{RetryAfter: time.Second}, want: final("")},
		{name: "exit code", spec: state.JobSpec{Command: command, Retry: &state.Retry{MaxAttempts: 2, Jitter: new(0.0), RetryOn: []string{"exit:1-5"}}}, live: first, attempt: failed, want: in(10 * time.Second)},
		{name: "another exit code", spec: state.JobSpec{Command: command, Retry: &state.Retry{MaxAttempts: 2, RetryOn: []string{"exit:2-5"}}}, live: first, attempt: failed, want: final(state.ReasonNotRetried)},
		{name: "given up", spec: state.JobSpec{Command: command, Retry: &state.Retry{MaxAttempts: 2, GiveUpOn: []string{"exit:1"}}}, live: first, attempt: failed, want: final(state.ReasonGivenUp)},
		{name: "a signal is no exit code", spec: state.JobSpec{Command: command, Retry: &state.Retry{MaxAttempts: 2, RetryOn: []string{"exit:1-255"}}}, live: first, attempt: ended(state.StateFailed, 137), crashed: true, want: final(state.ReasonNotRetried)},
		{name: "crashed", spec: state.JobSpec{Command: command, Retry: &state.Retry{MaxAttempts: 2, Jitter: new(0.0), RetryOn: []string{"crashed"}}}, live: first, attempt: ended(state.StateFailed, 137), crashed: true, want: in(10 * time.Second)},
		{name: "status class", spec: state.JobSpec{HTTP: request, Retry: &state.Retry{MaxAttempts: 2, Jitter: new(0.0), RetryOn: []string{"status:5xx"}}}, live: first, attempt: ended(state.StateFailed, 503), want: in(10 * time.Second)},
		{name: "another status", spec: state.JobSpec{HTTP: request, Retry: &state.Retry{MaxAttempts: 2, RetryOn: []string{"status:5xx", "unreachable"}}}, live: first, attempt: ended(state.StateFailed, 404), want: final(state.ReasonNotRetried)},
		{name: "unreachable", spec: state.JobSpec{HTTP: request, Retry: &state.Retry{MaxAttempts: 2, Jitter: new(0.0), RetryOn: []string{"unreachable"}}}, live: first, attempt: ended(state.StateFailed, 0), want: in(10 * time.Second)},
		{name: "the run's time is over", spec: state.JobSpec{RunTimeout: time.Minute}, live: first, attempt: ended(state.StateTimedOut, 0), want: state.Next{State: state.StateTimedOut, Reason: state.ReasonRunTimeout, Tries: 1}},
		{name: "would be over", spec: state.JobSpec{RunTimeout: 65 * time.Second, Retry: plainRetry(3)}, live: first, attempt: failed, want: final(state.ReasonRunTimeout)},
		{
			name: "counts from the first attempt", spec: state.JobSpec{RunTimeout: 50 * time.Minute, Retry: plainRetry(3)},
			live: state.Live{Attempt: 2, Tries: 1, Attempts: began}, attempt: failed,
			want: state.Next{State: state.StateFailed, Reason: state.ReasonRunTimeout, Tries: 2},
		},
		{
			name: "snoozed", live: state.Live{Attempt: 2, Snoozes: 1}, attempt: ended(state.StateSucceeded, 0), directive: state.Directive{Snooze: time.Hour},
			want: state.Next{At: retryNow.Add(time.Hour), State: state.StateSucceeded, Snoozes: 2, Snoozed: true},
		},
		{
			name: "snoozed too often", live: state.Live{Attempt: 1001, Snoozes: 1000}, attempt: ended(state.StateSucceeded, 0), directive: state.Directive{Snooze: time.Hour},
			want: state.Next{State: state.StateFailed, Reason: state.ReasonAttempts, Snoozes: 1000},
		},
		{
			name: "snoozed past the run's time", spec: state.JobSpec{RunTimeout: time.Hour}, live: first, attempt: ended(state.StateSucceeded, 0), directive: state.Directive{Snooze: time.Hour},
			want: state.Next{State: state.StateTimedOut, Reason: state.ReasonRunTimeout},
		},
		{
			name: "snoozed though it starts once", live: state.Live{Attempt: 1, AtMostOnce: true}, attempt: ended(state.StateSucceeded, 0), directive: state.Directive{Snooze: time.Hour},
			want: state.Next{State: state.StateFailed, Reason: state.ReasonStartedOnce},
		},
		{name: "interrupted", live: first, attempt: ended(state.StateInterrupted, 0), want: state.Next{At: retryNow, State: state.StateInterrupted}},
		{name: "interrupted, but starts once", live: state.Live{Attempt: 1, AtMostOnce: true}, attempt: ended(state.StateInterrupted, 0), want: state.Next{State: state.StateInterrupted}},
		{
			name: "interrupted before it started, and starts once", live: state.Live{Attempt: 1, AtMostOnce: true},
			attempt: state.Attempt{State: state.StateInterrupted}, want: state.Next{At: retryNow, State: state.StateInterrupted},
		},
		{
			name: "interrupted too often", live: state.Live{Attempt: 103, Tries: 2, Snoozes: 1}, attempt: ended(state.StateInterrupted, 0),
			want: state.Next{State: state.StateInterrupted, Reason: state.ReasonAttempts, Tries: 2, Snoozes: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := c.spec.AfterAttempt(&state.AttemptEnd{Live: &c.live, Attempt: &c.attempt, Crashed: c.crashed, Directive: c.directive}, retryNow)
			if c.want.Detail == "" {
				require.Equal(t, got.Reason != "" && got.Error == "", got.Detail != "", "a reason that the error does not tell has a detail")
				got.Detail = ""
			}
			require.Equal(t, c.want.State != c.attempt.State, got.Error != "", "another state than the work's says why")
			got.Error = ""
			require.Equal(t, c.want, got)
		})
	}
}

// Whatever ends an attempt, a run has no more attempts than the policy and the bounds
// on handovers and snoozes allow, none begins after the run's time, and each wait lies
// within the policy's.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	states := []state.RunState{state.StateFailed, state.StateTimedOut, state.StateInterrupted, state.StateSucceeded}
	rapid.Check(t, func(t *rapid.T) {
		jitter := rapid.Float64Range(0, 1).Draw(t, "jitter")
		r := &state.Retry{
			MaxAttempts:    rapid.IntRange(1, 8).Draw(t, "attempts"),
			InitialBackoff: time.Duration(rapid.Int64Range(int64(state.MinBackoff), int64(time.Hour)).Draw(t, "initial")),
			Factor:         rapid.Float64Range(1, state.MaxBackoffFactor).Draw(t, "factor"),
			Jitter:         &jitter,
		}
		r.MaxBackoff = r.InitialBackoff * time.Duration(rapid.IntRange(1, 20).Draw(t, "most"))
		spec := state.JobSpec{NoOp: true, Retry: r}
		if rapid.Bool().Draw(t, "bounded") {
			spec.RunTimeout = time.Duration(rapid.Int64Range(int64(time.Second), int64(24*time.Hour)).Draw(t, "time"))
		}
		now := retryNow
		l := state.Live{Run: "r", Attempt: 1, Claimed: now, AtMostOnce: rapid.Bool().Draw(t, "once")}
		begun := 0
		for {
			begun++
			a := state.Attempt{Number: l.Attempt, Claimed: now, Started: now, State: rapid.SampledFrom(states).Draw(t, "end")}
			e := state.AttemptEnd{Live: &l, Attempt: &a}
			if rapid.IntRange(0, 4).Draw(t, "snooze") == 0 {
				e.Directive.Snooze = time.Minute
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "took")))
			n := spec.AfterAttempt(&e, now)
			if n.At.IsZero() {
				require.True(t, n.State.Verdict())
				break
			}
			require.False(t, l.AtMostOnce, "it had started")
			require.False(t, n.At.Before(now))
			require.Equal(t, l.Tries+l.Snoozes+l.Handovers(), l.Attempt)
			if n.Tries > l.Tries {
				wait := n.At.Sub(now)
				require.LessOrEqual(t, float64(wait), float64(r.MaxBackoff)*(1+jitter)+1)
				require.GreaterOrEqual(t, float64(wait)+1, float64(r.InitialBackoff)*(1-jitter))
			}
			if n.Tries+n.Snoozes > l.Tries+l.Snoozes && spec.RunTimeout != 0 {
				require.True(t, n.At.Before(retryNow.Add(spec.RunTimeout)))
			}
			l.Attempts = append(l.Attempts, a)
			l.Attempt, l.Tries, l.Snoozes = l.Attempt+1, n.Tries, n.Snoozes
			now = n.At
		}
		require.LessOrEqual(t, l.Tries, r.MaxAttempts-1)
		require.LessOrEqual(t, begun, r.MaxAttempts+state.MaxHandovers+state.MaxSnoozes)
	})
}

func TestRetryIsValidated(t *testing.T) {
	t.Parallel()
	shell := &state.Command{Shell: "true"}
	for _, c := range []struct {
		name string
		spec state.JobSpec
		want string // empty: it is allowed
	}{
		{"plain", state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 3}}, ""},
		{"all", state.JobSpec{HTTP: &state.HTTP{URL: "http://localhost"}, Retry: &state.Retry{
			MaxAttempts: 100, InitialBackoff: time.Second, Factor: 1.5, MaxBackoff: time.Hour, Jitter: new(1.0),
			RetryOn: []string{"unreachable", "status:429", "status:5xx", "timed_out"}, GiveUpOn: []string{"status:501"},
		}, RunTimeout: time.Hour}, ""},
		{"no attempts", state.JobSpec{Command: shell, Retry: &state.Retry{Factor: 2}}, "spec.retry.maxAttempts: is required: 1–100, with the first attempt"},
		{"too many", state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 101}}, "spec.retry.maxAttempts: 101 is outside 1–100"},
		{
			"starts once",
			state.JobSpec{Command: shell, Guarantee: state.AtMostOnce, Retry: &state.Retry{MaxAttempts: 2}},
			"spec.retry: is not allowed where guarantee is at_most_once: a run that has started is never started again",
		},
		{"backoff", state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 2, InitialBackoff: time.Millisecond}}, "spec.retry.initialBackoff: 1ms is outside 100ms–24h0m0s"},
		{"backoffs", state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 2, MaxBackoff: time.Second}}, "spec.retry.maxBackoff: 1s is less than initialBackoff, 10s"},
		{"factor", state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 2, Factor: 0.5}}, "spec.retry.factor: 0.5 is outside 1–10"},
		{"jitter", state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 2, Jitter: new(1.5)}}, "spec.retry.jitter: 1.5 is outside 0–1"},
		{
			"condition",
			state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 2, RetryOn: []string{"failed", "often"}}},
			`spec.retry.retryOn[1]: "often" is not allowed; failed, timed_out, crashed, unreachable, exit:75, exit:64-78, status:503 and status:5xx are`,
		},
		{"codes", state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 2, GiveUpOn: []string{"exit:5-2"}}}, `spec.retry.giveUpOn[0]: "exit:5-2" names no exit codes; allowed are 1–255, as in exit:75 or exit:64-78`},
		{"success is no failure", state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 2, GiveUpOn: []string{"exit:0"}}}, `spec.retry.giveUpOn[0]: "exit:0" names no exit codes; allowed are 1–255, as in exit:75 or exit:64-78`},
		{"no request", state.JobSpec{Command: shell, Retry: &state.Retry{MaxAttempts: 2, RetryOn: []string{"status:503"}}}, `spec.retry.retryOn[0]: "status:503" can never hold: the job makes no request`},
		{
			"queue timeout",
			state.JobSpec{Command: shell, QueueTimeout: time.Minute},
			"spec.queueTimeout: is only allowed where runs wait for others: where overlap is queue, cancel or replace, not skip",
		},
		{"run timeout", state.JobSpec{Command: shell, RunTimeout: 1000 * time.Hour}, "spec.runTimeout: 1000h0m0s is outside 1s–720h0m0s"},
		{"dead letters", state.JobSpec{Command: shell, DeadLetter: &state.DeadLetterPolicy{Keep: -1}}, "spec.deadLetter.keep: -1 is outside 1–10000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.spec.Validate(state.ScheduleChecks{})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}

package codec

import (
	"google.golang.org/protobuf/types/known/durationpb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// SpecToProto is a spec in its API form. Unset fields stay unset.
func SpecToProto(s *state.JobSpec) *leaderdv1.JobSpec {
	p := &leaderdv1.JobSpec{
		Description:  s.Description,
		Labels:       s.Labels,
		Schedules:    s.Schedules,
		TimeZone:     s.TimeZone,
		NodeSelector: s.Selector,

		PauseAfterFailures: int32(s.PauseAfterFailures), //nolint:gosec // bounded by the spec
		ExcludedCalendars:  s.ExcludedCalendars,
		OnlyCalendars:      s.OnlyCalendars,
		CatchUpLimit:       int32(s.CatchUpLimit), //nolint:gosec // bounded by state.MaxCatchUpLimit
	}
	slotsToProto(s, p)
	checkpointToProto(s, p)
	retryToProto(s, p)
	limitsToProto(s, p)
	p.Shards = ShardsToProto(s.Shards)
	p.CircuitBreaker, p.Hooks = breakerToProto(s.CircuitBreaker), hooksToProto(s.Hooks)
	p.After, p.KeepResult = afterToProto(s.After), s.KeepResult
	if s.Overlap != state.OverlapSkip {
		p.Overlap = overlapToProto(s.Overlap)
	}
	p.MaxConcurrent, p.QueueLimit = int32(s.MaxConcurrent), int32(s.QueueLimit) //nolint:gosec // bounded by their limits
	p.ConcurrencyKey = s.ConcurrencyKey
	switch s.CatchUp {
	case state.CatchUpLatest:
	case state.CatchUpNone:
		p.CatchUp = leaderdv1.CatchUp_CATCH_UP_NONE
	case state.CatchUpAll:
		p.CatchUp = leaderdv1.CatchUp_CATCH_UP_ALL
	}
	switch s.Guarantee {
	case state.AtLeastOnce:
	case state.AtMostOnce:
		p.Guarantee = leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE
	}
	if s.StartDeadline != 0 {
		p.StartDeadline = durationpb.New(s.StartDeadline)
	}
	if s.Timeout != 0 {
		p.Timeout = durationpb.New(s.Timeout)
	}
	if s.KillGrace != 0 {
		p.KillGrace = durationpb.New(s.KillGrace)
	}
	if r := s.Retention; r != (state.Retention{}) {
		p.Retention = &leaderdv1.Retention{MaxRuns: int32(r.MaxRuns)} //nolint:gosec // bounded by state.MaxRetainedRuns
		if r.MaxAge != 0 {
			p.Retention.MaxAge = durationpb.New(r.MaxAge)
		}
	}
	switch {
	case s.Command != nil:
		p.Target = &leaderdv1.JobSpec_Command{Command: commandToProto(s.Command)}
	case s.HTTP != nil:
		p.Target = &leaderdv1.JobSpec_Http{Http: httpToProto(s.HTTP)}
	case s.NoOp:
		p.Target = &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}
	}
	return p
}

// SpecFromProto is the inverse of SpecToProto. It checks nothing: an enum value
// that this version does not know reads as the default. See state.JobSpec's
// Validate for the rules.
func SpecFromProto(p *leaderdv1.JobSpec) state.JobSpec {
	s := state.JobSpec{
		Description:   p.GetDescription(),
		Labels:        p.GetLabels(),
		Schedules:     p.GetSchedules(),
		TimeZone:      p.GetTimeZone(),
		Selector:      p.GetNodeSelector(),
		StartDeadline: p.GetStartDeadline().AsDuration(),
		Timeout:       p.GetTimeout().AsDuration(),
		KillGrace:     p.GetKillGrace().AsDuration(),

		PauseAfterFailures: int(p.GetPauseAfterFailures()),
		ExcludedCalendars:  p.GetExcludedCalendars(),
		OnlyCalendars:      p.GetOnlyCalendars(),
		CatchUpWindow:      p.GetCatchUpWindow().AsDuration(),
		CatchUpLimit:       int(p.GetCatchUpLimit()),
		Retention:          state.Retention{MaxRuns: int(p.GetRetention().GetMaxRuns()), MaxAge: p.GetRetention().GetMaxAge().AsDuration()},
	}
	slotsFromProto(p, &s)
	checkpointFromProto(p, &s)
	retryFromProto(p, &s)
	limitsFromProto(p, &s)
	s.Shards = ShardsFromProto(p.GetShards())
	s.CircuitBreaker, s.Hooks = breakerFromProto(p.GetCircuitBreaker()), hooksFromProto(p.GetHooks())
	s.After, s.KeepResult = AfterFromProto(p.GetAfter()), p.GetKeepResult()
	s.Overlap = overlapFromProto(p.GetOverlap())
	s.MaxConcurrent, s.QueueLimit = int(p.GetMaxConcurrent()), int(p.GetQueueLimit())
	s.ConcurrencyKey = p.GetConcurrencyKey()
	switch p.GetCatchUp() {
	case leaderdv1.CatchUp_CATCH_UP_NONE:
		s.CatchUp = state.CatchUpNone
	case leaderdv1.CatchUp_CATCH_UP_ALL:
		s.CatchUp = state.CatchUpAll
	case leaderdv1.CatchUp_CATCH_UP_UNSPECIFIED, leaderdv1.CatchUp_CATCH_UP_LATEST:
	}
	if p.GetGuarantee() == leaderdv1.Guarantee_GUARANTEE_AT_MOST_ONCE {
		s.Guarantee = state.AtMostOnce
	}
	switch t := p.GetTarget().(type) {
	case *leaderdv1.JobSpec_Command:
		s.Command = commandFromProto(t.Command)
	case *leaderdv1.JobSpec_Http:
		s.HTTP = httpFromProto(t.Http)
	case *leaderdv1.JobSpec_Noop:
		s.NoOp = true
	}
	return s
}

func commandToProto(c *state.Command) *leaderdv1.Command {
	return &leaderdv1.Command{Argv: c.Argv, Shell: c.Shell, Env: c.Env, Dir: c.Dir}
}

func commandFromProto(p *leaderdv1.Command) *state.Command {
	return &state.Command{Argv: p.GetArgv(), Shell: p.GetShell(), Env: p.GetEnv(), Dir: p.GetDir()}
}

func httpToProto(h *state.HTTP) *leaderdv1.Http {
	p := &leaderdv1.Http{Method: h.Method, Url: h.URL, Headers: h.Header, Body: h.Body}
	for _, c := range h.ExpectedCodes {
		p.ExpectedCodes = append(p.ExpectedCodes, int32(c)) //nolint:gosec // a status code
	}
	return p
}

func httpFromProto(p *leaderdv1.Http) *state.HTTP {
	h := &state.HTTP{Method: p.GetMethod(), URL: p.GetUrl(), Header: p.GetHeaders(), Body: p.GetBody()}
	for _, c := range p.GetExpectedCodes() {
		h.ExpectedCodes = append(h.ExpectedCodes, int(c))
	}
	return h
}

// overlaps are the API's names of the policies.
var overlaps = [...]leaderdv1.Overlap{
	state.OverlapSkip:    leaderdv1.Overlap_OVERLAP_SKIP,
	state.OverlapAllow:   leaderdv1.Overlap_OVERLAP_ALLOW,
	state.OverlapQueue:   leaderdv1.Overlap_OVERLAP_QUEUE,
	state.OverlapCancel:  leaderdv1.Overlap_OVERLAP_CANCEL,
	state.OverlapReplace: leaderdv1.Overlap_OVERLAP_REPLACE,
}

func overlapToProto(o state.Overlap) leaderdv1.Overlap {
	if int(o) < len(overlaps) {
		return overlaps[o]
	}
	return leaderdv1.Overlap_OVERLAP_UNSPECIFIED
}

func overlapFromProto(p leaderdv1.Overlap) state.Overlap {
	for o, known := range overlaps {
		if p == known {
			return state.Overlap(o)
		}
	}
	return state.OverlapSkip
}

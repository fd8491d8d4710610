package codec

import (
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

func afterToProto(a *state.After) *leaderdv1.After {
	if a == nil {
		return nil
	}
	p := &leaderdv1.After{Jobs: a.Jobs}
	if a.Mode == state.AfterAny {
		p.Mode = leaderdv1.After_MODE_ANY
	}
	switch a.On {
	case state.AfterSuccess:
	case state.AfterFailure:
		p.Condition = leaderdv1.After_CONDITION_FAILURE
	case state.AfterCompletion:
		p.Condition = leaderdv1.After_CONDITION_COMPLETION
	}
	return p
}

// AfterFromProto reads after which jobs another runs; nil: after none.
func AfterFromProto(p *leaderdv1.After) *state.After {
	if p == nil {
		return nil
	}
	a := &state.After{Jobs: p.GetJobs()}
	if p.GetMode() == leaderdv1.After_MODE_ANY {
		a.Mode = state.AfterAny
	}
	switch p.GetCondition() {
	case leaderdv1.After_CONDITION_UNSPECIFIED, leaderdv1.After_CONDITION_SUCCESS:
	case leaderdv1.After_CONDITION_FAILURE:
		a.On = state.AfterFailure
	case leaderdv1.After_CONDITION_COMPLETION:
		a.On = state.AfterCompletion
	}
	return a
}

// UpstreamToProto is a list of runs after which another is made.
func UpstreamToProto(us []state.Upstream) []*statev1.Upstream {
	if len(us) == 0 {
		return nil
	}
	ps := make([]*statev1.Upstream, len(us))
	for i, u := range us {
		ps[i] = &statev1.Upstream{Job: u.Job, Run: string(u.Run), State: uint32(u.State), ResultLost: u.ResultLost}
	}
	return ps
}

// UpstreamFromProto is the inverse of UpstreamToProto.
func UpstreamFromProto(ps []*statev1.Upstream) []state.Upstream {
	if len(ps) == 0 {
		return nil
	}
	us := make([]state.Upstream, len(ps))
	for i, p := range ps {
		us[i] = state.Upstream{Job: p.GetJob(), Run: state.RunID(p.GetRun()), State: runState(p.GetState()), ResultLost: p.GetResultLost()}
	}
	return us
}

// chained is of the messages that tell of a run's chain.
type chained interface {
	GetCorrelation() string
	GetUpstream() []*statev1.Upstream
}

// ChainFromProto reads what a message tells of the runs before one.
func ChainFromProto(p chained) state.Chain {
	return state.Chain{Correlation: p.GetCorrelation(), Upstream: UpstreamFromProto(p.GetUpstream())}
}

func (w *wire) chain(c *state.Chain) {
	w.text(80, c.Correlation)
	for _, u := range c.Upstream {
		var inner wire
		inner.text(1, u.Job)
		inner.text(2, string(u.Run))
		inner.number(3, int64(u.State))
		inner.flag(4, u.ResultLost)
		w.nested(81, inner)
	}
}

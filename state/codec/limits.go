package codec

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

func limitsToProto(s *state.JobSpec, p *leaderdv1.JobSpec) {
	p.Limits = LimitsToProto(s.Limits)
	p.Weight = int32(s.Weight) //nolint:gosec // bounded by state.MaxWeight
	p.Resources, p.NodePreference = ResourcesToProto(s.Resources), s.Preference
	switch s.Priority {
	case state.PriorityNormal:
	case state.PriorityCritical:
		p.Priority = leaderdv1.Priority_PRIORITY_CRITICAL
	case state.PriorityHigh:
		p.Priority = leaderdv1.Priority_PRIORITY_HIGH
	case state.PriorityLow:
		p.Priority = leaderdv1.Priority_PRIORITY_LOW
	}
}

func limitsFromProto(p *leaderdv1.JobSpec, s *state.JobSpec) {
	s.Resources, s.Preference = ResourcesFromProto(p.GetResources()), p.GetNodePreference()
	s.Limits, s.Weight, s.Priority = LimitsFromProto(p.GetLimits()), int(p.GetWeight()), PriorityFromProto(p.GetPriority())
}

// ResourcesToProto is resources in their API form.
func ResourcesToProto(r state.Resources) map[string]int32 {
	if len(r) == 0 {
		return nil
	}
	p := make(map[string]int32, len(r))
	for name, n := range r {
		p[name] = int32(n) //nolint:gosec // bounded by state.MaxResource
	}
	return p
}

// ResourcesFromProto is the inverse of ResourcesToProto.
func ResourcesFromProto(p map[string]int32) state.Resources {
	if len(p) == 0 {
		return nil
	}
	r := make(state.Resources, len(p))
	for name, n := range p {
		r[name] = int(n)
	}
	return r
}

// PriorityFromProto reads a class. One that this version does not know is the default.
func PriorityFromProto(p leaderdv1.Priority) state.Priority {
	switch p {
	case leaderdv1.Priority_PRIORITY_CRITICAL:
		return state.PriorityCritical
	case leaderdv1.Priority_PRIORITY_HIGH:
		return state.PriorityHigh
	case leaderdv1.Priority_PRIORITY_LOW:
		return state.PriorityLow
	case leaderdv1.Priority_PRIORITY_UNSPECIFIED, leaderdv1.Priority_PRIORITY_NORMAL:
	}
	return state.PriorityNormal
}

// LimitsToProto is a list of limits in its API form.
func LimitsToProto(limits []state.Limit) []*leaderdv1.Limit {
	if len(limits) == 0 {
		return nil
	}
	ps := make([]*leaderdv1.Limit, len(limits))
	for i := range limits {
		l := &limits[i]
		p := &leaderdv1.Limit{Name: l.Name, Max: int32(l.Max), PerKey: l.PerKey} //nolint:gosec // bounded by state.MaxConcurrent
		if l.Cluster {
			p.Scope = leaderdv1.Limit_SCOPE_CLUSTER
		}
		if r := l.Rate; r != (state.Rate{}) {
			p.Rate = &leaderdv1.Rate{Runs: int32(r.Runs), Burst: int32(r.Burst)} //nolint:gosec // bounded by their limits
			if r.Per != 0 {
				p.Rate.Per = durationpb.New(r.Per)
			}
		}
		ps[i] = p
	}
	return ps
}

// LimitsFromProto is the inverse of LimitsToProto.
func LimitsFromProto(ps []*leaderdv1.Limit) []state.Limit {
	if len(ps) == 0 {
		return nil
	}
	limits := make([]state.Limit, len(ps))
	for i, p := range ps {
		limits[i] = state.Limit{
			Name: p.GetName(), Cluster: p.GetScope() == leaderdv1.Limit_SCOPE_CLUSTER, Max: int(p.GetMax()),
			PerKey: p.GetPerKey(),
			Rate:   state.Rate{Runs: int(p.GetRate().GetRuns()), Per: p.GetRate().GetPer().AsDuration(), Burst: int(p.GetRate().GetBurst())},
		}
	}
	return limits
}

func holdsToProto(hs []state.Hold) []*statev1.Hold {
	if len(hs) == 0 {
		return nil
	}
	ps := make([]*statev1.Hold, len(hs))
	for i := range hs {
		h := &hs[i]
		ps[i] = &statev1.Hold{Namespace: h.Limit.Namespace, Name: h.Limit.Name, Key: h.Limit.Key, Place: int32(h.Place)} //nolint:gosec // bounded by state.MaxConcurrent
	}
	return ps
}

func holdsFromProto(ps []*statev1.Hold) []state.Hold {
	if len(ps) == 0 {
		return nil
	}
	hs := make([]state.Hold, len(ps))
	for i, p := range ps {
		hs[i] = state.Hold{Limit: state.LimitID{Namespace: p.GetNamespace(), Name: p.GetName(), Key: p.GetKey()}, Place: int(p.GetPlace())}
	}
	return hs
}

func (w *wire) holds(field protowire.Number, hs []state.Hold) {
	for i := range hs {
		var room [192]byte
		inner := wire(room[:0])
		inner.text(1, hs[i].Limit.Namespace)
		inner.text(2, hs[i].Limit.Name)
		inner.number(3, int64(hs[i].Place))
		inner.text(4, hs[i].Limit.Key)
		w.nested(field, inner)
	}
}

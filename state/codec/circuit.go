package codec

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

func breakerToProto(b *state.CircuitBreaker) *leaderdv1.CircuitBreaker {
	if b == nil {
		return nil
	}
	return &leaderdv1.CircuitBreaker{
		Failures:    int32(b.Failures), //nolint:gosec // bounded by MaxCircuitFailures
		FailureRate: int32(b.Rate),     //nolint:gosec // percent
		Window:      int32(b.Window),   //nolint:gosec // bounded by MaxCircuitWindow
		CoolDown:    durationOf(b.CoolDown),
		Target:      b.Target,
	}
}

func breakerFromProto(p *leaderdv1.CircuitBreaker) *state.CircuitBreaker {
	if p == nil {
		return nil
	}
	return &state.CircuitBreaker{
		Failures: int(p.GetFailures()), Rate: int(p.GetFailureRate()), Window: int(p.GetWindow()),
		CoolDown: p.GetCoolDown().AsDuration(), Target: p.GetTarget(),
	}
}

// breaker writes a breaker as a live record has it.
func (w *wire) breaker(field protowire.Number, b *state.CircuitBreaker) {
	if b == nil {
		return
	}
	var inner wire
	inner.number(1, int64(b.Failures))
	inner.number(2, int64(b.Rate))
	inner.number(3, int64(b.Window))
	if b.CoolDown != 0 {
		var d wire
		d.number(1, int64(b.CoolDown/1e9))
		d.number(2, int64(b.CoolDown%1e9))
		inner.nested(4, d)
	}
	inner.text(5, b.Target)
	w.nested(field, inner)
}

// MarshalCircuit is the stored value of a circuit.
func MarshalCircuit(c *state.Circuit) ([]byte, error) {
	return proto.Marshal(&statev1.Circuit{
		State:    uint32(c.State),
		Failures: int32(c.Failures), //nolint:gosec // bounded by MaxCircuitFailures
		Outcomes: c.Outcomes,
		Opened:   Micros(c.Opened),
		Until:    Micros(c.Until),
		ProbeJob: c.ProbeJob,
		ProbeRun: string(c.Probe),
		Detail:   c.Detail,
	})
}

// UnmarshalCircuit is the inverse of MarshalCircuit; Revision is the key's to tell.
func UnmarshalCircuit(value []byte) (state.Circuit, error) {
	var p statev1.Circuit
	if err := proto.Unmarshal(value, &p); err != nil {
		return state.Circuit{}, err
	}
	return state.Circuit{
		State:    state.CircuitState(min(p.GetState(), uint32(state.CircuitHalfOpen))),
		Failures: int(p.GetFailures()), Outcomes: p.GetOutcomes(), Opened: Time(p.GetOpened()), Until: Time(p.GetUntil()),
		ProbeJob: p.GetProbeJob(), Probe: state.RunID(p.GetProbeRun()), Detail: p.GetDetail(),
	}, nil
}

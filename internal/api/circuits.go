package api

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// CircuitKeeper reads and resets circuits. *store.Store is one.
type CircuitKeeper interface {
	GetCircuit(ctx context.Context, id state.JobID) (c state.Circuit, target string, err error)
	ResetCircuit(ctx context.Context, id state.JobID) (was state.Circuit, target string, err error)
}

type circuitService struct {
	leaderdv1.UnimplementedCircuitServiceServer
	cfg *Config
}

// GetCircuit implements leaderdv1.CircuitServiceServer.
func (s *circuitService) GetCircuit(ctx context.Context, req *leaderdv1.GetCircuitRequest) (*leaderdv1.GetCircuitResponse, error) {
	var v state.Violations
	id := parseJobName(&v, req.GetName())
	if err := refuse(v); err != nil {
		return nil, err
	}
	c, target, err := s.cfg.Circuits.GetCircuit(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetName(), err)
	}
	return &leaderdv1.GetCircuitResponse{Circuit: circuitOf(id, &c, target)}, nil
}

// ResetCircuit implements leaderdv1.CircuitServiceServer.
func (s *circuitService) ResetCircuit(ctx context.Context, req *leaderdv1.ResetCircuitRequest) (*leaderdv1.ResetCircuitResponse, error) {
	var v state.Violations
	id := parseJobName(&v, req.GetName())
	actor := actorOf(ctx, &v)
	if err := refuse(v); err != nil {
		return nil, err
	}
	was, target, err := s.cfg.Circuits.ResetCircuit(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, writes, req.GetName(), err)
	}
	if was.State != state.CircuitClosed {
		s.cfg.Logger.Info("circuit is reset", "job", id, "actor", actor, "was", was.State)
	}
	return &leaderdv1.ResetCircuitResponse{Before: circuitOf(id, &was, target)}, nil
}

func (s *circuitService) fail(ctx context.Context, kind callKind, name string, err error) error {
	if errors.Is(err, store.ErrNoCircuit) {
		return answer(codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_NO_CIRCUIT, name+" has no circuit breaker", name)
	}
	return failOf(ctx, s.cfg.Logger, kind, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, name, err)
}

// circuitOf is the circuit of a job as it is answered.
func circuitOf(id state.JobID, c *state.Circuit, target string) *leaderdv1.Circuit {
	res := &leaderdv1.Circuit{
		FailuresInARow: int32(c.Failures),                     //nolint:gosec // bounded by its limit
		Counted:        int32(len(c.Outcomes)),                //nolint:gosec // bounded by its limit
		Failed:         int32(strings.Count(c.Outcomes, "x")), //nolint:gosec // bounded by its limit
		OpenTime:       timeOf(c.Opened), OpenUntil: timeOf(c.Until), Detail: c.Detail, Target: target,
	}
	switch c.State {
	case state.CircuitClosed:
		res.State = leaderdv1.Circuit_STATE_CLOSED
	case state.CircuitOpen:
		res.State = leaderdv1.Circuit_STATE_OPEN
	case state.CircuitHalfOpen:
		res.State = leaderdv1.Circuit_STATE_HALF_OPEN
		res.Probe = runName(state.JobID{Namespace: id.Namespace, Name: c.ProbeJob}, c.Probe)
	}
	return res
}

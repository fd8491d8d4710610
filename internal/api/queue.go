package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// LeaderQueue asks the leader what waits. Without one the error wraps ErrNoLeader; others
// carry a gRPC status.
type LeaderQueue interface {
	ListWaiting(ctx context.Context, req *workerv1.ListWaitingRequest) (*workerv1.ListWaitingResponse, error)
}

// HolderReader tells which runs keep others waiting. *store.Store is one.
type HolderReader interface {
	LimitHolders(ctx context.Context, id state.LimitID) ([]store.Holder, error)
	GateHolders(ctx context.Context, id state.JobID, gate state.Gate) ([]store.Holder, error)
}

// ErrNoLeader: nobody leads, as far as this node knows. To be matched with errors.Is.
var ErrNoLeader = errors.New("no node leads")

const (
	// maxHeldBy is how many holders an answer names for each run.
	maxHeldBy = 20
	// maxLooks is of how many gates and limits an answer looks at the holders: the runs
	// that have waited for longest come first.
	maxLooks = 100
)

type queueService struct {
	leaderdv1.UnimplementedQueueServiceServer
	cfg *Config
}

// ListQueue implements leaderdv1.QueueServiceServer.
func (s *queueService) ListQueue(ctx context.Context, req *leaderdv1.ListQueueRequest) (*leaderdv1.ListQueueResponse, error) {
	var v state.Violations
	ask := &workerv1.ListWaitingRequest{Limit: int32(pageSize(&v, req.GetPageSize()))} //nolint:gosec // bounded by maxPage
	if _, err := splitName(req.GetParent(), namespacePattern); err == nil {
		ask.Namespace = parseNamespaceParent(&v, req.GetParent())
	} else {
		ask.Namespace, ask.Job = parseJobParent(&v, req.GetParent())
		if ask.GetJob() != "" && ask.GetNamespace() == "" {
			v.Add("parent", "names a job of all namespaces; name its namespace")
		}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	waiting, err := s.cfg.Queue.ListWaiting(ctx, ask)
	if err != nil {
		return nil, s.unavailable(ctx, req.GetParent(), err)
	}
	res := &leaderdv1.ListQueueResponse{Total: waiting.GetTotal()}
	holders := &holderCache{
		cfg: s.cfg, limits: map[state.LimitID][]store.Holder{}, gates: map[state.JobID][]store.Holder{}, circuits: map[state.JobID]state.Circuit{},
	}
	for _, w := range waiting.GetWaiting() {
		r := w.GetRun()
		id := state.JobID{Namespace: w.GetNamespace(), Name: w.GetJob()}
		if err = holders.explain(ctx, id, r); err != nil {
			return nil, failOf(ctx, s.cfg.Logger, reads, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, req.GetParent(), err)
		}
		held, err := holders.of(ctx, id, w)
		if err != nil {
			return nil, failOf(ctx, s.cfg.Logger, reads, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, req.GetParent(), err)
		}
		if r.GetWaitsFor() == leaderdv1.WaitsFor_WAITS_FOR_LIMIT {
			r.Held = int32(len(held)) //nolint:gosec // bounded by what is stored
			r.Detail = fmt.Sprintf("%s: %d of %d", r.GetDetail(), r.GetHeld(), r.GetMax())
		}
		for _, h := range held[:min(len(held), maxHeldBy)] {
			if h.Unreadable != "" {
				r.Detail += ", the place " + h.Unreadable + " cannot be read"
				continue
			}
			r.HeldBy = append(r.HeldBy, runName(h.Job, h.Run))
		}
		r.Run = runName(id, state.RunID(r.GetRun()))
		res.Runs = append(res.Runs, r)
	}
	return res, nil
}

// unavailable is the answer where the leader gave none.
func (s *queueService) unavailable(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	if !errors.Is(err, ErrNoLeader) {
		s.cfg.Logger.Warn("the leader did not tell what waits", "err", err)
	}
	return answer(codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_NOT_LEADER,
		"no node leads, or the leader does not answer: what waits is known to it alone; try again", name)
}

// holderCache has the holders that one answer has looked at.
type holderCache struct {
	cfg    *Config
	looks  int
	limits map[state.LimitID][]store.Holder
	gates  map[state.JobID][]store.Holder
	// circuits are those that let no run start; the zero Circuit for a job of which that is
	// not so.
	circuits map[state.JobID]state.Circuit
}

// explain tells of a run that an executor has and does not start if it is for its job's
// circuit: most runs are skipped then, but those of backfills, and slots that are caught up
// one after another, wait.
func (c *holderCache) explain(ctx context.Context, id state.JobID, r *leaderdv1.QueuedRun) error {
	if r.GetWaitsFor() != leaderdv1.WaitsFor_WAITS_FOR_START || r.GetAttempt() > 1 || r.GetShard() > 0 {
		return nil // what has begun goes on
	}
	circuit, known := c.circuits[id]
	if !known {
		if c.looks >= maxLooks {
			return nil
		}
		c.looks++
		var err error
		circuit, _, err = c.cfg.Circuits.GetCircuit(ctx, id)
		if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrNoCircuit) && !errors.Is(err, store.ErrCorrupt) {
			return err
		}
		c.circuits[id] = circuit
	}
	if ok, _ := circuit.Admits(c.cfg.Wall()); ok {
		return nil
	}
	switch circuit.State {
	case state.CircuitClosed:
	case state.CircuitOpen:
		r.Until = timeOf(circuit.Until)
	case state.CircuitHalfOpen:
		r.HeldBy = append(r.HeldBy, runName(state.JobID{Namespace: id.Namespace, Name: circuit.ProbeJob}, circuit.Probe))
	}
	r.WaitsFor, r.Detail = leaderdv1.WaitsFor_WAITS_FOR_CIRCUIT, "the circuit is "+strings.ReplaceAll(circuit.State.String(), "_", "-")+": "+circuit.Detail
	return nil
}

// of are the runs that keep a run waiting, none where that is not by runs.
func (c *holderCache) of(ctx context.Context, id state.JobID, w *workerv1.Waiting) ([]store.Holder, error) {
	switch w.GetRun().GetWaitsFor() { //nolint:exhaustive // others wait for no run
	case leaderdv1.WaitsFor_WAITS_FOR_LIMIT:
		limit := state.LimitID{Namespace: w.GetLimitNamespace(), Name: w.GetRun().GetLimit(), Key: w.GetLimitKey()}
		if known, ok := c.limits[limit]; ok || c.looks >= maxLooks {
			return known, nil
		}
		c.looks++
		held, err := c.cfg.Holders.LimitHolders(ctx, limit)
		c.limits[limit] = held
		return held, err
	case leaderdv1.WaitsFor_WAITS_FOR_RUNS:
		if known, ok := c.gates[id]; ok || c.looks >= maxLooks {
			return known, nil
		}
		c.looks++
		held, err := c.gateOf(ctx, id)
		c.gates[id] = held
		return held, err
	}
	return nil, nil
}

func (c *holderCache) gateOf(ctx context.Context, id state.JobID) ([]store.Holder, error) {
	entry, err := c.cfg.Reader.GetJob(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil // then nobody holds its gate
	case err != nil:
		return nil, err
	case entry.Broken != nil:
		return nil, nil //nolint:nilerr // what cannot be read runs nothing
	}
	spec := entry.Job.Spec.WithDefaults()
	held, err := c.cfg.Holders.GateHolders(ctx, id, spec.Gate())
	if errors.Is(err, store.ErrCorrupt) {
		return nil, nil // the run is listed as unreadable, and keeps nobody from listing the others
	}
	return held, err
}

package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/leaderd/leaderd/planner/schedule"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/store"
)

// latenessFresh is how old the leader's newest note on lateness may be.
const latenessFresh = 10 * time.Second

type clusterService struct {
	leaderdv1.UnimplementedClusterServiceServer
	cfg *Config
}

// GetClusterStatus implements leaderdv1.ClusterServiceServer.
func (s *clusterService) GetClusterStatus(
	ctx context.Context, _ *leaderdv1.GetClusterStatusRequest,
) (*leaderdv1.GetClusterStatusResponse, error) {
	mark, err := s.cfg.Watermark.GetWatermark(ctx)
	if errors.Is(err, store.ErrCorrupt) {
		// The leader writes it anew; the rest can be told all the same.
		s.cfg.Logger.Error("watermark cannot be read", "err", err)
		mark, err = state.Watermark{}, nil
	}
	if err != nil {
		return nil, failOf(ctx, s.cfg.Logger, reads, leaderdv1.ErrorReason_ERROR_REASON_UNSPECIFIED, "the watermark", err)
	}
	res := &leaderdv1.GetClusterStatusResponse{AnsweredBy: s.cfg.Node, ZoneData: schedule.ZoneData()}
	res.Leader, res.Term = s.cfg.Leadership.Leader()
	jobs, broken := s.cfg.Jobs.Len()
	res.Jobs, res.QuarantinedJobs = int64(jobs), int64(broken+len(mark.UnreadableGates))
	if mark.Revision != 0 {
		res.Watermark = timeOf(mark.Instant)
		res.WatermarkLag = durationpb.New(s.cfg.Wall().Sub(mark.Instant))
	}
	fresh := s.cfg.Wall().Sub(mark.Written) < latenessFresh
	for _, n := range s.cfg.Nodes.Nodes() {
		res.Nodes = append(res.Nodes, &leaderdv1.Node{
			Name:      n.Name,
			Control:   n.Control,
			Executor:  n.Executor,
			Address:   n.Address,
			Labels:    n.Labels,
			Capacity:  int32(n.Capacity), //nolint:gosec // bounded by state.MaxCapacity
			Version:   n.Version,
			StartTime: timeOf(n.Started),
			Leader:    n.Name == res.GetLeader() && n.Control,
			Resources: codec.ResourcesToProto(n.Resources),
		})
		if i := slices.IndexFunc(mark.Clocks, func(c state.ClockSkew) bool { return c.Node == n.Name }); i >= 0 && fresh {
			res.GetNodes()[len(res.GetNodes())-1].ClockAhead = durationpb.New(mark.Clocks[i].Ahead)
		}
	}
	if l := mark.Late; l.Runs > 0 && fresh {
		res.Late = &leaderdv1.LateRuns{
			Runs: l.Runs, WorstJob: jobName(l.Worst), WorstDueTime: timeOf(l.Since),
			Worst: durationpb.New(s.cfg.Wall().Sub(l.Since)), Reason: l.Reason,
		}
	}
	if l := mark.Lateness; l.Starts > 0 && fresh {
		res.Lateness = &leaderdv1.Lateness{
			Starts: l.Starts,
			P50:    durationpb.New(l.P50),
			P99:    durationpb.New(l.P99),
			Max:    durationpb.New(l.Max),
		}
	}
	return res, nil
}

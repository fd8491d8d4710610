package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

type clusterService struct {
	leaderdv1.UnimplementedClusterServiceServer
	cfg *Config
}

// GetClusterStatus implements leaderdv1.ClusterServiceServer.
func (s *clusterService) GetClusterStatus(
	ctx context.Context, _ *leaderdv1.GetClusterStatusRequest,
) (*leaderdv1.GetClusterStatusResponse, error) {
	mark, err := s.cfg.Watermark.GetWatermark(ctx)
	if err != nil {
		return nil, failOf(ctx, s.cfg.Logger, reads, leaderdv1.ErrorReason_ERROR_REASON_UNSPECIFIED, "the watermark", err)
	}
	res := &leaderdv1.GetClusterStatusResponse{AnsweredBy: s.cfg.Node}
	res.Leader, res.Term = s.cfg.Leadership.Leader()
	res.Jobs, res.QuarantinedJobs = s.cfg.Jobs.Counts()
	if mark.Revision != 0 {
		res.Watermark = timeOf(mark.Instant)
		res.WatermarkLag = durationpb.New(time.Since(mark.Instant))
	}
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
		})
	}
	if s.cfg.Lateness != nil {
		if l, ok := s.cfg.Lateness.Lateness(); ok {
			res.Lateness = &leaderdv1.Lateness{
				Starts: l.Starts,
				P50:    durationpb.New(l.P50),
				P99:    durationpb.New(l.P99),
				Max:    durationpb.New(l.Max),
			}
		}
	}
	return res, nil
}

package api

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

type checkpointService struct {
	leaderdv1.UnimplementedCheckpointServiceServer
	cfg *Config
}

// GetCheckpoint implements leaderdv1.CheckpointServiceServer.
func (s *checkpointService) GetCheckpoint(ctx context.Context, req *leaderdv1.GetCheckpointRequest) (*leaderdv1.GetCheckpointResponse, error) {
	var v state.Violations
	of := state.CheckpointRef{Shard: int(req.GetShard())}
	if strings.Contains(req.GetName(), "/runs/") {
		of.Job, of.Run = parseRunName(&v, req.GetName())
	} else {
		of.Job, of.OfJob = parseJobName(&v, req.GetName()), true
	}
	if req.GetShard() < 0 {
		v.Add("shard", "%d is negative", req.GetShard())
	}
	if req.GetNumber() < 0 {
		v.Add("number", "%d is negative", req.GetNumber())
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	kept, err := s.cfg.Checkpoint.ListCheckpoints(ctx, of)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetName(), err)
	}
	res := &leaderdv1.GetCheckpointResponse{}
	for i := range kept {
		c := checkpointOf(&kept[i])
		if req.GetNumber() == 0 && i == 0 || req.GetNumber() == c.GetNumber() {
			res.Checkpoint = checkpointOf(&kept[i])
			res.Checkpoint.Data = kept[i].Data
		}
		res.Kept = append(res.Kept, c)
	}
	if res.GetCheckpoint() != nil {
		return res, nil
	}
	text := fmt.Sprintf("shard %d of %s has no checkpoint", of.Shard, req.GetName())
	if len(kept) > 0 {
		text = fmt.Sprintf("checkpoint %d of %s is not kept; the last one is %d", req.GetNumber(), req.GetName(), kept[0].Number)
	}
	return nil, answer(codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_CHECKPOINT_NOT_FOUND, text, req.GetName())
}

func (s *checkpointService) fail(ctx context.Context, kind callKind, name string, err error) error {
	return failOf(ctx, s.cfg.Logger, kind, leaderdv1.ErrorReason_ERROR_REASON_CHECKPOINT_NOT_FOUND, name, err)
}

// DeleteCheckpoints implements leaderdv1.CheckpointServiceServer.
func (s *checkpointService) DeleteCheckpoints(ctx context.Context, req *leaderdv1.DeleteCheckpointsRequest) (*emptypb.Empty, error) {
	var v state.Violations
	id := parseJobName(&v, req.GetName())
	if err := refuse(v); err != nil {
		return nil, err
	}
	if err := s.cfg.Checkpoint.DeleteCheckpoints(ctx, id); err != nil {
		return nil, s.fail(ctx, writes, req.GetName(), err)
	}
	return &emptypb.Empty{}, nil
}

func checkpointOf(c *state.SavedCheckpoint) *leaderdv1.Checkpoint {
	return &leaderdv1.Checkpoint{
		Number: c.Number, Size: int32(len(c.Data)), //nolint:gosec // bounded by its limit
		Token: c.Token, SaveTime: timeOf(c.Saved), Run: string(c.Run),
	}
}

// addProgress adds to the tries of a run that are under way how far they say that they
// have come.
func addProgress(run *leaderdv1.Run, e *store.RunEntry, reported map[store.ProgressKey]store.Reported) {
	if len(reported) == 0 || e.Record != nil {
		return
	}
	for i := range e.Live {
		l := &e.Live[i]
		p, ok := reported[store.ProgressKey{Job: e.Job, Run: e.Run, Shard: l.Shard}]
		if !ok || p.Token != l.Token {
			continue
		}
		for _, a := range run.GetAttempts() {
			// Shards may share a token, as they were claimed together; not on one node
			// and with one number.
			if a.GetToken() == l.Token && a.GetNode() == l.Owner.Node && a.GetProgress() == nil {
				a.Progress = progressOf(&p.Progress)
				break
			}
		}
	}
}

func progressOf(p *state.Progress) *leaderdv1.Progress {
	res := &leaderdv1.Progress{Done: p.Done, Total: p.Total, Message: p.Message, ReportTime: timeOf(p.Reported)}
	if end, ok := p.End(); ok {
		res.EstimatedEndTime = timeOf(end)
	}
	return res
}

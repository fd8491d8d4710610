package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	if req.GetShard() < 0 && req.GetShard() != state.ListShard {
		v.Add("shard", "%d is negative, and not %d, the first step of a run that lists its shards", req.GetShard(), state.ListShard)
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

// ListCheckpoints implements leaderdv1.CheckpointServiceServer.
func (s *checkpointService) ListCheckpoints(ctx context.Context, req *leaderdv1.ListCheckpointsRequest) (*leaderdv1.ListCheckpointsResponse, error) {
	var v state.Violations
	l := store.ListJobCheckpoints{Namespace: parseNamespaceParent(&v, req.GetParent()), Limit: pageSize(&v, req.GetPageSize())}
	scope := "checkpoints of " + req.GetParent()
	if parts := parsePageToken(&v, scope, req.GetPageToken(), 3); parts != nil {
		l.After = state.CheckpointRef{Job: state.JobID{Namespace: parts[0], Name: parts[1]}, OfJob: true}
		var err error
		if l.After.Shard, err = strconv.Atoi(parts[2]); err != nil {
			v.Add("pageToken", "is no page token of this list")
		}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	page, more, err := s.cfg.Checkpoint.ListJobCheckpoints(ctx, l)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetParent(), err)
	}
	res := &leaderdv1.ListCheckpointsResponse{}
	for i := range page {
		c := checkpointOf(&page[i].Last)
		c.Data = page[i].Last.Data
		res.Checkpoints = append(res.Checkpoints, &leaderdv1.JobCheckpoint{
			Job: jobName(page[i].Of.Job), Shard: int32(page[i].Of.Shard), Checkpoint: c, //nolint:gosec // bounded by state.MaxShards
		})
	}
	if more && len(page) > 0 {
		last := page[len(page)-1].Of
		res.NextPageToken = pageToken(scope, last.Job.Namespace, last.Job.Name, strconv.Itoa(last.Shard))
	}
	return res, nil
}

// SetCheckpoint implements leaderdv1.CheckpointServiceServer.
func (s *checkpointService) SetCheckpoint(ctx context.Context, req *leaderdv1.SetCheckpointRequest) (*leaderdv1.SetCheckpointResponse, error) {
	var v state.Violations
	c := store.SetCheckpoint{
		Job: parseJobName(&v, req.GetName()), Shard: int(req.GetShard()), Data: req.GetData(), Number: req.GetNumber(),
		Run: state.RunID(req.GetRun()), Saved: s.cfg.Wall().UTC(), Replace: req.GetReplace(), DryRun: req.GetValidateOnly(),
	}
	if (c.Shard < 0 || c.Shard >= state.MaxShards) && c.Shard != state.ListShard {
		v.Add("shard", "%d is outside 0–%d, and is not %d", c.Shard, state.MaxShards-1, state.ListShard)
	}
	if n := len(c.Data); n > state.MaxCheckpoint {
		v.Add("data", "has %d bytes; at most %d are allowed", n, state.MaxCheckpoint)
	}
	if c.Number < 0 {
		v.Add("number", "%d is negative", c.Number)
	}
	if why := state.CheckName(string(c.Run)); c.Run != "" && why != "" {
		v.Add("run", "%s", why)
	}
	if at := req.GetSaveTime(); at != nil {
		if c.Saved = at.AsTime(); at.CheckValid() != nil {
			v.Add("saveTime", "is no time: %d s and %d ns", at.GetSeconds(), at.GetNanos())
		}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	set, last, err := s.cfg.Checkpoint.SetCheckpoint(ctx, c)
	switch {
	case errors.Is(err, store.ErrNoJobCheckpoints):
		v.Add("name", "the job's checkpoints do not outlive its runs: its spec.checkpoint.scope is not job")
		return nil, refuse(v)
	case err != nil:
		return nil, failOf(ctx, s.cfg.Logger, writes, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, req.GetName(), err)
	}
	return &leaderdv1.SetCheckpointResponse{Result: setResults[set], Checkpoint: checkpointOf(&last)}, nil
}

var setResults = map[store.CheckpointSet]leaderdv1.SetCheckpointResponse_Result{
	store.CheckpointCreated:   leaderdv1.SetCheckpointResponse_RESULT_CREATED,
	store.CheckpointReplaced:  leaderdv1.SetCheckpointResponse_RESULT_REPLACED,
	store.CheckpointUnchanged: leaderdv1.SetCheckpointResponse_RESULT_UNCHANGED,
	store.CheckpointConflict:  leaderdv1.SetCheckpointResponse_RESULT_CONFLICT,
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

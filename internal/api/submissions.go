package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

const (
	// maxWaiting bounds how many calls of one node wait for runs at a time: each has a
	// watch of its own.
	maxWaiting  = 4096
	maxWait     = time.Minute
	defaultWait = 30 * time.Second
	// submitAtOnce is how many wishes of one call are on their way at a time.
	submitAtOnce = 128
)

type submissionService struct {
	leaderdv1.UnimplementedSubmissionServiceServer
	cfg     *Config
	waiting chan struct{} // as many as may wait
	adhoc   *adhocDoor
}

func newSubmissionService(cfg *Config) *submissionService {
	return &submissionService{
		cfg: cfg, waiting: make(chan struct{}, maxWaiting), adhoc: &adhocDoor{jobs: cfg.Jobs, max: state.MaxAdhocJobs},
	}
}

// SubmitRun implements leaderdv1.SubmissionServiceServer.
func (s *submissionService) SubmitRun(ctx context.Context, req *leaderdv1.SubmitRunRequest) (*leaderdv1.SubmitRunResponse, error) {
	var v state.Violations
	actor := actorOf(ctx, &v)
	sub, madeUp := s.submission(&v, req, actor)
	if err := refuse(v); err != nil {
		return nil, err
	}
	run, duplicate, err := s.submit(ctx, req, &sub, madeUp)
	if err != nil {
		return nil, err
	}
	return &leaderdv1.SubmitRunResponse{Run: run, Duplicate: duplicate}, nil
}

// SubmitRuns implements leaderdv1.SubmissionServiceServer.
func (s *submissionService) SubmitRuns(ctx context.Context, req *leaderdv1.SubmitRunsRequest) (*leaderdv1.SubmitRunsResponse, error) {
	var v state.Violations
	actor := actorOf(ctx, &v)
	wishes := req.GetRequests()
	if n := len(wishes); n == 0 || n > state.MaxSubmissions {
		v.Add("requests", "has %d entries, 1–%d are allowed", n, state.MaxSubmissions)
	}
	size := 0
	for _, w := range wishes {
		size += len(w.GetPayload()) + proto.Size(w.GetSpec())
	}
	if size > state.MaxSubmissionBytes {
		v.Add("requests", "have payloads and specs of %d bytes in all, at most %d are allowed", size, state.MaxSubmissionBytes)
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	results := make([]*leaderdv1.SubmitResult, len(wishes))
	var all sync.WaitGroup
	free := make(chan struct{}, submitAtOnce)
	for i, w := range wishes {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			results[i] = s.submitOne(ctx, w, actor)
		})
	}
	all.Wait()
	return &leaderdv1.SubmitRunsResponse{Results: results}, nil
}

// submitOne is SubmitRun for one of many.
func (s *submissionService) submitOne(ctx context.Context, req *leaderdv1.SubmitRunRequest, actor string) *leaderdv1.SubmitResult {
	var v state.Violations
	sub, madeUp := s.submission(&v, req, actor)
	err := refuse(v)
	if err == nil {
		var run string
		var duplicate bool
		if run, duplicate, err = s.submit(ctx, req, &sub, madeUp); err == nil {
			return &leaderdv1.SubmitResult{Run: run, Duplicate: duplicate}
		}
	}
	st := status.Convert(err)
	return &leaderdv1.SubmitResult{Error: &leaderdv1.SubmitError{Code: int32(st.Code()), Message: st.Message()}} //nolint:gosec // codes are small
}

func (s *submissionService) fail(ctx context.Context, job string, err error) error {
	return failOf(ctx, s.cfg.Logger, writes, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, job, err)
}

// submission reads a wish; madeUp tells that it brings a spec and leaves the job's name to us.
func (s *submissionService) submission(v *state.Violations, req *leaderdv1.SubmitRunRequest, actor string) (sub state.Submission, madeUp bool) {
	now := s.cfg.Wall()
	var job state.JobID
	if req.GetSpec() != nil {
		job, madeUp = s.specWish(v, req)
	} else {
		job = parseJob(v, "job", req.GetJob())
	}
	sub = state.Submission{
		Pending: state.Pending{
			Job: job, Actor: actor, Reason: req.GetReason(), AllowOverlap: req.GetAllowOverlap(),
			Requested: submitTime(v, req, now), LimitKey: req.GetLimitKey(),
		},
		Payload: req.GetPayload(), Key: req.GetIdempotencyKey(), KeyTTL: state.DefaultKeyTTL, Now: now,
	}
	checkReason(v, req.GetReason())
	checkLimitKey(v, req.GetLimitKey())
	if n := len(sub.Payload); n > state.MaxPayloadBytes {
		v.Add("payload", "has %d bytes, at most %d are allowed", n, state.MaxPayloadBytes)
	}
	checkKey(v, sub.Key)
	if ttl := req.GetIdempotencyTtl(); ttl != nil && checkDuration(v, "idempotencyTtl", ttl) {
		sub.KeyTTL = ttl.AsDuration()
		if sub.KeyTTL < state.MinKeyTTL || sub.KeyTTL > state.MaxKeyTTL {
			v.Add("idempotencyTtl", "%s is outside %s–%s", sub.KeyTTL, state.MinKeyTTL, state.MaxKeyTTL)
		}
		if sub.Key == "" {
			v.Add("idempotencyTtl", "is set without an idempotencyKey")
		}
	}
	sub.Pending.Run = state.SubmitRunID(sub.Pending.Requested, submitNonce(sub.Pending.Requested))
	return sub, madeUp
}

// submitTime is when the run is due.
func submitTime(v *state.Violations, req *leaderdv1.SubmitRunRequest, now time.Time) time.Time {
	due := now
	var field string
	switch when := req.GetWhen().(type) {
	case *leaderdv1.SubmitRunRequest_StartTime:
		field = "startTime"
		if when.StartTime.CheckValid() != nil {
			v.Add(field, "is no time: %d s and %d ns", when.StartTime.GetSeconds(), when.StartTime.GetNanos())
			return now
		}
		due = when.StartTime.AsTime()
	case *leaderdv1.SubmitRunRequest_Delay:
		field = "delay"
		if d := when.Delay; d.GetSeconds() == 0 && d.GetNanos() == 0 {
			break
		} else if !checkDuration(v, field, d) {
			return now
		}
		d := when.Delay.AsDuration()
		if d < 0 || d > state.MaxSubmitAhead {
			v.Add(field, "%s is outside 0s–%s", d, state.MaxSubmitAhead)
			return now
		}
		due = now.Add(d)
	}
	if due.Sub(now) > state.MaxSubmitAhead {
		v.Add(field, "%s is more than %d days ahead", due.Format(time.RFC3339), state.MaxSubmitAhead/(24*time.Hour))
		return now
	}
	if due.Before(now) {
		due = now
	}
	return due.UTC().Truncate(time.Microsecond)
}

// WaitRun implements leaderdv1.SubmissionServiceServer.
func (s *submissionService) WaitRun(ctx context.Context, req *leaderdv1.WaitRunRequest) (*leaderdv1.WaitRunResponse, error) {
	var v state.Violations
	id, run := parseRunName(&v, req.GetName())
	timeout := waitTime(&v, req.GetTimeout())
	if err := refuse(v); err != nil {
		return nil, err
	}
	select {
	case s.waiting <- struct{}{}:
		defer func() { <-s.waiting }()
	default:
		return nil, answer(codes.Unavailable, leaderdv1.ErrorReason_ERROR_REASON_NODE_UNAVAILABLE,
			fmt.Sprintf("%d calls wait for runs on this node already; ask another one, or again later", maxWaiting), s.cfg.Node)
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	entry, err := s.cfg.Submitter.WaitRun(bounded, id, run)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // it had no time to look
		entry, err = s.cfg.Runs.GetRun(ctx, id, run)
	}
	if err != nil {
		return nil, failOf(ctx, s.cfg.Logger, reads, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, req.GetName(), err)
	}
	return &leaderdv1.WaitRunResponse{Run: runOf(&entry), Done: entry.Record != nil || entry.Broken != nil}, nil
}

func waitTime(v *state.Violations, d *durationpb.Duration) time.Duration {
	if d == nil {
		return defaultWait
	}
	if d.CheckValid() != nil || d.AsDuration() < 0 || d.AsDuration() > maxWait {
		v.Add("timeout", "%d s is outside 0s–%s", d.GetSeconds(), maxWait)
		return 0
	}
	return d.AsDuration()
}

// GetRunResult implements leaderdv1.SubmissionServiceServer.
func (s *submissionService) GetRunResult(ctx context.Context, req *leaderdv1.GetRunResultRequest) (*leaderdv1.GetRunResultResponse, error) {
	var v state.Violations
	id, run := parseRunName(&v, req.GetName())
	if err := refuse(v); err != nil {
		return nil, err
	}
	result, err := s.cfg.Submitter.GetResult(ctx, id, run)
	switch {
	case errors.Is(err, store.ErrNotFound):
		if _, err := s.cfg.Runs.GetRun(ctx, id, run); err != nil {
			return nil, failOf(ctx, s.cfg.Logger, reads, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, req.GetName(), err)
		}
		return nil, answer(codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_RESULT_NOT_FOUND,
			req.GetName()+" left no result", req.GetName())
	case err != nil:
		return nil, failOf(ctx, s.cfg.Logger, reads, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, req.GetName(), err)
	}
	return &leaderdv1.GetRunResultResponse{Result: result}, nil
}

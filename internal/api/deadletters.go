package api

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// DeadLetterKeeper keeps dead letters. *store.Store is one.
type DeadLetterKeeper interface {
	ListDead(ctx context.Context, l store.ListDead) (page []store.RunEntry, more bool, err error)
	GetDead(ctx context.Context, id state.JobID, run state.RunID) (state.Record, error)
	RequeueDead(ctx context.Context, p state.Pending) (state.Pending, error)
	DropDead(ctx context.Context, id state.JobID, run state.RunID) error
}

type deadLetterService struct {
	leaderdv1.UnimplementedDeadLetterServiceServer
	cfg *Config
}

func (s *deadLetterService) fail(ctx context.Context, kind callKind, name string, err error) error {
	return failOf(ctx, s.cfg.Logger, kind, leaderdv1.ErrorReason_ERROR_REASON_DEAD_LETTER_NOT_FOUND, name, err)
}

// ListDeadLetters implements leaderdv1.DeadLetterServiceServer.
func (s *deadLetterService) ListDeadLetters(
	ctx context.Context, req *leaderdv1.ListDeadLettersRequest,
) (*leaderdv1.ListDeadLettersResponse, error) {
	var v state.Violations
	l := store.ListDead{Limit: pageSize(&v, req.GetPageSize())}
	l.Namespace, l.Job = parseJobParent(&v, req.GetParent())
	scope := "dead letters of " + req.GetParent()
	if parts := parsePageToken(&v, scope, req.GetPageToken(), 3); parts != nil {
		l.AfterJob, l.AfterRun = state.JobID{Namespace: parts[0], Name: parts[1]}, state.RunID(parts[2])
		// A token is no proof: it must not lead out of the parent.
		if l.Namespace != "" && l.Namespace != parts[0] || l.Job != "" && l.Job != parts[1] || parts[2] == "" {
			v.Add("pageToken", "is no page token of this parent")
		}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	page, more, err := s.cfg.DeadLetters.ListDead(ctx, l)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetParent(), err)
	}
	res := &leaderdv1.ListDeadLettersResponse{}
	for i := range page {
		res.DeadLetters = append(res.DeadLetters, deadLetterOf(&page[i]))
	}
	if more {
		last := &page[len(page)-1]
		res.NextPageToken = pageToken(scope, last.Job.Namespace, last.Job.Name, string(last.Run))
	}
	return res, nil
}

// deadLetterOf leaves the revision out: it is the dead letter's, and that of the
// verdict is the record's to tell.
func deadLetterOf(e *store.RunEntry) *leaderdv1.DeadLetter {
	return &leaderdv1.DeadLetter{Run: runOf(e)}
}

// GetDeadLetter implements leaderdv1.DeadLetterServiceServer.
func (s *deadLetterService) GetDeadLetter(
	ctx context.Context, req *leaderdv1.GetDeadLetterRequest,
) (*leaderdv1.GetDeadLetterResponse, error) {
	var v state.Violations
	id, run := parseRunName(&v, req.GetName())
	if err := refuse(v); err != nil {
		return nil, err
	}
	rec, err := s.cfg.DeadLetters.GetDead(ctx, id, run)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetName(), err)
	}
	return &leaderdv1.GetDeadLetterResponse{DeadLetter: deadLetterOf(&store.RunEntry{Job: id, Run: run, Record: &rec})}, nil
}

// RequeueDeadLetter implements leaderdv1.DeadLetterServiceServer.
func (s *deadLetterService) RequeueDeadLetter(
	ctx context.Context, req *leaderdv1.RequeueDeadLetterRequest,
) (*leaderdv1.RequeueDeadLetterResponse, error) {
	var v state.Violations
	p := state.Pending{Actor: actorOf(ctx, &v), Reason: req.GetReason(), AllowOverlap: req.GetAllowOverlap()}
	p.Job, p.Origin = parseRunName(&v, req.GetName())
	checkReason(&v, p.Reason)
	if err := refuse(v); err != nil {
		return nil, err
	}
	var err error
	for range 3 {
		p.Requested = s.cfg.Wall()
		p.Run = repeatRunID(p.Origin, p.Requested)
		if _, err = s.cfg.DeadLetters.RequeueDead(ctx, p); !errors.Is(err, store.ErrExists) {
			break
		}
	}
	if err != nil {
		return nil, s.fail(ctx, writes, req.GetName(), err)
	}
	return &leaderdv1.RequeueDeadLetterResponse{Run: runName(p.Job, p.Run)}, nil
}

// repeatRunID is the id of a run that repeats another: a submitted one, if that may have
// been given something, which the new one then gets.
func repeatRunID(origin state.RunID, now time.Time) state.RunID {
	if origin.Kind().Given() {
		return state.SubmitRunID(now, submitNonce(now))
	}
	return state.TriggerRunID(now, triggerNonce(now))
}

// DropDeadLetter implements leaderdv1.DeadLetterServiceServer.
func (s *deadLetterService) DropDeadLetter(ctx context.Context, req *leaderdv1.DropDeadLetterRequest) (*emptypb.Empty, error) {
	var v state.Violations
	id, run := parseRunName(&v, req.GetName())
	if err := refuse(v); err != nil {
		return nil, err
	}
	if err := s.cfg.DeadLetters.DropDead(ctx, id, run); err != nil {
		return nil, s.fail(ctx, writes, req.GetName(), err)
	}
	return &emptypb.Empty{}, nil
}

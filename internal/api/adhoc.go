package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/store"
)

// adhocPrefix begins the names that are made up for jobs of submissions.
const adhocPrefix = "adhoc-"

// made is for how long a job that was made here counts beside those that the watch tells
// of, at most: it is there long before, or was deleted.
const made = time.Minute

// adhocDoor bounds how many jobs of submissions there are. It counts what the watch of jobs
// tells, and what this node has made or is about to that the watch has not told of yet.
// So one node alone never passes the bound; what others make at the same time it hears a
// moment later.
type adhocDoor struct {
	jobs JobCounter
	max  int

	mu   sync.Mutex
	ours map[state.JobID]time.Time
}

// enter lets a job be made, or not. One that is not made after all leaves.
func (d *adhocDoor) enter(id state.JobID, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ours) >= 1000 || d.jobs.Adhoc()+len(d.ours) >= d.max {
		for id, since := range d.ours {
			if d.jobs.Has(id) || now.Sub(since).Abs() > made {
				delete(d.ours, id)
			}
		}
	}
	if d.jobs.Adhoc()+len(d.ours) >= d.max {
		return false
	}
	if d.ours == nil {
		d.ours = make(map[state.JobID]time.Time)
	}
	d.ours[id] = now
	return true
}

func (d *adhocDoor) leave(id state.JobID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.ours, id)
}

// specWish reads a wish that brings a spec: which job it makes, and whether the name is
// made up.
func (s *submissionService) specWish(v *state.Violations, req *leaderdv1.SubmitRunRequest) (id state.JobID, madeUp bool) {
	var of state.Violations
	checkSpec(&of, req.GetSpec())
	if n := proto.Size(req.GetSpec()); n > state.MaxAdhocSpecBytes {
		of = state.Violations{{Field: "spec", Description: fmt.Sprintf("has %d bytes; at most %d are allowed in a submission", n, state.MaxAdhocSpecBytes)}}
	} else if len(of) == 0 {
		domain := codec.SpecFromProto(req.GetSpec())
		domain.CheckAdhoc(&of)
	}
	*v = append(*v, of...)
	if strings.Count(req.GetJob(), "/") == 1 {
		vars, err := splitName(req.GetJob(), namespacePattern)
		if err != nil {
			v.Add("job", "%s; or %s to name the job that is made", err, jobPattern)
			return id, true
		}
		checkPart(v, "job", "namespace", vars[0])
		return state.JobID{Namespace: vars[0], Name: adhocPrefix + strings.ToLower(rand.Text())}, true
	}
	return parseJob(v, "job", req.GetJob()), false
}

// submit makes a wish durable.
func (s *submissionService) submit(ctx context.Context, req *leaderdv1.SubmitRunRequest, sub *state.Submission, madeUp bool) (run string, duplicate bool, err error) {
	id := sub.Pending.Job
	if req.GetSpec() == nil {
		run, duplicate, err := s.cfg.Submitter.Submit(ctx, *sub)
		if err != nil {
			return "", false, s.notTaken(ctx, req, err)
		}
		return runName(id, run), duplicate, nil
	}
	full := !s.adhoc.enter(id, sub.Now)
	job, made, duplicate, err := s.cfg.Submitter.SubmitSpec(ctx, store.SubmitSpec{Submission: *sub, Spec: req.GetSpec(), MadeUp: madeUp, Full: full})
	if duplicate || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotPerKey) {
		s.adhoc.leave(id) // after another error it may be there, as far as is known
	}
	switch {
	case errors.Is(err, store.ErrTooManyAdhoc):
		return "", false, answer(codes.ResourceExhausted, leaderdv1.ErrorReason_ERROR_REASON_TOO_MANY_ADHOC_JOBS,
			fmt.Sprintf("there are %d jobs that submissions made, which is as many as there may be; they go when their runs' retention is over, or are deleted",
				s.adhoc.max), req.GetJob())
	case errors.Is(err, store.ErrExists):
		return "", false, answer(codes.AlreadyExists, leaderdv1.ErrorReason_ERROR_REASON_JOB_EXISTS,
			fmt.Sprintf("there is a job %s already; submit to it without a spec, or choose another name or none", jobName(id)), req.GetJob())
	}
	if err != nil {
		return "", false, s.notTaken(ctx, req, err)
	}
	return runName(job, made), duplicate, nil
}

// notTaken is the answer to a wish that the store did not take.
func (s *submissionService) notTaken(ctx context.Context, req *leaderdv1.SubmitRunRequest, err error) error {
	if errors.Is(err, store.ErrNotPerKey) {
		return errNotPerKey()
	}
	return s.fail(ctx, req.GetJob(), err)
}

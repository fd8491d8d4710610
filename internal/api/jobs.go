package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/planner"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

const (
	// ActorMetadata is the key of the metadata that names who asks.
	ActorMetadata = "leaderd-actor"
	// Anonymous is who asks if nothing says.
	Anonymous = "anonymous"
)

type jobService struct {
	leaderdv1.UnimplementedJobServiceServer
	cfg *Config
}

// fail answers an error about a job.
func (s *jobService) fail(ctx context.Context, kind callKind, name string, err error) error {
	return failOf(ctx, s.cfg.Logger, kind, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, name, err)
}

// GetJob implements leaderdv1.JobServiceServer.
func (s *jobService) GetJob(ctx context.Context, req *leaderdv1.GetJobRequest) (*leaderdv1.GetJobResponse, error) {
	var v state.Violations
	id := parseJobName(&v, req.GetName())
	if err := refuse(v); err != nil {
		return nil, err
	}
	entry, err := s.cfg.Reader.GetJob(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetName(), err)
	}
	job := jobOf(&entry, s.cfg.Wall())
	s.gates(ctx).mark(job, id)
	return &leaderdv1.GetJobResponse{Job: job}, nil
}

// ListJobs implements leaderdv1.JobServiceServer.
func (s *jobService) ListJobs(ctx context.Context, req *leaderdv1.ListJobsRequest) (*leaderdv1.ListJobsResponse, error) {
	var v state.Violations
	l := store.ListJobs{
		Namespace: parseNamespaceParent(&v, req.GetParent()),
		Limit:     pageSize(&v, req.GetPageSize()),
		Adhoc:     req.GetShowAdhoc(),
	}
	scope := "jobs of " + req.GetParent()
	if l.Adhoc {
		scope = "all " + scope
	}
	if parts := parsePageToken(&v, scope, req.GetPageToken(), 2); parts != nil {
		l.After = state.JobID{Namespace: parts[0], Name: parts[1]}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	page, err := s.cfg.Lister.ListJobs(ctx, l)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetParent(), err)
	}
	res, now, bad := &leaderdv1.ListJobsResponse{}, s.cfg.Wall(), s.gates(ctx)
	for i := range page.Jobs {
		job := jobOf(&page.Jobs[i], now)
		bad.mark(job, page.Jobs[i].Job.ID)
		res.Jobs = append(res.Jobs, job)
	}
	if page.More && len(page.Jobs) > 0 {
		last := page.Jobs[len(page.Jobs)-1].Job.ID
		res.NextPageToken = pageToken(scope, last.Namespace, last.Name)
	}
	return res, nil
}

// UpdateJob implements leaderdv1.JobServiceServer.
func (s *jobService) UpdateJob(ctx context.Context, req *leaderdv1.UpdateJobRequest) (*leaderdv1.UpdateJobResponse, error) {
	var v state.Violations
	job := req.GetJob()
	p := store.PutJob{
		ID:           parseJobName(&v, job.GetName()),
		Spec:         job.GetSpec(),
		Revision:     parseEtag(&v, job.GetEtag()),
		AllowMissing: req.GetAllowMissing(),
		Actor:        actorOf(ctx, &v),
		Reason:       req.GetReason(),
		DryRun:       req.GetValidateOnly(),
	}
	checkSpec(&v, p.Spec)
	for _, path := range req.GetUpdateMask().GetPaths() {
		if path != "spec" {
			v.Add("updateMask", "%q cannot be updated; only \"spec\" can", clip(path))
		}
	}
	checkReason(&v, p.Reason)
	p.Now = s.cfg.Wall()
	addPause(&v, &p, req)
	if err := refuse(v); err != nil {
		return nil, err
	}
	res, err := s.cfg.Putter.PutJob(ctx, p)
	if missing, ok := errors.AsType[*store.MissingCalendarsError](err); ok {
		return nil, missingCalendars(p.Spec, missing.Names)
	}
	if bad, ok := chainViolation(p.Spec, err); ok {
		return nil, refuse(bad)
	}
	if err != nil {
		return nil, s.fail(ctx, writes, job.GetName(), err)
	}
	result := leaderdv1.UpdateJobResponse_RESULT_UNCHANGED
	switch res.Change {
	case state.ChangeCreate:
		result = leaderdv1.UpdateJobResponse_RESULT_CREATED
	case state.ChangeUpdate:
		result = leaderdv1.UpdateJobResponse_RESULT_UPDATED
	case state.ChangePause, state.ChangeResume, state.ChangeDelete, state.ChangeCalendar:
	}
	return &leaderdv1.UpdateJobResponse{Job: jobOf(&res.Entry, p.Now), Result: result}, nil
}

// addPause reads how a job that is created is paused.
func addPause(v *state.Violations, p *store.PutJob, req *leaderdv1.UpdateJobRequest) {
	p.Paused, p.PauseReason = req.GetPaused(), req.GetPauseReason()
	if why := state.CheckReason(p.PauseReason); why != "" {
		v.Add("pauseReason", "%s", why)
	}
	if req.GetPauseUntil() != nil {
		p.PauseUntil = pauseEndOf(v, "pauseUntil", req.GetPauseUntil(), p.Now)
	}
	if !p.Paused && (p.PauseReason != "" || req.GetPauseUntil() != nil) {
		v.Add("paused", "is not set; pauseReason and pauseUntil stand only beside it")
	}
}

// chainViolation is what is wrong with spec.after that only the store knows.
func chainViolation(spec *leaderdv1.JobSpec, err error) (v state.Violations, ok bool) {
	if missing, is := errors.AsType[*store.MissingUpstreamError](err); is {
		for i, name := range spec.GetAfter().GetJobs() {
			if slices.Contains(missing.Names, name) {
				v.Add(fmt.Sprintf("spec.after.jobs[%d]", i), "there is no job %q in the namespace", name)
			}
		}
	}
	if cycle, is := errors.AsType[*store.CycleError](err); is {
		v.Add("spec.after.jobs", "%s", cycle)
	}
	return v, len(v) > 0
}

// changeRequest is what the requests to pause, resume and delete a job have in
// common.
type changeRequest interface {
	GetName() string
	GetEtag() string
	GetReason() string
}

func (s *jobService) changeOf(ctx context.Context, req changeRequest) (store.ChangeJob, error) {
	var v state.Violations
	c := s.parseChange(ctx, &v, req)
	return c, refuse(v)
}

func (s *jobService) parseChange(ctx context.Context, v *state.Violations, req changeRequest) store.ChangeJob {
	c := store.ChangeJob{
		ID:       parseJobName(v, req.GetName()),
		Revision: parseEtag(v, req.GetEtag()),
		Actor:    actorOf(ctx, v),
		Reason:   req.GetReason(),
		Now:      s.cfg.Wall(),
	}
	checkReason(v, c.Reason)
	return c
}

// DeleteJob implements leaderdv1.JobServiceServer.
func (s *jobService) DeleteJob(ctx context.Context, req *leaderdv1.DeleteJobRequest) (*emptypb.Empty, error) {
	c, err := s.changeOf(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Putter.DeleteJob(ctx, c); errors.Is(err, store.ErrFollowed) {
		_, by, _ := strings.Cut(err.Error(), store.ErrFollowed.Error())
		return nil, answer(codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_JOB_FOLLOWED,
			req.GetName()+" cannot be deleted: other jobs run after it"+by, req.GetName())
	} else if err != nil {
		return nil, s.fail(ctx, writes, req.GetName(), err)
	}
	return &emptypb.Empty{}, nil
}

// PauseJob implements leaderdv1.JobServiceServer.
func (s *jobService) PauseJob(ctx context.Context, req *leaderdv1.PauseJobRequest) (*leaderdv1.PauseJobResponse, error) {
	var v state.Violations
	c := s.parseChange(ctx, &v, req)
	if req.GetUntil() != nil {
		c.Until = pauseEndOf(&v, "until", req.GetUntil(), c.Now)
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	entry, _, err := s.cfg.Pauser.PauseJob(ctx, c)
	if err != nil {
		return nil, s.fail(ctx, writes, req.GetName(), err)
	}
	return &leaderdv1.PauseJobResponse{Job: jobOf(&entry, c.Now)}, nil
}

// pauseEndOf reads when a pause that is asked for at now shall end.
func pauseEndOf(v *state.Violations, field string, until *timestamppb.Timestamp, now time.Time) time.Time {
	at := until.AsTime().Truncate(time.Microsecond)
	switch {
	case until.CheckValid() != nil:
		v.Add(field, "is no time: %d s and %d ns", until.GetSeconds(), until.GetNanos())
	case !at.After(now):
		v.Add(field, "%s is not in the future; a pause ends after it began", at.Format(time.RFC3339))
	case at.After(now.Add(state.MaxPause)):
		v.Add(field, "%s is more than %d days ahead; leave it out for a pause without an end",
			at.Format(time.RFC3339), state.MaxPause/(24*time.Hour))
	}
	return at
}

// ResumeJob implements leaderdv1.JobServiceServer.
func (s *jobService) ResumeJob(ctx context.Context, req *leaderdv1.ResumeJobRequest) (*leaderdv1.ResumeJobResponse, error) {
	c, err := s.changeOf(ctx, req)
	if err != nil {
		return nil, err
	}
	entry, _, err := s.cfg.Pauser.ResumeJob(ctx, c)
	if err != nil {
		return nil, s.fail(ctx, writes, req.GetName(), err)
	}
	return &leaderdv1.ResumeJobResponse{Job: jobOf(&entry, c.Now)}, nil
}

// TriggerJob implements leaderdv1.JobServiceServer.
func (s *jobService) TriggerJob(ctx context.Context, req *leaderdv1.TriggerJobRequest) (*leaderdv1.TriggerJobResponse, error) {
	var v state.Violations
	p := state.Pending{
		Job:          parseJobName(&v, req.GetName()),
		Actor:        actorOf(ctx, &v),
		Reason:       req.GetReason(),
		AllowOverlap: req.GetAllowOverlap(),
		LimitKey:     req.GetLimitKey(),
	}
	checkReason(&v, p.Reason)
	checkLimitKey(&v, p.LimitKey)
	if err := refuse(v); err != nil {
		return nil, err
	}
	var err error
	for range 3 {
		p.Requested = s.cfg.Wall()
		p.Run = state.TriggerRunID(p.Requested, triggerNonce(p.Requested))
		if _, err = s.cfg.Triggerer.PutPending(ctx, p); !errors.Is(err, store.ErrExists) {
			break
		}
	}
	switch {
	case errors.Is(err, store.ErrNotPerKey):
		return nil, errNotPerKey()
	case err != nil:
		return nil, s.fail(ctx, writes, req.GetName(), err)
	}
	return &leaderdv1.TriggerJobResponse{Run: runName(p.Job, p.Run)}, nil
}

// actorOf is who asks.
func actorOf(ctx context.Context, v *state.Violations) string {
	values := metadata.ValueFromIncomingContext(ctx, ActorMetadata)
	if len(values) == 0 || values[0] == "" {
		return Anonymous
	}
	actor := values[0]
	unprintable := strings.ContainsFunc(actor, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\uFFFD' })
	if len(values) > 1 || len(actor) > state.MaxNameBytes || unprintable {
		v.Add("metadata."+ActorMetadata, "must be one printable text of at most %d bytes", state.MaxNameBytes)
	}
	return actor
}

func checkLimitKey(v *state.Violations, key string) {
	if why := state.CheckLimitKey(key); why != "" {
		v.Add("limitKey", "%s", why)
	}
}

// errNotPerKey refuses a key of limits that would mean nothing.
func errNotPerKey() error {
	return refuse(state.Violations{{
		Field: "limitKey", Description: "the job has no limit with perKey, at which the run could count by it",
	}})
}

func checkReason(v *state.Violations, reason string) {
	if why := state.CheckReason(reason); why != "" {
		v.Add("reason", "%s", why)
	}
}

// jobOf is a stored job as it is answered at now.
func jobOf(e *store.JobEntry, now time.Time) *leaderdv1.Job {
	job := &e.Job
	res := &leaderdv1.Job{Name: jobName(job.ID)}
	if job.Revision != 0 {
		res.Etag = etagOf(job.Revision)
	}
	if e.Message == nil {
		res.Quarantine = "its stored value cannot be read; put the job anew or delete it"
		return res
	}
	plan := planner.Compile(job)
	if plan.Broken != nil {
		res.Quarantine = plan.Broken.Error()
	}
	res.Spec = e.Message.GetSpec()
	res.Adhoc = job.Adhoc
	res.Paused = job.Paused
	res.PauseReason = job.PauseReason
	res.PauseActor = job.PauseActor
	res.PausedUntil = timeOf(job.PausedUntil)
	res.Uid = job.UID
	res.Generation = job.Generation
	res.CreateTime = timeOf(job.Created)
	res.UpdateTime = timeOf(job.Updated)
	res.UpdatedBy = job.UpdatedBy
	res.NextSlot = timeOf(plan.NextRun(now))
	return res
}

// badGates are the jobs that stand still because the record at their gate cannot
// be read, with the record's key.
type badGates map[state.JobID]string

// gates asks for them. Where that is not known jobs are answered without it.
func (s *jobService) gates(ctx context.Context) badGates {
	mark, err := s.cfg.Watermark.GetWatermark(ctx)
	if err != nil {
		s.cfg.Logger.Debug("it is not known which jobs' gates cannot be read", "err", err)
	}
	bad := make(badGates, len(mark.UnreadableGates))
	for _, id := range mark.UnreadableGates {
		bad[id] = s.cfg.Watermark.GateKey(id)
	}
	return bad
}

// mark says so of a job that has no worse trouble.
func (b badGates) mark(job *leaderdv1.Job, id state.JobID) {
	if key, ok := b[id]; ok && job.GetQuarantine() == "" {
		job.Quarantine = fmt.Sprintf("the record of its last run cannot be read: its slots are skipped until the key %q is deleted, "+
			"which is safe once no run of the job is at work", key)
		job.NextSlot = nil
	}
}

// timeOf leaves the zero time out.
func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

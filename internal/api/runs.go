package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

type runService struct {
	leaderdv1.UnimplementedRunServiceServer
	cfg *Config
}

func (s *runService) fail(ctx context.Context, name string, err error) error {
	return failOf(ctx, s.cfg.Logger, reads, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, name, err)
}

// GetRun implements leaderdv1.RunServiceServer.
func (s *runService) GetRun(ctx context.Context, req *leaderdv1.GetRunRequest) (*leaderdv1.GetRunResponse, error) {
	var v state.Violations
	id, run := parseRunName(&v, req.GetName())
	if err := refuse(v); err != nil {
		return nil, err
	}
	entry, err := s.cfg.Runs.GetRun(ctx, id, run)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return nil, s.missing(ctx, req.GetName(), id, run)
		}
		return nil, s.fail(ctx, req.GetName(), err)
	}
	res := runOf(&entry)
	if entry.Record == nil && len(entry.Live) > 0 {
		reported, err := s.cfg.Checkpoint.ListProgress(ctx, id, run)
		if err != nil {
			return nil, s.fail(ctx, req.GetName(), err)
		}
		addProgress(res, &entry, reported)
	}
	return &leaderdv1.GetRunResponse{Run: res}, nil
}

// missing is the answer where there is no such run: it may have been removed.
func (s *runService) missing(ctx context.Context, name string, id state.JobID, run state.RunID) error {
	floor, err := s.cfg.Runs.Floor(ctx, id)
	if err != nil {
		return s.fail(ctx, name, err)
	}
	begin, _, _ := strings.Cut(string(run), "-")
	if at, ok := state.RunID(begin).Slot(); ok && !at.After(floor.Instant) {
		return answer(codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, fmt.Sprintf(
			"%s does not exist, or was removed by retention, as runs of this job up to %s were", name, floor.Instant.UTC().Format(time.RFC3339)), name)
	}
	return s.fail(ctx, name, store.ErrNotFound)
}

// CancelRun implements leaderdv1.RunServiceServer.
func (s *runService) CancelRun(ctx context.Context, req *leaderdv1.CancelRunRequest) (*leaderdv1.CancelRunResponse, error) {
	var v state.Violations
	c := state.Cancel{Actor: actorOf(ctx, &v), Reason: state.ReasonRequested}
	c.Job, c.Run = parseRunName(&v, req.GetName())
	checkReason(&v, req.GetReason())
	if err := refuse(v); err != nil {
		return nil, err
	}
	c.Requested, c.Detail = s.cfg.Wall(), "by "+c.Actor
	if req.GetReason() != "" {
		c.Detail += ": " + req.GetReason()
	}
	entry, err := s.cfg.Canceller.CancelRun(ctx, c)
	if err != nil {
		return nil, failOf(ctx, s.cfg.Logger, writes, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, req.GetName(), err)
	}
	return &leaderdv1.CancelRunResponse{Run: runOf(&entry)}, nil
}

// ListRuns implements leaderdv1.RunServiceServer.
func (s *runService) ListRuns(ctx context.Context, req *leaderdv1.ListRunsRequest) (*leaderdv1.ListRunsResponse, error) {
	var v state.Violations
	l := store.ListRuns{Limit: pageSize(&v, req.GetPageSize())}
	l.Namespace, l.Job = parseJobParent(&v, req.GetParent())
	l.NewestFirst = req.GetOrder() == leaderdv1.ListRunsRequest_ORDER_NEWEST
	checkEnum(&v, "order", req.GetOrder(), leaderdv1.ListRunsRequest_Order_name)
	l.Since = sinceOf(&v, req.GetSinceTime())
	// What follows the first run of a chain comes later, but for wrong clocks.
	if since := beginOf(req.GetCorrelation()).Add(-time.Hour); since.After(l.Since) {
		l.Since = since
	}
	l.Match = matchOf(&v, req)
	scope := scopeOf(req)
	if parts := parsePageToken(&v, scope, req.GetPageToken(), 3); parts != nil {
		l.AfterJob = state.JobID{Namespace: parts[0], Name: parts[1]}
		l.AfterRun = state.RunID(parts[2])
		// A token is no proof: it must not lead out of the parent.
		if l.Namespace != "" && l.Namespace != parts[0] || l.Job != "" && l.Job != parts[1] || parts[2] == "" {
			v.Add("pageToken", "is no page token of this parent")
		}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	page, err := s.cfg.Runs.ListRuns(ctx, l)
	if err != nil {
		return nil, s.fail(ctx, req.GetParent(), err)
	}
	res := &leaderdv1.ListRunsResponse{}
	if l.Namespace != "" && l.Job != "" {
		floor, err := s.cfg.Runs.Floor(ctx, state.JobID{Namespace: l.Namespace, Name: l.Job})
		if err != nil {
			return nil, s.fail(ctx, req.GetParent(), err)
		}
		if res.RemovedCount = floor.Removed; !floor.Instant.IsZero() {
			res.RemovedUntil = timeOf(floor.Instant)
		}
	}
	var reported map[store.ProgressKey]store.Reported
	if req.GetProgress() && slices.ContainsFunc(page.Runs, func(e store.RunEntry) bool { return len(e.Live) > 0 }) {
		of := state.JobID{Namespace: l.Namespace, Name: l.Job}
		if reported, err = s.cfg.Checkpoint.ListProgress(ctx, of, ""); err != nil {
			return nil, s.fail(ctx, req.GetParent(), err)
		}
	}
	for i := range page.Runs {
		run := runOf(&page.Runs[i])
		addProgress(run, &page.Runs[i], reported)
		res.Runs = append(res.Runs, run)
	}
	if page.More && page.LastRun != "" {
		res.NextPageToken = pageToken(scope, page.LastJob.Namespace, page.LastJob.Name, string(page.LastRun))
	}
	return res, nil
}

// scopeOf is what a token of the request's answer belongs to: all but the size.
func scopeOf(req *leaderdv1.ListRunsRequest) string {
	scope := "runs of " + req.GetParent()
	if req.GetOrder() == leaderdv1.ListRunsRequest_ORDER_NEWEST {
		scope += ", newest first"
	}
	if len(req.GetStates()) > 0 {
		states := slices.Clone(req.GetStates())
		slices.Sort(states)
		scope += fmt.Sprint(", in ", slices.Compact(states))
	}
	if req.GetNode() != "" {
		scope += ", on " + req.GetNode()
	}
	if req.GetCorrelation() != "" {
		scope += ", of chain " + req.GetCorrelation()
	}
	if req.GetSinceTime() != nil {
		scope += ", since " + req.GetSinceTime().AsTime().Format(time.RFC3339Nano)
	}
	return scope
}

func sinceOf(v *state.Violations, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	since := t.AsTime()
	if t.CheckValid() != nil || since.Year() < 1 || since.Year() > 9998 {
		v.Add("sinceTime", "is no time: %d s and %d ns", t.GetSeconds(), t.GetNanos())
		return time.Time{}
	}
	if whole := since.Truncate(time.Second); !whole.Equal(since) {
		return whole.Add(time.Second) // runs are due at whole seconds
	}
	return since
}

// maxCorrelation bounds a correlation: the name of a job and the id of a run.
const maxCorrelation = state.MaxNameBytes + 65

// beginOf is the time of the first run of a chain; zero where that is not known.
func beginOf(correlation string) time.Time {
	_, run, _ := strings.Cut(correlation, "/")
	begin, _, _ := strings.Cut(run, "-")
	at, ok := state.RunID(begin).Slot()
	if !ok {
		return time.Time{}
	}
	return at
}

// matchOf tells which runs a request selects; nil for all.
func matchOf(v *state.Violations, req *leaderdv1.ListRunsRequest) func(*store.RunEntry) bool {
	states, node := req.GetStates(), req.GetNode()
	for i, s := range states {
		checkEnum(v, fmt.Sprintf("states[%d]", i), s, leaderdv1.Run_State_name)
	}
	if node != "" {
		checkPart(v, "node", "node", node)
	}
	correlation := req.GetCorrelation()
	if n := len(correlation); n > maxCorrelation {
		v.Add("correlation", "has %d bytes; at most %d are allowed", n, maxCorrelation)
	}
	if len(states) == 0 && node == "" && correlation == "" {
		return nil
	}
	return func(e *store.RunEntry) bool {
		r := runOf(e)
		if correlation != "" && r.GetCorrelation() != correlation && (r.GetCorrelation() != "" || e.Job.Name+"/"+string(e.Run) != correlation) {
			return false
		}
		return (len(states) == 0 || slices.Contains(states, r.GetState())) &&
			(node == "" || slices.ContainsFunc(r.GetAttempts(), func(a *leaderdv1.Attempt) bool { return a.GetNode() == node }))
	}
}

// runOf is a stored run as it is answered. One that cannot be read says so, with
// the key, in its detail.
func runOf(e *store.RunEntry) *leaderdv1.Run {
	res := &leaderdv1.Run{Name: runName(e.Job, e.Run), SlotCount: 1}
	switch {
	case e.Broken != nil:
		res.State, res.Detail = leaderdv1.Run_STATE_UNREADABLE, e.Broken.Error()
		begin, _, _ := strings.Cut(string(e.Run), "-")
		if due, ok := state.RunID(begin).Slot(); ok {
			res.DueTime = timeOf(due)
		}
	case e.Record != nil:
		ofRecord(res, e.Record)
		ofSplit(res, e)
		ofOthers(res, e, e.Record.Origin, e.Record.LimitKey, &e.Record.Chain)
	case len(e.Live) > 0:
		if e.Live[0].IsHeader() {
			ofSplit(res, e)
		} else {
			ofLive(res, e.Live)
			ofSplit(res, e)
		}
		ofOthers(res, e, e.Live[0].Origin, e.Live[0].LimitKey, &e.Live[0].Chain)
	case e.Pending != nil:
		res.State = leaderdv1.Run_STATE_PENDING
		res.DueTime = timeOf(e.Pending.Requested)
		if !e.Pending.Queued.IsZero() {
			res.Reason, res.Detail = state.ReasonQueued, "waits for other runs since "+e.Pending.Queued.UTC().Format(time.RFC3339)
		}
		ofSplit(res, e)
		ofOthers(res, e, e.Pending.Origin, e.Pending.LimitKey, &e.Pending.Chain)
	}
	return res
}

// ofOthers tells of the runs that a run repeats or was made after.
func ofOthers(res *leaderdv1.Run, e *store.RunEntry, origin state.RunID, limitKey string, chain *state.Chain) {
	res.LimitKey = limitKey
	if origin != "" {
		res.Origin = runName(e.Job, origin)
	}
	res.Correlation = chain.Correlation
	for _, u := range chain.Upstream {
		name := runName(state.JobID{Namespace: e.Job.Namespace, Name: u.Job}, u.Run)
		if res.Upstream = append(res.Upstream, name); u.ResultLost {
			res.LostResults = append(res.LostResults, name)
		}
	}
}

func ofRecord(res *leaderdv1.Run, rec *state.Record) {
	res.State = runStateOf(rec.State)
	res.Reason = rec.Reason
	res.Detail = rec.Detail
	res.DueTime = timeOf(rec.Due)
	res.UntilTime = timeOf(rec.Until)
	res.SlotCount = max(1, rec.Count)
	res.JobGeneration = rec.Generation
	res.Revision = rec.Revision
	res.OutputTail = rec.Tail
	res.OutputBytes = rec.OutputBytes
	res.Attempts = appendAttempts(nil, rec.Attempts)
	res.Doubles = appendAttempts(nil, rec.Doubles)
	for i := range rec.Hooks {
		res.Hooks = append(res.Hooks, hookOf(&rec.Hooks[i]))
	}
	res.Tries = int32(rec.Tries) //nolint:gosec // bounded by MaxAttempts
}

// ofLive sums the shards of a run up: it is running while one of them is.
func ofLive(res *leaderdv1.Run, shards []state.Live) {
	res.State = leaderdv1.Run_STATE_WAITING
	res.DueTime = timeOf(shards[0].Due)
	res.JobGeneration = shards[0].Generation
	res.Tries = int32(shards[0].Tries) //nolint:gosec // bounded by MaxAttempts
	var next time.Time
	for i := range shards {
		l := &shards[i]
		res.Attempts = appendAttempts(res.GetAttempts(), l.Attempts)
		if l.State != state.StateRunning {
			if next.IsZero() || l.NextTry.Before(next) {
				next = l.NextTry
			}
			continue
		}
		res.State = leaderdv1.Run_STATE_RUNNING
		res.Attempts = append(res.GetAttempts(), running(l))
	}
	if res.GetState() == leaderdv1.Run_STATE_WAITING {
		res.NextAttemptTime = timeOf(next)
	}
}

// running is the attempt that a live record is of.
func running(l *state.Live) *leaderdv1.Attempt {
	return &leaderdv1.Attempt{
		Number:    int32(l.Attempt), //nolint:gosec // bounded by the spec
		Node:      l.Owner.Node,
		Token:     l.Token,
		Term:      l.Term,
		ClaimTime: timeOf(l.Claimed),
		State:     leaderdv1.Run_STATE_RUNNING,
	}
}

func hookOf(h *state.HookRun) *leaderdv1.HookRun {
	res := &leaderdv1.HookRun{
		Name: h.Name.String(), State: leaderdv1.Run_STATE_PENDING, StartTime: timeOf(h.Started), EndTime: timeOf(h.Ended),
		Error: h.Error, OutputTail: h.Tail,
	}
	if h.State != state.StateNone {
		res.State = runStateOf(h.State)
	}
	if h.HasCode {
		code := int32(h.ExitCode) //nolint:gosec // an exit code or status
		res.ExitCode = &code
	}
	return res
}

func appendAttempts(to []*leaderdv1.Attempt, attempts []state.Attempt) []*leaderdv1.Attempt {
	for i := range attempts {
		a := &attempts[i]
		res := &leaderdv1.Attempt{
			Number:    int32(a.Number), //nolint:gosec // bounded by the spec
			Node:      a.Node,
			Token:     a.Token,
			Term:      a.Term,
			ClaimTime: timeOf(a.Claimed),
			StartTime: timeOf(a.Started),
			EndTime:   timeOf(a.Ended),
			State:     runStateOf(a.State),
			Error:     a.Error,
			Snoozed:   a.Snoozed,
			Unclaimed: a.Unclaimed,
		}
		if a.Done != 0 || a.Total != 0 || a.Message != "" {
			res.Progress = &leaderdv1.Progress{Done: a.Done, Total: a.Total, Message: a.Message}
		}
		if a.HasCode {
			code := int32(a.ExitCode) //nolint:gosec // an exit code or status
			res.ExitCode = &code
		}
		to = append(to, res)
	}
	return to
}

// runStates are the API's names of the states; a test holds them to the
// domain's.
var runStates = [...]leaderdv1.Run_State{
	state.StatePending:     leaderdv1.Run_STATE_PENDING,
	state.StateRunning:     leaderdv1.Run_STATE_RUNNING,
	state.StateWaiting:     leaderdv1.Run_STATE_WAITING,
	state.StateSucceeded:   leaderdv1.Run_STATE_SUCCEEDED,
	state.StateFailed:      leaderdv1.Run_STATE_FAILED,
	state.StateTimedOut:    leaderdv1.Run_STATE_TIMED_OUT,
	state.StateCancelled:   leaderdv1.Run_STATE_CANCELLED,
	state.StateInterrupted: leaderdv1.Run_STATE_INTERRUPTED,
	state.StateLost:        leaderdv1.Run_STATE_LOST,
	state.StateSkipped:     leaderdv1.Run_STATE_SKIPPED,
	state.StateMissed:      leaderdv1.Run_STATE_MISSED,
}

// runStateOf is unspecified for a state that a later version stored.
func runStateOf(s state.RunState) leaderdv1.Run_State {
	if int(s) < len(runStates) {
		return runStates[s]
	}
	return leaderdv1.Run_STATE_UNSPECIFIED
}

package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

const backfillPattern = jobPattern + "/backfills/{backfill}"

type backfillService struct {
	leaderdv1.UnimplementedBackfillServiceServer
	cfg *Config
}

func (s *backfillService) fail(ctx context.Context, kind callKind, missing leaderdv1.ErrorReason, name string, err error) error {
	return failOf(ctx, s.cfg.Logger, kind, missing, name, err)
}

// CreateBackfill implements leaderdv1.BackfillServiceServer.
func (s *backfillService) CreateBackfill(ctx context.Context, req *leaderdv1.CreateBackfillRequest) (*leaderdv1.CreateBackfillResponse, error) {
	var v state.Violations
	asked, now := req.GetBackfill(), s.cfg.Wall()
	b := state.Backfill{
		Job:             parseJob(&v, "parent", req.GetParent()),
		From:            requiredTime(&v, "backfill.fromTime", asked.GetFromTime()),
		All:             asked.GetSlots() == leaderdv1.Backfill_SLOTS_ALL,
		Newest:          asked.GetOrder() == leaderdv1.Backfill_ORDER_NEWEST,
		Concurrency:     int(max(asked.GetConcurrency(), 0)),
		OverrideOverlap: asked.GetOverrideOverlap(),
		Actor:           actorOf(ctx, &v),
		Reason:          asked.GetReason(),
		Created:         now,
	}
	if asked.GetToTime() != nil {
		b.To = checkedTime(&v, "backfill.toTime", asked.GetToTime())
	}
	checkBackfill(&v, &b, asked, now)
	if err := refuse(v); err != nil {
		return nil, err
	}
	entry, err := s.cfg.Reader.GetJob(ctx, b.Job)
	if err == nil && entry.Broken != nil {
		err = entry.Broken
	}
	if err != nil {
		return nil, s.fail(ctx, reads, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, req.GetParent(), err)
	}
	b.JobUID = entry.Job.UID
	slots, err := s.slots(ctx, &entry.Job, &b, now)
	if bad, ok := errors.AsType[state.Violations](err); ok {
		return nil, refuse(bad)
	}
	if err != nil {
		return nil, s.fail(ctx, reads, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, req.GetParent(), err)
	}
	var chosen []time.Time
	res := &leaderdv1.CreateBackfillResponse{}
	for i := range slots {
		if slots[i].run {
			chosen = append(chosen, slots[i].at)
		}
		if req.GetValidateOnly() {
			res.Slots = append(res.Slots, &leaderdv1.BackfillSlot{
				SlotTime: timestamppb.New(slots[i].at), Run: slots[i].run, Have: slots[i].have,
			})
		}
	}
	b.Total = len(chosen)
	if len(chosen) == 0 {
		b.Ended = now // there is nothing to do, and nothing is stored
	}
	if req.GetValidateOnly() || len(chosen) == 0 {
		res.Backfill = backfillOf(&b)
		return res, nil
	}
	for range 3 {
		b.ID = state.NewBackfillID(now, rand.Uint32())
		b, err = s.cfg.Backfills.CreateBackfill(ctx, b, chosen, entry.Job.Revision)
		if !errors.Is(err, store.ErrExists) {
			break
		}
	}
	if errors.Is(err, store.ErrTooMany) {
		v.Add("parent", "the job has %d backfills under way, as many as are allowed; cancel one, or wait", state.MaxBackfillsActive)
		return nil, refuse(v)
	}
	if err != nil {
		return nil, s.fail(ctx, writes, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, req.GetParent(), err)
	}
	res.Backfill = backfillOf(&b)
	return res, nil
}

// checkBackfill checks what was asked for, and fills in defaults.
func checkBackfill(v *state.Violations, b *state.Backfill, asked *leaderdv1.Backfill, now time.Time) {
	checkEnum(v, "backfill.slots", asked.GetSlots(), leaderdv1.Backfill_Slots_name)
	checkEnum(v, "backfill.order", asked.GetOrder(), leaderdv1.Backfill_Order_name)
	if why := state.CheckReason(b.Reason); why != "" {
		v.Add("backfill.reason", "%s", why)
	}
	if n := asked.GetConcurrency(); n < 0 || n > state.MaxBackfillConcurrency {
		v.Add("backfill.concurrency", "%d is outside 1–%d; 0 stands for 1", n, state.MaxBackfillConcurrency)
	}
	b.Concurrency = max(b.Concurrency, 1)
	to := b.To
	if asked.GetToTime() == nil {
		to = later(now, b.From.Add(time.Second)) // what becomes of it is no later than now
	}
	if b.From.IsZero() || to.IsZero() {
		return
	}
	switch {
	case !b.From.Before(to):
		v.Add("backfill.toTime", "%s is not after the beginning %s", to.Format(time.RFC3339), b.From.Format(time.RFC3339))
	case to.Sub(b.From) > state.MaxBackfillWindow:
		v.Add("backfill.toTime", "is %s after the beginning; at most %s are allowed", to.Sub(b.From), state.MaxBackfillWindow)
	case b.From.After(now):
		v.Add("backfill.fromTime", "%s is in the future; only past slots can be run", b.From.Format(time.RFC3339))
	}
}

// GetBackfill implements leaderdv1.BackfillServiceServer.
func (s *backfillService) GetBackfill(ctx context.Context, req *leaderdv1.GetBackfillRequest) (*leaderdv1.GetBackfillResponse, error) {
	var v state.Violations
	id, backfill := parseBackfillName(&v, req.GetName())
	if err := refuse(v); err != nil {
		return nil, err
	}
	b, err := s.cfg.Backfills.GetBackfill(ctx, id, backfill)
	if err != nil {
		return nil, s.fail(ctx, reads, leaderdv1.ErrorReason_ERROR_REASON_BACKFILL_NOT_FOUND, req.GetName(), err)
	}
	return &leaderdv1.GetBackfillResponse{Backfill: backfillOf(&b)}, nil
}

// ListBackfills implements leaderdv1.BackfillServiceServer.
func (s *backfillService) ListBackfills(ctx context.Context, req *leaderdv1.ListBackfillsRequest) (*leaderdv1.ListBackfillsResponse, error) {
	var v state.Violations
	l := store.ListBackfills{Limit: pageSize(&v, req.GetPageSize())}
	l.Namespace, l.Job = parseJobParent(&v, req.GetParent())
	scope := "backfills of " + req.GetParent()
	if parts := parsePageToken(&v, scope, req.GetPageToken(), 3); parts != nil {
		l.AfterJob, l.After = state.JobID{Namespace: parts[0], Name: parts[1]}, state.BackfillID(parts[2])
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	page, more, err := s.cfg.Backfills.ListBackfills(ctx, l)
	if err != nil {
		return nil, s.fail(ctx, reads, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, req.GetParent(), err)
	}
	res := &leaderdv1.ListBackfillsResponse{}
	for i := range page {
		b := backfillOf(&page[i].Backfill)
		if page[i].Broken != nil {
			b = &leaderdv1.Backfill{Name: b.GetName(), State: leaderdv1.Backfill_STATE_UNREADABLE}
		}
		res.Backfills = append(res.Backfills, b)
	}
	if more && len(page) > 0 {
		last := &page[len(page)-1].Backfill
		res.NextPageToken = pageToken(scope, last.Job.Namespace, last.Job.Name, string(last.ID))
	}
	return res, nil
}

// CancelBackfill implements leaderdv1.BackfillServiceServer.
func (s *backfillService) CancelBackfill(ctx context.Context, req *leaderdv1.CancelBackfillRequest) (*leaderdv1.CancelBackfillResponse, error) {
	var v state.Violations
	id, backfill := parseBackfillName(&v, req.GetName())
	actor := actorOf(ctx, &v)
	checkReason(&v, req.GetReason())
	if err := refuse(v); err != nil {
		return nil, err
	}
	b, err := s.cfg.Backfills.CancelBackfill(ctx, id, backfill, actor, req.GetReason(), req.GetCancelRunning(), s.cfg.Wall())
	if err != nil {
		return nil, s.fail(ctx, writes, leaderdv1.ErrorReason_ERROR_REASON_BACKFILL_NOT_FOUND, req.GetName(), err)
	}
	return &leaderdv1.CancelBackfillResponse{Backfill: backfillOf(&b)}, nil
}

// parseBackfillName is parseJobName for a backfill.
func parseBackfillName(v *state.Violations, name string) (state.JobID, state.BackfillID) {
	vars, err := splitName(name, backfillPattern)
	if err != nil {
		v.Add("name", "%s", err)
		return state.JobID{}, ""
	}
	checkPart(v, "name", "namespace", vars[0])
	checkPart(v, "name", "job", vars[1])
	b := state.BackfillID(vars[2])
	if !b.Valid() {
		v.Add("name", "backfill %q is no backfill's id, such as 20261130T020000Z-5f3a9c01", clip(vars[2]))
	}
	return state.JobID{Namespace: vars[0], Name: vars[1]}, b
}

// backfillOf is a backfill as it is answered.
func backfillOf(b *state.Backfill) *leaderdv1.Backfill {
	res := &leaderdv1.Backfill{
		FromTime: timeOf(b.From), ToTime: timeOf(b.To),
		Slots: leaderdv1.Backfill_SLOTS_MISSING, Order: leaderdv1.Backfill_ORDER_OLDEST,
		Concurrency:     int32(b.Concurrency), //nolint:gosec // bounded by state.MaxBackfillConcurrency
		OverrideOverlap: b.OverrideOverlap,
		Reason:          b.Reason,
		Actor:           b.Actor,
		CreateTime:      timeOf(b.Created),
		Total:           int32(b.Total),       //nolint:gosec // bounded by state.MaxBackfillSlots
		Succeeded:       int32(b.Succeeded),   //nolint:gosec // at most Total
		Failed:          int32(b.Failed),      //nolint:gosec // at most Total
		Cancelled:       int32(b.Cancelled),   //nolint:gosec // at most Total
		Active:          int32(len(b.Open)),   //nolint:gosec // at most Total
		Remaining:       int32(b.Remaining()), //nolint:gosec // at most Total
		EndTime:         timeOf(b.Ended),
		CancelTime:      timeOf(b.CancelTime),
		CancelActor:     b.CancelActor,
		CancelReason:    b.CancelReason,
		CancelRunning:   b.CancelRunning,
	}
	if b.ID != "" {
		res.Name = jobName(b.Job) + "/backfills/" + string(b.ID)
	}
	if b.All {
		res.Slots = leaderdv1.Backfill_SLOTS_ALL
	}
	if b.Newest {
		res.Order = leaderdv1.Backfill_ORDER_NEWEST
	}
	switch cancelled := !b.CancelTime.IsZero(); {
	case b.Active() && cancelled:
		res.State = leaderdv1.Backfill_STATE_CANCELLING
	case b.Active():
		res.State = leaderdv1.Backfill_STATE_RUNNING
	case cancelled:
		res.State = leaderdv1.Backfill_STATE_CANCELLED
	default:
		res.State = leaderdv1.Backfill_STATE_DONE
	}
	return res
}

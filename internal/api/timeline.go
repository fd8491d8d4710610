package api

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/internal/ledger"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

type timelineService struct {
	leaderdv1.UnimplementedTimelineServiceServer
	cfg *Config
}

func (s *timelineService) fail(ctx context.Context, name string, err error) error {
	return failOf(ctx, s.cfg.Logger, reads, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, name, err)
}

// ListSlots implements leaderdv1.TimelineServiceServer.
func (s *timelineService) ListSlots(ctx context.Context, req *leaderdv1.ListSlotsRequest) (*leaderdv1.ListSlotsResponse, error) {
	var v state.Violations
	id := parseJob(&v, "parent", req.GetParent())
	w := ledger.Window{Most: pageSize(&v, req.GetPageSize())}
	w.Since, w.To = parseWindow(&v, req.GetStartTime(), req.GetEndTime())
	w.From = w.Since
	scope := "slots of " + req.GetParent() + " " + w.Since.Format(time.RFC3339) + " " + w.To.Format(time.RFC3339)
	if parts := parsePageToken(&v, scope, req.GetPageToken(), 1); parts != nil {
		seconds, err := strconv.ParseInt(parts[0], 10, 64)
		w.From = time.Unix(seconds, 0).UTC()
		if err != nil || w.From.Before(w.Since) || !w.From.Before(w.To) {
			v.Add("pageToken", "is no page token of this window")
		}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	in, err := s.versions(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, req.GetParent(), err)
	}
	stored, err := s.cfg.Runs.ListSlots(ctx, store.ListSlots{Job: id, From: w.From, To: w.To, Limit: w.Most})
	if err != nil {
		return nil, s.fail(ctx, req.GetParent(), err)
	}
	in.Records, in.Floor = stored.Slots, stored.Floor
	to := w.To
	w.To = stored.Until
	entries, next := ledger.List(in, w)
	if next.IsZero() && stored.Until.Before(to) {
		next = stored.Until
	}
	end := w.To
	if !next.IsZero() {
		end = next
	}
	if w.From.Before(end) {
		runs, err := s.backfilled(ctx, id, w.From, end, state.MaxBackfillSlots)
		if err != nil {
			return nil, s.fail(ctx, req.GetParent(), err)
		}
		entries = ledger.WithBackfills(entries, runs)
	}
	res := &leaderdv1.ListSlotsResponse{}
	if in.Mark.Revision != 0 {
		res.Watermark = timeOf(in.Mark.Instant)
	}
	for i := range entries {
		res.Slots = append(res.Slots, slotOf(&entries[i]))
	}
	if !next.IsZero() {
		res.NextPageToken = pageToken(scope, strconv.FormatInt(next.Unix(), 10))
	}
	return res, nil
}

// parseWindow reads a window that is required and cuts it to whole seconds.
func parseWindow(v *state.Violations, start, end *timestamppb.Timestamp) (from, to time.Time) {
	from, to = requiredTime(v, "startTime", start), requiredTime(v, "endTime", end)
	if !from.IsZero() && !to.IsZero() {
		checkWindow(v, from, to)
	}
	return from, to
}

func checkWindow(v *state.Violations, from, to time.Time) {
	switch {
	case !from.Before(to):
		v.Add("endTime", "%s is not after the start %s", to.Format(time.RFC3339), from.Format(time.RFC3339))
	case to.Sub(from) > state.MaxSlotWindow:
		v.Add("endTime", "is more than %s after the start", state.MaxSlotWindow)
	}
}

// requiredTime is a time, rounded up to a whole second.
func requiredTime(v *state.Violations, field string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		v.Add(field, "is required")
		return time.Time{}
	}
	return checkedTime(v, field, t)
}

// minYear and maxYear are those that can be asked about.
const minYear, maxYear = 1900, 9998

func checkedTime(v *state.Violations, field string, t *timestamppb.Timestamp) time.Time {
	at := t.AsTime()
	if t.CheckValid() != nil {
		v.Add(field, "is no time: %d s and %d ns", t.GetSeconds(), t.GetNanos())
		return time.Time{}
	}
	if at.Year() < minYear || at.Year() > maxYear {
		v.Add(field, "%s is outside of the years %d–%d", at.Format(time.RFC3339), minYear, maxYear)
		return time.Time{}
	}
	if whole := at.Truncate(time.Second); !whole.Equal(at) {
		return whole.Add(time.Second)
	}
	return at
}

// versions reads what the ledger is made of, but for the records: the watermark
// first, and then the versions. A job that has never been is ErrNotFound.
func (s *timelineService) versions(ctx context.Context, id state.JobID) (*ledger.Input, error) {
	in := &ledger.Input{Now: s.cfg.Wall()}
	mark, err := s.cfg.Watermark.GetWatermark(ctx)
	if err != nil && !errors.Is(err, store.ErrCorrupt) { // the leader writes it anew
		return nil, err
	} else if err == nil {
		in.Mark = mark
	}
	var versions []state.JobVersion
	l := store.ListVersions{Namespace: id.Namespace, Job: id.Name, Limit: maxPage}
	for more := true; more; {
		page, err := s.cfg.Versions.ListAllVersions(ctx, l)
		if err != nil {
			return nil, err
		}
		for i := range page.Versions {
			e := &page.Versions[i]
			l.AfterJob, l.AfterGeneration = id, e.Version.Job.Generation
			if e.Broken == nil {
				e.Version.Job.Revision = e.Revision
				versions = append(versions, e.Version)
			}
		}
		more = page.More && len(page.Versions) > 0
	}
	if len(versions) == 0 {
		// It may be there all the same, if somebody deleted its versions.
		entry, err := s.cfg.Reader.GetJob(ctx, id)
		if err == nil && entry.Broken != nil {
			err = entry.Broken
		}
		if err != nil {
			return nil, err
		}
		versions = append(versions, state.JobVersion{
			Job: entry.Job, Change: state.ChangeUpdate, Actor: entry.Job.UpdatedBy, Time: entry.Job.Updated,
		})
	}
	in.Spans = ledger.Spans(versions)
	return in, nil
}

// slotOf is an entry of the ledger as it is answered.
func slotOf(e *ledger.Entry) *leaderdv1.Slot {
	res := &leaderdv1.Slot{
		SlotTime: timeOf(e.First), SlotCount: e.Count, Answer: e.Answer, JobGeneration: e.Generation, Detail: e.Detail,
		Excluded: e.Excluded,
	}
	if !e.Last.Equal(e.First) {
		res.UntilTime = timeOf(e.Last)
	}
	if e.Run != nil {
		res.Run = runOf(e.Run)
		res.Run.OutputTail = nil
	}
	if e.By != nil {
		by := &e.By.Version
		if e.Answer == leaderdv1.Slot_ANSWER_PAUSED {
			by = &e.By.By
		}
		res.By = refOf(by)
	}
	return res
}

func refOf(v *state.JobVersion) *leaderdv1.VersionRef {
	res := &leaderdv1.VersionRef{
		Generation: v.Job.Generation, Actor: v.Actor, Reason: v.Reason, EffectiveTime: timeOf(ledger.Effective(v)),
	}
	if int(v.Change) < len(changes) {
		res.Change = changes[v.Change]
	}
	return res
}

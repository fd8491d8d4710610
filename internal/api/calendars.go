package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/store"
)

// CalendarKeeper keeps calendars. *store.Store is one.
type CalendarKeeper interface {
	GetCalendar(ctx context.Context, id state.CalendarID) (store.CalendarEntry, error)
	ListCalendars(ctx context.Context, namespace string, after state.CalendarID, limit int) ([]store.CalendarEntry, bool, error)
	CalendarUsers(ctx context.Context, id state.CalendarID) ([]state.JobID, error)
	PutCalendar(ctx context.Context, p store.PutCalendar) (store.PutCalendarResult, error)
	DeleteCalendar(ctx context.Context, id state.CalendarID, revision int64) error
}

const (
	calendarPattern = "namespaces/{namespace}/calendars/{calendar}"
	// maxUsers is how many jobs an answer names at most.
	maxUsers = 100
)

type calendarService struct {
	leaderdv1.UnimplementedCalendarServiceServer
	cfg *Config
}

func (s *calendarService) fail(ctx context.Context, kind callKind, name string, err error) error {
	if used, ok := errors.AsType[*store.CalendarInUseError](err); ok {
		return answer(codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_CALENDAR_IN_USE, name+" "+used.Error(), name)
	}
	return failOf(ctx, s.cfg.Logger, kind, leaderdv1.ErrorReason_ERROR_REASON_CALENDAR_NOT_FOUND, name, err)
}

func parseCalendarName(v *state.Violations, name string) state.CalendarID {
	vars, err := splitName(name, calendarPattern)
	if err != nil {
		v.Add("name", "%s", err)
		return state.CalendarID{}
	}
	checkPart(v, "name", "namespace", vars[0])
	checkPart(v, "name", "calendar", vars[1])
	return state.CalendarID{Namespace: vars[0], Name: vars[1]}
}

// GetCalendar implements leaderdv1.CalendarServiceServer.
func (s *calendarService) GetCalendar(ctx context.Context, req *leaderdv1.GetCalendarRequest) (*leaderdv1.GetCalendarResponse, error) {
	var v state.Violations
	id := parseCalendarName(&v, req.GetName())
	if err := refuse(v); err != nil {
		return nil, err
	}
	entry, err := s.cfg.Calendars.GetCalendar(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetName(), err)
	}
	users, err := s.cfg.Calendars.CalendarUsers(ctx, id)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetName(), err)
	}
	res := &leaderdv1.GetCalendarResponse{Calendar: calendarOf(&entry)}
	for _, job := range users[:min(len(users), maxUsers)] {
		res.Jobs = append(res.Jobs, jobName(job))
	}
	return res, nil
}

// ListCalendars implements leaderdv1.CalendarServiceServer.
func (s *calendarService) ListCalendars(ctx context.Context, req *leaderdv1.ListCalendarsRequest) (*leaderdv1.ListCalendarsResponse, error) {
	var v state.Violations
	namespace, limit := parseNamespaceParent(&v, req.GetParent()), pageSize(&v, req.GetPageSize())
	scope := "calendars of " + req.GetParent()
	var after state.CalendarID
	if parts := parsePageToken(&v, scope, req.GetPageToken(), 2); parts != nil {
		after = state.CalendarID{Namespace: parts[0], Name: parts[1]}
	}
	if err := refuse(v); err != nil {
		return nil, err
	}
	entries, more, err := s.cfg.Calendars.ListCalendars(ctx, namespace, after, limit)
	if err != nil {
		return nil, s.fail(ctx, reads, req.GetParent(), err)
	}
	res := &leaderdv1.ListCalendarsResponse{}
	for i := range entries {
		res.Calendars = append(res.Calendars, calendarOf(&entries[i]))
	}
	if more && len(entries) > 0 {
		last := entries[len(entries)-1].Calendar.ID
		res.NextPageToken = pageToken(scope, last.Namespace, last.Name)
	}
	return res, nil
}

// UpdateCalendar implements leaderdv1.CalendarServiceServer.
func (s *calendarService) UpdateCalendar(ctx context.Context, req *leaderdv1.UpdateCalendarRequest) (*leaderdv1.UpdateCalendarResponse, error) {
	var v state.Violations
	c := req.GetCalendar()
	p := store.PutCalendar{
		ID:           parseCalendarName(&v, c.GetName()),
		Spec:         c.GetSpec(),
		Revision:     parseEtag(&v, c.GetEtag()),
		AllowMissing: req.GetAllowMissing(),
		Actor:        actorOf(ctx, &v),
		Reason:       req.GetReason(),
		Now:          s.cfg.Wall,
		DryRun:       req.GetValidateOnly(),
	}
	checkCalendar(&v, p.Spec)
	for _, path := range req.GetUpdateMask().GetPaths() {
		if path != "spec" {
			v.Add("updateMask", "%q cannot be updated; only \"spec\" can", clip(path))
		}
	}
	checkReason(&v, p.Reason)
	if err := refuse(v); err != nil {
		return nil, err
	}
	res, err := s.cfg.Calendars.PutCalendar(ctx, p)
	if err != nil {
		return nil, s.fail(ctx, writes, c.GetName(), err)
	}
	result := leaderdv1.UpdateCalendarResponse_RESULT_UNCHANGED
	switch res.Change {
	case state.ChangeCreate:
		result = leaderdv1.UpdateCalendarResponse_RESULT_CREATED
	case state.ChangeUpdate:
		result = leaderdv1.UpdateCalendarResponse_RESULT_UPDATED
	case state.ChangePause, state.ChangeResume, state.ChangeDelete, state.ChangeCalendar:
	}
	return &leaderdv1.UpdateCalendarResponse{
		Calendar: calendarOf(&res.Entry), Result: result, Jobs: int32(res.Jobs), //nolint:gosec // no store has so many
	}, nil
}

// DeleteCalendar implements leaderdv1.CalendarServiceServer.
func (s *calendarService) DeleteCalendar(ctx context.Context, req *leaderdv1.DeleteCalendarRequest) (*emptypb.Empty, error) {
	var v state.Violations
	id, revision := parseCalendarName(&v, req.GetName()), parseEtag(&v, req.GetEtag())
	if err := refuse(v); err != nil {
		return nil, err
	}
	if err := s.cfg.Calendars.DeleteCalendar(ctx, id, revision); err != nil {
		return nil, s.fail(ctx, writes, req.GetName(), err)
	}
	return &emptypb.Empty{}, nil
}

func checkCalendar(v *state.Violations, spec *leaderdv1.CalendarSpec) {
	if spec == nil {
		v.Add("spec", "is required")
		return
	}
	if n := proto.Size(spec); n > state.MaxCalendarBytes {
		v.Add("spec", "has %d bytes; at most %d are allowed", n, state.MaxCalendarBytes)
		return
	}
	for i, e := range spec.GetEntries() {
		field := fmt.Sprintf("spec.entries[%d].period", i)
		checkInstant(v, field+".start", e.GetPeriod().GetStart())
		checkInstant(v, field+".end", e.GetPeriod().GetEnd())
	}
	domain := codec.CalendarSpecFromProto(spec)
	if bad, ok := errors.AsType[state.Violations](domain.Validate(ScheduleChecks)); ok {
		*v = append(*v, bad...)
	}
}

// calendarOf is a stored calendar as it is answered.
func calendarOf(e *store.CalendarEntry) *leaderdv1.Calendar {
	c := &e.Calendar
	res := &leaderdv1.Calendar{Name: strings.ToValidUTF8("namespaces/"+c.ID.Namespace+"/calendars/"+c.ID.Name, "\uFFFD")}
	if c.Revision != 0 {
		res.Etag = etagOf(c.Revision)
	}
	if e.Message == nil {
		res.Quarantine = "its stored value cannot be read; put the calendar anew or delete it"
		return res
	}
	res.Spec, res.Uid, res.Generation = e.Message.GetSpec(), c.UID, c.Generation
	res.CreateTime, res.UpdateTime, res.UpdatedBy = timeOf(c.Created), timeOf(c.Updated), c.UpdatedBy
	return res
}

// missingCalendars is the answer to a job that names calendars that are not there.
func missingCalendars(spec *leaderdv1.JobSpec, missing []string) error {
	var v state.Violations
	for _, list := range []struct {
		field string
		names []string
	}{{"spec.excludedCalendars", spec.GetExcludedCalendars()}, {"spec.onlyCalendars", spec.GetOnlyCalendars()}} {
		for i, name := range list.names {
			if slices.Contains(missing, name) {
				v.Add(fmt.Sprintf("%s[%d]", list.field, i), "there is no calendar %q in the job's namespace", clip(name))
			}
		}
	}
	return refuse(v)
}

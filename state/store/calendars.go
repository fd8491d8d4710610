package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// CalendarInUseError: a calendar cannot be deleted, since jobs name it.
type CalendarInUseError struct{ Jobs []state.JobID }

// Error names some of the jobs.
func (e *CalendarInUseError) Error() string {
	const most = 10
	var names []string
	for _, id := range e.Jobs[:min(len(e.Jobs), most)] {
		names = append(names, id.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(e.Jobs) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "is named by jobs: " + text
}

// CalendarEntry is a stored calendar.
type CalendarEntry struct {
	Calendar state.Calendar // where Broken is set only ID and Revision are
	Message  *statev1.Calendar
	// Broken wraps ErrCorrupt where the value cannot be read.
	Broken error
}

// PutCalendar asks for a calendar to be as given; the fields mean what those of
// PutJob do.
type PutCalendar struct {
	ID            state.CalendarID
	Spec          *leaderdv1.CalendarSpec
	Revision      int64
	AllowMissing  bool
	Actor, Reason string
	// Now is the caller's wall clock. It is asked for each job that has to follow.
	Now    func() time.Time
	DryRun bool
}

// PutCalendarResult answers a PutCalendar.
type PutCalendarResult struct {
	Entry CalendarEntry
	// Change is ChangeCreate or ChangeUpdate, 0 where it was so already.
	Change state.Change
	// Jobs is how many jobs got a new version; of a dry run, how many name it.
	Jobs int
}

// PutCalendar creates a calendar or replaces what it says, and has the jobs that name
// it follow. If that fails in between the calendar is as asked for, and to ask again
// goes on with the jobs.
func (s *Store) PutCalendar(ctx context.Context, p PutCalendar) (PutCalendarResult, error) {
	res, err := s.putCalendar(ctx, &p)
	switch {
	case err != nil:
	case p.DryRun:
		var users []state.JobID
		users, err = s.CalendarUsers(ctx, p.ID)
		if res.Change != 0 {
			res.Jobs = len(users)
		}
	default:
		res.Jobs, err = s.FollowCalendar(ctx, p.ID, p.Actor, p.Reason, p.Now)
	}
	if err != nil {
		return PutCalendarResult{}, fmt.Errorf("put calendar %s: %w", p.ID, err)
	}
	return res, nil
}

func (s *Store) putCalendar(ctx context.Context, p *PutCalendar) (PutCalendarResult, error) {
	key, uid := s.keys.calendar(p.ID), rand.Text()
	have, err := s.readCalendar(ctx, p.ID)
	if err != nil {
		return PutCalendarResult{}, err
	}
	for range maxEdits {
		now := codec.Micros(p.Now())
		next, change := &statev1.Calendar{Uid: uid, Created: now}, state.ChangeCreate
		switch e := s.calendarEntry(have); {
		case have.Key == "" && p.Revision != 0:
			return PutCalendarResult{}, fmt.Errorf("%w: it was deleted", ErrChanged)
		case have.Key == "" && !p.AllowMissing:
			return PutCalendarResult{}, ErrNotFound
		case have.Key == "":
		case p.Revision != 0 && p.Revision != have.ModRevision:
			return PutCalendarResult{}, ErrChanged
		case e.Broken != nil:
			change = state.ChangeUpdate
		case proto.Equal(e.Message.GetSpec(), p.Spec):
			return PutCalendarResult{Entry: e}, nil
		default:
			next, change = proto.CloneOf(e.Message), state.ChangeUpdate
		}
		next.Spec, next.Updated, next.UpdatedBy, next.Reason = proto.CloneOf(p.Spec), now, p.Actor, p.Reason
		next.Generation++
		value, err := proto.Marshal(next)
		if err != nil {
			return PutCalendarResult{}, err
		}
		if p.DryRun {
			return PutCalendarResult{Entry: s.calendarEntry(kv.KeyValue{Key: key, Value: value, ModRevision: have.ModRevision}), Change: change}, nil
		}
		res, unsure, err := s.send(ctx, kv.Txn{
			If:   []kv.Compare{unchanged(key, have.ModRevision)},
			Then: []kv.Op{kv.Put(key, value, 0)},
			Else: []kv.Op{kv.Get(key)},
		})
		if err != nil {
			return PutCalendarResult{}, err
		}
		written := kv.KeyValue{Key: key, Value: value, ModRevision: res.Revision}
		if !res.Succeeded {
			have = kv.KeyValue{}
			if kvs := res.Results[0].KVs; len(kvs) > 0 {
				have = kvs[0]
			}
			if !unsure || !bytes.Equal(have.Value, value) {
				continue
			}
			written = have // an earlier try did
		}
		return PutCalendarResult{Entry: s.calendarEntry(written), Change: change}, nil
	}
	return PutCalendarResult{}, ErrContended
}

// readCalendar answers what is stored; its Key is empty where nothing is.
func (s *Store) readCalendar(ctx context.Context, id state.CalendarID) (kv.KeyValue, error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.calendar(id), "", kv.RangeOptions{})
	})
	if err != nil || len(res.KVs) == 0 {
		return kv.KeyValue{}, err
	}
	return res.KVs[0], nil
}

// GetCalendar reads a calendar linearizably. There being none is ErrNotFound; a
// broken one is answered as such.
func (s *Store) GetCalendar(ctx context.Context, id state.CalendarID) (CalendarEntry, error) {
	found, err := s.readCalendar(ctx, id)
	if err == nil && found.Key == "" {
		err = ErrNotFound
	}
	if err != nil {
		return CalendarEntry{}, fmt.Errorf("get calendar %s: %w", id, err)
	}
	return s.calendarEntry(found), nil
}

// ListCalendars answers at most limit calendars of a namespace, or of all for the
// empty one, in order of name, after one; more tells whether there are others.
func (s *Store) ListCalendars(ctx context.Context, namespace string, after state.CalendarID, limit int) (all []CalendarEntry, more bool, err error) {
	from := s.keys.calendars()
	if namespace != "" {
		from += escape(namespace) + "/"
	}
	to := end(from)
	if after != (state.CalendarID{}) {
		from = max(from, s.keys.calendar(after)+"\x00")
	}
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, from, to, kv.RangeOptions{Limit: int64(limit)})
	})
	if err != nil {
		return nil, false, fmt.Errorf("list calendars: %w", err)
	}
	size := 0
	for _, found := range res.KVs {
		if size += len(found.Value); len(all) > 0 && size > MaxPageBytes {
			return all, true, nil
		}
		all = append(all, s.calendarEntry(found))
	}
	return all, res.More, nil
}

// DeleteCalendar deletes a calendar that no job names. revision is as in PutJob.
// There being none is ErrNotFound; one that is named by jobs a *CalendarInUseError.
func (s *Store) DeleteCalendar(ctx context.Context, id state.CalendarID, revision int64) error {
	if err := s.deleteCalendar(ctx, id, revision); err != nil {
		return fmt.Errorf("delete calendar %s: %w", id, err)
	}
	return nil
}

func (s *Store) deleteCalendar(ctx context.Context, id state.CalendarID, revision int64) error {
	key := s.keys.calendar(id)
	unsure := false
	for range maxTries {
		have, err := s.readCalendar(ctx, id)
		switch {
		case err != nil:
			return err
		case have.Key == "" && unsure:
			return nil // an earlier try did
		case have.Key == "":
			return ErrNotFound
		case revision != 0 && revision != have.ModRevision:
			return ErrChanged
		}
		users, err := s.CalendarUsers(ctx, id)
		if err != nil {
			return err
		}
		if named, err := s.dropStale(ctx, id, users); err != nil {
			return err
		} else if len(named) > 0 {
			return &CalendarInUseError{named}
		}
		res, doubt, err := s.send(ctx, kv.Txn{
			If:   []kv.Compare{unchanged(key, have.ModRevision), absentBelow(s.keys.calendarUsers(id))},
			Then: []kv.Op{kv.Delete(key)},
		})
		if err != nil || res.Succeeded {
			return err
		}
		unsure = unsure || doubt
	}
	return ErrContended
}

// dropStale answers those of a calendar's users that name it, and removes the notes of
// others: of jobs that were made anew over a value that could not be read.
func (s *Store) dropStale(ctx context.Context, id state.CalendarID, users []state.JobID) (named []state.JobID, err error) {
	for _, user := range users {
		job, err := s.GetJob(ctx, user)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		names := false
		for _, name := range calendarsOf(job.Message.GetSpec()) {
			names = names || name == id.Name
		}
		if names {
			named = append(named, user)
			continue
		}
		if job.Broken != nil {
			named = append(named, user) // nobody knows
			continue
		}
		if _, _, err := s.send(ctx, kv.Txn{
			If:   []kv.Compare{unchanged(s.keys.job(user), job.Job.Revision)},
			Then: []kv.Op{kv.Delete(s.keys.calendarUser(id, user.Name))},
		}); err != nil {
			return nil, err
		}
	}
	return named, nil
}

// calendarEntry reads a calendar from its key and value.
func (s *Store) calendarEntry(from kv.KeyValue) CalendarEntry {
	e := CalendarEntry{Calendar: state.Calendar{Revision: from.ModRevision}}
	rest, err := below(s.keys.calendars(), from.Key)
	if err == nil {
		var id state.JobID
		id, _, err = parseJob(rest)
		e.Calendar.ID = state.CalendarID(id)
	}
	var m statev1.Calendar
	if err == nil {
		err = proto.Unmarshal(from.Value, &m)
	}
	if err == nil && m.GetSpec() == nil {
		err = errors.New("it has no spec")
	}
	if err != nil {
		e.Broken = fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
		return e
	}
	e.Message = &m
	e.Calendar = state.Calendar{
		ID: e.Calendar.ID, UID: m.GetUid(), Generation: m.GetGeneration(), Spec: codec.CalendarSpecFromProto(m.GetSpec()),
		Created: codec.Time(m.GetCreated()), Updated: codec.Time(m.GetUpdated()), UpdatedBy: m.GetUpdatedBy(), Reason: m.GetReason(),
		Revision: from.ModRevision,
	}
	return e
}

// CalendarsCache makes a cache of the calendars; run it, and use the store's
// DecodeCalendar on what it holds.
func (s *Store) CalendarsCache() *Cache {
	return NewCache(s.kv, s.keys.calendars(), s.log.Named("calendars"))
}

// DecodeCalendar reads a calendar from its key and value.
func (s *Store) DecodeCalendar(from kv.KeyValue) CalendarEntry { return s.calendarEntry(from) }

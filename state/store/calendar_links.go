package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// A version of a job has the calendars that it names with it, as they were: so it
// tells by itself when it is due, for ever, and all that is true of an edit of a job
// is true of a change of its calendars. Each change of a calendar therefore makes a
// new version of the jobs that name it. See ADR 8.

// MissingCalendarsError: a job names calendars that are not there.
type MissingCalendarsError struct{ Names []string }

// Error names them.
func (e *MissingCalendarsError) Error() string {
	return "there is no calendar " + strings.Join(e.Names, ", ")
}

// refreshes is how many jobs follow a calendar at a time.
const refreshes = 16

// maxFollowErrors is of how many jobs that cannot follow a calendar it is told why.
const maxFollowErrors = 3

// links are what a change of a job does to the list of its calendars' users, and
// the calendars that it relies on.
type links struct {
	compares []kv.Compare
	ops      []kv.Op
}

func calendarsOf(spec *leaderdv1.JobSpec) []string {
	return slices.Concat(spec.GetExcludedCalendars(), spec.GetOnlyCalendars())
}

// linksOf brings the users' keys from what was to next; either may be nil.
func (s *Store) linksOf(id state.JobID, was *JobEntry, next *statev1.Job) (l links) {
	names := calendarsOf(next.GetSpec())
	for _, name := range names {
		l.ops = append(l.ops, kv.Put(s.keys.calendarUser(state.CalendarID{Namespace: id.Namespace, Name: name}, id.Name), nil, 0))
	}
	if was == nil {
		return l
	}
	if ownCircuit(was.Message) && !ownCircuit(next) && next != nil {
		l.ops = append(l.ops, kv.Delete(s.keys.ownCircuit(id)))
	}
	for _, name := range calendarsOf(was.Message.GetSpec()) {
		if !slices.Contains(names, name) {
			l.ops = append(l.ops, kv.Delete(s.keys.calendarUser(state.CalendarID{Namespace: id.Namespace, Name: name}, id.Name)))
		}
	}
	return l
}

// ownCircuit tells whether a job has a circuit that is no other job's.
func ownCircuit(j *statev1.Job) bool {
	b := j.GetSpec().GetCircuitBreaker()
	return b != nil && b.GetTarget() == ""
}

// snapshot puts the calendars that next names with it, and has the change rely on
// them.
func (s *Store) snapshot(ctx context.Context, id state.JobID, next *statev1.Job, l *links) error {
	now, err := s.readCalendars(ctx, id.Namespace, calendarsOf(next.GetSpec()))
	if err != nil {
		return err
	}
	next.Calendars = now
	for _, c := range now {
		key := s.keys.calendar(state.CalendarID{Namespace: id.Namespace, Name: c.GetName()})
		l.compares = append(l.compares, unchanged(key, c.GetRevision()))
	}
	return nil
}

// readCalendars reads calendars of a namespace, all of which must be there.
func (s *Store) readCalendars(ctx context.Context, namespace string, names []string) ([]*leaderdv1.JobCalendar, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var read kv.Txn
	for _, name := range names {
		read.Then = append(read.Then, kv.Get(s.keys.calendar(state.CalendarID{Namespace: namespace, Name: name})))
	}
	res, _, err := s.send(ctx, read)
	if err != nil {
		return nil, err
	}
	var all []*leaderdv1.JobCalendar
	var missing []string
	for i, name := range names {
		kvs := res.Results[i].KVs
		if len(kvs) == 0 {
			missing = append(missing, name)
			continue
		}
		e := s.calendarEntry(kvs[0])
		if e.Broken != nil {
			return nil, e.Broken
		}
		all = append(all, &leaderdv1.JobCalendar{Name: name, Revision: kvs[0].ModRevision, Spec: e.Message.GetSpec()})
	}
	if missing != nil {
		return nil, &MissingCalendarsError{missing}
	}
	return all, nil
}

// CalendarUsers are the jobs that name a calendar, in order of name.
func (s *Store) CalendarUsers(ctx context.Context, id state.CalendarID) ([]state.JobID, error) {
	prefix := s.keys.calendarUsers(id)
	var users []state.JobID
	var bad error
	err := s.scan(ctx, prefix, func(found kv.KeyValue) {
		name, err := unescape(found.Key[len(prefix):])
		if err != nil {
			bad = err
			return
		}
		users = append(users, state.JobID{Namespace: id.Namespace, Name: name})
	})
	if err = errors.Join(err, bad); err != nil {
		return nil, fmt.Errorf("list the jobs that name calendar %s: %w", id, err)
	}
	return users, nil
}

// FollowCalendar has all jobs that name a calendar follow it, and answers how many
// had to. It is idempotent, and any number may do it at a time. A job that cannot be
// read is passed over: it is due never. One that cannot follow, such as one that also
// names a calendar which cannot be read, keeps no other from it; the error then tells
// of the first few such jobs.
func (s *Store) FollowCalendar(ctx context.Context, id state.CalendarID, actor, reason string, now func() time.Time) (int, error) {
	users, err := s.CalendarUsers(ctx, id)
	if err != nil {
		return 0, err
	}
	changed, errs := make([]bool, len(users)), make([]error, len(users))
	var group errgroup.Group
	group.SetLimit(refreshes)
	for i := range users {
		group.Go(func() error {
			changed[i], errs[i] = s.followCalendars(ctx, users[i], actor, reason, now())
			return nil
		})
	}
	_ = group.Wait() // its functions answer none
	n := 0
	for _, c := range changed {
		if c {
			n++
		}
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if more := len(errs) - maxFollowErrors; more > 0 {
		errs = append(errs[:maxFollowErrors], fmt.Errorf("and %d more jobs", more))
	}
	return n, errors.Join(errs...)
}

// followCalendars brings a job's calendars up to date.
func (s *Store) followCalendars(ctx context.Context, id state.JobID, actor, reason string, now time.Time) (changed bool, err error) {
	_, change, err := s.edit(ctx, &edit{
		id: id, actor: actor, reason: reason, now: now, calendars: true,
		apply: func(was *JobEntry, now int64) (*statev1.Job, state.Change, error) {
			if was == nil || was.Broken != nil {
				return nil, 0, ErrNotFound
			}
			current, err := s.readCalendars(ctx, id.Namespace, calendarsOf(was.Message.GetSpec()))
			if err != nil {
				return nil, 0, err
			}
			same := func(a, b *leaderdv1.JobCalendar) bool {
				return a.GetName() == b.GetName() && a.GetRevision() == b.GetRevision()
			}
			if slices.EqualFunc(current, was.Message.GetCalendars(), same) {
				return nil, 0, nil
			}
			next := proto.CloneOf(was.Message)
			next.Effective = now
			return next, state.ChangeCalendar, nil
		},
	})
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("job %s: %w", id, err)
	}
	return change != 0, nil
}

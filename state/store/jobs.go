package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
)

var (
	// ErrCorrupt: the stored value cannot be read. Nothing else is harmed.
	ErrCorrupt = state.ErrUnreadable
	// ErrPaused: the job is paused.
	ErrPaused = errors.New("job is paused")
)

// JobEntry is a stored job.
type JobEntry struct {
	// Job is what this version of leaderd reads from it. Where Broken is set
	// only ID and Revision are.
	Job state.Job
	// Message is the stored message, with all its fields; nil where Broken is
	// set. It must not be changed.
	Message *statev1.Job
	// Broken wraps ErrCorrupt where the value cannot be read.
	Broken error
}

// PutJob asks for a job to be as given.
type PutJob struct {
	ID   state.JobID
	Spec *leaderdv1.JobSpec
	// Revision is the job's revision that the caller has seen: another one is
	// ErrChanged. 0 takes any.
	Revision int64
	// AllowMissing creates the job where there is none; otherwise that is
	// ErrNotFound.
	AllowMissing bool
	// Actor and Reason go into the record of versions.
	Actor, Reason string
	// Now is the caller's wall clock: slots of the new version are due after it, or
	// after the watermark where that is ahead.
	Now time.Time
	// Paused has a job that is created begin paused, until PauseUntil (zero: until somebody
	// resumes it) and for PauseReason. One that is there stays as it is in this.
	Paused      bool
	PauseReason string
	PauseUntil  time.Time
	// DryRun answers what would happen, and changes nothing.
	DryRun bool
}

// PutJobResult answers a PutJob.
type PutJobResult struct {
	// Entry is the job as it is now, or as it would be; its revision is 0 where
	// a dry run would create it.
	Entry JobEntry
	// Change is ChangeCreate or ChangeUpdate, 0 where the job was so already.
	Change state.Change
}

// PutJob creates a job or replaces its spec. A spec equal to the stored one
// makes no new version, unless a submission made the job: then it is one like others from
// now on. The job's uid, its pause and all fields that this
// version does not know survive; @every counts anew only if the schedules or
// the zone changed. A job whose stored value is broken is made anew. Without an
// expected revision the change is retried until it meets no other one.
func (s *Store) PutJob(ctx context.Context, p PutJob) (PutJobResult, error) {
	uid := rand.Text()
	entry, change, err := s.edit(ctx, &edit{
		id: p.ID, revision: p.Revision, actor: p.Actor, reason: p.Reason, now: p.Now, dryRun: p.DryRun,
		calendars: true,
		apply: func(was *JobEntry, now int64) (*statev1.Job, state.Change, error) {
			next, change := &statev1.Job{Uid: uid, Created: now, Anchor: now}, state.ChangeCreate
			switch {
			case was == nil && p.Revision != 0:
				return nil, 0, fmt.Errorf("%w: it was deleted", ErrChanged)
			case was == nil && !p.AllowMissing:
				return nil, 0, ErrNotFound
			case was == nil && p.Paused:
				next.Paused, next.PauseReason, next.PauseActor, next.PausedUntil = true, p.PauseReason, p.Actor, codec.Micros(p.PauseUntil)
			case was == nil:
			case was.Broken != nil:
				change = state.ChangeUpdate
			case proto.Equal(was.Message.GetSpec(), p.Spec) && !was.Job.Adhoc:
				return nil, 0, nil
			default:
				change = state.ChangeUpdate
				next = proto.CloneOf(was.Message)
				next.Adhoc = false
				if !sameTimes(was.Message.GetSpec(), p.Spec) {
					next.Anchor = now
				}
			}
			next.Spec, next.Effective = proto.CloneOf(p.Spec), now
			return next, change, nil
		},
	})
	if err != nil {
		return PutJobResult{}, fmt.Errorf("put job %s: %w", p.ID, err)
	}
	return PutJobResult{Entry: entry, Change: change}, nil
}

// sameTimes tells whether two specs have the same schedules in the same zone.
func sameTimes(a, b *leaderdv1.JobSpec) bool {
	zone := func(s *leaderdv1.JobSpec) string {
		if s.GetTimeZone() == "" {
			return state.DefaultTimeZone
		}
		return s.GetTimeZone()
	}
	return slices.Equal(a.GetSchedules(), b.GetSchedules()) && zone(a) == zone(b)
}

// ChangeJob asks for a job to be paused, resumed or deleted.
type ChangeJob struct {
	ID state.JobID
	// Revision is as in PutJob.
	Revision int64
	// Actor and Reason go into the record of versions; a pause keeps them with
	// the job.
	Actor, Reason string
	// Until is when a pause ends by itself; zero: it does not. Others leave it
	// alone.
	Until time.Time
	// Now is the caller's wall clock: the change takes effect then, or at the
	// watermark where that is ahead.
	Now time.Time
}

// PauseJob pauses a job. changed is false where it was paused for that reason
// and until then already. There being no job is ErrNotFound, a broken one
// ErrCorrupt.
func (s *Store) PauseJob(ctx context.Context, c ChangeJob) (entry JobEntry, changed bool, err error) {
	entry, change, err := s.edit(ctx, c.edit(func(was *JobEntry, _ int64) (*statev1.Job, state.Change, error) {
		until := codec.Micros(c.Until)
		if was.Message.GetPaused() && was.Message.GetPauseReason() == c.Reason && was.Message.GetPausedUntil() == until {
			return nil, 0, nil
		}
		next := proto.CloneOf(was.Message)
		next.Paused, next.PauseReason, next.PauseActor, next.PausedUntil = true, c.Reason, c.Actor, until
		return next, state.ChangePause, nil
	}))
	if err != nil {
		return JobEntry{}, false, fmt.Errorf("pause job %s: %w", c.ID, err)
	}
	return entry, change != 0, nil
}

// ResumeJob undoes PauseJob; slots are due after c.Now again. changed is false
// where the job was not paused. Errors are as in PauseJob.
func (s *Store) ResumeJob(ctx context.Context, c ChangeJob) (entry JobEntry, changed bool, err error) {
	entry, change, err := s.edit(ctx, c.edit(func(was *JobEntry, now int64) (*statev1.Job, state.Change, error) {
		if !was.Message.GetPaused() {
			return nil, 0, nil
		}
		return resumed(was.Message, now), state.ChangeResume, nil
	}))
	if err != nil {
		return JobEntry{}, false, fmt.Errorf("resume job %s: %w", c.ID, err)
	}
	return entry, change != 0, nil
}

// edit is c as an edit that needs a job which can be read.
func (c *ChangeJob) edit(apply func(was *JobEntry, now int64) (*statev1.Job, state.Change, error)) *edit {
	return &edit{
		id: c.ID, revision: c.Revision, actor: c.Actor, reason: c.Reason, now: c.Now,
		apply: func(was *JobEntry, now int64) (*statev1.Job, state.Change, error) {
			if was == nil {
				return nil, 0, ErrNotFound
			}
			if was.Broken != nil {
				return nil, 0, was.Broken
			}
			return apply(was, now)
		},
	}
}

// DeleteJob deletes a job, also a broken one, and records that as its last
// version. Its live runs, its pending ones and its history stay. A job that is
// created again under the name has another uid and goes on counting
// generations. There being no job is ErrNotFound.
func (s *Store) DeleteJob(ctx context.Context, c ChangeJob) error {
	e := c.edit(nil)
	e.apply = func(was *JobEntry, _ int64) (*statev1.Job, state.Change, error) {
		if was == nil {
			return nil, 0, ErrNotFound
		}
		return nil, state.ChangeDelete, nil
	}
	if _, _, err := s.edit(ctx, e); err != nil {
		return fmt.Errorf("delete job %s: %w", c.ID, err)
	}
	return nil
}

// GetJob reads a job linearizably: every change that was answered before the
// call, by any node, is in it. There being no job is ErrNotFound; one that is
// broken is answered as such.
func (s *Store) GetJob(ctx context.Context, id state.JobID) (JobEntry, error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.job(id), "", kv.RangeOptions{})
	})
	if err == nil && len(res.KVs) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return JobEntry{}, fmt.Errorf("get job %s: %w", id, err)
	}
	return s.jobEntry(res.KVs[0]), nil
}

// DecodeJob reads a job from its key and value. An error wraps ErrCorrupt; the
// job then has its ID and its Revision. The ID is zero where the key is not one
// of a job: such a key is nobody's, and must be left out of everything.
func (s *Store) DecodeJob(from kv.KeyValue) (state.Job, error) {
	e := s.jobEntry(from)
	return e.Job, e.Broken
}

func (s *Store) jobEntry(from kv.KeyValue) JobEntry {
	e := JobEntry{Job: state.Job{Revision: from.ModRevision}}
	id, err := s.keys.parseJobKey(from.Key)
	e.Job.ID = id
	var message statev1.Job
	if err == nil {
		err = proto.Unmarshal(from.Value, &message)
	}
	if err == nil && message.GetSpec() == nil {
		err = errors.New("it has no spec")
	}
	if err != nil {
		e.Broken = fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
		return e
	}
	e.Message = &message
	e.Job = codec.JobFromProto(&message)
	e.Job.ID, e.Job.Revision, e.Job.Born = id, from.ModRevision, from.CreateRevision
	return e
}

// parseJobKey reads the id from the key of a job.
func (k keys) parseJobKey(key string) (state.JobID, error) {
	rest, err := below(k.jobs(), key)
	if err != nil {
		return state.JobID{}, err
	}
	id, _, err := parseJob(rest)
	if err == nil && k.job(id) != key {
		err = fmt.Errorf("key part %q is not the name of a job", rest)
	}
	if err != nil {
		return state.JobID{}, err
	}
	return id, nil
}

package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// SubmitSpec is a submission that brings what is to be run.
type SubmitSpec struct {
	// Submission's Pending.Job names the job that is made.
	state.Submission
	Spec *leaderdv1.JobSpec
	// MadeUp is set where that name is random. The idempotency key is then one of the
	// namespace, else of the job's.
	MadeUp bool
	// Full tells that there are as many such jobs as there may be: only an earlier wish is
	// answered.
	Full bool
}

// ErrTooManyAdhoc: there are as many jobs that submissions made as there may be.
var ErrTooManyAdhoc = errors.New("there are too many jobs that submissions made")

// SubmitSpec makes a job of its own for a submission, and the wish for the job's one run
// durable, in one transaction. Of wishes with the same key one makes a job and its run:
// duplicate tells that it was an earlier one, which is answered. The job is gone when
// RetireJob finds that all its runs are. Errors: ErrExists where there is a job of the
// name, ErrTooManyAdhoc, ErrTooLarge, ErrKeyReused, ErrNotPerKey, and those of package kv. After kv.ErrUnknown the wish
// may be stored; with a key it is safe to ask again.
func (s *Store) SubmitSpec(ctx context.Context, sub SubmitSpec) (job state.JobID, run state.RunID, duplicate bool, err error) {
	job, run, duplicate, err = s.submitSpec(ctx, &sub)
	if err != nil {
		return state.JobID{}, "", false, fmt.Errorf("submit run of a spec, as job %s: %w", sub.Pending.Job, err)
	}
	return job, run, duplicate, nil
}

func (s *Store) submitSpec(ctx context.Context, sub *SubmitSpec) (state.JobID, state.RunID, bool, error) {
	p := &sub.Pending
	spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(sub.Spec)
	if err != nil {
		return p.Job, "", false, err
	}
	switch {
	case len(sub.Payload) > state.MaxPayloadBytes:
		return p.Job, "", false, fmt.Errorf("%w: payload has %d bytes, at most %d are allowed", ErrTooLarge, len(sub.Payload), state.MaxPayloadBytes)
	case p.LimitKey != "" && !state.PerKey(codec.SpecFromProto(sub.Spec).Limits):
		return p.Job, "", false, ErrNotPerKey
	case len(spec) > state.MaxAdhocSpecBytes:
		return p.Job, "", false, fmt.Errorf("%w: spec has %d bytes, at most %d are allowed", ErrTooLarge, len(spec), state.MaxAdhocSpecBytes)
	}
	scope := p.Job
	if sub.MadeUp {
		scope.Name = ""
	}
	wish, uid := wishOf(sub.Payload, append(keyPart(p), spec)...), rand.Text()
	for try := range maxEdits {
		have, err := s.readStored(ctx, p.Job)
		if err != nil {
			return p.Job, "", false, err
		}
		// Read after the job, so that one with this key is not taken for another's.
		made, err := s.findKey(ctx, scope, sub.Key, wish)
		if err != nil {
			return p.Job, "", false, err
		}
		if made != nil {
			job := state.JobID{Namespace: scope.Namespace, Name: cmp.Or(made.GetJob(), scope.Name)}
			return job, state.RunID(made.GetRun()), true, nil
		}
		if sub.Full {
			return p.Job, "", false, ErrTooManyAdhoc
		}
		if have.job.Key != "" {
			return p.Job, "", false, ErrExists
		}
		done, err := s.makeJobOf(ctx, sub, &have, scope, wish, uid)
		if done || err != nil {
			return p.Job, p.Run, false, err
		}
		if try >= 2 {
			if err := sleep(ctx, mathrand.N(20*time.Millisecond)); err != nil {
				return p.Job, "", false, err
			}
		}
	}
	return p.Job, "", false, ErrContended
}

// makeJobOf makes the job and its run, if nothing has come in between.
func (s *Store) makeJobOf(ctx context.Context, sub *SubmitSpec, have *stored, scope state.JobID, wish []byte, uid string) (bool, error) {
	p := &sub.Pending
	e := &edit{id: p.Job, actor: p.Actor, reason: p.Reason, now: sub.Now}
	now := max(codec.Micros(e.now), have.mark)
	job := &statev1.Job{Spec: sub.Spec, Uid: uid, Created: now, Anchor: now, Effective: now, Adhoc: true}
	version := e.version(nil, job, state.ChangeCreate, have.generation+1, now)
	value, err := marshalPending(p)
	if err != nil {
		return false, err
	}
	pendingKey := s.keys.pendingRun(p.Job, p.Run)
	with := links{
		compares: []kv.Compare{absent(pendingKey), absent(s.keys.historyRun(p.Job, p.Run)), absentBelow(s.keys.shardsOf(p.Job, p.Run))},
		ops:      []kv.Op{kv.Put(pendingKey, value, 0)},
	}
	if len(sub.Payload) > 0 {
		with.ops = append(with.ops, kv.Put(s.keys.payload(p.Job, p.Run), sub.Payload, 0))
	}
	var lease kv.LeaseID
	if sub.Key != "" {
		if lease, err = s.leaseOfKey(ctx, sub.Now, sub.KeyTTL); err != nil {
			return false, err
		}
		note := &statev1.Unique{Run: string(p.Run), Wish: wish}
		if sub.MadeUp {
			note.Job = p.Job.Name
		}
		unique, err := proto.Marshal(note)
		if err != nil {
			return false, err
		}
		key := s.keys.unique(scope, sub.Key)
		with.compares = append(with.compares, absent(key))
		with.ops = append(with.ops, kv.Put(key, unique, lease))
	}
	revision, _, err := s.commitEdit(ctx, e, have, job, version, with)
	if errors.Is(err, kv.ErrLeaseNotFound) && !errors.Is(err, kv.ErrUnknown) {
		s.keyLeases.forget(lease)
		return false, nil
	}
	return revision != 0, err
}

// RetireJob deletes a job that a submission made, while the term stands, if it has no run
// any more, live or past; done is false where it has, where there is no such job, and
// where others run after it. Errors are those of package kv, and state.ErrTermLost.
func (s *Store) RetireJob(ctx context.Context, term state.Term, id state.JobID, now time.Time) (done bool, err error) {
	if done, err = s.retireJob(ctx, &edit{id: id, actor: state.Leaderd, reason: retired, now: now, term: term}); err != nil {
		return false, fmt.Errorf("retire job %s: %w", id, err)
	}
	return done, nil
}

// retired is why.
const retired = "a submission made it, and no record of its runs is kept any more"

func (s *Store) retireJob(ctx context.Context, e *edit) (bool, error) {
	if e.term.Number == 0 { // which would compare as "is not there"
		return false, state.ErrTermLost
	}
	have, err := s.readStored(ctx, e.id)
	if err != nil || have.job.Key == "" {
		return false, err
	}
	was := s.jobEntry(have.job)
	if was.Broken != nil || !was.Job.Adhoc {
		return false, nil //nolint:nilerr // one that cannot be read is nobody's to retire
	}
	with := s.linksOf(e.id, &was, nil)
	switch err := s.follow(ctx, e.id, &was, nil, false, &with); {
	case errors.Is(err, ErrFollowed):
		return false, nil // it is not deleted under those that follow it
	case err != nil:
		return false, err
	}
	with.compares = append(with.compares,
		absentBelow(s.keys.historyOf(e.id)), absentBelow(s.keys.segmentsOf(e.id)), absentBelow(s.keys.activeOf(e.id)), absentBelow(s.keys.pendingOf(e.id)))
	version := e.version(&was, nil, state.ChangeDelete, have.generation+1, max(codec.Micros(e.now), have.mark))
	revision, _, err := s.commitEdit(ctx, e, &have, nil, version, with)
	return revision != 0, err
}

package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// ErrKeyReused: an idempotency key was used before, for another payload, spec or key of limits.
var ErrKeyReused = errors.New("the idempotency key was used with another payload, spec or key of limits")

// ErrNotPerKey: a submission has a key of limits, and its job no limit that is per key.
var ErrNotPerKey = errors.New("the job has no limit that is per key")

// Submit makes the wish for a run durable, with its payload, if the job exists and is
// not paused at that moment. Of wishes for one job with the same key one makes a run:
// duplicate tells that it was an earlier one, whose run is answered. Errors:
// ErrNotFound, ErrPaused, ErrCorrupt for a broken job, ErrTooLarge, ErrKeyReused, ErrNotPerKey, and
// those of package kv. After kv.ErrUnknown the wish may be stored; with a key it is
// safe to ask again.
func (s *Store) Submit(ctx context.Context, sub state.Submission) (run state.RunID, duplicate bool, err error) {
	run, duplicate, err = s.submit(ctx, &submission{Submission: sub, is: wishOf(sub.Payload, keyPart(&sub.Pending)...)})
	if err != nil {
		return "", false, fmt.Errorf("submit run of %s: %w", sub.Pending.Job, err)
	}
	return run, duplicate, nil
}

// submission is a wish on its way.
type submission struct {
	state.Submission
	// is tells it from another wish with the same key.
	is []byte
	// with adds to each try what else it takes, of a run that repeats another; nil: nothing.
	with func(ctx context.Context, r *request) error
}

func (s *Store) submit(ctx context.Context, sub *submission) (state.RunID, bool, error) {
	p := &sub.Pending
	if len(sub.Payload) > state.MaxPayloadBytes {
		return "", false, fmt.Errorf("%w: payload has %d bytes, at most %d are allowed", ErrTooLarge, len(sub.Payload), state.MaxPayloadBytes)
	}
	value, err := marshalPending(p)
	if err != nil {
		return "", false, err
	}
	entry, err := s.GetJob(ctx, p.Job)
	if err != nil {
		return "", false, err
	}
	for range maxEdits {
		switch {
		case entry.Broken != nil:
			return "", false, entry.Broken
		case entry.Job.PauseEnded(sub.Now):
			if entry, err = s.endPause(ctx, p.Job, sub.Now); err != nil {
				return "", false, err
			}
			continue
		}
		var lease kv.LeaseID
		if sub.Key != "" {
			if lease, err = s.leaseOfKey(ctx, sub.Now, sub.KeyTTL); err != nil {
				return "", false, err
			}
		}
		keyless := p.LimitKey != "" && sub.with == nil && !state.PerKey(entry.Job.Spec.Limits)
		if !entry.Job.Paused && !keyless {
			r, err := s.submitRequest(sub, entry.Job.Revision, value, lease)
			if err != nil {
				return "", false, err
			}
			if sub.with != nil {
				if err := sub.with(ctx, r); err != nil {
					return "", false, err
				}
			}
			res, err := s.batch.do(ctx, r)
			switch {
			case errors.Is(err, kv.ErrLeaseNotFound):
				s.keyLeases.forget(lease)
				continue
			case err != nil:
				return "", false, err
			case res.Succeeded:
				return p.Run, false, nil
			}
		}
		// Or an earlier try was carried out whose answer was lost.
		made, err := s.findWish(ctx, sub)
		if err != nil || made != "" {
			return made, made != p.Run, err
		}
		if entry.Job.Paused {
			return "", false, ErrPaused
		}
		if keyless {
			return "", false, ErrNotPerKey
		}
		if entry, err = s.GetJob(ctx, p.Job); err != nil {
			return "", false, err
		}
	}
	return "", false, ErrContended
}

// submitRequest is a wish as a transaction.
func (s *Store) submitRequest(sub *submission, job int64, value []byte, lease kv.LeaseID) (*request, error) {
	p := &sub.Pending
	jobKey, pendingKey, historyKey := s.keys.job(p.Job), s.keys.pendingRun(p.Job, p.Run), s.keys.historyRun(p.Job, p.Run)
	r := &request{
		reads:  []uint64{s.batch.hash(jobKey), s.batch.hash(historyKey)},
		writes: []uint64{s.batch.hash(pendingKey)},
	}
	r.txn.If = []kv.Compare{
		unchanged(jobKey, job), absent(pendingKey), absent(historyKey), absentBelow(s.keys.shardsOf(p.Job, p.Run)),
	}
	r.txn.Then = []kv.Op{kv.Put(pendingKey, value, 0)}
	if len(sub.Payload) > 0 {
		payloadKey := s.keys.payload(p.Job, p.Run)
		r.txn.Then = append(r.txn.Then, kv.Put(payloadKey, sub.Payload, 0))
		r.writes = append(r.writes, s.batch.hash(payloadKey))
	}
	if sub.Key != "" {
		uniqueKey := s.keys.unique(p.Job, sub.Key)
		unique, err := proto.Marshal(&statev1.Unique{Run: string(p.Run), Wish: sub.is})
		if err != nil {
			return nil, err
		}
		r.txn.If = append(r.txn.If, absent(uniqueKey))
		r.txn.Then = append(r.txn.Then, kv.Put(uniqueKey, unique, lease))
		r.writes = append(r.writes, s.batch.hash(uniqueKey))
	}
	return r, nil
}

// findWish answers the run that the wish, or an earlier one with its key, has made;
// empty if there is none.
func (s *Store) findWish(ctx context.Context, sub *submission) (state.RunID, error) {
	made, err := s.findKey(ctx, sub.Pending.Job, sub.Key, sub.is)
	if err != nil || made != nil {
		return state.RunID(made.GetRun()), err
	}
	revision, err := s.findRun(ctx, sub.Pending.Job, sub.Pending.Run)
	if err != nil || revision == 0 {
		return "", err
	}
	return sub.Pending.Run, nil
}

// findKey answers what the first wish with a job's key has made; nil: there is none that
// is known, or no key.
func (s *Store) findKey(ctx context.Context, id state.JobID, key string, wish []byte) (*statev1.Unique, error) {
	if key == "" {
		return nil, nil
	}
	found, err := s.readOne(ctx, s.keys.unique(id, key))
	if err != nil || found.Key == "" {
		return nil, err
	}
	var unique statev1.Unique
	if err := proto.Unmarshal(found.Value, &unique); err != nil {
		return nil, fmt.Errorf("%w: key %q: %w", ErrCorrupt, found.Key, err)
	}
	if !bytes.Equal(unique.GetWish(), wish) {
		return nil, ErrKeyReused
	}
	return &unique, nil
}

// wishOf is what is kept of a payload, and of what else is part of a wish, to tell it from
// another.
func wishOf(payload []byte, more ...[]byte) []byte {
	sum := sha256.Sum256(payload)
	for _, part := range more {
		sum = sha256.Sum256(append(sum[:], part...))
	}
	return sum[:]
}

// keyPart is what a key of limits adds to a wish. Without one it adds nothing, so that those
// wishes are what they were before there were such keys.
func keyPart(p *state.Pending) [][]byte {
	if p.LimitKey == "" {
		return nil
	}
	return [][]byte{[]byte("limit key " + p.LimitKey)}
}

// GetPayload answers what a run is to work on; nil: nothing.
func (s *Store) GetPayload(ctx context.Context, id state.JobID, run state.RunID) ([]byte, error) {
	found, err := s.readOne(ctx, s.keys.payload(id, run))
	if err != nil {
		return nil, fmt.Errorf("get payload of %s %s: %w", id, run, err)
	}
	return found.Value, nil
}

// GetResult answers what a run left. ErrNotFound: nothing.
func (s *Store) GetResult(ctx context.Context, id state.JobID, run state.RunID) ([]byte, error) {
	found, err := s.readOne(ctx, s.keys.result(id, run))
	if err == nil && found.Key == "" {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("get result of %s %s: %w", id, run, err)
	}
	return found.Value, nil
}

// keepResult adds to the verdict of an attempt what becomes of payload and result: a
// success needs its payload no more. Of a run that is split the first shard's result is
// the run's. What other runs were to work on stays beside
// their records, to be asked for anew.
func (s *Store) keepResult(r *request, f *state.Finish) {
	l := f.Live
	if f.Attempt.State != state.StateSucceeded {
		return
	}
	if l.Run.Kind().Given() && l.Header == 0 { // else other shards may need it
		payloadKey := s.keys.payload(l.Job, l.Run)
		r.txn.Then = append(r.txn.Then, kv.Delete(payloadKey))
		r.writes = append(r.writes, s.batch.hash(payloadKey))
	}
	if len(f.Result) > 0 && l.Shard == 0 {
		resultKey := s.keys.result(l.Job, l.Run)
		r.txn.Then = append(r.txn.Then, kv.Put(resultKey, f.Result, 0))
		r.writes = append(r.writes, s.batch.hash(resultKey))
	}
}

// keyLeases are the leases of idempotency keys. One serves all keys that go at about
// the same time: a lease for each would cost etcd more than the runs do. The zero value
// is ready.
type keyLeases struct {
	mu   sync.Mutex
	ends map[int64]kv.LeaseID // by when they end, in seconds
}

// keySteps is into how many parts the time is cut for which a key is kept: it is kept
// longer by at most one of them.
const keySteps = 16

// leaseOfKey answers a lease that lasts from now for ttl at least.
func (s *Store) leaseOfKey(ctx context.Context, now time.Time, ttl time.Duration) (kv.LeaseID, error) {
	step := int64(60)
	for step*keySteps < int64(ttl/time.Second) {
		step *= 2
	}
	end := (now.Add(ttl).Unix()/step + 1) * step
	l := &s.keyLeases
	l.mu.Lock()
	lease, ok := l.ends[end]
	l.mu.Unlock()
	if ok {
		return lease, nil
	}
	// Several may be made at once; one of them is kept, and the others serve a key.
	err := s.repeat(ctx, func(ctx context.Context) (err error) {
		lease, _, err = s.kv.Grant(ctx, time.Unix(end, 0).Sub(now))
		return err
	})
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends == nil {
		l.ends = make(map[int64]kv.LeaseID)
	}
	for at := range l.ends {
		if at <= now.Unix() {
			delete(l.ends, at)
		}
	}
	l.ends[end] = lease
	return lease, nil
}

// forget is for a lease that is gone.
func (l *keyLeases) forget(lease kv.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for end, of := range l.ends {
		if of == lease {
			delete(l.ends, end)
		}
	}
}

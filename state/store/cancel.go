package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// ErrOver: the run has its verdict already.
var ErrOver = errors.New("the run is over")

// CancelRun makes the wish durable that a run ends. One that has not started gets
// its verdict in place of that, at once; for another the leader sees to it. It
// answers the run as it was. It is idempotent: of several wishes the first counts.
// Errors besides those of package kv: ErrNotFound, ErrOver, and ErrCorrupt for a
// run that cannot be read.
func (s *Store) CancelRun(ctx context.Context, c state.Cancel) (RunEntry, error) {
	e, err := s.cancelRun(ctx, &c)
	if err != nil {
		return e, fmt.Errorf("cancel %s %s: %w", c.Job, c.Run, err)
	}
	return e, nil
}

func (s *Store) cancelRun(ctx context.Context, c *state.Cancel) (RunEntry, error) {
	wish, err := marshalCancel(c)
	if err != nil {
		return RunEntry{}, err
	}
	historyKey, key := s.keys.historyRun(c.Job, c.Run), s.keys.cancelRun(c.Job, c.Run)
	for range maxTries {
		e, err := s.GetRun(ctx, c.Job, c.Run)
		switch {
		case err != nil:
			return e, errors.Unwrap(err)
		case e.Broken != nil:
			return e, e.Broken
		case e.Record != nil:
			if e.Record.State == state.StateCancelled && e.Record.Reason == c.Reason && e.Record.Detail == c.Detail {
				return e, nil // an earlier try
			}
			return e, ErrOver
		}
		r := &request{reads: []uint64{s.batch.hash(historyKey)}}
		r.txn.If = []kv.Compare{absent(historyKey)}
		r.txn.Else = []kv.Op{keyOnly(key)}
		if e.Pending != nil {
			pendingKey, shards := s.keys.pendingRun(c.Job, c.Run), s.keys.shardsOf(c.Job, c.Run)
			generation, err := s.generation(ctx, c.Job)
			if err != nil {
				return e, err
			}
			value := codec.MarshalRecord(&state.Record{
				Generation: generation, State: state.StateCancelled, Reason: c.Reason, Detail: c.Detail, Due: e.Pending.Requested,
				Recorded: c.Requested, Shards: 1, Origin: e.Pending.Origin,
				Chain: e.Pending.Chain, LimitKey: e.Pending.LimitKey,
			})
			// With its pending key it has not been claimed, and will not be.
			r.txn.If = append(r.txn.If, unchanged(pendingKey, e.Pending.Revision), absentBelow(shards))
			r.txn.Then = []kv.Op{kv.Put(historyKey, value, 0), kv.Delete(pendingKey)}
			r.reads, r.writes = nil, []uint64{s.batch.hash(historyKey), s.batch.hash(pendingKey)}
			r.reads = append(r.reads, s.batch.hash(s.keys.activeOf(c.Job)))
		} else {
			r.txn.If = append(r.txn.If, absent(key))
			r.txn.Then = []kv.Op{kv.Put(key, wish, 0)}
			r.writes = []uint64{s.batch.hash(key)}
		}
		res, err := s.batch.do(ctx, r)
		if err != nil {
			return e, err
		}
		if res.Succeeded || e.Pending == nil && len(res.Results[0].KVs) > 0 {
			return e, nil
		}
	}
	return RunEntry{}, ErrContended
}

// generation is that of a job's newest version, by which a run that has not started
// would have run; 0 where there is no such job, or none that can be read.
func (s *Store) generation(ctx context.Context, id state.JobID) (int64, error) {
	e, err := s.GetJob(ctx, id)
	return e.Job.Generation, notFound(err)
}

// FindLive answers the live records of a run; over is true where it has its
// verdict, or is not there at all.
func (s *Store) FindLive(ctx context.Context, id state.JobID, run state.RunID) (live []state.Live, over bool, err error) {
	e, err := s.GetRun(ctx, id, run)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, true, nil
	case err != nil:
		return nil, false, err
	case e.Broken != nil:
		return nil, false, e.Broken
	}
	return e.Live, e.Record != nil, nil
}

// CancelWaiting ends a waiting run, because of the wish c: see GiveUp.
func (s *Store) CancelWaiting(ctx context.Context, term state.Term, l state.Live, c *state.Cancel, now time.Time) (ok bool, err error) {
	rec := verdictOf(&l, state.StateCancelled, c.Reason, now)
	rec.Detail = c.Detail
	ok, err = s.giveUp(ctx, term, &l, &rec, 0)
	if err != nil {
		return false, fmt.Errorf("cancel %s %s: %w", l.Job, l.Run, err)
	}
	return ok, nil
}

// DropCancel deletes the wish that a run ends, once that is so, while the term
// stands. One that is not as given any more is left alone. Errors are those of
// package kv, and state.ErrTermLost.
func (s *Store) DropCancel(ctx context.Context, term state.Term, c *state.Cancel) error {
	key := s.keys.cancelRun(c.Job, c.Run)
	r := &request{writes: []uint64{s.batch.hash(key)}}
	r.txn.If = []kv.Compare{unchanged(key, c.Revision)}
	r.txn.Then = []kv.Op{kv.Delete(key)}
	res, err := s.lead(ctx, term, r)
	if err == nil && !res.Succeeded {
		err = over(term, res)
	}
	if err != nil {
		return fmt.Errorf("drop the wish to cancel %s %s: %w", c.Job, c.Run, err)
	}
	return nil
}

// DecodeCancel reads a wish that a run ends from its key and value. An error
// wraps ErrCorrupt.
func (s *Store) DecodeCancel(from kv.KeyValue) (state.Cancel, error) {
	id, run, err := parseRunKey(s.keys.cancels(), from.Key)
	var message statev1.Cancel
	if err == nil {
		err = proto.Unmarshal(from.Value, &message)
	}
	c := state.Cancel{Job: id, Run: run, Revision: from.ModRevision}
	if err != nil {
		return c, fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
	}
	c.Requested, c.Actor = codec.Time(message.GetRequested()), message.GetActor()
	c.Reason, c.Detail = message.GetReason(), message.GetDetail()
	return c, nil
}

func marshalCancel(c *state.Cancel) ([]byte, error) {
	return proto.Marshal(&statev1.Cancel{
		Requested: codec.Micros(c.Requested), Actor: c.Actor, Reason: c.Reason, Detail: c.Detail,
	})
}

// CancelsCache makes a cache of the wishes that runs end; run it, and use the
// store's DecodeCancel on what it holds.
func (s *Store) CancelsCache() *Cache {
	return NewCache(s.kv, s.keys.cancels(), s.log.Named("cancels"))
}

// notFound is err, unless that is only that there is no such run.
func notFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

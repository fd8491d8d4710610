package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// A run that repeats another is a pending one that names it. It has what the other was
// given and belongs to: the chain, the key of limits, the payload. Requeued dead letters
// and retries differ in what they are made of: a dead letter, which is then gone, or the
// record, which stays. A retry of the failed shards alone has in its pending key what the
// run is split into, whatever the job says by then: the claim of its header takes that.

// Why a run cannot be retried.
var (
	// ErrNotOver: the run has no verdict yet.
	ErrNotOver = errors.New("the run is not over")
	// ErrSucceeded: the run has succeeded.
	ErrSucceeded = errors.New("the run has succeeded")
	// ErrNoShards: the run ended before it had begun, or before its shards were listed, so
	// that no part of it can be retried alone.
	ErrNoShards = errors.New("the run has no shards that could be retried alone")
	// ErrNoJob: the run's job is not there any more.
	ErrNoJob = errors.New("the run's job does not exist")
)

// Repeat makes a run that repeats another one, as Submit does for a submission. A dead
// letter that the other left goes in the same transaction. Errors: ErrNotFound where there
// is no record of the other, ErrNotOver, ErrSucceeded, ErrNoShards, ErrNoJob, ErrPaused,
// ErrCorrupt where record or job cannot be read, ErrKeyReused, and those of package kv. After
// kv.ErrUnknown the run may have been made; with a key it is safe to ask again.
func (s *Store) Repeat(ctx context.Context, r state.Repeat) (run state.RunID, duplicate bool, err error) {
	run, duplicate, err = s.repeatRun(ctx, &r)
	if err != nil {
		return "", false, fmt.Errorf("retry %s %s: %w", r.Pending.Job, r.Pending.Origin, err)
	}
	return run, duplicate, nil
}

func (s *Store) repeatRun(ctx context.Context, r *state.Repeat) (state.RunID, bool, error) {
	sub := &submission{Submission: state.Submission{Pending: r.Pending, Key: r.Key, KeyTTL: r.KeyTTL, Now: r.Now}}
	p := &sub.Pending
	how := "whole"
	if r.FailedOnly {
		how = "failed"
	}
	sub.is = wishOf([]byte("retry"), []byte(p.Origin), []byte(how))
	// Asked before all else: the run may have been removed since its retry was made.
	made, err := s.findKey(ctx, p.Job, r.Key, sub.is)
	if err != nil || made != nil {
		return state.RunID(made.GetRun()), made != nil, err
	}
	rec, err := s.endedRun(ctx, p.Job, p.Origin)
	if err != nil {
		return "", false, err
	}
	var saved []kv.Op
	if r.FailedOnly {
		if saved, err = s.repeatFailed(ctx, p, rec); err != nil {
			return "", false, err
		}
	}
	if sub.Payload, err = s.takeOver(ctx, p, rec); err != nil {
		return "", false, err
	}
	sub.with = func(ctx context.Context, req *request) error {
		s.addOps(req, saved)
		return s.dropLetterOf(ctx, req, p.Job, p.Origin)
	}
	run, duplicate, err := s.submit(ctx, sub)
	if errors.Is(err, ErrNotFound) {
		err = ErrNoJob
	}
	return run, duplicate, err
}

// endedRun reads the record of a run that can be retried.
func (s *Store) endedRun(ctx context.Context, id state.JobID, run state.RunID) (*state.Record, error) {
	e, err := s.GetRun(ctx, id, run)
	switch {
	case err != nil:
		return nil, err
	case e.Broken != nil:
		return nil, e.Broken
	case e.Record == nil:
		return nil, ErrNotOver
	case e.Record.State == state.StateSucceeded:
		return nil, ErrSucceeded
	}
	return e.Record, nil
}

// repeatFailed has a pending run repeat only what failed of the one that was recorded,
// and answers what else is to be written with it.
func (s *Store) repeatFailed(ctx context.Context, p *state.Pending, rec *state.Record) ([]kv.Op, error) {
	switch {
	case rec.Split != nil:
		if p.Split = rec.Unfinished(); p.Split == nil {
			return nil, ErrNoShards
		}
		return nil, nil
	case len(rec.Attempts) == 0:
		return nil, ErrNoShards
	}
	return s.copyCheckpoint(ctx, p.Job, p.Origin, p.Run, 0)
}

// takeOver gives a pending run what the run that it repeats was given and belongs to, and
// answers the payload.
func (s *Store) takeOver(ctx context.Context, p *state.Pending, rec *state.Record) (payload []byte, err error) {
	p.Chain, p.LimitKey = rec.Chain, rec.LimitKey
	if !p.Origin.Kind().Given() {
		return nil, nil
	}
	return s.GetPayload(ctx, p.Job, p.Origin)
}

// dropLetterOf adds that the dead letter of a run goes, if there is one.
func (s *Store) dropLetterOf(ctx context.Context, r *request, id state.JobID, run state.RunID) error {
	key := s.keys.deadRun(id, run)
	res, err := s.look(ctx, keyOnly(key), keyOnly(s.keys.historyRun(id, run)))
	if err != nil || len(res.Results[0].KVs) == 0 {
		return err
	}
	r.txn.If = append(r.txn.If, unchanged(key, modRevision(res.Results[0])))
	r.writes = append(r.writes, s.batch.hash(key))
	s.dropLetter(&r.txn, id, &letter{run: run, revision: modRevision(res.Results[0]), record: len(res.Results[1].KVs) > 0})
	return nil
}

// resumeShard has the first claim of a shard, of a run that repeats another, go on from the
// last checkpoint of an earlier run; empty: it begins without one. It may have one then: that
// of a run of one piece, whose retry is split, since the job has shards by now.
func (s *Store) resumeShard(ctx context.Context, r *request, l *state.Live, from state.RunID) error {
	if from == "" {
		own := s.keys.checkpoint(state.CheckpointRef{Job: l.Job, Run: l.Run, Shard: l.Shard})
		r.txn.Then = append(r.txn.Then, kv.DeleteRange(own, shardEnd(own)))
		r.writes = append(r.writes, s.batch.hash(own))
		return nil
	}
	saved, err := s.copyCheckpoint(ctx, l.Job, from, l.Run, l.Shard)
	s.addOps(r, saved)
	return err
}

// copyCheckpoint answers what makes the last checkpoint of a shard that of the same shard
// of another run, which has none of its own yet; nothing where there is none, or where it
// cannot be read: the work can begin anew, and would else never begin.
func (s *Store) copyCheckpoint(ctx context.Context, id state.JobID, from, to state.RunID, shard int) ([]kv.Op, error) {
	head, slot, err := s.lastCheckpoint(ctx, state.CheckpointRef{Job: id, Run: from, Shard: shard})
	if errors.Is(err, ErrCorrupt) {
		s.log.Error("unreadable checkpoint is not gone on from; the work begins anew", "job", id, "run", to, "shard", shard, "err", err)
		return nil, nil
	}
	if err != nil || head.Key == "" {
		return nil, err
	}
	was, is := s.keys.checkpoint(state.CheckpointRef{Job: id, Run: from, Shard: shard}), s.keys.checkpoint(state.CheckpointRef{Job: id, Run: to, Shard: shard})
	return []kv.Op{kv.Put(is, head.Value, 0), kv.Put(is+slot.Key[len(was):], slot.Value, 0)}, nil
}

// addOps adds writes of keys that nobody else writes meanwhile.
func (s *Store) addOps(r *request, ops []kv.Op) {
	for i := range ops {
		r.writes = append(r.writes, s.batch.hash(ops[i].Key))
	}
	r.txn.Then = append(r.txn.Then, ops...)
}

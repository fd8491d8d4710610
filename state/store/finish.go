package store

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// Finish makes the end of an attempt real: the run's verdict, or, where f.Retry
// is set, a wait for a further attempt from then on. It is idempotent. TokenFenced says that the attempt is no longer the run's: nothing
// was changed. After kv.ErrUnknown it must be asked again.
func (s *Store) Finish(ctx context.Context, f state.Finish) (state.TokenStatus, error) {
	status, err := s.finish(ctx, &f)
	if err != nil {
		return 0, fmt.Errorf("finish %s %s: %w", f.Live.Job, f.Live.Run, err)
	}
	s.metrics.finishes[status].Inc()
	return status, nil
}

func (s *Store) finish(ctx context.Context, f *state.Finish) (state.TokenStatus, error) {
	to := f.Attempt.State
	if !f.Retry.IsZero() {
		to = state.StateWaiting
	}
	if err := state.CheckTransition(state.StateRunning, to); err != nil {
		return 0, err
	}
	if err := capFinish(f); err != nil {
		return 0, err
	}
	live := f.Live
	live.Attempts = capAttempts(append(append(make([]state.Attempt, 0, len(live.Attempts)+1), live.Attempts...), f.Attempt))
	var r *request
	var err error
	if to == state.StateWaiting {
		live.State, live.Owner, live.NextTry = state.StateWaiting, state.Owner{}, f.Retry
		r, err = s.waitRequest(&live)
	} else {
		r, err = s.verdictRequest(&live, &state.Record{
			Generation:  live.Generation,
			State:       f.Attempt.State,
			Reason:      f.Reason,
			Due:         live.Due,
			Recorded:    f.Attempt.Ended,
			Shards:      live.Shards,
			Attempts:    live.Attempts,
			Tail:        f.Tail,
			OutputBytes: f.OutputBytes,
		})
	}
	if err != nil {
		return 0, err
	}
	res, err := s.batch.do(ctx, r)
	if err != nil {
		return 0, err
	}
	stored := res.Succeeded
	if !stored {
		stored, err = s.ended(&live, res)
		if err != nil {
			return 0, err
		}
	}
	if !stored {
		return state.TokenFenced, nil
	}
	if live.Exclusive && to.Verdict() {
		s.holders.set(live.Job, holder{run: live.Run, token: live.Token})
	}
	return state.TokenStored, nil
}

// verdictRequest ends a live record whose token is l.Token with a verdict. The
// gate's record stays, dead; others are deleted.
func (s *Store) verdictRequest(l *state.Live, rec *state.Record) (*request, error) {
	value, err := proto.Marshal(codec.RecordToProto(rec))
	if err != nil {
		return nil, err
	}
	r, liveKey, historyKey := s.tokenRequest(l)
	r.txn.Then = append(make([]kv.Op, 0, 2), kv.Put(historyKey, value, 0))
	r.writes = append(r.writes, s.batch.hash(historyKey))
	if !l.Exclusive {
		r.txn.Then = append(r.txn.Then, kv.Delete(liveKey))
		r.writes = append(r.writes, s.batch.hash(liveKey))
	}
	return r, nil
}

// waitRequest puts a live record whose token is l.Token into the state of l,
// which nobody owns.
func (s *Store) waitRequest(l *state.Live) (*request, error) {
	value, err := proto.Marshal(codec.LiveToProto(l))
	if err != nil {
		return nil, err
	}
	r, liveKey, _ := s.tokenRequest(l)
	r.txn.Then = []kv.Op{kv.Put(liveKey, value, 0)}
	r.writes = append(r.writes, s.batch.hash(liveKey))
	return r, nil
}

// tokenRequest is a request that changes a live run only while its token
// stands. Its else branch answers the run's verdict and the record.
func (s *Store) tokenRequest(l *state.Live) (r *request, liveKey, historyKey string) {
	liveKey, historyKey = s.keys.live(l), s.keys.historyRun(l.Job, l.Run)
	r = &request{
		reads:  append(make([]uint64, 0, 4), s.batch.hash(liveKey), s.batch.hash(historyKey)),
		writes: make([]uint64, 0, 2),
	}
	if !l.Exclusive {
		r.reads = append(r.reads, s.batch.hash(s.keys.activeOf(l.Job)))
	}
	r.txn.If = append(make([]kv.Compare, 0, 4), unchanged(liveKey, l.Token), absent(historyKey))
	r.txn.Else = []kv.Op{kv.Get(historyKey), kv.Get(liveKey)}
	return r, liveKey, historyKey
}

// ended tells, from a refused finish, whether an earlier try of it was carried
// out: whether the newest attempt of l is in the verdict or waiting record.
func (s *Store) ended(l *state.Live, res kv.TxnResult) (bool, error) {
	last := &l.Attempts[len(l.Attempts)-1]
	same := func(as []state.Attempt) bool {
		return len(as) > 0 && as[len(as)-1].Number == last.Number && as[len(as)-1].Token == last.Token
	}
	if kvs := res.Results[0].KVs; len(kvs) > 0 {
		var p statev1.Record
		if err := proto.Unmarshal(kvs[0].Value, &p); err != nil {
			return false, fmt.Errorf("verdict: %w", err)
		}
		rec := codec.RecordFromProto(&p)
		return rec.State == last.State && same(rec.Attempts), nil
	}
	if kvs := res.Results[1].KVs; len(kvs) > 0 {
		stored, err := decodeLive(l.Job, l.Exclusive, kvs[0])
		if err != nil {
			return false, err
		}
		return stored.State == state.StateWaiting && stored.Run == l.Run && stored.Shard == l.Shard && same(stored.Attempts), nil
	}
	return false, nil
}

// Checkpoint saves an attempt's progress while its token stands and the
// checkpoint before is c.Previous. It is idempotent. TokenFenced: nothing was
// changed.
func (s *Store) Checkpoint(ctx context.Context, c state.Checkpoint) (state.CheckpointResult, error) {
	res, err := s.checkpoint(ctx, &c)
	if err != nil {
		return res, fmt.Errorf("checkpoint %s %s: %w", c.Live.Job, c.Live.Run, err)
	}
	return res, nil
}

func (s *Store) checkpoint(ctx context.Context, c *state.Checkpoint) (state.CheckpointResult, error) {
	if len(c.Data) > state.MaxCheckpoint {
		return state.CheckpointResult{}, fmt.Errorf("%w: data has %d bytes, at most %d are allowed",
			ErrTooLarge, len(c.Data), state.MaxCheckpoint)
	}
	value, err := proto.Marshal(&statev1.Checkpoint{Data: c.Data, Token: c.Live.Token, Saved: codec.Micros(c.Saved)})
	if err != nil {
		return state.CheckpointResult{}, err
	}
	r, _, _ := s.tokenRequest(&c.Live)
	key := s.keys.checkpoint(c.Live.Job, c.Live.Run, c.Live.Shard)
	r.txn.If = append(r.txn.If, unchanged(key, c.Previous))
	r.txn.Then = []kv.Op{kv.Put(key, value, 0)}
	r.txn.Else = append(r.txn.Else, kv.Get(key))
	r.writes = append(r.writes, s.batch.hash(key))
	res, err := s.batch.do(ctx, r)
	if err != nil {
		return state.CheckpointResult{}, err
	}
	if res.Succeeded {
		return state.CheckpointResult{Status: state.TokenStored, Revision: res.Revision}, nil
	}
	verdict, record, saved := res.Results[0].KVs, res.Results[1].KVs, res.Results[2].KVs
	stands := len(verdict) == 0 && len(record) > 0 && record[0].ModRevision == c.Live.Token
	if stands && len(saved) > 0 && string(saved[0].Value) == string(value) {
		return state.CheckpointResult{Status: state.TokenStored, Revision: saved[0].ModRevision}, nil
	}
	if stands {
		return state.CheckpointResult{}, fmt.Errorf("%w: the last checkpoint is not of revision %d", ErrChanged, c.Previous)
	}
	return state.CheckpointResult{Status: state.TokenFenced}, nil
}

// GetCheckpoint answers the last saved progress of a shard, and its revision;
// 0 means that there is none.
func (s *Store) GetCheckpoint(ctx context.Context, id state.JobID, run state.RunID, shard int) ([]byte, int64, error) {
	res, err := s.kv.Range(ctx, s.keys.checkpoint(id, run, shard), "", kv.RangeOptions{})
	if err != nil || len(res.KVs) == 0 {
		return nil, 0, err
	}
	var p statev1.Checkpoint
	if err := proto.Unmarshal(res.KVs[0].Value, &p); err != nil {
		return nil, 0, fmt.Errorf("checkpoint of %s %s: %w", id, run, err)
	}
	return p.GetData(), res.KVs[0].ModRevision, nil
}

// capFinish refuses what a record cannot hold.
func capFinish(f *state.Finish) error {
	if len(f.Tail) > state.MaxTailBytes {
		return fmt.Errorf("%w: tail has %d bytes, at most %d are allowed", ErrTooLarge, len(f.Tail), state.MaxTailBytes)
	}
	if len(f.Attempt.Error) > state.MaxErrorBytes {
		return fmt.Errorf("%w: error has %d bytes, at most %d are allowed", ErrTooLarge, len(f.Attempt.Error), state.MaxErrorBytes)
	}
	return nil
}

// capAttempts keeps the first attempt and the newest ones.
func capAttempts(as []state.Attempt) []state.Attempt {
	if over := len(as) - state.MaxAttemptRecords; over > 0 {
		as = append(as[:1], as[1+over:]...)
	}
	return as
}

// MarkLost deals with a live record whose owner's registration is gone, as one
// atomic check: the term stands, the registration does not, and the record is
// as l has it. An at-most-once run gets the verdict lost; others wait for a
// further attempt from now on, and the waiting record with its new token is
// answered. ok is false where nothing was changed because the owner came to an
// end, or the registration stands after all.
func (s *Store) MarkLost(ctx context.Context, term state.Term, l state.Live, now time.Time) (waiting state.Live, ok bool, err error) {
	if l.State != state.StateRunning {
		return state.Live{}, false, nil
	}
	lost := state.Attempt{
		Number: l.Attempt, Node: l.Owner.Node, Token: l.Token, Term: l.Term, Claimed: l.Claimed, Ended: now,
		State: state.StateLost, Error: "the executor's registration ended",
	}
	next := l
	next.Attempts = capAttempts(append(append(make([]state.Attempt, 0, len(l.Attempts)+1), l.Attempts...), lost))
	var r *request
	if l.AtMostOnce {
		r, err = s.verdictRequest(&next, &state.Record{
			Generation: l.Generation, State: state.StateLost, Due: l.Due, Recorded: now, Shards: l.Shards, Attempts: next.Attempts,
		})
	} else {
		next.State, next.Owner, next.NextTry = state.StateWaiting, state.Owner{}, now
		r, err = s.waitRequest(&next)
	}
	if err != nil {
		return state.Live{}, false, err
	}
	r.guards = []kv.Compare{termGuard(term)}
	r.txn.If = append(r.txn.If, kv.Compare{
		Key: s.keys.node(l.Owner.Node), Target: kv.TargetCreateRevision, Relation: kv.NotEqual, Int: l.Owner.Revision,
	})
	res, stored, err := s.fenced(ctx, term, r)
	if err != nil {
		return state.Live{}, false, fmt.Errorf("mark %s %s lost: %w", l.Job, l.Run, err)
	}
	if !stored {
		// Perhaps an earlier try of this was carried out.
		if stored, err = s.ended(&next, res); err != nil || !stored {
			return state.Live{}, false, err
		}
		if kvs := res.Results[1].KVs; len(kvs) > 0 {
			next.Token = kvs[0].ModRevision
		}
	} else {
		next.Token = res.Revision
	}
	return next, true, nil
}

// GiveUp ends a waiting run, for a reason of the leader's, with the verdict to.
// ok is false where the run was no longer as l has it.
func (s *Store) GiveUp(ctx context.Context, term state.Term, l state.Live, to state.RunState, reason string, now time.Time) (ok bool, err error) {
	if err := state.CheckTransition(state.StateWaiting, to); err != nil {
		return false, err
	}
	r, err := s.verdictRequest(&l, &state.Record{
		Generation: l.Generation, State: to, Reason: reason, Due: l.Due, Recorded: now, Shards: l.Shards, Attempts: l.Attempts,
	})
	if err != nil {
		return false, err
	}
	r.guards = []kv.Compare{termGuard(term)}
	_, ok, err = s.fenced(ctx, term, r)
	if err != nil {
		return false, fmt.Errorf("give up %s %s: %w", l.Job, l.Run, err)
	}
	return ok, nil
}

// fenced commits a leader's request; if it was refused because the term is
// over, the error is state.ErrTermLost.
func (s *Store) fenced(ctx context.Context, term state.Term, r *request) (kv.TxnResult, bool, error) {
	r.txn.Else = append(r.txn.Else, keyOnly(term.Key))
	res, err := s.batch.do(ctx, r)
	if err != nil || res.Succeeded {
		return res, err == nil, err
	}
	if leader := res.Results[len(res.Results)-1].KVs; len(leader) == 0 || leader[0].CreateRevision != term.Number {
		return res, false, state.ErrTermLost
	}
	return res, false, nil
}

func termGuard(t state.Term) kv.Compare {
	return kv.Compare{Key: t.Key, Target: kv.TargetCreateRevision, Int: t.Number}
}

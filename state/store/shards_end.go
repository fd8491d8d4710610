package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// endShardRequest ends a shard whose token is l.Token as rec says: its record stays,
// and says how, until the run it is of has its verdict.
func (s *Store) endShardRequest(l *state.Live, rec *state.Record) (*request, names) {
	end := *l
	end.State, end.Owner, end.NextTry = rec.State, state.Owner{}, time.Time{}
	tail := rec.Tail
	if over := len(tail) - state.MaxShardTail; over > 0 {
		tail = tail[over:]
	}
	end.End = &state.ShardEnd{
		Reason: rec.Reason, Detail: rec.Detail, Recorded: rec.Recorded, Tail: tail, OutputBytes: rec.OutputBytes,
	}
	r, k := s.tokenRequest(l)
	r.txn.Then = append(r.txn.Then, kv.Put(k.live, codec.MarshalLive(&end), 0))
	r.writes = append(r.writes, s.batch.hash(k.live))
	return r, k
}

// errNotEnded: a run is to have its verdict while a shard of it has none.
var errNotEnded = errors.New("a shard has not ended")

// Conclude gives a run that is split its verdict rec, while the term stands, its header
// is as given, and none of its shards has been claimed or has ended since revision seen,
// as of which all that had been claimed were found to have ended. ok is false where it is
// not so. It is idempotent for the same record. Errors are those of package kv, and
// state.ErrTermLost.
func (s *Store) Conclude(ctx context.Context, term state.Term, header state.Live, rec state.Record, seen int64) (ok bool, err error) {
	if ok, err = s.conclude(ctx, term, &header, &rec, seen); err != nil {
		return false, fmt.Errorf("conclude %s %s: %w", header.Job, header.Run, err)
	}
	return ok, nil
}

func (s *Store) conclude(ctx context.Context, term state.Term, header *state.Live, rec *state.Record, seen int64) (bool, error) {
	if err := state.CheckTransition(state.StateRunning, rec.State); err != nil {
		return false, err
	}
	for i := range rec.Ends {
		if !rec.Ends[i].State.Verdict() {
			return false, errNotEnded
		}
	}
	if header.Token == 0 || !header.IsHeader() { // which would compare as "is not there"
		return false, nil
	}
	var result []kv.Op // that another run left
	if first := rec.ShardEnd(0); first != nil && first.State == state.StateSucceeded {
		// What it left goes with the record, which so must tell of it.
		own := s.keys.result(header.Job, header.Run)
		read, carried := keyOnly(own), header.Split.CarriedFrom(0)
		if carried != "" {
			read = kv.Get(s.keys.result(header.Job, carried))
		}
		left, err := s.look(ctx, read)
		if err != nil {
			return false, err
		}
		if rec.Result = len(left.Results[0].KVs) > 0; rec.Result && carried != "" {
			result = []kv.Op{kv.Put(own, left.Results[0].KVs[0].Value, 0)}
		}
	}
	value := codec.MarshalRecord(rec)
	ask := func() *request {
		r := s.concludeRequest(header, rec, value, seen)
		s.addOps(r, result)
		return r
	}
	res, err := s.commitVerdict(ctx, header, rec.State, rec.Recorded, ask,
		func(r *request) (kv.TxnResult, error) { return s.lead(ctx, term, r) })
	if err != nil {
		return false, err
	}
	if !res.Succeeded && !wrote(res.Results[0], value) {
		return false, over(term, res)
	}
	s.headers.drop(headerKey{header.Job, header.Run})
	if header.Exclusive {
		s.holders.set(header.Job, holder{})
	}
	if header.Place != 0 {
		s.places.free(s.keys.placesOf(header.Job, header.GateKey), header.Place)
	}
	s.freeHolds(header)
	return true, nil
}

// concludeRequest is Conclude's, but for the term and the circuit.
func (s *Store) concludeRequest(header *state.Live, rec *state.Record, value []byte, seen int64) *request {
	k := s.keys.names(header)
	shards := s.keys.shardsOf(header.Job, header.Run)
	r := &request{
		writes: []uint64{s.batch.hash(k.history), s.batch.hash(k.live), s.batch.hash(k.active)}, // as claims of its shards read
	}
	r.txn.If = []kv.Compare{unchanged(k.live, header.Token)}
	if !mutant.Off(mutant.FirstVerdict) {
		r.txn.If = append(r.txn.If, absent(k.history))
	}
	if !mutant.Off(mutant.ShardsEnded) {
		r.txn.If = append(r.txn.If, kv.Compare{
			Key: shards, End: end(shards), Target: kv.TargetModRevision, Relation: kv.Less, Int: seen + 1,
		})
	}
	r.txn.Then = []kv.Op{kv.Put(k.history, value, 0)}
	s.buryRequest(r, header, rec, value)
	r.txn.Then = append(r.txn.Then, kv.DeleteRange(shards, end(shards)))
	if header.Exclusive {
		r.txn.Then = append(r.txn.Then, kv.Delete(k.live))
	}
	if header.Place != 0 {
		place := s.keys.place(header.Job, header.GateKey, header.Place)
		r.txn.Then = append(r.txn.Then, kv.Delete(place))
		r.writes = append(r.writes, s.batch.hash(place))
	}
	s.dropHolds(r, header)
	// What its shards have told and saved goes as theirs does that are not split.
	traces := []string{s.keys.progressOf(header.Job, header.Run)}
	if rec.State == state.StateSucceeded {
		traces = append(traces, s.keys.checkpointsOf(header.Job, header.Run))
	}
	for _, prefix := range traces {
		r.txn.Then = append(r.txn.Then, kv.DeleteRange(prefix, end(prefix)))
	}
	if rec.State == state.StateSucceeded && header.Run.Kind().Given() {
		payloadKey := s.keys.payload(header.Job, header.Run)
		r.txn.Then = append(r.txn.Then, kv.Delete(payloadKey))
		r.writes = append(r.writes, s.batch.hash(payloadKey))
	}
	r.txn.Else = []kv.Op{kv.Get(k.history)}
	return r
}

// RunShards reads a run that is split, linearizably and as of one revision. A record of
// it that cannot be read is an error that wraps ErrCorrupt; others are those of package kv.
func (s *Store) RunShards(ctx context.Context, id state.JobID, run state.RunID) (state.RunShards, error) {
	entries, err := s.readRuns(ctx, id, []state.RunID{run})
	if err != nil {
		return state.RunShards{}, fmt.Errorf("read the shards of %s %s: %w", id, run, err)
	}
	if len(entries) == 0 {
		return state.RunShards{}, nil
	}
	e := &entries[0]
	switch {
	case e.Broken != nil:
		return state.RunShards{}, fmt.Errorf("read the shards of %s %s: %w", id, run, e.Broken)
	case len(e.Live) > 0 && e.Live[0].IsHeader():
		return state.RunShards{Header: &e.Live[0], Shards: e.Live[1:], Seen: e.Seen}, nil
	}
	return state.RunShards{Over: e.Record != nil, Listing: len(e.Live) == 1 && e.Live[0].Listing != nil}, nil
}

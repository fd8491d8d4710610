package store

import (
	"context"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// A run whose shards are listed begins with a first step, whose record is that of a run
// of one piece of work, but for its number: it is claimed, tried again, given up and
// fenced as any other. The transaction that ends it with a list makes the run's header of
// it. That compares its token, so that no other step, nor the same once more, can fix
// another list.

// noShards is the detail of a run whose first step listed nothing.
const noShards = "the first step listed no shards"

// unlisted is what the verdict on a first step says that its run was split into.
func unlisted(l *state.Live) *state.Split {
	s := &state.Split{Shards: state.Shards{Dynamic: &state.Listing{}}}
	if l.Listing.Listed() {
		s.MinSuccess, s.StopOnFailure, s.Dynamic.Max = l.Listing.MinSuccess, l.Listing.StopOnFailure, l.Listing.Dynamic.Max
	}
	return s
}

// listRequest ends a first step, whose token is l.Token and whose newest attempt is the
// one that ended, with the shards that it has listed: its record becomes the header of
// its run, and keeps the gate, the place and all that the run has.
func (s *Store) listRequest(l *state.Live, f *state.Finish) *request {
	header := *l
	header.Shard, header.Shards, header.Attempt, header.Owner = state.HeaderShard, len(f.List), 1, state.Owner{}
	header.State, header.Claimed, header.Listing, header.Split = state.StateRunning, f.Attempt.Ended, nil, unlisted(l)
	header.Split.Params = f.List
	r, k := s.tokenRequest(l)
	key := s.keys.live(&header)
	r.txn.Then = append(r.txn.Then, kv.Put(key, codec.MarshalLive(&header), 0))
	r.writes = append(r.writes, s.batch.hash(key))
	if l.Exclusive {
		r.writes = append(r.writes, s.batch.hash(k.active)) // as claims do
		return r
	}
	r.txn.Then = append(r.txn.Then, kv.Delete(k.live))
	r.writes = append(r.writes, s.batch.hash(k.live))
	return r
}

// listed tells, after a refusal, whether an earlier try of listRequest was carried out:
// whether the attempt that f ends is in the run's header, or in the verdict that came of
// it.
func (s *Store) listed(ctx context.Context, f *state.Finish) (bool, error) {
	l, last := f.Live, &f.Attempt
	header := *l
	header.Shard = state.HeaderShard
	res, err := s.look(ctx, kv.Get(s.keys.historyRun(l.Job, l.Run)), kv.Get(s.keys.live(&header)))
	if err != nil {
		return false, err
	}
	if verdict := res.Results[0].KVs; len(verdict) > 0 {
		rec, err := decodeRecord(l.Job, l.Run, verdict[0])
		if err != nil {
			return false, err
		}
		return rec.Split != nil && len(rec.Ends) > 0 && hasEnd(rec.Attempts, last), nil
	}
	if live := res.Results[1].KVs; len(live) > 0 {
		stored, err := decodeLive(l.Job, l.Exclusive, live[0])
		if err != nil {
			return false, err
		}
		return stored.IsHeader() && stored.Run == l.Run && hasEnd(stored.Attempts, last), nil
	}
	return false, nil
}

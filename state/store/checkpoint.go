package store

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/mutant"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// Checkpoint saves an attempt's progress while its token stands and the
// checkpoint before is c.Previous; if it is another, the error wraps ErrChanged.
// It is idempotent. TokenFenced: the attempt is no longer the run's, and changes
// nothing any more.
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
	if c.Live.Token == 0 { // which would compare as "is not there"
		return state.CheckpointResult{Status: state.TokenFenced}, nil
	}
	value, err := proto.Marshal(&statev1.Checkpoint{Data: c.Data, Token: c.Live.Token, Saved: codec.Micros(c.Saved)})
	if err != nil {
		return state.CheckpointResult{}, err
	}
	r, _ := s.tokenRequest(&c.Live)
	key := s.keys.checkpoint(c.Live.Job, c.Live.Run, c.Live.Shard)
	if !mutant.Off(mutant.Checkpoint) {
		r.txn.If = append(r.txn.If, unchanged(key, c.Previous))
	}
	r.txn.Then = append(r.txn.Then, kv.Put(key, value, 0))
	r.writes = append(r.writes, s.batch.hash(key))
	res, err := s.batch.do(ctx, r)
	if err != nil {
		return state.CheckpointResult{}, err
	}
	if res.Succeeded {
		return state.CheckpointResult{Status: state.TokenStored, Revision: res.Revision}, nil
	}
	if res, err = s.look(ctx, append(s.tokenReads(&c.Live), kv.Get(key))...); err != nil {
		return state.CheckpointResult{}, err
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
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.checkpoint(id, run, shard), "", kv.RangeOptions{})
	})
	if err != nil || len(res.KVs) == 0 {
		return nil, 0, err
	}
	var p statev1.Checkpoint
	if err := proto.Unmarshal(res.KVs[0].Value, &p); err != nil {
		return nil, 0, fmt.Errorf("checkpoint of %s %s: %w", id, run, err)
	}
	return p.GetData(), res.KVs[0].ModRevision, nil
}

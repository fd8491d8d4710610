package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/mutant"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// A shard's checkpoints are several keys. The one that is named by the shard is the
// head: which is the last, and how many are kept. It is small, and what each
// checkpoint compares; what was saved lies below it, each checkpoint at its number
// modulo how many are kept. So a checkpoint of any size is written once.

// ErrJobGone: a checkpoint was to outlive its run, and the job is not there any more,
// or is another one of its name.
var ErrJobGone = fmt.Errorf("%w: the job was deleted, and its checkpoints with it", state.ErrCheckpointChanged)

// Checkpoint saves what an attempt goes on from, while its token stands and the
// checkpoint before is c.Previous; if it is another, the error wraps
// state.ErrCheckpointChanged.
// It is idempotent. TokenFenced: the attempt is no longer the run's, and changes
// nothing any more. Other errors: ErrTooLarge, ErrJobGone (which wraps it too), and those of
// package kv.
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
	keep := int64(min(max(c.Keep, 1), state.MaxCheckpointsKept))
	message := &statev1.Checkpoint{
		Token: c.Live.Token, Saved: codec.Micros(c.Saved), Number: c.Number, Keep: int32(keep), Run: string(c.Live.Run),
	}
	head, err := proto.Marshal(message)
	if err != nil {
		return state.CheckpointResult{}, err
	}
	message.Data = c.Data
	value, err := proto.Marshal(message)
	if err != nil {
		return state.CheckpointResult{}, err
	}
	key := s.keys.checkpoint(refOf(c))
	slot := checkpointSlot(key, c.Number%keep)
	r, _ := s.tokenRequest(&c.Live)
	reads := append(s.tokenReads(&c.Live), kv.Get(key), kv.Get(slot))
	if !mutant.Off(mutant.Checkpoint) {
		r.txn.If = append(r.txn.If, unchanged(key, c.Previous))
	}
	if c.OfJob {
		// A job that was made anew under the name was created after the claim.
		job := s.keys.job(c.Live.Job)
		r.txn.If = append(r.txn.If, present(job),
			kv.Compare{Key: job, Target: kv.TargetCreateRevision, Relation: kv.Less, Int: c.Live.Token})
		reads = append(reads, keyOnly(job))
	}
	r.txn.Then = append(r.txn.Then, kv.Put(key, head, 0), kv.Put(slot, value, 0))
	r.writes = append(r.writes, s.batch.hash(key))
	res, err := s.batch.do(ctx, r)
	if err != nil {
		return state.CheckpointResult{}, err
	}
	if res.Succeeded {
		return state.CheckpointResult{Status: state.TokenStored, Revision: res.Revision}, nil
	}
	if res, err = s.look(ctx, reads...); err != nil {
		return state.CheckpointResult{}, err
	}
	verdict, record, last, data := res.Results[0].KVs, res.Results[1].KVs, res.Results[2], res.Results[3]
	if len(verdict) > 0 || len(record) == 0 || record[0].ModRevision != c.Live.Token {
		return state.CheckpointResult{Status: state.TokenFenced}, nil
	}
	if wrote(last, head) && wrote(data, value) {
		return state.CheckpointResult{Status: state.TokenStored, Revision: modRevision(last)}, nil
	}
	if c.OfJob {
		if job := res.Results[4].KVs; len(job) == 0 || job[0].CreateRevision >= c.Live.Token {
			return state.CheckpointResult{}, ErrJobGone
		}
	}
	return state.CheckpointResult{}, fmt.Errorf("%w than that of revision %d", state.ErrCheckpointChanged, c.Previous)
}

// GetCheckpoint answers the last checkpoint of a shard; the zero value means that
// there is none.
func (s *Store) GetCheckpoint(ctx context.Context, of state.CheckpointRef) (state.SavedCheckpoint, error) {
	last, err := s.getCheckpoint(ctx, of)
	if err != nil {
		return last, fmt.Errorf("get checkpoint of %s %s: %w", of.Job, of.Run, err)
	}
	return last, nil
}

func (s *Store) getCheckpoint(ctx context.Context, of state.CheckpointRef) (state.SavedCheckpoint, error) {
	head, slot, err := s.lastCheckpoint(ctx, of)
	if err != nil || head.Key == "" {
		return state.SavedCheckpoint{}, err
	}
	c, err := savedCheckpoint(slot)
	c.Revision = head.ModRevision
	return c, err
}

// lastCheckpoint reads the head of a shard's checkpoints and the last of them; none has a
// name where there is none.
func (s *Store) lastCheckpoint(ctx context.Context, of state.CheckpointRef) (head, slot kv.KeyValue, err error) {
	key := s.keys.checkpoint(of)
	for range maxTries {
		head, err := s.readOne(ctx, key)
		if err != nil || head.Key == "" {
			return kv.KeyValue{}, kv.KeyValue{}, err
		}
		want, err := decodeCheckpoint(head)
		if err != nil {
			return kv.KeyValue{}, kv.KeyValue{}, err
		}
		slot, err := s.readOne(ctx, checkpointSlot(key, want.GetNumber()%int64(max(want.GetKeep(), 1))))
		if err != nil {
			return kv.KeyValue{}, kv.KeyValue{}, err
		}
		// Both are of one transaction, unless another one came in between.
		if slot.ModRevision == head.ModRevision {
			return head, slot, nil
		}
	}
	return kv.KeyValue{}, kv.KeyValue{}, ErrContended
}

// ListCheckpoints answers the checkpoints of a shard that are kept, the newest
// first.
func (s *Store) ListCheckpoints(ctx context.Context, of state.CheckpointRef) ([]state.SavedCheckpoint, error) {
	key := s.keys.checkpoint(of)
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, key, shardEnd(key), kv.RangeOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("list checkpoints of %s %s: %w", of.Job, of.Run, err)
	}
	var kept []state.SavedCheckpoint
	var head *statev1.Checkpoint
	var revision int64
	for _, item := range res.KVs {
		if item.Key == key {
			revision = item.ModRevision
			if head, err = decodeCheckpoint(item); err != nil {
				return nil, err
			}
			continue
		}
		c, err := savedCheckpoint(item)
		if err != nil {
			return nil, err
		}
		kept = append(kept, c)
	}
	// Where fewer are kept than were, older ones lie about.
	kept = slices.DeleteFunc(kept, func(c state.SavedCheckpoint) bool {
		return c.Number > head.GetNumber() || c.Number <= head.GetNumber()-int64(max(head.GetKeep(), 1))
	})
	slices.SortFunc(kept, func(a, b state.SavedCheckpoint) int { return int(b.Number - a.Number) })
	if len(kept) > 0 {
		kept[0].Revision = revision
	}
	return kept, nil
}

// DeleteCheckpoints removes the checkpoints that a job's runs have left for the runs
// after them. It is idempotent.
func (s *Store) DeleteCheckpoints(ctx context.Context, id state.JobID) error {
	prefix := s.keys.checkpointsOfJob(id)
	if _, _, err := s.send(ctx, kv.Txn{Then: []kv.Op{kv.DeleteRange(prefix, end(prefix))}}); err != nil {
		return fmt.Errorf("delete checkpoints of %s: %w", id, err)
	}
	return nil
}

// readOne reads a key; one that is not there has no name.
func (s *Store) readOne(ctx context.Context, key string) (kv.KeyValue, error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, key, "", kv.RangeOptions{})
	})
	if err != nil || len(res.KVs) == 0 {
		return kv.KeyValue{}, err
	}
	return res.KVs[0], nil
}

// dropTraces adds to the verdict of an attempt what it takes to forget what the run
// has saved, as far as it may have: a success needs no checkpoint any more, and no
// verdict its progress.
func (s *Store) dropTraces(r *request, f *state.Finish) {
	l := f.Live
	if f.Saved && f.Attempt.State == state.StateSucceeded {
		key := s.keys.checkpoint(state.CheckpointRef{Job: l.Job, Run: l.Run, Shard: l.Shard})
		r.txn.Then = append(r.txn.Then, kv.DeleteRange(key, shardEnd(key)))
		r.writes = append(r.writes, s.batch.hash(key))
	}
	if f.Reported {
		s.dropProgress(r, l)
	}
}

func refOf(c *state.Checkpoint) state.CheckpointRef {
	return state.CheckpointRef{Job: c.Live.Job, Run: c.Live.Run, Shard: c.Live.Shard, OfJob: c.OfJob}
}

func decodeCheckpoint(from kv.KeyValue) (*statev1.Checkpoint, error) {
	var p statev1.Checkpoint
	if err := proto.Unmarshal(from.Value, &p); err != nil {
		return nil, fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
	}
	return &p, nil
}

func savedCheckpoint(from kv.KeyValue) (state.SavedCheckpoint, error) {
	p, err := decodeCheckpoint(from)
	if err != nil {
		return state.SavedCheckpoint{}, err
	}
	return state.SavedCheckpoint{
		Number: p.GetNumber(), Data: bytes.Clone(p.GetData()), Token: p.GetToken(), Run: state.RunID(p.GetRun()), Saved: codec.Time(p.GetSaved()),
	}, nil
}

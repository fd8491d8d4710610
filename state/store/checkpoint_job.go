package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// ErrNoJobCheckpoints: the job's checkpoints do not outlive its runs.
var ErrNoJobCheckpoints = errors.New("the job's checkpoints do not outlive its runs")

// ListJobCheckpoints asks for a page of the last checkpoints of the shards of jobs
// whose checkpoints outlive their runs.
type ListJobCheckpoints struct {
	// Namespace says whose; empty: all.
	Namespace string
	// After is the last of the page before; zero for the first page.
	After state.CheckpointRef
	// Limit is the most to answer, at least 1.
	Limit int
}

// JobCheckpoint is the last checkpoint of a job's shard.
type JobCheckpoint struct {
	Of   state.CheckpointRef
	Last state.SavedCheckpoint
}

// ListJobCheckpoints reads a page, in order of keys, and tells whether there may be more
// behind it. Each checkpoint is as of an instant of its own. Their data is bounded by
// MaxPageBytes too. One that cannot be read is an error that wraps ErrCorrupt; others
// are those of package kv.
func (s *Store) ListJobCheckpoints(ctx context.Context, l ListJobCheckpoints) (page []JobCheckpoint, more bool, err error) {
	from, behind := "", ""
	if l.After.Job.Name != "" {
		behind, from = shardEnd(s.keys.checkpoint(l.After)), jobPart(l.After.Job)+"/"
	} else if l.Namespace != "" {
		from = escape(l.Namespace) + "/"
	}
	size := 0
	for {
		id, ok, err := s.nextJob(ctx, []string{s.keys.checkpoints()}, l.Namespace, "", from)
		if err != nil || !ok {
			return page, false, err
		}
		shards, err := s.shardsSaved(ctx, id, max(behind, s.keys.checkpointsOfJob(id)))
		if err != nil {
			return nil, false, fmt.Errorf("list checkpoints of %s: %w", id, err)
		}
		for _, shard := range shards {
			if len(page) == l.Limit {
				return page, true, nil
			}
			c := JobCheckpoint{Of: state.CheckpointRef{Job: id, Shard: shard, OfJob: true}}
			if c.Last, err = s.GetCheckpoint(ctx, c.Of); err != nil {
				return nil, false, err
			}
			if c.Last.Number == 0 { // deleted meanwhile
				continue
			}
			if size += len(c.Last.Data); len(page) > 0 && size > MaxPageBytes {
				return page, true, nil
			}
			page = append(page, c)
		}
		from = end(jobPart(id) + "/")
	}
}

// shardsSaved are the shards of a job, in order of keys and from a key on, that have
// checkpoints which outlive its runs.
func (s *Store) shardsSaved(ctx context.Context, id state.JobID, from string) (shards []int, err error) {
	prefix := s.keys.checkpointsOfJob(id)
	o := kv.RangeOptions{KeysOnly: true, Limit: pageKeys}
	for {
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, from, end(prefix), o)
		})
		if err != nil {
			return nil, err
		}
		for _, found := range res.KVs {
			number, _, slot := strings.Cut(found.Key[len(prefix):], "/")
			if slot {
				continue
			}
			shard, err := strconv.Atoi(number)
			if err != nil {
				s.log.Error("key of no checkpoint is passed over", "key", found.Key, "err", err)
				continue
			}
			shards = append(shards, shard)
		}
		if !res.More || len(res.KVs) == 0 {
			return shards, nil
		}
		from = res.KVs[len(res.KVs)-1].Key + "\x00"
	}
}

// SetCheckpoint asks for a checkpoint to be the last one of a job's shard, from which the
// job's next run goes on.
type SetCheckpoint struct {
	Job   state.JobID
	Shard int
	Data  []byte
	// Number is what the checkpoint has at least; it is always above that of the last one.
	Number int64
	// Run is who saved it, and Saved when.
	Run   state.RunID
	Saved time.Time
	// Replace puts it in the place of another one.
	Replace bool
	// DryRun answers what would happen, and changes nothing.
	DryRun bool
}

// CheckpointSet is what became of a SetCheckpoint.
type CheckpointSet uint8

// What can become of it.
const (
	// CheckpointCreated: there was none.
	CheckpointCreated CheckpointSet = iota + 1
	// CheckpointReplaced: it took the place of another one.
	CheckpointReplaced
	// CheckpointUnchanged: the last one has the same bytes.
	CheckpointUnchanged
	// CheckpointConflict: the last one is another one, and was not to be replaced.
	CheckpointConflict
)

// SetCheckpoint puts a checkpoint that no attempt has saved: its token is 0. A run that
// is live and has read the one before gets state.ErrCheckpointChanged for what it saves
// next. It answers what it did, and the last checkpoint as it is then; where nothing was
// changed, the one that is there. Errors besides those of package kv: ErrNotFound for the
// job, ErrCorrupt for a broken one, ErrNoJobCheckpoints, ErrTooLarge, ErrContended.
func (s *Store) SetCheckpoint(ctx context.Context, c SetCheckpoint) (CheckpointSet, state.SavedCheckpoint, error) {
	set, last, err := s.setCheckpoint(ctx, &c)
	if err != nil {
		return 0, last, fmt.Errorf("set checkpoint of %s: %w", c.Job, err)
	}
	return set, last, nil
}

func (s *Store) setCheckpoint(ctx context.Context, c *SetCheckpoint) (CheckpointSet, state.SavedCheckpoint, error) {
	none := state.SavedCheckpoint{}
	if len(c.Data) > state.MaxCheckpoint {
		return 0, none, fmt.Errorf("%w: data has %d bytes, at most %d are allowed", ErrTooLarge, len(c.Data), state.MaxCheckpoint)
	}
	of := state.CheckpointRef{Job: c.Job, Shard: c.Shard, OfJob: true}
	for range maxTries {
		job, err := s.GetJob(ctx, c.Job)
		switch {
		case err != nil:
			return 0, none, err
		case job.Broken != nil:
			return 0, none, job.Broken
		case !job.Job.Spec.CheckpointsOfJob():
			return 0, none, ErrNoJobCheckpoints
		}
		last, err := s.GetCheckpoint(ctx, of)
		if err != nil {
			return 0, none, err
		}
		set := CheckpointCreated
		if last.Number != 0 {
			set = CheckpointReplaced
			switch {
			case bytes.Equal(last.Data, c.Data):
				return CheckpointUnchanged, last, nil
			case !c.Replace:
				return CheckpointConflict, last, nil
			}
		}
		next := state.SavedCheckpoint{Number: max(c.Number, last.Number+1), Data: c.Data, Run: c.Run, Saved: c.Saved}
		if c.DryRun {
			return set, next, nil
		}
		if next.Revision, err = s.putCheckpoint(ctx, &job.Job, of, &next, last.Revision); err != nil || next.Revision != 0 {
			return set, next, err
		}
	}
	return 0, none, ErrContended
}

// putCheckpoint makes next the last checkpoint of a job's shard while the job and the
// checkpoint before are as they were read, and answers its revision, or 0.
func (s *Store) putCheckpoint(
	ctx context.Context, job *state.Job, of state.CheckpointRef, next *state.SavedCheckpoint, previous int64,
) (int64, error) {
	keep := int64(job.Spec.CheckpointsKept())
	message := &statev1.Checkpoint{Saved: codec.Micros(next.Saved), Number: next.Number, Keep: int32(keep), Run: string(next.Run)}
	head, err := proto.Marshal(message)
	if err != nil {
		return 0, err
	}
	message.Data = next.Data
	value, err := proto.Marshal(message)
	if err != nil {
		return 0, err
	}
	key := s.keys.checkpoint(of)
	slot := checkpointSlot(key, next.Number%keep)
	res, unsure, err := s.send(ctx, kv.Txn{
		If:   []kv.Compare{unchanged(s.keys.job(of.Job), job.Revision), unchanged(key, previous)},
		Then: []kv.Op{kv.Put(key, head, 0), kv.Put(slot, value, 0)},
		Else: []kv.Op{kv.Get(key), kv.Get(slot)},
	})
	switch {
	case err != nil:
		return 0, err
	case res.Succeeded:
		return res.Revision, nil
	case unsure && wrote(res.Results[0], head) && wrote(res.Results[1], value): // by an earlier try
		return modRevision(res.Results[0]), nil
	}
	return 0, nil
}

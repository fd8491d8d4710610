package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// RunEntry is all that is stored of one run. A verdict wins over live records,
// and those over a pending one: exactly one of the three is set, or Broken.
type RunEntry struct {
	Job state.JobID
	Run state.RunID
	// Record is the run's verdict. For a slot that shares one with others it
	// is that: Due is then the first of them.
	Record *state.Record
	// Live are the records of a run without a verdict, by shard. Of a run that is
	// split the first is the header, and shards may have ended, or not be there yet.
	Live []state.Live
	// Pending is a run that was asked for and not claimed yet.
	Pending *state.Pending
	// Seen is the store's revision as of which a run without a verdict was read.
	Seen int64
	// Broken wraps ErrCorrupt where what is stored cannot be read.
	Broken error

	size int // of the stored values
	// packed is the segment that has Record; its key is empty where none does.
	packed segment
}

// runsPerTxn is how many runs one read-only transaction looks up: three
// operations each, and one for the gate.
const runsPerTxn = 32

// sharedRuns is how many runs are looked through first for a slot's key.
const sharedRuns = 64

// GetRun reads one run, linearizably and as of one revision. A slot that has no
// record of its own but shares a verdict on a range is found as well. There
// being none is ErrNotFound.
func (s *Store) GetRun(ctx context.Context, id state.JobID, run state.RunID) (RunEntry, error) {
	entries, err := s.readRuns(ctx, id, []state.RunID{run})
	if err == nil && len(entries) == 0 {
		entries, err = s.readShared(ctx, id, run)
	}
	if err == nil && len(entries) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return RunEntry{}, fmt.Errorf("get run %s %s: %w", id, run, err)
	}
	return entries[0], nil
}

// readShared looks for the verdict that a slot shares with earlier ones: it is
// kept under the first of them, and no other slot's record lies between, but
// perhaps many of runs that were asked for.
func (s *Store) readShared(ctx context.Context, id state.JobID, run state.RunID) ([]RunEntry, error) {
	slot, ok := run.Slot()
	if !ok {
		return nil, nil
	}
	to, behind, near := s.keys.historyRun(id, run), run, slot
	for look := sharedRuns; ; look *= 4 {
		before, err := s.pastRuns(ctx, id, to, behind, near, look)
		if err != nil {
			return nil, err
		}
		for _, earlier := range before {
			if _, isSlot := earlier.Slot(); !isSlot {
				continue
			}
			entries, err := s.readRuns(ctx, id, []state.RunID{earlier})
			if err != nil || len(entries) == 0 || entries[0].Record == nil || !entries[0].Record.Covers(slot) {
				return nil, err
			}
			entries[0].Run = run
			return entries, nil
		}
		if len(before) < look {
			return nil, nil
		}
		last := before[len(before)-1]
		to, behind = s.keys.historyRun(id, last), last
		if at, ok := runTime(last); ok {
			near = at
		}
	}
}

// readRuns reads some runs of a job, at most runsPerTxn, in the order given; those
// that have no record are left out. What is not packed is as of one revision, and a
// run that is packed meanwhile is found.
func (s *Store) readRuns(ctx context.Context, id state.JobID, runs []state.RunID) ([]RunEntry, error) {
	t := kv.Txn{Then: make([]kv.Op, 0, 1+3*len(runs))}
	t.Then = append(t.Then, kv.Get(s.keys.activeGate(id)))
	for _, run := range runs {
		shards := s.keys.activeOf(id) + escape(string(run)) + "/"
		t.Then = append(t.Then, kv.Get(s.keys.historyRun(id, run)), kv.GetRange(shards, end(shards), 0), kv.Get(s.keys.pendingRun(id, run)))
	}
	var res kv.TxnResult
	if err := s.repeat(ctx, func(ctx context.Context) (err error) {
		res, err = s.kv.Txn(ctx, t)
		return err
	}); err != nil {
		return nil, err
	}
	gate := res.Results[0].KVs
	entries := make([]RunEntry, 0, len(runs))
	var missing []state.RunID
	for i, run := range runs {
		parts := res.Results[1+3*i : 4+3*i]
		e := s.runEntry(id, run, parts[0].KVs, parts[1].KVs, gate, parts[2].KVs)
		if e.Record == nil {
			e.Seen = res.Revision
		}
		if e.size == 0 {
			missing = append(missing, run)
		}
		entries = append(entries, e)
	}
	if len(missing) > 0 {
		packed, err := s.readPacked(ctx, id, missing)
		if err != nil {
			return nil, err
		}
		for i := range entries {
			if e, ok := packed[entries[i].Run]; ok && entries[i].size == 0 {
				entries[i] = e
			}
		}
	}
	return slices.DeleteFunc(entries, func(e RunEntry) bool { return e.size == 0 }), nil
}

// runEntry puts together what is stored of a run; its size is 0 if that is
// nothing.
func (s *Store) runEntry(id state.JobID, run state.RunID, history, shards, gate, pending []kv.KeyValue) RunEntry {
	e := RunEntry{Job: id, Run: run}
	if len(history) > 0 {
		e.size += len(history[0].Key) + len(history[0].Value)
		rec, err := decodeRecord(id, run, history[0])
		if err != nil {
			e.Broken = err
		} else {
			e.Record = &rec
		}
		return e
	}
	for _, found := range shards {
		e.size += len(found.Key) + len(found.Value)
		l, err := decodeLive(id, false, found)
		if err != nil {
			e.Broken = fmt.Errorf("%w: key %q: %w", ErrCorrupt, found.Key, err)
			return e
		}
		e.Live = append(e.Live, l)
	}
	for _, found := range gate {
		// A gate that cannot be read is reported by those who claim; it is not
		// this run's as far as anybody can tell.
		if l, err := decodeLive(id, true, found); err == nil && l.Run == run {
			e.size += len(found.Key) + len(found.Value)
			e.Live = append(e.Live, l)
		}
	}
	if len(e.Live) > 0 {
		if len(e.Live) > 1 { // their keys sort as texts
			slices.SortFunc(e.Live, func(a, b state.Live) int { return cmp.Compare(a.Shard, b.Shard) })
		}
		return e
	}
	for _, found := range pending {
		e.size += len(found.Key) + len(found.Value)
		p, err := s.DecodePending(found)
		if err != nil {
			e.Broken = err
		} else {
			e.Pending = &p
		}
	}
	return e
}

func decodeRecord(id state.JobID, run state.RunID, from kv.KeyValue) (state.Record, error) {
	var message statev1.Record
	if err := proto.Unmarshal(from.Value, &message); err != nil {
		return state.Record{}, fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
	}
	rec := codec.RecordFromProto(&message)
	// A note of a hook writes the record once more; the verdict is of before.
	rec.Job, rec.Run, rec.Revision = id, run, from.CreateRevision
	return rec, nil
}

// runPart reads the run's id from the part of a key behind the job,
// "<run>[/<shard>]".
func runPart(more string) (state.RunID, error) {
	part, _, _ := strings.Cut(more, "/")
	if part == "" || part == gate {
		return "", errors.New("key names no run")
	}
	run, err := unescape(part)
	return state.RunID(run), err
}

package store

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/mutant"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

const (
	// pageKeys is how many keys a scan reads at a time.
	pageKeys = 5000
	// getsPerTxn is how many keys one read-only transaction looks up.
	getsPerTxn = 100
)

// ListLive answers the live records that want says yes to, in order of job. It
// reads active/ in pages at one revision, and leaves out the dead records that
// finished runs left at their jobs' gates. A record that cannot be read is
// logged and left out.
func (s *Store) ListLive(ctx context.Context, want func(*state.Live) bool) ([]state.Live, error) {
	var live []state.Live
	prefix := s.keys.active()
	err := s.scan(ctx, prefix, func(from kv.KeyValue) {
		id, more, err := parseJob(from.Key[len(prefix):])
		if err == nil {
			var l state.Live
			if l, err = decodeLive(id, more == gate, from); err == nil && want(&l) {
				live = append(live, l)
			}
		}
		if err != nil {
			s.log.Error("unreadable live record is left alone", "key", from.Key, "err", err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list live runs: %w", err)
	}
	return s.undecided(ctx, live)
}

// LiveOf answers the live records of one run, by shard, linearizably; none where
// the run has a verdict, or is not claimed yet. It costs one read of three small
// ranges, however many runs are live. A record that cannot be read is an error that
// wraps ErrCorrupt; others are those of package kv.
func (s *Store) LiveOf(ctx context.Context, id state.JobID, run state.RunID) ([]state.Live, error) {
	entries, err := s.readRuns(ctx, id, []state.RunID{run})
	if err == nil && len(entries) > 0 && entries[0].Record == nil {
		err = entries[0].Broken
	}
	if err != nil {
		return nil, fmt.Errorf("live records of %s %s: %w", id, run, err)
	}
	if len(entries) == 0 {
		return nil, nil
	}
	return entries[0].Live, nil
}

// undecided leaves only those live records whose run has no verdict.
func (s *Store) undecided(ctx context.Context, live []state.Live) ([]state.Live, error) {
	kept := live[:0]
	for begin := 0; begin < len(live); begin += getsPerTxn {
		part := live[begin:min(begin+getsPerTxn, len(live))]
		ops := make([]kv.Op, len(part))
		for i := range part {
			ops[i] = keyOnly(s.keys.historyRun(part[i].Job, part[i].Run))
		}
		res, _, err := s.send(ctx, kv.Txn{Then: ops})
		if err != nil {
			return nil, fmt.Errorf("list live runs: %w", err)
		}
		for i := range part {
			if len(res.Results[i].KVs) == 0 {
				kept = append(kept, part[i])
			}
		}
	}
	return kept, nil
}

// scan calls each for every key below prefix, as of one revision.
func (s *Store) scan(ctx context.Context, prefix string, each func(kv.KeyValue)) error {
	return s.scanRange(ctx, prefix, end(prefix), each)
}

// scanRange is scan for the keys [from, to).
func (s *Store) scanRange(ctx context.Context, from, to string, each func(kv.KeyValue)) error {
	o := kv.RangeOptions{Limit: pageKeys}
	for {
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, from, to, o)
		})
		if err != nil {
			return err
		}
		for _, found := range res.KVs {
			each(found)
		}
		if !res.More {
			return nil
		}
		if o.Revision == 0 { // the first page's: the next ones answer the store's newest
			o.Revision = res.Revision
		}
		if o.Revision == 0 || len(res.KVs) == 0 {
			return fmt.Errorf("scan %s: a page without keys or revision", from)
		}
		from = res.KVs[len(res.KVs)-1].Key + "\x00"
	}
}

// ListDecided answers which slots of a job, from first to last, have a verdict
// or a live record, or wait for other runs. A record that cannot be read counts for the slot that its
// key names; one at the gate names none, and is logged.
func (s *Store) ListDecided(ctx context.Context, id state.JobID, first, last time.Time) (state.Decided, error) {
	d := state.Decided{Slots: make(map[time.Time]struct{})}
	note := func(run state.RunID) bool {
		slot, ok := run.Slot()
		if ok = ok && !slot.Before(first) && !slot.After(last); ok {
			d.Slots[slot] = struct{}{}
		}
		return ok
	}
	// Those that wait first, then live ones: a run that begins or ends meanwhile is
	// then seen twice rather than not at all.
	pending := s.keys.pendingOf(id)
	waits := s.keys.pendingRun(id, state.SlotRunID(first))
	err := s.scanRange(ctx, waits, s.keys.pendingRun(id, state.SlotRunID(last))+"\x00", func(found kv.KeyValue) {
		if run, err := runPart(found.Key[len(pending):]); err == nil && !mutant.Off(mutant.QueuedSlot) {
			note(run)
		}
	})
	if err != nil {
		return d, fmt.Errorf("list waiting runs of %s: %w", id, err)
	}
	active := s.keys.activeOf(id)
	err = s.scan(ctx, active, func(found kv.KeyValue) {
		more := found.Key[len(active):]
		if more == gate {
			l, err := decodeLive(id, true, found)
			if err != nil {
				s.log.Error("unreadable live record is left alone", "key", found.Key, "err", err)
			}
			note(l.Run)
		} else if run, err := runPart(more); err == nil {
			note(run)
		}
	})
	if err != nil {
		return d, fmt.Errorf("list live runs of %s: %w", id, err)
	}
	prefix := s.keys.historyOf(id)
	from, to := s.keys.historyRun(id, state.SlotRunID(first)), s.keys.historyRun(id, state.SlotRunID(last))+"\x00"
	err = s.scanRange(ctx, from, to, func(found kv.KeyValue) {
		run, err := runPart(found.Key[len(prefix):])
		if err != nil || !note(run) {
			return
		}
		if rec, err := decodeRecord(id, run, found); err == nil && rec.Count > 1 {
			d.Ranges = append(d.Ranges, rec)
		}
	})
	if err != nil {
		return d, fmt.Errorf("list verdicts of %s: %w", id, err)
	}
	// Behind history, since that is the way that verdicts go; what was removed since
	// lies behind the floor.
	if err := lookAgain(func() error {
		return s.packedRuns(ctx, id, state.SlotRunID(first), state.SlotRunID(last)+"\x00", func(p *codec.Packed) bool {
			if note(p.Run) && p.Record.GetCount() > 1 {
				rec := codec.RecordFromProto(p.Record)
				rec.Job, rec.Run, rec.Revision = id, p.Run, p.Revision
				d.Ranges = append(d.Ranges, rec)
			}
			return true
		})
	}); err != nil {
		return d, fmt.Errorf("list packed verdicts of %s: %w", id, err)
	}
	floor, err := s.Floor(ctx, id)
	if err != nil {
		return d, err
	}
	d.Floor = floor.Instant
	// A range may have begun before.
	if begin, _ := state.SlotRunID(first).Slot(); !d.Has(begin) {
		shared, err := s.readShared(ctx, id, state.SlotRunID(first))
		if err != nil {
			return d, fmt.Errorf("list verdicts of %s: %w", id, err)
		}
		for i := range shared {
			d.Ranges = append(d.Ranges, *shared[i].Record)
		}
	}
	return d, nil
}

func decodeLive(job state.JobID, exclusive bool, from kv.KeyValue) (state.Live, error) {
	var p statev1.Live
	if err := proto.Unmarshal(from.Value, &p); err != nil {
		return state.Live{}, fmt.Errorf("live record of %s: %w", job, err)
	}
	l := codec.LiveFromProto(&p)
	if l.Run == "" { // such as an empty value, which is a message too
		return state.Live{}, fmt.Errorf("live record of %s: %w: it names no run", job, ErrCorrupt)
	}
	l.Job, l.Exclusive, l.Token = job, exclusive, from.ModRevision
	return l, nil
}

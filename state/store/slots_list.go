package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// ListSlots asks for what is stored of the slots of a job in a window.
type ListSlots struct {
	Job state.JobID
	// From and To are the window, [From, To), in whole seconds.
	From, To time.Time
	// Limit is the most records to answer, at least 1.
	Limit int
}

// SlotPage answers a ListSlots.
type SlotPage struct {
	// Slots are the records in order of slots. The first may be a verdict on a range
	// that began before the window.
	Slots []RunEntry
	// Until is up to where the window was read, exclusive: To, or less where the limit
	// or MaxPageBytes ended the page.
	Until time.Time
	// Floor is the instant up to which records may have been removed by retention, zero
	// for none. It is read behind the rest: a slot that has no record and lies behind
	// it, had one.
	Floor time.Time
}

// ListSlots reads records of slots, live and past, straight from the store. Which
// slots have one is answered as of one revision, so that a slot that had one before
// the call has one in the answer; each record is as of that revision or a later one.
func (s *Store) ListSlots(ctx context.Context, l ListSlots) (SlotPage, error) {
	page, err := s.listSlots(ctx, &l)
	if err != nil {
		return SlotPage{}, fmt.Errorf("list slots of %s: %w", l.Job, err)
	}
	return page, nil
}

func (s *Store) listSlots(ctx context.Context, l *ListSlots) (page SlotPage, err error) {
	runs, until, err := s.slotsWithRecords(ctx, l)
	if err != nil {
		return page, err
	}
	page.Until = until
	defer func() {
		if err == nil {
			var floor state.Floor
			floor, err = s.Floor(ctx, l.Job)
			page.Floor = floor.Instant
		}
	}()
	size := 0
	if first := state.SlotRunID(l.From); len(runs) == 0 || runs[0] != first {
		shared, err := s.GetRun(ctx, l.Job, first)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return page, err
		}
		if err == nil {
			size += shared.size
			page.Slots = append(page.Slots, shared)
		}
	}
	for part := range slices.Chunk(runs, runsPerTxn) {
		entries, err := s.readRuns(ctx, l.Job, part)
		if err != nil {
			return page, err
		}
		for i := range entries {
			if size += entries[i].size; len(page.Slots) > 0 && size > MaxPageBytes {
				page.Until, _ = entries[i].Run.Slot()
				return page, nil
			}
			page.Slots = append(page.Slots, entries[i])
		}
	}
	return page, nil
}

// slotsWithRecords answers the slots in a window that have a record of their own, in
// order, and up to where that is all of them.
func (s *Store) slotsWithRecords(ctx context.Context, l *ListSlots) (runs []state.RunID, until time.Time, err error) {
	history, active, pending := s.keys.historyOf(l.Job), s.keys.activeOf(l.Job), s.keys.pending()+jobPart(l.Job)+"/"
	from, to := escape(string(state.SlotRunID(l.From))), escape(string(state.SlotRunID(l.To)))
	// Runs that were asked for lie between and count as well: they are few.
	limit := int64(l.Limit)*2 + newestKeys
	t := kv.Txn{}
	prefixes := []string{history, active, pending}
	for _, prefix := range prefixes {
		op := kv.GetRange(prefix+from, prefix+to, limit+1)
		op.Keys = true
		t.Then = append(t.Then, op)
	}
	t.Then = append(t.Then, kv.Get(s.keys.activeGate(l.Job)))
	var res kv.TxnResult
	if err := s.repeat(ctx, func(ctx context.Context) (err error) {
		res, err = s.kv.Txn(ctx, t)
		return err
	}); err != nil {
		return nil, until, err
	}
	known := state.SlotRunID(l.To) // runs before this one are known
	for i, prefix := range prefixes {
		for n, found := range res.Results[i].KVs {
			run, err := runPart(found.Key[len(prefix):])
			if err != nil {
				s.log.Error("key of no run is passed over", "key", found.Key, "err", err)
				continue
			}
			if int64(n) == limit {
				known = min(known, beginOf(run))
				break
			}
			if _, slot := run.Slot(); slot {
				runs = append(runs, run)
			}
		}
	}
	for _, found := range res.Results[len(prefixes)].KVs {
		// One that cannot be read is told of by those who claim.
		if live, err := decodeLive(l.Job, true, found); err == nil {
			if slot, ok := live.Run.Slot(); ok && !slot.Before(l.From) && slot.Before(l.To) {
				runs = append(runs, live.Run)
			}
		}
	}
	// Behind the others, since that is the way that verdicts go.
	if err := lookAgain(func() error {
		found := 0
		return s.packedRuns(ctx, l.Job, state.SlotRunID(l.From), known, func(p *codec.Packed) bool {
			if _, slot := p.Run.Slot(); slot {
				runs = append(runs, p.Run)
				found++
			}
			return found <= l.Limit
		})
	}); err != nil {
		return nil, until, err
	}
	slices.Sort(runs)
	runs = slices.Compact(runs)
	runs = slices.DeleteFunc(runs, func(r state.RunID) bool { return r >= known })
	if len(runs) > l.Limit {
		known, runs = runs[l.Limit], runs[:l.Limit]
	}
	until, _ = known.Slot()
	return runs, until, nil
}

// GateHolder answers the live record at the gate of an exclusive job: while there is
// one no other run of the job starts, unless it may overlap. A record that cannot be
// read is ErrCorrupt.
func (s *Store) GateHolder(ctx context.Context, id state.JobID) (holder state.Live, held bool, err error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.activeGate(id), "", kv.RangeOptions{})
	})
	if err == nil && len(res.KVs) > 0 {
		held = true
		if holder, err = decodeLive(id, true, res.KVs[0]); err != nil {
			err = fmt.Errorf("%w: key %q: %w", ErrCorrupt, res.KVs[0].Key, err)
		}
	}
	if err != nil {
		return state.Live{}, false, fmt.Errorf("look at the gate of %s: %w", id, err)
	}
	return holder, held, nil
}

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// FeedBackfill moves a backfill on while the term stands: it counts the runs that have
// ended, makes as many as there is room for, or, where its end was asked for or its job
// is gone, gives those that have not started the verdict cancelled. most bounds how
// many are under way at a time, besides the backfill's own bound. The backfill as it is
// then is answered, with the runs that are under way. One that is not there any more is
// answered as ended. A broken one is ErrCorrupt.
//
// All that it knows of the backfill is in one value. Making runs and counting them
// writes that value in the same transaction, which compares its revision: so no slot
// gets two runs and none is passed over, whoever calls this, and however often.
func (s *Store) FeedBackfill(
	ctx context.Context, term state.Term, id state.JobID, b state.BackfillID, most int, now time.Time,
) (have state.Backfill, open []state.RunID, err error) {
	if term.Number == 0 { // which would compare as "is not there"
		return have, nil, state.ErrTermLost
	}
	for range maxTries {
		have, slots, done, err := s.feedBackfill(ctx, term, id, b, most, now)
		if errors.Is(err, ErrNotFound) {
			return state.Backfill{Job: id, ID: b, Ended: now}, nil, nil
		}
		if err != nil {
			return have, nil, fmt.Errorf("feed backfill %s %s: %w", id, b, err)
		}
		if done {
			for _, i := range have.Open {
				open = append(open, b.Run(slots[i]))
			}
			return have, open, nil
		}
	}
	return have, nil, fmt.Errorf("feed backfill %s %s: %w", id, b, ErrContended)
}

func (s *Store) feedBackfill(
	ctx context.Context, term state.Term, id state.JobID, b state.BackfillID, most int, now time.Time,
) (have state.Backfill, slots []time.Time, done bool, err error) {
	have, slots, job, err := s.readBackfill(ctx, id, b)
	if err != nil || !have.Active() {
		return have, slots, true, err
	}
	changed := false
	if job.UID != have.JobUID {
		changed = have.Cancel(now, state.Leaderd, "the job was deleted", false)
	}
	counted, err := s.countRuns(ctx, term, &have, slots, job.Generation, now)
	if err != nil {
		return have, slots, false, err
	}
	changed = changed || counted
	var fed []state.Pending
	if have.CancelTime.IsZero() {
		for len(have.Open) < min(have.Concurrency, most) && have.Next < have.Total {
			have.Open = append(have.Open, have.Next)
			fed = append(fed, state.Pending{
				Job: id, Run: b.Run(slots[have.Next]), Requested: now, Actor: have.Actor, Reason: have.Reason,
				AllowOverlap: have.OverrideOverlap,
			})
			have.Next++
		}
	} else if left := have.Remaining(); left > 0 {
		have.Next, have.Cancelled, changed = have.Total, have.Cancelled+left, true
	}
	if len(have.Open) == 0 && have.Next == have.Total {
		have.Ended = now
	} else if !changed && len(fed) == 0 {
		return have, slots, true, nil
	}
	done, err = s.putBackfill(ctx, term, &have, fed)
	return have, slots, done, err
}

// readBackfill reads a backfill, its slots, and of the job of its name the uid and the
// generation.
func (s *Store) readBackfill(
	ctx context.Context, id state.JobID, b state.BackfillID,
) (have state.Backfill, slots []time.Time, job state.Job, err error) {
	var res kv.TxnResult
	err = s.repeat(ctx, func(ctx context.Context) (err error) {
		res, err = s.kv.Txn(ctx, kv.Txn{Then: []kv.Op{
			kv.Get(s.keys.backfill(id, b)), kv.Get(s.keys.backfillSlots(id, b)), kv.Get(s.keys.job(id)),
		}})
		return err
	})
	if err == nil && len(res.Results[0].KVs) == 0 {
		err = ErrNotFound
	}
	if err == nil {
		have, err = s.DecodeBackfill(res.Results[0].KVs[0])
	}
	if err != nil || !have.Active() {
		return have, nil, job, err
	}
	var list statev1.BackfillSlots
	for _, found := range res.Results[1].KVs {
		if err := proto.Unmarshal(found.Value, &list); err != nil {
			return have, nil, job, fmt.Errorf("%w: key %q: %w", ErrCorrupt, found.Key, err)
		}
	}
	if slots = codec.BackfillSlotsFromProto(&list); len(slots) != have.Total {
		return have, nil, job, fmt.Errorf("%w: %d slots are stored of %d", ErrCorrupt, len(slots), have.Total)
	}
	for _, found := range res.Results[2].KVs {
		job.UID = have.JobUID // of a broken job nothing else is known
		if entry := s.jobEntry(found); entry.Broken == nil {
			job = entry.Job
		}
	}
	return have, slots, job, nil
}

// countRuns takes those runs out of the open ones that have a verdict. It first gives
// one to those that are to be cancelled and have not started.
func (s *Store) countRuns(
	ctx context.Context, term state.Term, b *state.Backfill, slots []time.Time, generation int64, now time.Time,
) (changed bool, err error) {
	var runs []state.RunID
	for _, i := range b.Open {
		runs = append(runs, b.ID.Run(slots[i]))
	}
	found := map[state.RunID]*RunEntry{}
	for part := range slices.Chunk(runs, runsPerTxn) {
		entries, err := s.readRuns(ctx, b.Job, part)
		if err != nil {
			return false, err
		}
		for i := range entries {
			found[entries[i].Run] = &entries[i]
		}
	}
	open := b.Open[:0:0]
	for n, i := range b.Open {
		e := found[runs[n]]
		switch {
		case e == nil, e.Broken != nil: // swept, or damaged: it had been made, so it is over
			b.Failed++
		case e.Record != nil:
			b.Count(e.Record.State)
		case e.Pending != nil && !b.CancelTime.IsZero():
			ok, err := s.Decide(ctx, term, state.Record{
				Job: b.Job, Run: e.Run, Generation: generation, State: state.StateCancelled, Reason: state.ReasonBackfill,
				Detail: b.CancelReason, Due: e.Pending.Requested, Recorded: now, Shards: 1,
			}, true, e.Pending.Revision)
			if err != nil {
				return false, err
			}
			if !ok { // it has just started
				open = append(open, i)
				continue
			}
			b.Cancelled++
		case len(e.Live) > 0 && b.CancelRunning:
			if err := s.cancelFed(ctx, b, e.Run, now); err != nil {
				return false, err
			}
			open = append(open, i)
		default:
			open = append(open, i)
		}
	}
	changed = len(open) != len(b.Open)
	b.Open = open
	return changed, nil
}

// cancelFed asks for the end of a run that is under way. What is asked for is stored
// and is not taken back, so it does no harm if the term is over.
func (s *Store) cancelFed(ctx context.Context, b *state.Backfill, run state.RunID, now time.Time) error {
	detail := "its backfill was cancelled by " + b.CancelActor
	if b.CancelReason != "" {
		detail += ": " + b.CancelReason
	}
	_, err := s.CancelRun(ctx, state.Cancel{
		Job: b.Job, Run: run, Requested: now, Actor: b.CancelActor, Reason: state.ReasonBackfill, Detail: detail,
	})
	if errors.Is(err, ErrOver) { // it is counted next time
		return nil
	}
	return err
}

// BackfilledSlots are the slots in [from, to) that runs of backfills are for which are
// under way or have succeeded, with the newest such run of each.
func (s *Store) BackfilledSlots(ctx context.Context, id state.JobID, from, to time.Time) (map[time.Time]state.RunID, error) {
	out := map[time.Time]state.RunID{}
	var over []state.RunID
	take := func(prefix string, live bool) error {
		// A backfill is made after the slots that it is for.
		return s.scanKeys(ctx, prefix+escape(string(state.SlotRunID(from))), end(prefix), func(key string) {
			run, err := runPart(key[len(prefix):])
			if err != nil {
				return
			}
			_, slot, ok := run.Backfill()
			if !ok || slot.Before(from) || !slot.Before(to) {
				return
			}
			if live {
				out[slot] = run
			} else {
				over = append(over, run)
			}
		})
	}
	err := errors.Join(take(s.keys.pending()+jobPart(id)+"/", true), take(s.keys.activeOf(id), true), take(s.keys.historyOf(id), false))
	if err != nil {
		return nil, fmt.Errorf("list backfilled slots of %s: %w", id, err)
	}
	if err := lookAgain(func() error {
		return s.packedRuns(ctx, id, state.SlotRunID(from), "", func(p *codec.Packed) bool {
			if _, slot, ok := p.Run.Backfill(); ok && !slot.Before(from) && slot.Before(to) {
				over = append(over, p.Run)
			}
			return true
		})
	}); err != nil {
		return nil, fmt.Errorf("list backfilled slots of %s: %w", id, err)
	}
	holder, err := s.gateRun(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("list backfilled slots of %s: %w", id, err)
	}
	if holder != "" {
		over = append(over, holder) // which may be over
	}
	slices.Sort(over) // the newest counts, wherever it lies
	for part := range slices.Chunk(slices.Compact(over), runsPerTxn) {
		entries, err := s.readRuns(ctx, id, part)
		if err != nil {
			return nil, fmt.Errorf("list backfilled slots of %s: %w", id, err)
		}
		for i := range entries {
			e := &entries[i]
			_, slot, ok := e.Run.Backfill()
			if ok && e.Broken == nil && (e.Record == nil || e.Record.State == state.StateSucceeded) && !slot.Before(from) && slot.Before(to) {
				out[slot] = e.Run
			}
		}
	}
	return out, nil
}

// scanKeys calls each for every key of [from, to), as of one revision.
func (s *Store) scanKeys(ctx context.Context, from, to string, each func(key string)) error {
	o := kv.RangeOptions{Limit: pageKeys, KeysOnly: true}
	for {
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) { return s.kv.Range(ctx, from, to, o) })
		if err != nil {
			return err
		}
		for i := range res.KVs {
			each(res.KVs[i].Key)
		}
		if !res.More || len(res.KVs) == 0 {
			return nil
		}
		o.Revision, from = res.Revision, res.KVs[len(res.KVs)-1].Key+"\x00"
		if o.Revision == 0 {
			return fmt.Errorf("scan %s: a page without a revision", from)
		}
	}
}

package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/mutant"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// CloseTimeline closes the timeline up to instant while the term stands: no
// slot at or before it is claimed any more, but for those that a plan of this
// closing catches up. It never opens what is closed, but for a stored value that
// cannot be read: that is written over, so the caller must then give an instant
// behind which nothing was ever closed. The answer is the closed part as this
// call wrote it; its revision is never that of another leader's closing. After a
// kv error the outcome may be unknown; to close again is safe.
func (s *Store) CloseTimeline(ctx context.Context, term state.Term, instant time.Time) (state.Closed, error) {
	closed, err := s.closeTimeline(ctx, term, instant)
	if err != nil {
		return closed, fmt.Errorf("close timeline: %w", err)
	}
	return closed, nil
}

func (s *Store) closeTimeline(ctx context.Context, term state.Term, instant time.Time) (state.Closed, error) {
	if term.Number == 0 { // which would compare as "is not there"
		return state.Closed{}, state.ErrTermLost
	}
	was, err := s.GetClosed(ctx)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return state.Closed{}, err
	}
	key := s.keys.closed()
	for range maxTries {
		mark := max(s.closed.newestMark(), codec.Micros(was.Mark))
		to := state.Closed{Instant: codec.Time(codec.Micros(later(instant, was.Instant))), Mark: codec.Time(mark)}
		value, err := proto.Marshal(&statev1.Closed{Instant: codec.Micros(to.Instant), Term: term.Number, Mark: mark})
		if err != nil {
			return state.Closed{}, err
		}
		// A late repetition of this must open nothing that was closed since. It
		// goes past group commit, where every claim would meet it.
		res, _, err := s.send(ctx, kv.Txn{
			If:   []kv.Compare{termGuard(term), unchanged(key, was.Revision)},
			Then: []kv.Op{kv.Put(key, value, 0)},
			Else: []kv.Op{kv.Get(key), keyOnly(term.Key)},
		})
		if err != nil {
			return state.Closed{}, err
		}
		if res.Succeeded {
			to.Revision = res.Revision
			s.closed.set(to)
			return to, nil
		}
		if err := over(term, res); err != nil {
			return state.Closed{}, err
		}
		var found kv.KeyValue
		if kvs := res.Results[0].KVs; len(kvs) > 0 {
			found = kvs[0]
		}
		// Another call's, or an earlier try of this: then it is closed once more.
		if was, err = decodeClosed(found); err != nil && !errors.Is(err, ErrCorrupt) {
			return state.Closed{}, err
		}
	}
	return state.Closed{}, ErrContended
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Decide gives a run that did not start a verdict while the term stands;
// rec.Due and rec.Run name it. pending is the revision of the pending key that
// goes with it, 0 for none. exclusive says where a record of the run would
// probably be; it is looked for everywhere. ok is false where the run has
// another record already, or the pending key is not as given. It is idempotent
// for the same record. Errors are those of package kv, state.ErrTermLost, and a
// verdict that no such run can have.
func (s *Store) Decide(ctx context.Context, term state.Term, rec state.Record, exclusive bool, pending int64) (ok bool, err error) {
	return s.DecideVersion(ctx, term, rec, exclusive, pending, 0)
}

// DecideVersion is Decide for a verdict that relies on a version of the job: one
// at another revision than job, or none, is state.ErrJobChanged. With state.NoJob it
// relies on there being no such job: any is state.ErrJobChanged. 0 relies on nothing.
func (s *Store) DecideVersion(
	ctx context.Context, term state.Term, rec state.Record, exclusive bool, pending, job int64,
) (ok bool, err error) {
	if ok, err = s.decide(ctx, term, &rec, exclusive, pending, job); err != nil {
		return false, fmt.Errorf("decide %s %s: %w", rec.Job, rec.Run, err)
	}
	return ok, nil
}

func (s *Store) decide(ctx context.Context, term state.Term, rec *state.Record, exclusive bool, pending, job int64) (bool, error) {
	from := state.StateNone
	if pending != 0 {
		from = state.StatePending
	}
	if err := state.CheckTransition(from, rec.State); err != nil {
		return false, err
	}
	value := codec.MarshalRecord(rec)
	var gateMod int64
	if last := s.holders.get(rec.Job); exclusive && last.run != rec.Run {
		gateMod = last.token
	}
	historyKey, gateKey := s.keys.historyRun(rec.Job, rec.Run), s.keys.activeGate(rec.Job)
	shards, pendingKey := s.keys.shardsOf(rec.Job, rec.Run), s.keys.pendingRun(rec.Job, rec.Run)
	instant, slot := rec.Run.Slot()
	slot = slot && pending == 0
	mayWait := slot && !mutant.Off(mutant.QueuedSlot) // then it has a record
	var closed state.Closed
	if slot {
		var err error
		if closed, err = s.closedNow(ctx); err != nil {
			return false, err
		}
	}
	for range maxTries {
		if slot && !instant.After(closed.Instant) {
			// It may be in a range. One that is decided while this is under way, perhaps after
			// its caller has given up, follows another closing.
			if mine, others, err := s.decidedBefore(ctx, rec, value, instant); err != nil || mine || others {
				return mine, err
			}
		}
		r := &request{
			// The run's claims meet the verdict's key.
			writes: []uint64{s.batch.hash(historyKey)},
			reads:  []uint64{s.batch.hash(gateKey)},
		}
		r.txn.If = []kv.Compare{absent(historyKey), absentBelow(shards), unchanged(gateKey, gateMod)}
		r.txn.Then = []kv.Op{kv.Put(historyKey, value, 0)}
		r.txn.Else = []kv.Op{kv.Get(historyKey), countRange(shards), kv.Get(gateKey)}
		if pending != 0 {
			r.txn.If = append(r.txn.If, unchanged(pendingKey, pending))
			r.txn.Then = append(r.txn.Then, kv.Delete(pendingKey))
			r.writes = append(r.writes, s.batch.hash(pendingKey))
			r.txn.Else = append(r.txn.Else, keyOnly(pendingKey))
		}
		if mayWait {
			r.txn.If = append(r.txn.If, absent(pendingKey))
			r.reads = append(r.reads, s.batch.hash(pendingKey))
			r.txn.Else = append(r.txn.Else, keyOnly(pendingKey))
		}
		closedAt := len(r.txn.Else)
		if slot {
			r.guard(unchanged(s.keys.closed(), closed.Revision))
			r.txn.Else = append(r.txn.Else, keyOnly(s.keys.closed()))
		}
		if job != 0 {
			jobKey := s.keys.job(rec.Job)
			r.txn.If = append(r.txn.If, unchanged(jobKey, max(job, 0)))
			r.reads = append(r.reads, s.batch.hash(jobKey))
			r.txn.Else = append(r.txn.Else, keyOnly(jobKey))
		}
		res, err := s.lead(ctx, term, r)
		if err != nil {
			return false, err
		}
		if res.Succeeded || wrote(res.Results[0], value) {
			return true, nil
		}
		if err := over(term, res); err != nil {
			return false, err
		}
		if len(res.Results[0].KVs) > 0 || len(res.Results[1].KVs) > 0 {
			return false, nil
		}
		if pending != 0 && (len(res.Results[3].KVs) == 0 || res.Results[3].KVs[0].ModRevision != pending) {
			return false, nil
		}
		if mayWait && len(res.Results[3].KVs) > 0 {
			return false, nil
		}
		if job != 0 {
			// Behind those of the pending key, before that of the term.
			if modRevision(res.Results[len(res.Results)-2]) != max(job, 0) {
				return false, state.ErrJobChanged
			}
		}
		if slot && modRevision(res.Results[closedAt]) != closed.Revision {
			if closed, err = s.GetClosed(ctx); err != nil {
				return false, err
			}
		}
		// The gate is not as assumed. It may be this very run's.
		held := s.gateOf(rec.Job, res.Results[2])
		if held.token != 0 && held.run == rec.Run {
			return false, nil
		}
		gateMod = held.token
	}
	return false, ErrContended
}

// decidedBefore tells whether a slot in the closed part of the timeline has a record: this
// one, or another, which may be one for a range of slots.
func (s *Store) decidedBefore(ctx context.Context, rec *state.Record, value []byte, slot time.Time) (mine, others bool, err error) {
	res, err := s.look(ctx, kv.Get(s.keys.historyRun(rec.Job, rec.Run)))
	if err != nil {
		return false, false, err
	}
	if wrote(res.Results[0], value) {
		return true, false, nil
	}
	decided, err := s.ListDecided(ctx, rec.Job, slot, slot)
	return false, decided.Has(slot), err
}

// modRevision is that of the key that was read, 0 where it is absent.
func modRevision(read kv.Result) int64 {
	if len(read.KVs) == 0 {
		return 0
	}
	return read.KVs[0].ModRevision
}

// DecideRange gives all slots from rec.Due to rec.Until one verdict while the
// term stands and the timeline has been closed to rec.Until at revision closed.
// ok is false where one of them has another record, or the timeline was closed
// again. Runs in between that were asked for are no slots. The leader must not
// catch up any of the slots itself. It is idempotent for the same record.
// Errors are those of package kv, state.ErrTermLost, and a verdict that no slot
// can have.
func (s *Store) DecideRange(ctx context.Context, term state.Term, rec state.Record, closed int64) (ok bool, err error) {
	if ok, err = s.decideRange(ctx, term, &rec, closed); err != nil {
		return false, fmt.Errorf("decide %s %s–%s: %w", rec.Job, state.SlotRunID(rec.Due), state.SlotRunID(rec.Until), err)
	}
	return ok, nil
}

func (s *Store) decideRange(ctx context.Context, term state.Term, rec *state.Record, closed int64) (bool, error) {
	if err := state.CheckTransition(state.StateNone, rec.State); err != nil {
		return false, err
	}
	if rec.Until.Before(rec.Due) {
		return false, errors.New("the range ends before it begins")
	}
	if closed == 0 { // which would compare as "is not there"
		return false, nil
	}
	value := codec.MarshalRecord(rec)
	var (
		waiting     = s.keys.pendingRun(rec.Job, state.SlotRunID(rec.Due))
		lastWaiting = s.keys.pendingRun(rec.Job, state.SlotRunID(rec.Until)) + "\x00"
		first, last = s.keys.historyRun(rec.Job, state.SlotRunID(rec.Due)), s.keys.historyRun(rec.Job, state.SlotRunID(rec.Until)) + "\x00"
		firstLive   = s.keys.shardsOf(rec.Job, state.SlotRunID(rec.Due))
		lastLive    = end(s.keys.shardsOf(rec.Job, state.SlotRunID(rec.Until)))
		gateKey     = s.keys.activeGate(rec.Job)
		gate        = s.holders.get(rec.Job)
		seen        int64 // revision up to which it is known that no slot has a record
	)
	if between(gate.run, rec) {
		gate = holder{}
	}
	for range maxTries {
		r := &request{
			// Whatever gives one of the slots a record meets one of these.
			writes: []uint64{s.batch.hash(first), s.batch.hash(s.keys.activeOf(rec.Job)), s.batch.hash(gateKey)},
		}
		r.guard(unchanged(s.keys.closed(), closed))
		r.txn.If = []kv.Compare{
			absent(first),
			{Key: first, End: last, Target: kv.TargetModRevision, Relation: kv.Less, Int: seen + 1},
			{Key: firstLive, End: lastLive, Target: kv.TargetModRevision, Relation: kv.Less, Int: seen + 1},
			unchanged(gateKey, gate.token),
		}
		if !mutant.Off(mutant.QueuedSlot) {
			r.txn.If = append(r.txn.If, kv.Compare{
				Key: waiting, End: lastWaiting, Target: kv.TargetModRevision, Relation: kv.Less, Int: seen + 1,
			})
			r.reads = append(r.reads, s.batch.hash(s.keys.pendingOf(rec.Job)))
		}
		r.txn.Then = []kv.Op{kv.Put(first, value, 0)}
		r.txn.Else = []kv.Op{kv.Get(first), keyOnly(s.keys.closed())}
		res, err := s.lead(ctx, term, r)
		if err != nil {
			return false, err
		}
		if res.Succeeded || wrote(res.Results[0], value) {
			return true, nil
		}
		if err := over(term, res); err != nil {
			return false, err
		}
		if now := res.Results[1].KVs; len(now) == 0 || now[0].ModRevision != closed {
			return false, nil
		}
		// Perhaps only runs that were asked for lie between, or another run of
		// the job is at the gate.
		var taken bool
		if seen, gate, taken, err = s.slotsBetween(ctx, rec); err != nil || taken {
			return false, err
		}
	}
	return false, ErrContended
}

// slotsBetween tells whether a slot of rec's range has a record, as of revision
// seen. It goes past group commit: what a batch reads may be older than what the
// batch writes, under the revision that it answers.
func (s *Store) slotsBetween(ctx context.Context, rec *state.Record) (seen int64, gate holder, taken bool, err error) {
	history, active := s.keys.historyOf(rec.Job), s.keys.activeOf(rec.Job)
	verdicts := kv.GetRange(s.keys.historyRun(rec.Job, state.SlotRunID(rec.Due)), s.keys.historyRun(rec.Job, state.SlotRunID(rec.Until))+"\x00", 0)
	shards := kv.GetRange(s.keys.shardsOf(rec.Job, state.SlotRunID(rec.Due)), end(s.keys.shardsOf(rec.Job, state.SlotRunID(rec.Until))), 0)
	waiting := kv.GetRange(s.keys.pendingRun(rec.Job, state.SlotRunID(rec.Due)), s.keys.pendingRun(rec.Job, state.SlotRunID(rec.Until))+"\x00", 0)
	verdicts.Keys, shards.Keys, waiting.Keys = true, true, true
	read := kv.Txn{Then: []kv.Op{verdicts, shards, waiting, kv.Get(s.keys.activeGate(rec.Job))}}
	res, _, err := s.send(ctx, read)
	for err != nil && passing(err) && ctx.Err() == nil { // for as long as group commit would
		res, _, err = s.send(ctx, read)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return 0, holder{}, false, err
	}
	for i, prefix := range []string{history, active, s.keys.pendingOf(rec.Job)} {
		if i == 2 && mutant.Off(mutant.QueuedSlot) {
			break
		}
		for _, found := range res.Results[i].KVs {
			run, err := runPart(found.Key[len(prefix):])
			if err != nil {
				return 0, holder{}, false, err
			}
			if _, slot := run.Slot(); slot {
				return 0, holder{}, true, nil
			}
		}
	}
	gate = s.gateOf(rec.Job, res.Results[3])
	return res.Revision, gate, between(gate.run, rec), nil
}

// between tells whether a run is one of the slots of rec's range.
func between(run state.RunID, rec *state.Record) bool {
	slot, ok := run.Slot()
	return ok && !slot.Before(rec.Due) && !slot.After(rec.Until)
}

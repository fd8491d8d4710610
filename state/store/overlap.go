package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

const (
	// maxComparedTakers is of how many places a verdict compares that they are
	// taken still; of more it relies on what was read when the run was due.
	maxComparedTakers = 16
	// maxReplaced is how many waiting runs one transaction puts a newer one in the
	// place of; there are more only after a change of the policy.
	maxReplaced = 8
)

// applyOverlap does with a due run what the job's policy wants, if all is still
// as the refusal read it; if not, the claim is worth another try.
func (s *Store) applyOverlap(ctx context.Context, t *claimTry, v *refusal) (status state.ClaimStatus, again bool, err error) {
	if t.queues() {
		return s.queueOverlap(ctx, t, v)
	}
	if v.reached.limit != 0 {
		return s.waitAtLimit(ctx, t, v)
	}
	held := v.holders(t)
	detail := fmt.Sprintf("%d runs were live", len(held))
	if len(held) == 1 {
		detail = held[0].name(t.c.Job) + " was live"
	}
	return s.skip(ctx, t, v, state.ReasonOverlap, detail)
}

// undecidedRun is a request about a due run that is to hold only if the run has no
// record, the gate is shut as the refusal found it, and all else is as planned.
// Its Else reads the run's verdict and live records.
func (s *Store) undecidedRun(t *claimTry, v *refusal) *request {
	c, live := t.c, t.live
	historyKey, own := s.keys.historyRun(c.Job, live.Run), s.keys.shardsOf(c.Job, live.Run)
	r := &request{}
	r.guard(s.registered(live.Owner), unchanged(s.keys.closed(), t.closed))
	r.txn.If = []kv.Compare{
		unchanged(s.keys.job(c.Job), c.JobRevision),
		absent(historyKey),
		absentBelow(own),
	}
	r.txn.Else = []kv.Op{keyOnly(historyKey), countRange(own)}
	// No run of the job begins or ends beside it.
	r.writes = append(r.writes, s.batch.hash(s.keys.activeOf(c.Job)), s.batch.hash(historyKey))
	gateKey := s.keys.activeGate(c.Job)
	if t.relies() {
		// So it is not this run's own either, from before the policy was changed.
		r.txn.If = append(r.txn.If, unchanged(gateKey, v.gate.token))
		r.reads = append(r.reads, s.batch.hash(gateKey))
	}
	held := v.holders(t)
	if v.reached.limit != 0 {
		held = v.reached.takers
	}
	for i := range held[:min(len(held), maxComparedTakers)] {
		h := &held[i]
		switch {
		case h.key != "":
			r.txn.If = append(r.txn.If, unchanged(h.key, h.mod))
			r.reads = append(r.reads, s.batch.hash(h.key))
		case h.run == v.gate.run && h.mod == v.gate.token:
			byHistory := s.keys.historyRun(c.Job, h.run)
			r.txn.If = append(r.txn.If, absent(byHistory))
			r.reads = append(r.reads, s.batch.hash(byHistory))
		default:
			otherKey := s.keys.shardsOf(c.Job, h.run)
			r.txn.If = append(r.txn.If, kv.Compare{
				Key: otherKey, End: end(otherKey), Target: kv.TargetCreateRevision, Relation: kv.Greater,
			})
		}
	}
	if t.asksPending() {
		pendingKey := s.keys.pendingRun(c.Job, live.Run)
		r.txn.If = append(r.txn.If, unchanged(pendingKey, c.Pending))
		r.writes = append(r.writes, s.batch.hash(pendingKey))
	}
	return r
}

// skip gives a due run the verdict skipped.
func (s *Store) skip(ctx context.Context, t *claimTry, v *refusal, reason, detail string) (status state.ClaimStatus, again bool, err error) {
	r := s.undecidedRun(t, v)
	s.putSkipped(t, r, reason, detail)
	return s.decideOverlap(ctx, t, v, r, state.ClaimSkipped)
}

// putSkipped has a request give the run of a claim the verdict skipped.
func (s *Store) putSkipped(t *claimTry, r *request, reason, detail string) {
	c, live := t.c, t.live
	rec := skipped(live, live.Due, reason, detail)
	rec.Origin, rec.Chain, rec.LimitKey = live.Origin, live.Chain, live.LimitKey
	r.txn.Then = append(r.txn.Then, kv.Put(s.keys.historyRun(c.Job, live.Run), codec.MarshalRecord(rec), 0))
	if c.Pending != 0 {
		r.txn.Then = append(r.txn.Then, kv.Delete(s.keys.pendingRun(c.Job, live.Run)))
	}
}

// decideOverlap commits a request of undecidedRun.
func (s *Store) decideOverlap(
	ctx context.Context, t *claimTry, v *refusal, r *request, to state.ClaimStatus,
) (status state.ClaimStatus, again bool, err error) {
	res, err := s.batch.do(ctx, r)
	switch {
	case err != nil:
		return 0, false, err
	case res.Succeeded:
		return to, false, nil
	case len(res.Results[0].KVs) == 0 && len(res.Results[1].KVs) > 0:
		// From before its job's policy was changed. Perhaps it is this owner's.
		before, err := s.claimedBefore(ctx, t.live, state.ClaimLive)
		v.mine = before.Live
		return before.Status, false, err
	}
	return 0, true, nil
}

// queue is what a due run meets that may have to wait.
type queue struct {
	seen    int64 // the revision as of which
	own     state.Pending
	waiting []state.Pending // other runs of the job that wait, in order of due
	wished  bool            // the end of the run at the gate is asked for already
}

// readQueue goes past group commit: what a batch reads may be older than what the
// batch writes, under the revision that it answers. ownOnly leaves out the other runs.
func (s *Store) readQueue(ctx context.Context, t *claimTry, by *taker, ownOnly bool) (queue, error) {
	c := t.c
	all := kv.GetRange(s.keys.pendingOf(c.Job), end(s.keys.pendingOf(c.Job)), 0)
	if ownOnly {
		all = kv.Get(s.keys.pendingRun(c.Job, t.live.Run))
	}
	read := kv.Txn{Then: []kv.Op{all}}
	if by != nil {
		read.Then = append(read.Then, keyOnly(s.keys.cancelRun(by.job, by.run)))
	}
	res, _, err := s.send(ctx, read)
	for err != nil && passing(err) && ctx.Err() == nil { // for as long as group commit would
		res, _, err = s.send(ctx, read)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return queue{}, err
	}
	q := queue{seen: res.Revision}
	for _, found := range res.Results[0].KVs {
		p, err := s.DecodePending(found)
		switch {
		case err != nil:
			s.log.Error("unreadable pending run keeps its job's later runs waiting; delete it", "key", found.Key, "err", err)
		case p.Run == t.live.Run:
			q.own = p
		case !p.Queued.IsZero():
			q.waiting = append(q.waiting, p)
		}
	}
	q.wished = by != nil && len(res.Results[1].KVs) > 0
	return q, nil
}

// queueOverlap lets a due run wait, as its job's policy has it, or skips it.
func (s *Store) queueOverlap(ctx context.Context, t *claimTry, v *refusal) (status state.ClaimStatus, again bool, err error) {
	c, live := t.c, t.live
	var by *taker // to be stopped
	if held := v.holders(t); c.Gate.Policy == state.OverlapCancel && len(held) > 0 && held[0].run != "" {
		by = &held[0]
	}
	q, err := s.readQueue(ctx, t, by, false)
	if err != nil {
		return 0, false, err
	}
	waits := c.Pending != 0 && q.own.Revision == c.Pending && !q.own.Queued.IsZero()
	var older []state.Pending
	if c.Gate.Policy == state.OverlapQueue {
		if n := len(q.waiting); !waits && n >= c.Gate.QueueLimit {
			return s.skip(ctx, t, v, state.ReasonOverlap, fmt.Sprintf("the queue is full: %d of at most %d runs wait", n, c.Gate.QueueLimit))
		}
	} else if n := len(q.waiting); n > 0 {
		if newest := q.waiting[n-1].Run; newest > live.Run {
			return s.skip(ctx, t, v, state.ReasonReplaced, "run "+string(newest)+" waits")
		}
		// One whose record is at the gate has started, and its key is a leftover.
		older = slices.DeleteFunc(q.waiting, func(p state.Pending) bool { return p.Run == v.gate.run })
	}
	wish := by != nil && !q.wished
	if waits && !wish && len(older) == 0 {
		return state.ClaimHeld, false, nil
	}
	r := s.undecidedRun(t, v)
	queueKey := s.keys.pendingOf(c.Job)
	r.txn.If = append(r.txn.If, kv.Compare{
		Key: queueKey, End: end(queueKey), Target: kv.TargetModRevision, Relation: kv.Less, Int: q.seen + 1,
	})
	r.writes = append(r.writes, s.batch.hash(queueKey)) // which claims of the job read
	to := state.ClaimQueued
	if len(older) > maxReplaced {
		older, again = older[:maxReplaced], true // the others in the next try
	}
	for i := range older {
		s.replace(t, r, &older[i])
	}
	if !again && !waits {
		value, err := queuedValue(&q.own, live)
		if err != nil {
			return 0, false, err
		}
		r.txn.Then = append(r.txn.Then, kv.Put(s.keys.pendingRun(c.Job, live.Run), value, 0))
	} else {
		to = state.ClaimHeld
	}
	if wish && !again {
		key := s.keys.cancelRun(by.job, by.run)
		value, err := marshalCancel(&state.Cancel{
			Requested: live.Claimed, Reason: state.ReasonOverlap, Detail: "run " + string(live.Run) + " of " + c.Job.String() + " was due",
		})
		if err != nil {
			return 0, false, err
		}
		r.txn.If = append(r.txn.If, absent(key))
		r.txn.Then = append(r.txn.Then, kv.Put(key, value, 0))
		r.writes = append(r.writes, s.batch.hash(key))
	}
	status, retry, err := s.decideOverlap(ctx, t, v, r, to)
	if retry || err != nil || status != to {
		return status, retry, err
	}
	return status, again, nil
}

// replace gives a waiting run the verdict that the claim's took its place.
func (s *Store) replace(t *claimTry, r *request, p *state.Pending) {
	historyKey, pendingKey := s.keys.historyRun(p.Job, p.Run), s.keys.pendingRun(p.Job, p.Run)
	rec := skipped(t.live, p.Requested, state.ReasonReplaced, "run "+string(t.live.Run)+" took its place")
	rec.Origin, rec.Chain, rec.LimitKey = p.Origin, p.Chain, p.LimitKey
	value := codec.MarshalRecord(rec)
	r.txn.If = append(r.txn.If, unchanged(pendingKey, p.Revision), absent(historyKey), absentBelow(s.keys.shardsOf(p.Job, p.Run)))
	r.txn.Then = append(r.txn.Then, kv.Put(historyKey, value, 0), kv.Delete(pendingKey))
	r.writes = append(r.writes, s.batch.hash(historyKey), s.batch.hash(pendingKey))
}

// skipped is the verdict on a run that was due then and did not start, as the
// claim of another, or its own, found.
func skipped(by *state.Live, due time.Time, reason, detail string) *state.Record {
	return &state.Record{
		Generation: by.Generation,
		State:      state.StateSkipped,
		Reason:     reason,
		Detail:     detail,
		Due:        due,
		Recorded:   by.Claimed,
		Shards:     by.Shards,
	}
}

func queuedValue(own *state.Pending, live *state.Live) ([]byte, error) {
	p := &statev1.Pending{
		Requested: codec.Micros(own.Requested), Actor: own.Actor, Reason: own.Reason, AllowOverlap: own.AllowOverlap,
		Queued: codec.Micros(live.Claimed), Origin: string(own.Origin), LimitKey: own.LimitKey,
		Correlation: own.Correlation, Upstream: codec.UpstreamToProto(own.Upstream), Split: codec.SplitToProto(own.Split),
	}
	if own.Run == "" {
		p.Requested = codec.Micros(live.Due)
	}
	return stable.Marshal(p)
}

// SweepPending deletes the pending key of a run that has another record: such a
// key was written late, and is a leftover. It does so while the term stands. gone
// is false where the run has no other record. Errors are those of package kv, and
// state.ErrTermLost.
func (s *Store) SweepPending(ctx context.Context, term state.Term, p *state.Pending) (gone bool, err error) {
	if gone, err = s.sweepPending(ctx, term, p); err != nil {
		return false, fmt.Errorf("sweep pending run %s %s: %w", p.Job, p.Run, err)
	}
	return gone, nil
}

func (s *Store) sweepPending(ctx context.Context, term state.Term, p *state.Pending) (bool, error) {
	for range maxTries {
		e, err := s.GetRun(ctx, p.Job, p.Run)
		var record kv.Compare
		switch {
		case err != nil:
			return false, notFound(err)
		case e.packed.key != "":
			record = present(e.packed.key)
		case e.Record != nil, e.Broken != nil: // what cannot be read is a verdict, or the next try tells
			record = present(s.keys.historyRun(p.Job, p.Run))
		case len(e.Live) > 0:
			record = unchanged(s.keys.live(&e.Live[0]), e.Live[0].Token)
		default:
			return false, nil
		}
		key := s.keys.pendingRun(p.Job, p.Run)
		r := &request{writes: []uint64{s.batch.hash(key)}, reads: []uint64{s.batch.hash(record.Key)}}
		r.txn.If = []kv.Compare{unchanged(key, p.Revision), record}
		r.txn.Then = []kv.Op{kv.Delete(key)}
		r.txn.Else = []kv.Op{keyOnly(key)}
		res, err := s.lead(ctx, term, r)
		if err != nil || res.Succeeded {
			return err == nil, err
		}
		if err := over(term, res); err != nil {
			return false, err
		}
		if found := res.Results[0].KVs; len(found) == 0 || found[0].ModRevision != p.Revision {
			return true, nil
		}
	}
	return false, ErrContended
}

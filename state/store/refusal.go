package store

import (
	"context"
	"strings"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// refusal is what was found when a claim's compares had failed: perhaps not what
// made them fail, but true, and enough to judge by.
type refusal struct {
	nodeCreate int64
	closed     state.Closed
	decided    bool       // the run has a verdict
	live       bool       // the run has a live record, or one that a verdict made dead
	mine       state.Live // that record, where this claim's owner and attempt hold it
	gate       holder     // what is at the gate; read only if the claim relies on it
	lastDone   bool       // the run that was assumed to be at the gate is over
	other      holder     // a live record beside the gate
	jobMod     int64
	pendingMod int64
}

// readRefusal looks why a claim was refused. Claims are sent often and seldom
// refused, so they carry no else branch for that.
func (s *Store) readRefusal(ctx context.Context, t *claimTry) (refusal, error) {
	c, live := t.c, t.live
	liveKey := s.keys.live(live)
	reads := append(make([]kv.Op, 0, 8),
		keyOnly(s.keys.node(live.Owner.Node)),
		kv.Get(s.keys.closed()),
		keyOnly(s.keys.historyRun(c.Job, live.Run)),
		kv.Get(liveKey),
		keyOnly(s.keys.job(c.Job)),
	)
	switch {
	case !t.relies():
	case live.Exclusive:
		reads = append(reads, kv.GetRange(s.keys.activeOf(c.Job), liveKey, 1))
		if t.last.token != 0 {
			reads = append(reads, keyOnly(s.keys.historyRun(c.Job, t.last.run)))
		}
	default:
		reads = append(reads, kv.Get(s.keys.activeGate(c.Job)))
	}
	if c.Pending != 0 {
		reads = append(reads, keyOnly(s.keys.pendingRun(c.Job, live.Run)))
	}
	res, err := s.look(ctx, reads...)
	if err != nil {
		return refusal{}, err
	}
	return s.decodeRefusal(t, res)
}

// decodeRefusal takes the reads in readRefusal's order.
func (s *Store) decodeRefusal(t *claimTry, res kv.TxnResult) (refusal, error) {
	var v refusal
	next := func() (kv.KeyValue, bool) {
		kvs := res.Results[0].KVs
		res.Results = res.Results[1:]
		if len(kvs) == 0 {
			return kv.KeyValue{}, false
		}
		return kvs[0], true
	}
	// note takes in a record of this run.
	note := func(l *state.Live) {
		if l.Run != t.live.Run || l.Shard != t.live.Shard {
			return
		}
		v.live = true
		if mine(l, t.live) {
			v.mine = *l
		}
	}
	node, _ := next()
	v.nodeCreate = node.CreateRevision
	closed, _ := next()
	var err error
	if v.closed, err = decodeClosed(closed); err != nil {
		return v, err
	}
	if _, v.decided = next(); v.decided {
		return v, nil // whatever lies at the gate
	}
	record, recordOK := next()
	job, _ := next()
	v.jobMod = job.ModRevision
	gateRecord, gateOK := record, recordOK
	if recordOK {
		l, err := decodeLive(t.c.Job, t.live.Exclusive, record)
		if err != nil {
			return v, err
		}
		note(&l)
	}
	switch {
	case !t.relies():
		gateOK = false
	case t.live.Exclusive:
		if v.other, err = s.readOther(t, next, note); err != nil {
			return v, err
		}
		if t.last.token != 0 {
			_, done := next()
			v.lastDone = done || t.last.over
		}
	default:
		gateRecord, gateOK = next()
	}
	if gateOK {
		l, err := decodeLive(t.c.Job, true, gateRecord)
		if err != nil {
			return v, err
		}
		note(&l)
		v.gate = holder{run: l.Run, token: l.Token}
	}
	if t.c.Pending != 0 {
		pending, _ := next()
		v.pendingMod = pending.ModRevision
	}
	return v, nil
}

// readOther takes in a record beside the gate. It is decoded only where it is
// of this run: another's may be broken.
func (s *Store) readOther(t *claimTry, next func() (kv.KeyValue, bool), note func(*state.Live)) (holder, error) {
	found, ok := next()
	if !ok {
		return holder{}, nil
	}
	part, _, _ := strings.Cut(found.Key[len(s.keys.activeOf(t.c.Job)):], "/")
	run, err := unescape(part)
	if err != nil {
		return holder{}, err
	}
	if state.RunID(run) == t.live.Run {
		l, err := decodeLive(t.c.Job, false, found)
		if err != nil {
			return holder{}, err
		}
		note(&l)
	}
	return holder{run: state.RunID(run), token: found.ModRevision}, nil
}

// judge says why a claim was refused, or that it is worth another try with what
// was learned.
func (v *refusal) judge(t *claimTry) (status state.ClaimStatus, again bool) {
	c := t.c
	switch {
	case v.nodeCreate != t.live.Owner.Revision:
		v.mine = state.Live{}
		return state.ClaimDisowned, false
	case v.decided:
		v.mine = state.Live{}
		return state.ClaimDecided, false
	case v.mine.Token != 0 && !mutant.Off(mutant.ReadBack):
		return state.Claimed, false
	case v.live && c.Token == 0:
		return state.ClaimLive, false
	case v.jobMod != c.JobRevision, c.Pending != 0 && v.pendingMod != c.Pending:
		return state.ClaimStale, false
	case v.closed.Revision != t.closed && c.ClosedRevision != 0:
		return state.ClaimStale, false
	case v.closed.Revision != t.closed:
		return 0, true
	case c.Token != 0:
		return state.ClaimStale, false
	case !t.live.Exclusive, !v.gate.same(t.last):
		return 0, true // perhaps it is over: the next try looks
	case v.gate.token != 0 && !v.lastDone, v.other.token != 0:
		return state.ClaimHeld, false
	}
	return 0, true
}

// skipOverlap gives a due run the verdict skipped:overlap, if all is still as
// the refusal read it; if not, the claim is worth another try.
func (s *Store) skipOverlap(ctx context.Context, t *claimTry, v *refusal) (status state.ClaimStatus, again bool, err error) {
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
	r.writes = append(r.writes, s.batch.hash(s.keys.activeOf(c.Job))) // no run of the job begins or ends beside it
	by := v.other.run
	if v.gate.token != 0 && !v.lastDone {
		by = v.gate.run
		gateKey, byHistory := s.keys.activeGate(c.Job), s.keys.historyRun(c.Job, by)
		r.txn.If = append(r.txn.If, unchanged(gateKey, v.gate.token), absent(byHistory))
		r.reads = append(r.reads, s.batch.hash(gateKey), s.batch.hash(byHistory))
	} else {
		otherKey := s.keys.shardsOf(c.Job, by)
		r.txn.If = append(r.txn.If, kv.Compare{
			Key: otherKey, End: end(otherKey), Target: kv.TargetCreateRevision, Relation: kv.Greater,
		})
	}
	value := codec.MarshalRecord(&state.Record{
		Generation: live.Generation,
		State:      state.StateSkipped,
		Reason:     state.ReasonOverlap,
		Detail:     "run " + string(by) + " was live",
		Due:        live.Due,
		Recorded:   live.Claimed,
		Shards:     live.Shards,
	})
	r.txn.Then = []kv.Op{kv.Put(historyKey, value, 0)}
	r.writes = append(r.writes, s.batch.hash(historyKey))
	if c.Pending != 0 {
		pendingKey := s.keys.pendingRun(c.Job, live.Run)
		r.txn.If = append(r.txn.If, unchanged(pendingKey, c.Pending))
		r.txn.Then = append(r.txn.Then, kv.Delete(pendingKey))
		r.writes = append(r.writes, s.batch.hash(pendingKey))
	}
	res, err := s.batch.do(ctx, r)
	switch {
	case err != nil:
		return 0, false, err
	case res.Succeeded:
		return state.ClaimSkipped, false, nil
	case len(res.Results[0].KVs) == 0 && len(res.Results[1].KVs) > 0:
		// From before its job's policy was changed. Perhaps it is this owner's.
		before, err := s.claimedBefore(ctx, live, state.ClaimLive)
		v.mine = before.Live
		return before.Status, false, err
	}
	return 0, true, nil
}

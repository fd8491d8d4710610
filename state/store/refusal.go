package store

import (
	"context"
	"strings"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// refusal is what was found when a claim's compares had failed: perhaps not what
// made them fail, but true, and enough to judge by.
type refusal struct {
	nodeCreate int64
	closed     state.Closed
	decided    bool        // the run has a verdict
	live       bool        // the run has a live record, or one that a verdict made dead
	mine       *state.Live // that record, where this claim's owner and attempt hold it; nil: they do not
	gate       holder      // what is at the gate; read only if the claim relies on it
	lastDone   bool        // the run that was assumed to be at the gate is over
	other      holder      // a live record beside the gate
	jobMod     int64
	pendingMod int64
	taken      []taker     // the places at the gate; read only if the claim takes one
	ahead      state.RunID // the first run that waits and is due earlier
	reached    reached     // the first of the claim's limits that is reached
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
		countRange(s.keys.shardsOf(c.Job, live.Run)),
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
		if t.places != "" && t.last.token != 0 {
			reads = append(reads, keyOnly(s.keys.historyRun(c.Job, t.last.run)))
		}
	}
	if t.asksPending() {
		reads = append(reads, keyOnly(s.keys.pendingRun(c.Job, live.Run)))
	}
	if t.queues() {
		first := kv.GetRange(s.keys.pendingOf(c.Job), s.keys.pendingRun(c.Job, live.Run), 1)
		first.Keys = true
		reads = append(reads, first)
	}
	if t.places != "" {
		reads = append(reads, kv.GetRange(t.places, end(t.places), 0))
	}
	reads = append(reads, readLimits(t)...)
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
		if l.Run != t.live.Run {
			return
		}
		v.live = true
		if mine(l, t.live) {
			v.mine = l
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
	if _, any := next(); any {
		v.live = true
	}
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
		if t.places != "" && t.last.token != 0 {
			_, done := next()
			v.lastDone = done || t.last.over
		}
	}
	if gateOK {
		l, err := decodeLive(t.c.Job, true, gateRecord)
		if err != nil {
			return v, err
		}
		note(&l)
		v.gate = holder{run: l.Run, token: l.Token}
	}
	if t.asksPending() {
		pending, _ := next()
		v.pendingMod = pending.ModRevision
	}
	if t.queues() {
		if found, ok := next(); ok {
			if v.ahead, err = runPart(found.Key[len(s.keys.pendingOf(t.c.Job)):]); err != nil {
				return v, err
			}
		}
	}
	if t.places != "" {
		v.taken = s.takersAt(t.places, t.c.Job.Namespace, res.Results[0].KVs)
		res.Results = res.Results[1:]
	}
	v.reached = s.decodeLimits(t, res.Results)
	return v, nil
}

// asksPending tells whether it matters to the claim if the run waits.
func (t *claimTry) asksPending() bool { return t.c.Pending != 0 || t.queues() || len(t.limits) > 0 }

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
		v.mine = nil
		return state.ClaimDisowned, false
	case v.decided:
		v.mine = nil
		return state.ClaimDecided, false
	case v.mine != nil && !mutant.Off(mutant.ReadBack):
		return state.Claimed, false
	case v.live && c.Token == 0:
		return state.ClaimLive, false
	case (t.queues() || len(t.limits) > 0) && c.Pending == 0 && v.pendingMod != 0:
		return state.ClaimQueued, false
	case v.jobMod != c.JobRevision, c.Pending != 0 && v.pendingMod != c.Pending:
		return state.ClaimStale, false
	case v.closed.Revision != t.closed && c.ClosedRevision != 0:
		return state.ClaimStale, false
	case v.closed.Revision != t.closed:
		return 0, true
	case c.Token != 0:
		return state.ClaimStale, false
	case t.relies() && !v.gate.same(t.last):
		return 0, true // perhaps it is over: the next try looks
	case v.ahead != "", v.holders(t) != nil:
		v.reached = reached{}
		return state.ClaimHeld, false
	case v.reached.limit != 0:
		return state.ClaimHeld, false
	}
	return 0, true
}

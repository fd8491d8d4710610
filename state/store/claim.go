package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// ErrContended: a request was refused again and again because others changed
// what it relies on; nothing was written.
var ErrContended = errors.New("contended")

// maxTries bounds how often a request adapts to what it read in its refusal.
// Each try learns the newest state, so more than a few mean a fight.
const maxTries = 16

// Claim makes a start real, or says why not: see state.Claim. It is idempotent:
// a claim that has been carried out answers Claimed again. Errors are those of
// package kv; after kv.ErrUnknown the claim must be asked again, or its owner's
// registration given up.
func (s *Store) Claim(ctx context.Context, c state.Claim) (state.ClaimResult, error) {
	res, err := s.claim(ctx, &c)
	if err != nil {
		return res, fmt.Errorf("claim %s %s: %w", c.Job, c.Live.Run, err)
	}
	s.metrics.claims[res.Status].Inc()
	return res, nil
}

func (s *Store) claim(ctx context.Context, c *state.Claim) (state.ClaimResult, error) {
	live := c.Live
	live.Job, live.Exclusive, live.State, live.NextTry = c.Job, c.Exclusive, state.StateRunning, time.Time{}
	if c.Token != 0 {
		// A further attempt carries on the record of those before.
		waiting, ok, err := s.getLive(ctx, &live)
		if err != nil {
			return state.ClaimResult{}, err
		}
		switch {
		case ok && mine(&waiting, &live):
			return state.ClaimResult{Status: state.Claimed, Live: waiting}, nil
		case !ok || waiting.Token != c.Token || waiting.Attempt+1 != live.Attempt ||
			state.CheckTransition(waiting.State, state.StateRunning) != nil:
			return state.ClaimResult{Status: state.ClaimStale}, nil
		}
		live.Attempts = waiting.Attempts
	}
	value, err := proto.Marshal(codec.LiveToProto(&live))
	if err != nil {
		return state.ClaimResult{}, err
	}
	var last holder
	if c.Exclusive && c.Token == 0 {
		last = s.holders.get(c.Job)
	}
	for range maxTries {
		closed, err := s.closedNow(ctx)
		if err != nil {
			return state.ClaimResult{}, err
		}
		if _, slot := live.Run.Slot(); slot && c.Token == 0 && c.ClosedRevision == 0 && !live.Due.After(closed.Instant) {
			return state.ClaimResult{Status: state.ClaimDecided}, nil
		}
		if c.ClosedRevision != 0 && closed.Revision != c.ClosedRevision {
			return state.ClaimResult{Status: state.ClaimStale}, nil
		}
		t := claimTry{c: c, live: &live, last: last, closed: closed.Revision}
		res, err := s.batch.do(ctx, s.claimRequest(&t, value))
		if err != nil {
			return state.ClaimResult{}, err
		}
		if res.Succeeded {
			live.Token = res.Revision
			return state.ClaimResult{Status: state.Claimed, Live: live}, nil
		}
		v, err := s.readRefusal(&t, res)
		if err != nil {
			return state.ClaimResult{}, err
		}
		status, again := v.judge(&t)
		if status == state.Claimed {
			return state.ClaimResult{Status: state.Claimed, Live: v.holder}, nil
		}
		if status == state.ClaimHeld && c.ApplyOverlap {
			skipped, err := s.skipOverlap(ctx, &t, &v)
			if err != nil || skipped {
				return state.ClaimResult{Status: state.ClaimSkipped}, err
			}
			again = true
		}
		if !again {
			return state.ClaimResult{Status: status}, nil
		}
		if v.closed.Revision != closed.Revision {
			s.closed.set(v.closed)
		}
		if c.Exclusive && c.Token == 0 {
			last = holder{}
			if v.holderOK {
				last = holder{run: v.holder.Run, token: v.holder.Token}
			}
		}
	}
	return state.ClaimResult{}, ErrContended
}

// claimTry is a claim with what this try assumes of the state that it will
// meet.
type claimTry struct {
	c      *state.Claim
	live   *state.Live
	last   holder // the gate's dead record, which a claim writes over
	closed int64  // revision of the closed part of the timeline
}

// claimRequest is design §2's claim as a transaction.
func (s *Store) claimRequest(t *claimTry, value []byte) *request {
	c, live := t.c, t.live
	liveKey := s.keys.live(live)
	historyKey := s.keys.historyRun(c.Job, live.Run)
	r := &request{guards: s.ownerGuards(live.Owner, t.closed)}

	r.txn.If = append(make([]kv.Compare, 0, 8),
		kv.Compare{Key: s.keys.job(c.Job), Target: kv.TargetModRevision, Int: c.JobRevision},
		absent(historyKey))
	r.reads = append(make([]uint64, 0, 4), s.batch.hash(historyKey))
	r.writes = append(make([]uint64, 0, 4), s.batch.hash(liveKey))
	r.txn.Then = append(make([]kv.Op, 0, 2), kv.Put(liveKey, value, 0))
	r.txn.Else = []kv.Op{
		keyOnly(s.keys.node(live.Owner.Node)),
		kv.Get(s.keys.closed()),
		keyOnly(historyKey),
		kv.Get(liveKey),
		keyOnly(s.keys.job(c.Job)),
	}
	scope := s.batch.hash(s.keys.activeOf(c.Job))
	switch {
	case c.Token != 0:
		r.txn.If = append(r.txn.If, unchanged(liveKey, c.Token))
	case c.Exclusive:
		r.writes = append(r.writes, scope)
		others := kv.Compare{Key: s.keys.activeOf(c.Job), End: liveKey, Target: kv.TargetCreateRevision}
		if t.last.token == 0 {
			r.txn.If = append(r.txn.If, absent(liveKey), others)
		} else {
			lastHistory := s.keys.historyRun(c.Job, t.last.run)
			r.txn.If = append(r.txn.If, unchanged(liveKey, t.last.token), present(lastHistory), others)
			r.reads = append(r.reads, s.batch.hash(lastHistory))
			r.txn.Else = append(r.txn.Else, keyOnly(lastHistory))
		}
		other := kv.GetRange(s.keys.activeOf(c.Job), liveKey, 1)
		other.Keys = true
		r.txn.Else = append(r.txn.Else, other)
	default:
		r.reads = append(r.reads, scope)
		r.txn.If = append(r.txn.If, absent(liveKey))
	}
	if c.Pending != 0 {
		pendingKey := s.keys.pendingRun(c.Job, live.Run)
		r.txn.If = append(r.txn.If, unchanged(pendingKey, c.Pending))
		r.txn.Then = append(r.txn.Then, kv.Delete(pendingKey))
		r.writes = append(r.writes, s.batch.hash(pendingKey))
		r.txn.Else = append(r.txn.Else, keyOnly(pendingKey))
	}
	return r
}

// ownerGuards are the conditions that all claims of one owner share.
func (s *Store) ownerGuards(o state.Owner, closed int64) []kv.Compare {
	return []kv.Compare{
		{Key: s.keys.node(o.Node), Target: kv.TargetCreateRevision, Int: o.Revision},
		{Key: s.keys.closed(), Target: kv.TargetModRevision, Int: closed},
	}
}

// refusal is what a claim read when its compares failed.
type refusal struct {
	nodeCreate int64
	closed     state.Closed
	decided    bool // the run has a verdict
	holder     state.Live
	holderOK   bool // there is a record at the claim's live key
	jobMod     int64
	lastDone   bool  // the run that was assumed to be over is over
	otherMod   int64 // of a live record beside the gate
	otherKey   string
	pendingMod int64
}

// readRefusal decodes the else branch in claimRequest's order.
func (s *Store) readRefusal(t *claimTry, res kv.TxnResult) (refusal, error) {
	var v refusal
	next := func() (kv.KeyValue, bool) {
		kvs := res.Results[0].KVs
		res.Results = res.Results[1:]
		if len(kvs) == 0 {
			return kv.KeyValue{}, false
		}
		return kvs[0], true
	}
	node, _ := next()
	v.nodeCreate = node.CreateRevision
	closed, _ := next()
	var err error
	if v.closed, err = decodeClosed(closed); err != nil {
		return v, err
	}
	_, v.decided = next()
	if held, ok := next(); ok {
		if v.holder, err = decodeLive(t.c.Job, t.c.Exclusive, held); err != nil {
			return v, err
		}
		v.holderOK = true
	}
	job, _ := next()
	v.jobMod = job.ModRevision
	if t.c.Token == 0 && t.c.Exclusive {
		if t.last.token != 0 {
			_, v.lastDone = next()
		}
		other, _ := next()
		v.otherMod, v.otherKey = other.ModRevision, other.Key
	}
	if t.c.Pending != 0 {
		pending, _ := next()
		v.pendingMod = pending.ModRevision
	}
	return v, nil
}

// judge says why a claim was refused, or that it is worth another try with what
// was learned.
func (v *refusal) judge(t *claimTry) (status state.ClaimStatus, again bool) {
	c := t.c
	switch {
	case v.nodeCreate != t.live.Owner.Revision:
		return state.ClaimDisowned, false
	case v.decided:
		return state.ClaimDecided, false
	case v.holderOK && mine(&v.holder, t.live):
		return state.Claimed, false
	case v.holderOK && v.holder.Run == t.live.Run && c.Token == 0:
		return state.ClaimLive, false
	case v.jobMod != c.JobRevision, c.Pending != 0 && v.pendingMod != c.Pending:
		return state.ClaimStale, false
	case v.closed.Revision != t.closed:
		return 0, true
	case c.Token != 0:
		return state.ClaimStale, false
	case !c.Exclusive:
		// Only a record of this very shard can have been in the way.
		return 0, true
	case v.holderOK && (v.holder.Token != t.last.token):
		return 0, true // perhaps it is over: the next try looks
	case v.holderOK && !v.lastDone, v.otherMod != 0:
		return state.ClaimHeld, false
	}
	return 0, true
}

// mine tells whether a stored record is the one that a claim asked for, from an
// earlier try whose answer was lost.
func mine(stored, asked *state.Live) bool {
	return stored.State == state.StateRunning && stored.Run == asked.Run && stored.Shard == asked.Shard &&
		stored.Attempt == asked.Attempt && stored.Owner == asked.Owner
}

// skipOverlap gives a due run the verdict skipped:overlap, if all is still as
// the refusal read it.
func (s *Store) skipOverlap(ctx context.Context, t *claimTry, v *refusal) (bool, error) {
	c, live := t.c, t.live
	historyKey := s.keys.historyRun(c.Job, live.Run)
	detail := ""
	r := &request{guards: s.ownerGuards(live.Owner, t.closed)}
	r.txn.If = []kv.Compare{
		{Key: s.keys.job(c.Job), Target: kv.TargetModRevision, Int: c.JobRevision},
		absent(historyKey),
	}
	if v.holderOK && !v.lastDone {
		gateKey, holderHistory := s.keys.activeGate(c.Job), s.keys.historyRun(c.Job, v.holder.Run)
		r.txn.If = append(r.txn.If, unchanged(gateKey, v.holder.Token), absent(holderHistory))
		r.reads = append(r.reads, s.batch.hash(gateKey), s.batch.hash(holderHistory))
		detail = "run " + string(v.holder.Run) + " was live"
	} else {
		r.txn.If = append(r.txn.If, unchanged(v.otherKey, v.otherMod))
		r.reads = append(r.reads, s.batch.hash(v.otherKey))
		detail = "another run was live"
	}
	value, err := proto.Marshal(codec.RecordToProto(&state.Record{
		Generation: live.Generation,
		State:      state.StateSkipped,
		Reason:     state.ReasonOverlap,
		Detail:     detail,
		Due:        live.Due,
		Recorded:   live.Claimed,
		Shards:     live.Shards,
	}))
	if err != nil {
		return false, err
	}
	r.txn.Then = []kv.Op{kv.Put(historyKey, value, 0)}
	r.writes = append(r.writes, s.batch.hash(historyKey))
	if c.Pending != 0 {
		pendingKey := s.keys.pendingRun(c.Job, live.Run)
		r.txn.If = append(r.txn.If, unchanged(pendingKey, c.Pending))
		r.txn.Then = append(r.txn.Then, kv.Delete(pendingKey))
		r.writes = append(r.writes, s.batch.hash(pendingKey))
	}
	res, err := s.batch.do(ctx, r)
	return res.Succeeded, err
}

// getLive reads the record at l's key.
func (s *Store) getLive(ctx context.Context, l *state.Live) (state.Live, bool, error) {
	res, err := s.kv.Range(ctx, s.keys.live(l), "", kv.RangeOptions{})
	if err != nil || len(res.KVs) == 0 {
		return state.Live{}, false, err
	}
	got, err := decodeLive(l.Job, l.Exclusive, res.KVs[0])
	return got, err == nil, err
}

func decodeLive(job state.JobID, exclusive bool, from kv.KeyValue) (state.Live, error) {
	var p statev1.Live
	if err := proto.Unmarshal(from.Value, &p); err != nil {
		return state.Live{}, fmt.Errorf("live record of %s: %w", job, err)
	}
	l := codec.LiveFromProto(&p)
	l.Job, l.Exclusive, l.Token = job, exclusive, from.ModRevision
	return l, nil
}

func absent(key string) kv.Compare {
	return kv.Compare{Key: key, Target: kv.TargetCreateRevision}
}

func present(key string) kv.Compare {
	return kv.Compare{Key: key, Target: kv.TargetCreateRevision, Relation: kv.Greater}
}

func unchanged(key string, mod int64) kv.Compare {
	return kv.Compare{Key: key, Target: kv.TargetModRevision, Int: mod}
}

func keyOnly(key string) kv.Op {
	op := kv.Get(key)
	op.Keys = true
	return op
}

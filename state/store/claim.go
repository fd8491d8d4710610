package store

import (
	"context"
	"errors"
	"fmt"
	"time"

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
// a claim that has been carried out answers Claimed again, until the run has its
// verdict or the owner's registration is gone. A further attempt is made where
// the record of those before is, whatever c.Exclusive says. Errors are those of
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
	_, slot := live.Run.Slot()
	switch {
	// A revision of 0 would compare as "is not there".
	case live.Owner.Revision == 0:
		return state.ClaimResult{Status: state.ClaimDisowned}, nil
	case c.JobRevision == 0, !slot && c.Token == 0 && c.Pending == 0:
		return state.ClaimResult{Status: state.ClaimStale}, nil
	}
	var last holder
	if c.Token != 0 {
		ok, err := s.carryOn(ctx, c, &live)
		if err != nil || !ok {
			return state.ClaimResult{Status: state.ClaimStale}, err
		}
	} else if c.Exclusive || slot {
		last = s.holders.get(c.Job)
		if !c.Exclusive && last.run == live.Run {
			last = holder{} // never on a guess beside a record of this run
		}
	}
	value := codec.MarshalLive(&live)
	for range maxTries {
		closed, err := s.closedNow(ctx)
		if err != nil {
			return state.ClaimResult{}, err
		}
		changed := s.changed.get()
		// What is known of the closed part may be older than the truth, but
		// never newer.
		switch {
		case c.ClosedRevision != 0 && closed.Revision > c.ClosedRevision:
			return state.ClaimResult{Status: state.ClaimStale}, nil
		case c.ClosedRevision != 0:
			closed.Revision = c.ClosedRevision
		case slot && c.Token == 0 && !live.Due.After(closed.Instant):
			return s.claimedBefore(ctx, &live)
		}
		t := claimTry{
			c: c, live: &live, slot: slot, last: last, closed: closed.Revision, changed: changed,
			seen: s.holders.unchanged(c.Job, c.JobRevision, changed),
		}
		r := s.claimRequest(&t, value)
		res, err := s.batch.do(ctx, r)
		if err != nil {
			return state.ClaimResult{}, err
		}
		if res.Succeeded {
			live.Token = res.Revision
			s.noteClaim(&t, r.shared)
			return state.ClaimResult{Status: state.Claimed, Live: live}, nil
		}
		v, err := s.readRefusal(ctx, &t)
		if err != nil {
			return state.ClaimResult{}, err
		}
		if v.closed.Revision != closed.Revision {
			s.closed.set(v.closed)
		}
		status, again := v.judge(&t)
		if status == state.ClaimHeld && c.ApplyOverlap {
			status, again, err = s.skipOverlap(ctx, &t, &v)
			if err != nil {
				return state.ClaimResult{}, err
			}
		}
		if !again {
			return state.ClaimResult{Status: status, Live: v.mine}, nil
		}
		if t.relies() {
			last = v.gate
			s.holders.set(c.Job, last)
		}
	}
	return state.ClaimResult{}, ErrContended
}

// carryOn puts into live what a further attempt has from those before; ok is
// false where their record is neither c's waiting one nor this attempt's own.
func (s *Store) carryOn(ctx context.Context, c *state.Claim, live *state.Live) (ok bool, err error) {
	res, err := s.look(ctx, kv.Get(s.keys.activeGate(c.Job)), kv.Get(s.keys.activeShard(c.Job, live.Run, live.Shard)))
	if err != nil {
		return false, err
	}
	for i := range res.Results {
		for _, found := range res.Results[i].KVs {
			before, err := decodeLive(c.Job, i == 0, found)
			if err != nil {
				return false, err
			}
			if before.Run != live.Run || before.Shard != live.Shard {
				continue
			}
			// If it is this attempt's own, the transaction will tell.
			if !mine(&before, live) && (before.Token != c.Token || before.Attempt+1 != live.Attempt ||
				state.CheckTransition(before.State, state.StateRunning) != nil) {
				return false, nil //nolint:nilerr // that a transition is refused is the answer
			}
			live.Attempts, live.Exclusive = before.Attempts, before.Exclusive
			return true, nil
		}
	}
	return false, nil
}

// claimedBefore answers the claim of a slot in the closed part of the timeline:
// Claimed if an earlier try, before the closing, was carried out.
func (s *Store) claimedBefore(ctx context.Context, live *state.Live) (state.ClaimResult, error) {
	res, err := s.look(ctx, keyOnly(s.keys.node(live.Owner.Node)), keyOnly(s.keys.historyRun(live.Job, live.Run)),
		kv.Get(s.keys.live(live)))
	if err != nil {
		return state.ClaimResult{}, err
	}
	node, verdict, found := res.Results[0].KVs, res.Results[1].KVs, res.Results[2].KVs
	if len(node) == 0 || node[0].CreateRevision != live.Owner.Revision {
		return state.ClaimResult{Status: state.ClaimDisowned}, nil
	}
	if len(verdict) == 0 && len(found) > 0 {
		stored, err := decodeLive(live.Job, live.Exclusive, found[0])
		if err != nil {
			return state.ClaimResult{}, err
		}
		if mine(&stored, live) {
			return state.ClaimResult{Status: state.Claimed, Live: stored}, nil
		}
	}
	return state.ClaimResult{Status: state.ClaimDecided}, nil
}

// look reads at one revision, by way of group commit.
func (s *Store) look(ctx context.Context, ops ...kv.Op) (kv.TxnResult, error) {
	return s.batch.do(ctx, &request{txn: kv.Txn{Then: ops}})
}

// claimTry is a claim with what this try assumes of the state that it will
// meet.
type claimTry struct {
	c      *state.Claim
	live   *state.Live
	slot   bool
	last   holder // what is at the gate
	closed int64  // revision of the closed part of the timeline
	// changed is the revision of the last change of any job that is known, and
	// seen tells that the job was as planned then.
	changed int64
	seen    bool
}

// relies tells whether the claim compares the gate's record with last. The
// first claim of an exclusive run writes over it, if it is dead. That of a slot
// of another job only makes sure that it is not this slot's own, from before
// the job's policy was changed; runs that were asked for have their pending key
// for that.
func (t *claimTry) relies() bool { return t.c.Token == 0 && (t.live.Exclusive || t.slot) }

// claimRequest is design §2's claim as a transaction.
func (s *Store) claimRequest(t *claimTry, value []byte) *request {
	c, live := t.c, t.live
	k := s.keys.names(live)
	room := &struct {
		request
		guardRoom [3]kv.Compare
		aloneRoom [3]kv.Compare
		ifRoom    [4]kv.Compare
		thenRoom  [2]kv.Op
		readRoom  [4]uint64
		writeRoom [3]uint64
	}{}
	r := &room.request
	r.guards, r.alone = room.guardRoom[:0], room.aloneRoom[:0]
	r.guard(s.registered(live.Owner), unchanged(s.closedKey, t.closed))
	r.guards = append(r.guards, unchanged(s.changedKey, t.changed))
	r.txn.If = append(room.ifRoom[:0], absent(k.history))
	// The job is as planned. If it was when some job was changed last, then it is
	// while none is changed again, which all claims of a batch compare at once.
	if job := unchanged(k.job, c.JobRevision); t.seen {
		r.alone = append(r.alone, job)
	} else {
		r.txn.If = append(r.txn.If, job)
	}
	r.txn.Then = append(room.thenRoom[:0], kv.Put(k.live, value, 0))
	r.reads = append(room.readRoom[:0], s.batch.hash(k.history))
	r.writes = append(room.writeRoom[:0], s.batch.hash(k.live))
	// What writes the gate meets what writes the job's other live records, so
	// that the two never have one revision. (See the compare of the former.)
	scope := s.batch.hash(k.active)
	if live.Exclusive {
		r.writes = append(r.writes, scope)
	} else {
		r.reads = append(r.reads, scope)
	}
	switch {
	case c.Token != 0:
		r.txn.If = append(r.txn.If, unchanged(k.live, c.Token))
	case live.Exclusive:
		// The job's live records are the dead one that is known, and no other.
		r.txn.If = append(r.txn.If, kv.Compare{
			Key: k.active, End: k.activeEnd, Target: kv.TargetModRevision, Int: t.last.token,
		})
		if t.last.token != 0 && !t.last.over {
			lastHistory := s.keys.historyRun(c.Job, t.last.run)
			r.txn.If = append(r.txn.If, present(lastHistory))
			r.reads = append(r.reads, s.batch.hash(lastHistory))
		}
	default:
		r.txn.If = append(r.txn.If, absent(k.live))
		if t.slot {
			r.txn.If = append(r.txn.If, unchanged(k.gate, t.last.token))
			r.reads = append(r.reads, s.batch.hash(k.gate))
		}
	}
	if c.Pending != 0 {
		pendingKey := s.keys.pendingRun(c.Job, live.Run)
		r.txn.If = append(r.txn.If, unchanged(pendingKey, c.Pending))
		r.txn.Then = append(r.txn.Then, kv.Delete(pendingKey))
		r.writes = append(r.writes, s.batch.hash(pendingKey))
	}
	return r
}

// registered holds while the owner's registration stands.
func (s *Store) registered(o state.Owner) kv.Compare {
	return kv.Compare{Key: s.keys.node(o.Node), Target: kv.TargetCreateRevision, Int: o.Revision}
}

// noteClaim remembers what a claim that was carried out has shown. With guards
// it has shown that the job was as planned when t.changed was the last change.
func (s *Store) noteClaim(t *claimTry, guarded bool) {
	h := holder{run: t.live.Run, token: t.live.Token}
	if !t.live.Exclusive {
		h = holder{}
	}
	if guarded || t.seen {
		s.holders.note(t.c.Job, h, sight{job: t.c.JobRevision, changed: t.changed})
	} else if h.token != 0 {
		s.holders.set(t.c.Job, h)
	}
}

// mine tells whether a stored record is the one that a claim asked for, from an
// earlier try whose answer was lost.
func mine(stored, asked *state.Live) bool {
	return stored.State == state.StateRunning && stored.Run == asked.Run && stored.Shard == asked.Shard &&
		stored.Attempt == asked.Attempt && stored.Owner == asked.Owner
}

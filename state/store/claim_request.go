package store

import (
	"slices"
	"sync/atomic"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// claimTry is a claim with what this try assumes of the state that it will
// meet.
type claimTry struct {
	*claiming
	closed int64 // revision of the closed part of the timeline
	// changed is the revision of the last change of any job that is known, and
	// seen tells that the job was as planned then.
	changed int64
	seen    bool
	limits  []limitTry
	inVain  bool // it is known that it would be refused
	// circuit is what the claim does with its run's circuit; nil: it has none.
	circuit *circuitStep

	request *request
}

// relies tells whether the claim compares the gate's record with last. The
// first claim of an exclusive run writes over it, if it is dead; one that takes a
// place only makes sure that it is dead, since it may be of before the job's policy
// was changed. That of a slot of another job only makes sure that it is not this
// slot's own, from such a time; runs that were asked for have their pending key for
// that.
func (t *claimTry) relies() bool {
	return t.c.Token == 0 && (t.live.Exclusive || t.slot || t.places != "")
}

// queues tells whether the claim is refused while runs wait that are due earlier.
func (t *claimTry) queues() bool { return t.c.Token == 0 && t.c.Gate.Queues() }

// claimRequest makes design §2's claim, as a transaction.
func (s *Store) claimRequest(t *claimTry, value []byte) {
	c, live := t.c, t.live
	k := s.keys.names(live)
	room := &struct {
		request
		implied   kv.Compare
		ifRoom    [3]kv.Compare
		thenRoom  [2]kv.Op
		readRoom  [4]uint64
		writeRoom [3]uint64
	}{}
	r := &room.request
	r.common = s.shared.of(s, terms{owner: live.Owner, closed: t.closed, changed: t.changed})
	r.txn.If = room.ifRoom[:0]
	if !mutant.Off(mutant.History) {
		r.txn.If = append(r.txn.If, absent(k.history))
	}
	// The job is as planned. If it was when some job was changed last, then it is
	// while none is changed again, which all claims of a batch compare at once.
	switch job := unchanged(k.job, c.JobRevision); {
	case mutant.Off(mutant.JobRevision):
	case t.seen:
		room.implied = job
		r.implied = &room.implied
	default:
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
	case mutant.Off(mutant.LiveRecord):
	case c.Token != 0:
		r.txn.If = append(r.txn.If, unchanged(k.live, c.Token))
	case live.Exclusive:
		// The job's live records are the dead one that is known, and no other.
		r.txn.If = append(r.txn.If, kv.Compare{
			Key: k.active, End: k.activeEnd, Target: kv.TargetModRevision, Int: t.last.token,
		})
		if t.last.token != 0 && !t.last.over && !mutant.Off(mutant.GateVerdict) {
			lastHistory := s.keys.historyRun(c.Job, t.last.run)
			r.txn.If = append(r.txn.If, present(lastHistory))
			r.reads = append(r.reads, s.batch.hash(lastHistory))
		}
	default:
		// The run has no record, split or not: the job may have been changed since it
		// was claimed.
		r.txn.If = append(r.txn.If, kv.Compare{Key: k.shards, End: k.shardsEnd, Target: kv.TargetCreateRevision})
		if live.IsHeader() {
			r.writes = append(r.writes, s.batch.hash(s.keys.activeShard(c.Job, live.Run, 0))) // where one that is not split has its record
		}
		if t.slot || t.places != "" {
			r.txn.If = append(r.txn.If, unchanged(k.gate, t.last.token))
			r.reads = append(r.reads, s.batch.hash(k.gate))
		}
		if t.places != "" {
			s.takePlace(t, r)
		}
	}
	if t.queues() {
		s.inOrder(t, r)
	}
	if len(t.limits) > 0 {
		s.takeLimits(t, r)
	}
	if c.Pending != 0 {
		pendingKey := s.keys.pendingRun(c.Job, live.Run)
		r.txn.If = append(r.txn.If, unchanged(pendingKey, c.Pending))
		r.txn.Then = append(r.txn.Then, kv.Delete(pendingKey))
		r.writes = append(r.writes, s.batch.hash(pendingKey))
	}
	t.request = r
}

// terms are what claims share.
type terms struct {
	owner           state.Owner
	closed, changed int64
}

// sharedGuards keeps the conditions that the last claims shared: those of the next
// are mostly the same.
type sharedGuards struct{ last atomic.Pointer[guardsOf] }

type guardsOf struct {
	terms
	common
}

// of answers the conditions of claims.
func (g *sharedGuards) of(s *Store, t terms) *common {
	if last := g.last.Load(); last != nil && last.terms == t {
		return &last.common
	}
	var r request
	if !mutant.Off(mutant.Registration) {
		r.guard(s.registered(t.owner))
	}
	if !mutant.Off(mutant.Closed) {
		r.guard(unchanged(s.closedKey, t.closed))
	}
	now := &guardsOf{t, *r.conditions()}
	if !mutant.Off(mutant.JobsChanged) {
		now.guards = append(slices.Clip(now.guards), unchanged(s.changedKey, t.changed))
	}
	g.last.Store(now)
	return &now.common
}

// registered holds while the owner's registration stands.
func (s *Store) registered(o state.Owner) kv.Compare {
	return kv.Compare{Key: s.keys.node(o.Node), Target: kv.TargetCreateRevision, Int: o.Revision}
}

// noteClaim remembers what a claim that was carried out has shown. With guards
// it has shown that the job was as planned when t.changed was the last change.
func (s *Store) noteClaim(t *claimTry) {
	h := holder{run: t.live.Run, token: t.live.Token}
	if !t.live.Exclusive {
		h = holder{}
	}
	if t.request.shared || t.seen {
		s.holders.note(t.c.Job, h, sight{job: t.c.JobRevision, changed: t.changed})
	} else if h.token != 0 {
		s.holders.set(t.c.Job, h)
	}
}

// mine tells whether a stored record is the one that a claim asked for, from an
// earlier try whose answer was lost.
func mine(stored, asked *state.Live) bool {
	if asked.IsHeader() { // which is nobody's, and as good whoever made it
		return stored.IsHeader() && stored.Run == asked.Run
	}
	return stored.State == state.StateRunning && stored.Run == asked.Run && stored.Shard == asked.Shard &&
		stored.Attempt == asked.Attempt && stored.Owner == asked.Owner
}

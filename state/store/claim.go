package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
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
	return s.claimAnswer(&c, res, err)
}

// StartClaim is Claim for callers that do not wait: done gets the answer, once,
// from another goroutine or from within the call. It must not block. c is the
// store's until then.
func (s *Store) StartClaim(ctx context.Context, c *state.Claim, done func(state.ClaimResult, error)) {
	closed, known := s.closed.get()
	if c.Split || c.Token != 0 || len(c.Limits) > 0 || c.Live.Circuit != nil || !known || passedOver(c, closed) {
		// Something has to be read first, or may have to be.
		s.batch.flushes.Go(func() { done(s.Claim(ctx, *c)) })
		return
	}
	a, res, err := s.beginClaim(ctx, c)
	if a == nil {
		done(s.claimAnswer(c, res, err))
		return
	}
	t, res, err := s.tryClaim(ctx, a, closed)
	if t == nil {
		done(s.claimAnswer(c, res, err))
		return
	}
	t.request.stop = ctx.Done()
	t.request.asker = askerFunc(func(rep reply) {
		if rep.err == nil && rep.res.Succeeded {
			done(s.claimAnswer(c, s.claimed(t, rep.res), nil))
			return
		}
		s.batch.flushes.Go(func() {
			if rep.err != nil {
				done(s.claimAnswer(c, state.ClaimResult{}, gaveUp(ctx, rep.err)))
				return
			}
			res, again, err := s.refused(ctx, a, t)
			if again && err == nil {
				res, err = s.goOn(ctx, a)
			}
			done(s.claimAnswer(c, res, err))
		})
	})
	s.batch.submit(t.request)
}

func (s *Store) claimAnswer(c *state.Claim, res state.ClaimResult, err error) (state.ClaimResult, error) {
	if err != nil {
		return res, fmt.Errorf("claim %s %s: %w", c.Job, c.Live.Run, err)
	}
	s.metrics.claims[res.Status].Inc()
	return res, nil
}

func (s *Store) claim(ctx context.Context, c *state.Claim) (state.ClaimResult, error) {
	if c.Split {
		return s.claimShard(ctx, c)
	}
	a, res, err := s.beginClaim(ctx, c)
	if a == nil {
		return res, err
	}
	return s.goOn(ctx, a)
}

// claiming is a claim on its way, over several tries perhaps.
type claiming struct {
	c      *state.Claim
	live   *state.Live // the record that it asks for
	value  []byte      // encoded
	slot   bool
	last   holder // what is assumed to be at the gate
	places string // the prefix of the gate's places, of which it takes one; empty: it takes none
	limits []limitTry
	again  bool // a try was refused
	try    claimTry
}

// recordOf is where the record is made that a claim asks for: in the claim, unless the
// record may get words that the claim has not. Whoever asked compares the two to learn
// them.
func recordOf(c *state.Claim) *state.Live {
	l := &c.Live
	if c.Token == 0 && c.Gate.Limit == 0 && len(c.Limits) == 0 && l.Place == 0 && l.GateKey == "" && len(l.Holds) == 0 {
		return l
	}
	own := *l
	return &own
}

// beginClaim answers the claim to be tried, or nil and the answer.
func (s *Store) beginClaim(ctx context.Context, c *state.Claim) (*claiming, state.ClaimResult, error) {
	live := recordOf(c)
	a := &claiming{c: c, live: live}
	live.Job, live.Exclusive, live.State, live.NextTry = c.Job, c.Exclusive, state.StateRunning, time.Time{}
	live.Place, live.GateKey, live.Holds = 0, "", nil
	_, a.slot = live.Run.Slot()
	switch {
	// A revision of 0 would compare as "is not there".
	case live.Owner.Revision == 0:
		return nil, state.ClaimResult{Status: state.ClaimDisowned}, nil
	case c.JobRevision == 0, !a.slot && c.Token == 0 && c.Pending == 0:
		return nil, state.ClaimResult{Status: state.ClaimStale}, nil
	}
	a.limits = s.limitsOf(c)
	if c.Token != 0 {
		ok, err := s.carryOn(ctx, c, live)
		if err != nil || !ok {
			return nil, state.ClaimResult{Status: state.ClaimStale}, err
		}
	} else if c.Exclusive || a.slot || c.Gate.Limit > 0 {
		a.last = s.holders.get(c.Job)
		if !c.Exclusive && a.last.run == live.Run {
			a.last = holder{} // never on a guess beside a record of this run
		}
		if c.Gate.Limit > 0 && !c.Exclusive {
			a.places, live.GateKey = s.keys.placesOf(c.Job, c.Gate.Key), c.Gate.Key
			return a, state.ClaimResult{}, nil // its value names the place, which each try chooses
		}
	}
	if len(a.limits) == 0 { // else it names places, too
		a.value = marshalClaimed(live)
	}
	return a, state.ClaimResult{}, nil
}

// goOn tries until there is an answer.
func (s *Store) goOn(ctx context.Context, a *claiming) (state.ClaimResult, error) {
	for range maxTries {
		closed, err := s.closedNow(ctx)
		if err != nil {
			return state.ClaimResult{}, err
		}
		t, res, err := s.tryClaim(ctx, a, closed)
		if t == nil {
			return res, err
		}
		if !t.inVain {
			got, err := s.batch.do(ctx, t.request)
			if err != nil {
				return state.ClaimResult{}, err
			}
			if got.Succeeded {
				return s.claimed(t, got), nil
			}
		}
		res, again, err := s.refused(ctx, a, t)
		if err != nil || !again {
			return res, err
		}
	}
	return state.ClaimResult{}, ErrContended
}

// passedOver tells whether a claim's slot lies in the closed part of the timeline,
// and whoever closed it does not catch it up. What is known of the closed part may
// be older than the truth, but never newer.
func passedOver(c *state.Claim, closed state.Closed) bool {
	if c.ClosedRevision != 0 {
		return closed.Revision > c.ClosedRevision
	}
	return !c.Live.Due.After(closed.Instant)
}

// tryClaim makes the next try, or answers nil and what is known without one. It
// reads only where the claim is passed over.
func (s *Store) tryClaim(ctx context.Context, a *claiming, closed state.Closed) (*claimTry, state.ClaimResult, error) {
	c := a.c
	switch over := passedOver(c, closed); {
	case over && c.ClosedRevision != 0:
		res, err := s.claimedBefore(ctx, a.live, state.ClaimStale)
		return nil, res, err
	case over && a.slot && c.Token == 0 && c.Pending == 0:
		res, err := s.claimedBefore(ctx, a.live, state.ClaimDecided)
		return nil, res, err
	case c.ClosedRevision != 0:
		closed.Revision = c.ClosedRevision
	}
	changed := s.changed.get()
	t := &a.try
	*t = claimTry{
		claiming: a, closed: closed.Revision, changed: changed,
		seen: s.holders.unchanged(c.Job, c.JobRevision, changed),
	}
	if len(a.limits) > 0 {
		t.limits = slices.Clone(a.limits)
	}
	if c.Live.Circuit != nil && c.Token == 0 && !mutant.Off(mutant.Circuit) {
		step, res, err := s.passCircuit(ctx, a, t)
		switch {
		case err == nil && t.inVain:
			return t, res, nil
		case step == nil:
			return nil, res, err
		}
		t.circuit = step
	}
	if a.places != "" {
		a.live.Place = s.places.take(a.places, c.Gate.Limit, a.again)
	}
	if len(a.limits) > 0 {
		t.inVain = s.guessLimits(t, a.again)
	}
	if a.places != "" || len(a.limits) > 0 {
		a.value = marshalClaimed(a.live)
	}
	s.claimRequest(t, a.value)
	if t.circuit != nil {
		if err := t.circuit.addTo(s, t.request); err != nil {
			return nil, state.ClaimResult{}, err
		}
	}
	return t, state.ClaimResult{}, nil
}

// claimed is the answer to a try that was carried out.
func (s *Store) claimed(t *claimTry, res kv.TxnResult) state.ClaimResult {
	t.live.Token = res.Revision
	s.noteClaim(t)
	for i := range t.limits {
		if l := &t.limits[i]; l.Max == 0 {
			s.buckets.set(l.key, bucket{l.next.Bucket, res.Revision})
		}
	}
	if t.circuit != nil {
		t.circuit.done(s, t.c.Job, res.Revision)
	}
	return state.ClaimResult{Status: state.Claimed, Live: t.live}
}

// refused says why a try was refused, or that another one is worth it.
func (s *Store) refused(ctx context.Context, a *claiming, t *claimTry) (res state.ClaimResult, again bool, err error) {
	a.again = true
	v, err := s.readRefusal(ctx, t)
	if err != nil {
		return state.ClaimResult{}, false, err
	}
	if t.places != "" {
		s.places.learn(t.places, v.taken)
	}
	if v.closed.Revision != t.closed {
		s.closed.set(v.closed)
	}
	status, again := v.judge(t)
	if status == state.ClaimHeld && a.c.ApplyOverlap {
		if status, again, err = s.applyOverlap(ctx, t, &v); err != nil {
			return state.ClaimResult{}, false, err
		}
	}
	if !again {
		if status == state.ClaimStale && a.c.Token == 0 && !mutant.Off(mutant.ReadBack) {
			// The record of an earlier try may lie where the job's policy was to have
			// it then, which was not looked at.
			res, err := s.claimedBefore(ctx, a.live, status)
			return res, false, err
		}
		res = state.ClaimResult{Status: status, Live: v.mine}
		if status == state.ClaimHeld || status == state.ClaimQueued {
			res.Limit, res.NotBefore = v.reached.limit, v.reached.next
		}
		return res, false, nil
	}
	if t.relies() {
		a.last = v.gate
		s.holders.set(a.c.Job, v.gate)
	}
	return state.ClaimResult{}, true, nil
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
			live.Attempts, live.Exclusive, live.Due = before.Attempts, before.Exclusive, before.Due
			live.Place, live.GateKey, live.Holds = before.Place, before.GateKey, before.Holds
			live.Tries, live.Snoozes, live.Origin = before.Tries, before.Snoozes, before.Origin
			live.Circuit, live.Chain, live.LimitKey = before.Circuit, before.Chain, before.LimitKey
			return true, nil
		}
	}
	return false, nil
}

// claimedBefore answers a claim that cannot be carried out any more: Claimed if an
// earlier try was, wherever its record lies; or what else has become of the run,
// or otherwise.
func (s *Store) claimedBefore(ctx context.Context, live *state.Live, otherwise state.ClaimStatus) (state.ClaimResult, error) {
	res, err := s.look(ctx, keyOnly(s.keys.node(live.Owner.Node)), keyOnly(s.keys.historyRun(live.Job, live.Run)),
		kv.Get(s.keys.activeShard(live.Job, live.Run, live.Shard)), kv.Get(s.keys.activeGate(live.Job)))
	if err != nil {
		return state.ClaimResult{}, err
	}
	node, verdict := res.Results[0].KVs, res.Results[1].KVs
	if len(node) == 0 || node[0].CreateRevision != live.Owner.Revision {
		return state.ClaimResult{Status: state.ClaimDisowned}, nil
	}
	if len(verdict) > 0 {
		return state.ClaimResult{Status: state.ClaimDecided}, nil
	}
	for i, place := range res.Results[2:] {
		for _, found := range place.KVs {
			stored, err := decodeLive(live.Job, i == 1, found)
			if err != nil {
				return state.ClaimResult{}, err
			}
			if mine(&stored, live) {
				return state.ClaimResult{Status: state.Claimed, Live: &stored}, nil
			}
		}
	}
	return state.ClaimResult{Status: otherwise}, nil
}

// look reads at one instant, by way of group commit. The answer's revision is that
// of the batch, some of whose writes the reads may not have seen.
func (s *Store) look(ctx context.Context, ops ...kv.Op) (kv.TxnResult, error) {
	return s.batch.do(ctx, &request{txn: kv.Txn{Then: ops}})
}

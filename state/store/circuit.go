package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// A circuit is one key, compared by every claim of a run that has a breaker and
// written by the verdicts that change it, in their own transactions. So it opens with
// the verdict that opens it, whoever gives that and whether anybody leads or not; no
// claim that comes after it commits; and one claim, that of the probe, makes it
// half-open. A circuit that is closed and has counted nothing has no key. Jobs without a
// breaker pay nothing.

// ErrNoCircuit: the job has no circuit breaker.
var ErrNoCircuit = errors.New("the job has no circuit breaker")

// maxCircuits bounds what circuits remembers.
const maxCircuits = 1 << 14

// circuits remembers circuits as this process saw them last. It is only a guess: what
// relies on it compares the revision.
type circuits struct {
	mu sync.Mutex
	of map[string]state.Circuit // by key
}

func (c *circuits) get(key string) (state.Circuit, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.of[key]
	return known, ok
}

func (c *circuits) set(key string, to state.Circuit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]state.Circuit)
	}
	if _, ok := c.of[key]; !ok && len(c.of) >= maxCircuits {
		for other := range c.of {
			delete(c.of, other)
			break
		}
	}
	c.of[key] = to
}

// circuit is the key of a job's circuit.
func (k keys) circuit(id state.JobID, b *state.CircuitBreaker) string {
	if b.Target != "" {
		return k.prefix + "circuits/" + escape(id.Namespace) + "/target/" + escape(b.Target)
	}
	return k.ownCircuit(id)
}

func (k keys) ownCircuit(id state.JobID) string {
	return k.prefix + "circuits/" + escape(id.Namespace) + "/job/" + escape(id.Name)
}

// readCircuit reads a circuit linearizably. One that cannot be read is taken for one
// that knows nothing: it is written over.
func (s *Store) readCircuit(ctx context.Context, key string) (state.Circuit, error) {
	found, err := s.readOne(ctx, key)
	if err != nil {
		return state.Circuit{}, err
	}
	var c state.Circuit
	if found.Key != "" {
		if c, err = codec.UnmarshalCircuit(found.Value); err != nil {
			s.log.Error("unreadable circuit is taken for closed, and written anew", "key", key, "err", err)
			c = state.Circuit{}
		}
		c.Revision = found.ModRevision
	}
	s.circuits.set(key, c)
	return c, nil
}

// knownCircuit is what is remembered of a circuit, or read.
func (s *Store) knownCircuit(ctx context.Context, key string) (state.Circuit, error) {
	if c, ok := s.circuits.get(key); ok {
		return c, nil
	}
	return s.readCircuit(ctx, key)
}

// circuitStep is what a request does with a circuit.
type circuitStep struct {
	key       string
	was, next state.Circuit
	changed   bool
}

// addTo has a request rely on the circuit as it was, and write it where it changes.
func (c *circuitStep) addTo(s *Store, r *request) error {
	r.txn.If = append(r.txn.If, unchanged(c.key, c.was.Revision))
	switch {
	case !c.changed:
		r.reads = append(r.reads, s.batch.hash(c.key))
		return nil
	case c.next.Empty():
		r.txn.Then = append(r.txn.Then, kv.Delete(c.key))
	default:
		value, err := codec.MarshalCircuit(&c.next)
		if err != nil {
			return err
		}
		r.txn.Then = append(r.txn.Then, kv.Put(c.key, value, 0))
	}
	r.writes = append(r.writes, s.batch.hash(c.key))
	return nil
}

// done remembers the circuit as a request that was carried out at a revision left it.
func (c *circuitStep) done(s *Store, id state.JobID, revision int64) {
	if !c.changed {
		return
	}
	next := c.next
	if next.Revision = revision; next.Empty() {
		next.Revision = 0
	}
	s.circuits.set(c.key, next)
	if next.State == c.was.State {
		return
	}
	s.metrics.circuits[next.State].Inc()
	switch next.State {
	case state.CircuitOpen:
		s.log.Warn("circuit is open: no run starts until then, but one as a probe after it", "job", id, "until", next.Until, "reason", next.Detail)
	case state.CircuitClosed:
		s.log.Info("circuit is closed", "job", id)
	case state.CircuitHalfOpen:
		s.log.Info("circuit is half-open: its probe starts", "job", id, "run", next.Probe)
	}
}

// commitVerdict commits a request that gives the run of l, which is not split into
// shards or is the header of one that is, its verdict; build makes it, and send sends
// it. Where the run has a circuit the request counts the verdict there, and is made anew
// while others change the circuit.
func (s *Store) commitVerdict(
	ctx context.Context, l *state.Live, to state.RunState, at time.Time, build func() *request, send func(*request) (kv.TxnResult, error),
) (kv.TxnResult, error) {
	if l.Circuit == nil || l.Header != 0 {
		return send(build())
	}
	key := s.keys.circuit(l.Job, l.Circuit)
	for range maxTries {
		was, err := s.knownCircuit(ctx, key)
		if err != nil {
			return kv.TxnResult{}, err
		}
		step := circuitStep{key: key, was: was}
		step.next, step.changed = was.After(l.Circuit, l.Job.Name, l.Run, to, at)
		r := build()
		if err := step.addTo(s, r); err != nil {
			return kv.TxnResult{}, err
		}
		res, err := send(r)
		if err != nil {
			return res, err
		}
		if res.Succeeded {
			step.done(s, l.Job, res.Revision)
			return res, nil
		}
		// Perhaps by the circuit. If an earlier try of the request was carried out, the
		// next one, which is refused, tells.
		now, err := s.readCircuit(ctx, key)
		if err != nil || now.Revision == was.Revision {
			return res, err
		}
	}
	return kv.TxnResult{}, ErrContended
}

// finishCounted is Finish for a run that has a circuit.
func (s *Store) finishCounted(ctx context.Context, f *state.Finish) (state.TokenStatus, error) {
	e, status, err := s.beginFinish(f)
	if e == nil {
		return status, err
	}
	var res kv.TxnResult
	send := func(r *request) (kv.TxnResult, error) { return s.batch.do(ctx, r) }
	if !e.to.Verdict() || e.listed {
		res, err = send(e.request)
	} else {
		res, err = s.commitVerdict(ctx, f.Live, e.to, f.Attempt.Ended, func() *request {
			again, _, _ := s.beginFinish(f) // which went well, and does not depend on the circuit
			return again.request
		}, send)
	}
	return s.finished(ctx, e, res, err)
}

// passCircuit has a try of a first claim rely on its run's circuit. Where that keeps the
// run from starting it answers what becomes of the claim, and step is nil; or t is in
// vain, since the timeline was closed further meanwhile.
func (s *Store) passCircuit(ctx context.Context, a *claiming, t *claimTry) (step *circuitStep, res state.ClaimResult, err error) {
	c := a.c
	key := s.keys.circuit(c.Job, c.Live.Circuit)
	at := later(c.Live.Due, c.Live.Claimed)
	fresh := a.again
	for range maxTries {
		read := s.knownCircuit
		if fresh {
			read = s.readCircuit
		}
		was, err := read(ctx, key)
		if err != nil {
			return nil, res, err
		}
		ok, probe := was.Admits(at)
		if ok {
			step = &circuitStep{key: key, was: was}
			if probe {
				step.next, step.changed = was.Probed(c.Job.Name, c.Live.Run), true
			}
			return step, res, nil
		}
		if !fresh {
			fresh = true
			continue
		}
		if was.State == state.CircuitHalfOpen {
			gone, err := s.probeGone(ctx, c.Job.Namespace, &was)
			if err != nil {
				return nil, res, err
			}
			if gone {
				step = &circuitStep{key: key, was: was, next: was.Probed(c.Job.Name, c.Live.Run), changed: true}
				return step, res, nil
			}
		}
		res, again, err := s.circuitHolds(ctx, t, key, &was)
		if err != nil || !again {
			return nil, res, err
		}
	}
	return nil, res, ErrContended
}

// probeGone tells whether the probe of a half-open circuit has no live record any more:
// whoever gave it its verdict knew nothing of circuits.
func (s *Store) probeGone(ctx context.Context, namespace string, c *state.Circuit) (bool, error) {
	live, over, err := s.FindLive(ctx, state.JobID{Namespace: namespace, Name: c.ProbeJob}, c.Probe)
	if errors.Is(err, ErrCorrupt) {
		return true, nil
	}
	return err == nil && (over || len(live) == 0), err
}

// circuitHolds answers a claim whose run the circuit keeps from starting: it is held
// until the run is due, and then skipped; unless more is to be said of it. again tells
// that something has changed meanwhile.
func (s *Store) circuitHolds(ctx context.Context, t *claimTry, key string, c *state.Circuit) (res state.ClaimResult, again bool, err error) {
	v, err := s.readRefusal(ctx, t)
	if err != nil {
		return res, false, err
	}
	status, _ := v.judge(t)
	switch status {
	case state.ClaimDisowned, state.ClaimDecided, state.Claimed, state.ClaimLive, state.ClaimQueued, state.ClaimStale:
		return state.ClaimResult{Status: status, Live: v.mine}, false, nil
	case state.ClaimHeld, state.ClaimSkipped, 0:
	}
	if v.closed.Revision != t.closed {
		t.inVain = true // perhaps the slot was passed over: the next try looks
		return res, false, nil
	}
	if !t.c.ApplyOverlap {
		return state.ClaimResult{Status: state.ClaimHeld}, false, nil
	}
	// It does not matter who is live beside it.
	alone := v
	alone.taken, alone.other, alone.lastDone, alone.reached = nil, holder{}, true, reached{}
	r := s.undecidedRun(t, &alone)
	r.txn.If = append(r.txn.If, unchanged(key, c.Revision))
	r.reads = append(r.reads, s.batch.hash(key))
	detail := "until " + c.Until.UTC().Format(time.RFC3339) + ": " + c.Detail
	if c.State == state.CircuitHalfOpen {
		detail = fmt.Sprintf("run %s of %s is its probe: %s", c.Probe, c.ProbeJob, c.Detail)
	}
	s.putSkipped(t, r, state.ReasonCircuitOpen, detail)
	status, again, err = s.decideOverlap(ctx, t, &alone, r, state.ClaimSkipped)
	return state.ClaimResult{Status: status, Live: alone.mine}, again, err
}

// breakerOf is the breaker of a stored job.
func (s *Store) breakerOf(ctx context.Context, id state.JobID) (*state.CircuitBreaker, error) {
	e, err := s.GetJob(ctx, id)
	switch {
	case err != nil:
		return nil, errors.Unwrap(err)
	case e.Broken != nil:
		return nil, e.Broken
	case e.Job.Spec.CircuitBreaker == nil:
		return nil, ErrNoCircuit
	}
	return e.Job.Spec.CircuitBreaker, nil
}

// GetCircuit answers the circuit of a job, and its target if it has one. Errors:
// ErrNotFound, ErrNoCircuit, ErrCorrupt for a broken job, and those of package kv.
func (s *Store) GetCircuit(ctx context.Context, id state.JobID) (c state.Circuit, target string, err error) {
	b, err := s.breakerOf(ctx, id)
	if err == nil {
		target = b.Target
		c, err = s.readCircuit(ctx, s.keys.circuit(id, b))
	}
	if err != nil {
		return c, "", fmt.Errorf("get the circuit of %s: %w", id, err)
	}
	return c, target, nil
}

// ResetCircuit closes the circuit of a job, has it forget what it has counted, and
// answers it as it was. Errors are those of GetCircuit.
func (s *Store) ResetCircuit(ctx context.Context, id state.JobID) (was state.Circuit, target string, err error) {
	b, err := s.breakerOf(ctx, id)
	if err == nil {
		target = b.Target
		was, err = s.resetCircuit(ctx, id, s.keys.circuit(id, b))
	}
	if err != nil {
		return was, "", fmt.Errorf("reset the circuit of %s: %w", id, err)
	}
	return was, target, nil
}

func (s *Store) resetCircuit(ctx context.Context, id state.JobID, key string) (was state.Circuit, err error) {
	for try := range maxTries {
		now, err := s.readCircuit(ctx, key)
		if try == 0 { // a later one may find what an earlier one, whose answer was lost, has left
			was = now
		}
		if err != nil || now.Revision == 0 {
			return was, err
		}
		step := circuitStep{key: key, was: now, changed: true}
		r := &request{}
		if err := step.addTo(s, r); err != nil {
			return was, err
		}
		res, err := s.batch.do(ctx, r)
		if err != nil {
			return was, err
		}
		if res.Succeeded {
			step.done(s, id, res.Revision)
			return was, nil
		}
	}
	return was, ErrContended
}

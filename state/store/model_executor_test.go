package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// executor claims runs and works on them, as one node.
type modelExecutor struct {
	*model
	rng    *rand.Rand
	s      *Store
	node   string
	owner  state.Owner
	before state.Owner // the registration before
	held   []modelHeld
}

type modelHeld struct {
	live     state.Live
	progress uint64
	saved    int64 // revision of the last checkpoint
}

func (m *model) execute(n int, rng *rand.Rand) {
	e := &modelExecutor{model: m, rng: rng, s: m.stores[n%2], node: fmt.Sprint("node-", n)}
	e.owner = e.register(e.node)
	for range 2 * modelSteps {
		e.rest(rng, 3)
		switch k := rng.IntN(10); {
		case k == 0:
			e.restart()
		case k < 5 || len(e.held) == 0:
			e.claim(m.believe(rng))
		case k < 6:
			e.claimWaiting()
		case k < 8:
			e.save()
		default:
			e.finish()
		}
	}
}

// restart gives all up that was held, and all that may yet come to be.
func (e *modelExecutor) restart() {
	e.before = e.owner
	e.owner, e.held = e.register(e.node), nil
}

// insist calls until it knows; false means that it gave up and restarted.
func (e *modelExecutor) insist(call func(ctx context.Context) error) bool {
	for try := 0; ; try++ {
		ctx, cancel := e.patience(e.rng)
		err := call(ctx)
		cancel()
		switch {
		case err == nil:
			return true
		case errors.Is(err, ErrContended), errors.Is(err, ErrChanged), errors.Is(err, ErrStartedOnce):
			e.t.Errorf("call: %v", err)
			return false
		case !errors.Is(err, kv.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, kv.ErrUnavailable):
			e.t.Errorf("call: %v", err)
		}
		if try > 20 || e.rng.IntN(4) == 0 {
			e.restart()
			return false
		}
	}
}

func (e *modelExecutor) claim(c state.Claim) {
	c.Live.Owner = e.owner
	if e.rng.IntN(20) == 0 && e.before.Revision != 0 { // a confused owner
		c.Live.Owner = e.before
	}
	var res state.ClaimResult
	if !e.insist(func(ctx context.Context) (err error) {
		res, err = e.s.Claim(ctx, c)
		return err
	}) {
		return
	}
	e.note("claim " + res.Status.String())
	if res.Status != state.Claimed {
		return
	}
	e.note(fmt.Sprint("attempt ", res.Live.Attempt))
	if c.ClosedRevision != 0 {
		e.note("caught up")
	}
	l := res.Live
	if l.Owner != c.Live.Owner || l.Run != c.Live.Run || l.Attempt != c.Live.Attempt || l.Token == 0 {
		e.t.Errorf("claimed %+v and got %+v", c.Live, l)
	}
	e.mu.Lock()
	e.said.claimed = append(e.said.claimed, *l)
	e.mu.Unlock()
	h := modelHeld{live: *l}
	for _, have := range e.held {
		if have.live.Token == l.Token && have.live.Job == l.Job {
			return // asked twice
		}
	}
	if e.insist(func(ctx context.Context) error {
		last, err := e.s.GetCheckpoint(ctx, state.CheckpointRef{Job: l.Job, Run: l.Run, Shard: l.Shard})
		if last.Revision != 0 {
			h.progress = binary.BigEndian.Uint64(last.Data)
		}
		h.saved = last.Revision
		return err
	}) {
		e.held = append(e.held, h)
	}
}

// claimWaiting asks for a further attempt at any run that waits.
func (e *modelExecutor) claimWaiting() {
	live, err := e.s.ListLive(context.Background(), func(l *state.Live) bool { return l.State == state.StateWaiting })
	if err != nil || len(live) == 0 {
		return
	}
	w := live[e.rng.IntN(len(live))]
	e.mu.Lock()
	var rev int64
	for r := range e.policies[w.Job] {
		rev = max(rev, r)
	}
	e.mu.Unlock()
	c := again(w, rev, e.owner)
	c.Live.Generation = rev
	c.Exclusive = e.rng.IntN(2) == 0 // the record is where it is
	e.claim(c)
}

func (e *modelExecutor) save() {
	h := &e.held[e.rng.IntN(len(e.held))]
	c := state.Checkpoint{
		Live: h.live, Data: binary.BigEndian.AppendUint64(nil, h.progress+1), Previous: h.saved, Saved: h.live.Due,
		Number: int64(h.progress + 1), Keep: 3,
	}
	var res state.CheckpointResult
	if e.insist(func(ctx context.Context) (err error) {
		res, err = e.s.Checkpoint(ctx, c)
		return err
	}) && res.Status == state.TokenStored {
		h.progress, h.saved = h.progress+1, res.Revision
	}
}

func (e *modelExecutor) finish() {
	i := e.rng.IntN(len(e.held))
	l := e.held[i].live
	f := endOf(l, []state.RunState{state.StateSucceeded, state.StateFailed, state.StateInterrupted}[e.rng.IntN(3)])
	f.Attempt.Ended = e.next()
	if l.Attempt < 4 && e.rng.IntN(3) == 0 {
		f.Retry = l.Due
	}
	if e.rng.IntN(12) == 0 {
		f.Live.Token-- // a confused owner
		f.Attempt.Token--
	}
	var status state.TokenStatus
	if !e.insist(func(ctx context.Context) (err error) {
		status, err = e.s.Finish(ctx, f)
		return err
	}) {
		return
	}
	e.held = append(e.held[:i:i], e.held[i+1:]...)
	e.note(fmt.Sprint("end ", status))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said.ends = append(e.said.ends, saidEnd{l, f.Attempt, !f.Retry.IsZero(), status})
}

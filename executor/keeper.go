package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

// Keeper keeps what work says of itself while it runs. Its methods block, retry passing
// failures until their context ends, and are safe for concurrent use.
type Keeper interface {
	// Checkpoint: see state.Checkpoint. It is idempotent. An error wraps
	// state.ErrCheckpointChanged where the last checkpoint is not c.Previous; after any
	// other the outcome may be unknown.
	Checkpoint(ctx context.Context, c state.Checkpoint) (state.CheckpointResult, error)
	// GetCheckpoint answers the last accepted checkpoint, the zero value where there is
	// none.
	GetCheckpoint(ctx context.Context, of state.CheckpointRef) (state.SavedCheckpoint, error)
	// SaveProgress notes how far an attempt has come.
	SaveProgress(ctx context.Context, p state.ProgressReport) (state.TokenStatus, error)
}

const (
	// progressPause is the least time between two writes of an attempt's progress.
	progressPause = 5 * time.Second
	// maxSaves is how often a checkpoint is tried that others get in the way of.
	maxSaves = 4
)

var (
	// errOver: the attempt is over, and keeps nothing any more.
	errOver = errors.New("the attempt is over")
	// errFenced is the cause that stops work whose token does not stand any more.
	errFenced = fmt.Errorf("%w: the attempt is no longer the run's", runner.ErrFenced)
)

// kept is what a run keeps of what its work says. It is made when the work first says
// something, and closed before the run's end is stored: so it knows whether there is
// anything to clear away.
type kept struct {
	run    *run
	ctx    context.Context //nolint:containedctx // of what is under way; see close
	cancel context.CancelFunc
	calls  sync.WaitGroup
	turn   chan struct{} // of one: checkpoints go one after another

	// last is the last checkpoint as this attempt knows it, valid when known; doubt is
	// set while a write of its own has an unknown outcome. Whoever has the turn owns
	// them.
	last         state.SavedCheckpoint
	known, doubt bool

	mu       sync.Mutex
	closed   bool
	saved    bool // there may be checkpoints of this attempt
	progress state.Progress
	reported bool // once at least
	writing  bool // its progress is being written
	fresh    bool // and there is newer
}

// keeper is what r keeps; nil once it is over.
func (r *run) keeper() *kept {
	r.keeping.Lock()
	defer r.keeping.Unlock()
	if r.kept == nil && !r.unkept {
		k := &kept{run: r, turn: make(chan struct{}, 1)}
		k.ctx, k.cancel = context.WithCancel(r.desk.final)
		r.kept = k
	}
	return r.kept
}

// letGo ends what r keeps: what is under way is given up, and nothing more is begun.
// It tells the end of the run what to clear away.
func (r *run) letGo(f *state.Finish) {
	r.keeping.Lock()
	k := r.kept
	r.unkept = true
	r.keeping.Unlock()
	// An attempt before, or the run that this one repeats, may have left something.
	f.Saved, f.Reported = r.entry.key.attempt > 1 || r.plan.origin != "", r.entry.key.attempt > 1
	if k == nil {
		return
	}
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.cancel()
	k.calls.Wait()
	f.Saved, f.Reported = f.Saved || k.saved, f.Reported || k.reported
	f.Attempt.Done, f.Attempt.Total, f.Attempt.Message = k.progress.Done, k.progress.Total, k.progress.Message
}

// Checkpoint implements runner.Keeper.
func (r *run) Checkpoint(ctx context.Context) (state.SavedCheckpoint, error) {
	var last state.SavedCheckpoint
	err := r.keeper().call(ctx, func(ctx context.Context, k *kept) error {
		if !k.known || k.doubt || r.plan.spec.checkpointOfJob {
			if err := k.read(ctx); err != nil {
				return err
			}
		}
		last = k.last
		return nil
	})
	return last, err
}

// Save implements runner.Keeper.
func (r *run) Save(ctx context.Context, data []byte) error {
	if len(data) > state.MaxCheckpoint {
		return fmt.Errorf("%w: it has %d bytes; at most %d are allowed", runner.ErrInvalid, len(data), state.MaxCheckpoint)
	}
	return r.keeper().call(ctx, func(ctx context.Context, k *kept) error { return k.save(ctx, data) })
}

// Report implements runner.Keeper.
func (r *run) Report(p state.Progress) error {
	switch {
	case p.Done < 0 || p.Total < 0:
		return fmt.Errorf("%w: %d of %d: neither may be negative", runner.ErrInvalid, p.Done, p.Total)
	case len(p.Message) > state.MaxProgressMessage:
		return fmt.Errorf("%w: the message has %d bytes; at most %d are allowed", runner.ErrInvalid, len(p.Message), state.MaxProgressMessage)
	case !utf8.ValidString(p.Message):
		return fmt.Errorf("%w: the message is no UTF-8 text", runner.ErrInvalid)
	}
	return r.keeper().report(p)
}

// call does one thing with the checkpoints of k, when its turn has come. It ends early
// with ctx, and with the run.
func (k *kept) call(ctx context.Context, do func(context.Context, *kept) error) error {
	if k == nil || !k.enter() {
		return errOver
	}
	defer k.calls.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.ctx, func() { cancel(errOver) })()
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return do(ctx, k)
}

func (k *kept) enter() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.calls.Add(1)
	return true
}

// read learns the last checkpoint from the store.
func (k *kept) read(ctx context.Context) error {
	last, err := k.run.desk.journal.GetCheckpoint(ctx, k.ref())
	if err != nil {
		return err
	}
	k.last, k.known, k.doubt = last, true, false
	return nil
}

func (k *kept) ref() state.CheckpointRef {
	l := k.run.live
	return state.CheckpointRef{Job: l.Job, Run: l.Run, Shard: l.Shard, OfJob: k.run.plan.spec.checkpointOfJob}
}

// save makes data the last checkpoint. It replaces only what the attempt knows: its
// own last one, or the one that it has read.
func (k *kept) save(ctx context.Context, data []byte) error {
	r := k.run
	sp := r.plan.spec
	k.mu.Lock()
	k.saved = k.saved || !sp.checkpointOfJob
	k.mu.Unlock()
	if !k.known && r.entry.key.attempt == 1 && !sp.checkpointOfJob {
		k.known = true // a run begins without one
	}
	c := state.Checkpoint{Live: *r.live, Data: data, Keep: sp.checkpointsKept, OfJob: sp.checkpointOfJob, Saved: r.desk.clock().UTC()}
	for range maxSaves {
		if !k.known || k.doubt {
			if err := k.catchUp(ctx); err != nil {
				return err
			}
		}
		c.Previous, c.Number = k.last.Revision, k.last.Number+1
		res, err := r.desk.journal.Checkpoint(ctx, c)
		switch {
		case errors.Is(err, state.ErrCheckpointChanged):
			if err := k.catchUp(ctx); err != nil {
				return err
			}
		case err != nil:
			k.doubt = true
			return err
		case res.Status != state.TokenStored:
			r.fenced()
			return errFenced
		default:
			k.last = state.SavedCheckpoint{
				Number: c.Number, Data: data, Token: r.live.Token, Run: r.live.Run, Saved: c.Saved, Revision: res.Revision,
			}
			r.desk.metrics.checkpoints.Inc()
			return nil
		}
	}
	return fmt.Errorf("%w, again and again", state.ErrCheckpointChanged)
}

// catchUp reads the last checkpoint where the attempt does not know it, and refuses
// one that another run has put in the place of the one that it knew.
func (k *kept) catchUp(ctx context.Context) error {
	was, knew := k.last, k.known
	if err := k.read(ctx); err != nil {
		return err
	}
	l := k.run.live
	own := k.last.Token == l.Token && k.last.Run == l.Run
	if knew && !own && k.last.Revision != was.Revision && k.run.plan.spec.checkpointOfJob {
		now := k.last
		k.last = was // what it has not asked for it does not know
		if now.Revision == 0 {
			return fmt.Errorf("%w: it was deleted meanwhile", state.ErrCheckpointChanged)
		}
		return fmt.Errorf("%w: run %s has saved number %d meanwhile", state.ErrCheckpointChanged, now.Run, now.Number)
	}
	return nil
}

// report notes progress, and has it written soon. It does not block.
func (k *kept) report(p state.Progress) error {
	if k == nil {
		return errOver
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return errOver
	}
	p.Reported = k.run.desk.clock().UTC()
	p.Begun, p.BegunAt = k.progress.Begun, k.progress.BegunAt
	if !k.reported || p.Done < p.Begun {
		p.Begun, p.BegunAt = p.Done, p.Reported
	}
	k.progress, k.reported, k.fresh = p, true, true
	if !k.writing {
		k.writing = true
		k.calls.Go(k.write)
	}
	return nil
}

// write writes progress until there is none that is newer. What cannot be written is
// passed over: more will come.
func (k *kept) write() {
	r := k.run
	for {
		k.mu.Lock()
		if !k.fresh || k.ctx.Err() != nil {
			k.writing = false
			k.mu.Unlock()
			return
		}
		k.fresh = false
		p := k.progress
		k.mu.Unlock()
		once, cancel := context.WithTimeout(k.ctx, progressPause)
		status, err := r.desk.journal.SaveProgress(once, state.ProgressReport{Live: *r.live, Progress: p})
		cancel()
		switch {
		case err != nil:
			r.desk.log.Debug("progress of a run is not stored", "job", r.entry.key.job, "run", r.entry.key.run, "shard", r.entry.key.shard, "err", err)
		case status != state.TokenStored:
			r.fenced()
			return
		}
		sleep(k.ctx, progressPause)
	}
}

// fenced stops the work of a run whose token does not stand any more.
func (r *run) fenced() {
	r.desk.log.Warn("a run was fenced by what its work saves; it is stopped", "job", r.entry.key.job, "run", r.entry.key.run,
		"shard", r.entry.key.shard, "attempt", r.entry.key.attempt, "token", r.live.Token)
	if stop := r.stop.Load(); stop != nil {
		(*stop)(errFenced)
	}
}

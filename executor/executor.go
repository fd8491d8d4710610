package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

const (
	// finishGrace is how long the ends of stopped runs may take to be stored.
	finishGrace = 5 * time.Second
	// progressEvery is how often a drain tells what it waits for.
	progressEvery = 5 * time.Second
)

// Executor runs work on a node. Make one with New.
type Executor struct {
	journal   Journal
	leaders   Leaders
	runner    Runner
	dial      attender
	cfg       Config
	log       *diary
	metrics   *metrics
	registrar *Registrar
	strays    atomic.Int64
}

// New makes an executor, registers its metrics, and starts nothing. The error
// lists all violations of the configuration.
func New(journal Journal, leaders Leaders, run Runner, dial Dial, cfg Config) (*Executor, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure executor: %w", err)
	}
	registrar, err := NewRegistrar(journal, cfg.registrar())
	if err != nil {
		return nil, err
	}
	return &Executor{
		journal:   journal,
		leaders:   leaders,
		runner:    run,
		dial:      grpcAttender(dial),
		cfg:       cfg,
		log:       registrar.log,
		metrics:   newMetrics(cfg.Metrics),
		registrar: registrar,
	}, nil
}

// Current is the registration that is held now. It never blocks.
func (x *Executor) Current() (reg state.Registration, ok bool) { return x.registrar.Current() }

// Run registers the node and runs what the leaders plan, until ctx ends. Then it
// drains: it leaves the leader and begins no more claims; what is claimed starts
// and goes on for DrainGrace; the rest is stopped, and, unless its job is
// at-most-once, handed back to start anew elsewhere; last, the node is
// deregistered. Run blocks through all of that, DrainGrace and KillGrace and a
// few seconds at most, and then answers nil, or ErrStuck if work did not end when
// it was killed. It survives every failure of the store and of leaders, and is
// called once.
func (x *Executor) Run(ctx context.Context) error {
	err := x.registrar.Run(ctx, func(rctx context.Context, reg state.Registration) error {
		return x.serve(ctx, rctx, reg)
	})
	if left := x.cfg.Unclaimed.Close(runner.ErrDrained, x.cfg.KillGrace); left != nil {
		return errors.Join(err, fmt.Errorf("%w: %w", ErrStuck, left))
	}
	return err
}

// serve does the work of one registration until that ends, or until ctx does and
// the work is drained.
func (x *Executor) serve(ctx, rctx context.Context, reg state.Registration) error {
	work, fence := context.WithCancelCause(rctx)
	final, giveUp := context.WithCancel(context.WithoutCancel(rctx))
	defer giveUp()
	open, stop := context.WithCancel(work)
	defer stop()
	defer context.AfterFunc(ctx, stop)()

	x.cfg.Unclaimed.Settle()
	d := newDesk(work, final, x, reg.Owner, fence)
	d.starts.begin = d.carry
	var starting, parts sync.WaitGroup
	starting.Go(func() { d.starts.run(work) })
	defer starting.Wait()
	defer fence(nil)
	parts.Go(func() { d.pace(open, work) })
	parts.Go(func() { x.attend(open, d) })
	parts.Go(func() { d.noteDoubles(open) })
	<-open.Done()

	planned := d.withoutClaim(context.Cause(work))
	dropped, running := d.close()
	if len(planned) > 0 {
		parts.Go(func() { x.goOn(reg, planned) })
	}
	if work.Err() == nil {
		handed := d.handOver()
		x.log.Info("draining", "dropped", dropped, "running", running, "handed_over", handed, "grace", x.cfg.DrainGrace)
		if handed > 0 {
			parts.Go(func() { x.tellHandedBack(work, d) })
		}
		if !x.wait(d, x.cfg.DrainGrace, work.Done()) {
			fence(runner.ErrDrained)
		}
	}
	if cause := context.Cause(work); cause != nil {
		x.log.Warn("work is stopped", "cause", cause, "dropped", dropped, "running", d.runs())
	}
	parts.Wait()
	left := x.stop(d, giveUp)
	switch {
	case left > 0 && ctx.Err() != nil:
		return fmt.Errorf("%w: %d runs are left behind", ErrStuck, left)
	case left > 0:
		x.log.Error("work did not end when it was killed; it counts against the capacity until it does", "runs", left)
	}
	if cause := context.Cause(work); errors.Is(cause, ErrFenced) {
		return cause
	}
	x.log.Info("drained")
	return nil
}

// stop waits for runs that are being stopped, harder with time, and answers how
// many did not end.
func (x *Executor) stop(d *desk, giveUp context.CancelFunc) int {
	if !x.wait(d, x.cfg.KillGrace, nil) {
		x.log.Warn("work is killed", "running", d.runs())
	}
	close(d.kill)
	if !x.wait(d, finishGrace, nil) {
		giveUp()
	}
	if x.wait(d, finishGrace, nil) {
		return 0
	}
	return d.abandon()
}

// wait blocks until no run of d is left, and answers true, or false when limit
// has passed or cut is closed before. It tells how far it is.
func (x *Executor) wait(d *desk, limit time.Duration, cut <-chan struct{}) bool {
	over := time.NewTimer(limit)
	defer over.Stop()
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	for {
		select {
		case <-d.idle:
			return true
		case <-cut:
			return false
		case <-over.C:
			return false
		case <-progress.C:
			x.log.Info("waiting for work to end", "running", d.runs())
		}
	}
}

// runs is how many runs are claimed, or on the way to it, and not over with their
// hooks.
func (d *desk) runs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held + d.hooks
}

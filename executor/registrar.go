package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
)

// Hold is what is done under one registration. Its context ends, with a cause
// that wraps ErrFenced, when the registration is over or no longer trusted; it
// does not end with Registrar.Run's, so that work can be drained while the
// registration is kept. By its return all that it started has ended.
//
// To return an error that wraps ErrFenced says that the registration turned out
// to be over; any other return ends Registrar.Run.
type Hold func(ctx context.Context, reg state.Registration) error

// Registrar keeps one node registered. Its methods are safe for concurrent use.
type Registrar struct {
	registry Registry
	cfg      RegistrarConfig
	log      *diary
	metrics  *registrarMetrics
	current  atomic.Pointer[state.Registration]
	deadline atomic.Pointer[time.Time] // of the trust in current
}

// NewRegistrar registers the metrics and starts nothing. The error lists all
// violations of the configuration.
func NewRegistrar(registry Registry, cfg RegistrarConfig) (*Registrar, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure registrar: %w", err)
	}
	return &Registrar{registry: registry, cfg: cfg, log: newDiary(cfg.Logger), metrics: newRegistrarMetrics(cfg.Metrics)}, nil
}

// Current is the registration that is held now. It never blocks.
func (r *Registrar) Current() (reg state.Registration, ok bool) {
	if p := r.current.Load(); p != nil {
		return *p, true
	}
	return state.Registration{}, false
}

// Trusted tells whether the owner's registration is held and believed in at this
// moment. It looks at the clock, while the end of Hold's context comes by a timer:
// in a process that was stopped and goes on, other timers may fire before that.
// It never blocks.
func (r *Registrar) Trusted(owner state.Owner) bool {
	reg, until := r.current.Load(), r.deadline.Load()
	return reg != nil && reg.Owner == owner && time.Now().Before(*until)
}

// Run registers the node, calls hold, and keeps the registration alive until
// hold returns; after a registration that ended it begins anew, for ever. When
// hold returns otherwise, or ctx ends and hold has returned, it deregisters and
// answers hold's error. A nil hold waits for ctx. The one failure that it does not
// survive is state.ErrNameTaken for longer than two TTLs: another process, which
// started later, has the node's name for good. Run is called once at a time.
func (r *Registrar) Run(ctx context.Context, hold Hold) error {
	defer r.log.open()()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = 100 * time.Millisecond
	pause.MaxInterval = 5 * time.Second
	failures := 0
	var taken time.Time // since when the name is
	for {
		begun := time.Now()
		reg, trusted, err := r.register(ctx)
		if !errors.Is(err, state.ErrNameTaken) {
			taken = time.Time{}
		} else if taken.IsZero() {
			taken = begun
		}
		switch {
		case !taken.IsZero() && time.Since(taken) > 2*r.cfg.TTL:
			return err
		case err == nil:
			failures = 0
			r.log.Info("registered", "node", reg.Owner.Node, "revision", reg.Owner.Revision, "ttl", reg.TTL)
			fenced, err := r.hold(ctx, reg, trusted, hold)
			if fenced == nil || ctx.Err() != nil {
				r.deregister(ctx, reg)
				if errors.Is(err, ErrFenced) {
					return nil
				}
				return err
			}
			r.metrics.fenced.Inc()
			r.log.Warn("registration is over, registering anew", "node", reg.Owner.Node, "err", fenced)
			if time.Since(begun) > r.cfg.TTL {
				pause.Reset()
			}
		case ctx.Err() != nil:
			// Nothing is registered, nothing is to be said.
		default:
			if failures++; failures == 1 {
				r.log.Warn("node cannot be registered, trying on", "err", err)
			}
		}
		if !sleep(ctx, pause.NextBackOff()) {
			return nil
		}
	}
}

// register answers a registration and the instant from which its TTL counts.
func (r *Registrar) register(ctx context.Context) (state.Registration, time.Time, error) {
	begun := time.Now()
	reg, err := r.registry.Register(ctx, r.cfg.Node, r.cfg.TTL)
	if err != nil {
		return reg, begun, err
	}
	r.metrics.registrations.Inc()
	if time.Since(begun) < reg.TTL/3 {
		return reg, begun, nil
	}
	// It took so long that little is left of what can be trusted: count anew.
	begun = time.Now()
	kctx, cancel := context.WithTimeout(ctx, reg.TTL/3)
	defer cancel()
	if reg.TTL, err = r.registry.KeepAlive(kctx, reg); err != nil {
		return reg, begun, err
	}
	return reg, begun, nil
}

// hold runs work under a registration whose TTL counts from trusted, and answers
// why the registration is over, nil if it stands, and the work's own error.
func (r *Registrar) hold(ctx context.Context, reg state.Registration, trusted time.Time, work Hold) (fenced, err error) {
	rctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	kctx, stop := context.WithCancel(rctx)
	defer stop()
	var keeper sync.WaitGroup
	deadline := trusted.Add(trust(reg.TTL))
	r.deadline.Store(&deadline)
	keeper.Go(func() { r.keep(kctx, reg, trusted, end) })
	r.current.Store(&reg)

	if work != nil {
		err = work(rctx, reg)
	} else {
		select {
		case <-ctx.Done():
		case <-rctx.Done():
		}
	}
	r.current.Store(nil)
	stop()
	keeper.Wait()
	if cause := context.Cause(rctx); cause != nil {
		return cause, err
	}
	if errors.Is(err, ErrFenced) {
		return err, err
	}
	return nil, err
}

type renewal struct {
	start time.Time
	ttl   time.Duration
	err   error
}

// keep renews the registration until ctx ends. If the registration is over, or
// the trust in it ends, it calls end with the cause, whatever requests are under
// way: each has a goroutine of its own, and counts from its own start.
func (r *Registrar) keep(ctx context.Context, reg state.Registration, trusted time.Time, end context.CancelCauseFunc) {
	var requests sync.WaitGroup
	defer requests.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	answers := make(chan renewal)
	every := reg.TTL / 3
	deadline := trusted.Add(trust(reg.TTL))
	renew := time.NewTimer(every - time.Since(trusted))
	defer renew.Stop()
	over := time.NewTimer(time.Until(deadline))
	defer over.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			if mutant.Off(mutant.SelfFence) {
				continue
			}
			end(fmt.Errorf("%w for %s", errUnanswered, time.Since(trusted).Round(time.Millisecond)))
			return
		case <-renew.C:
			requests.Go(func() { r.renew(ctx, reg, answers) })
			renew.Reset(every)
		case a := <-answers:
			switch {
			case errors.Is(a.err, state.ErrNotRegistered):
				end(fmt.Errorf("%w: %w", ErrFenced, a.err))
				return
			case a.err != nil:
				r.metrics.keepFailed.Inc()
				if failures++; failures == 1 {
					r.log.Warn("keep-alive failed, trying on until the deadline", "err", a.err,
						"left", time.Until(deadline).Round(time.Millisecond))
				}
				renew.Reset(every / 4)
			default:
				if failures > 0 {
					r.log.Info("keep-alive answered again", "failures", failures)
					failures = 0
				}
				// Trust that has ended does not come back: the work was told.
				if next := a.start.Add(trust(a.ttl)); next.After(deadline) && time.Now().Before(deadline) {
					trusted, deadline, every = a.start, next, a.ttl/3
					r.deadline.Store(&next)
					over.Reset(time.Until(deadline))
				}
			}
		}
	}
}

// trust is for how long a registration is believed in after the start of a
// request that gave it ttl.
func trust(ttl time.Duration) time.Duration { return ttl - ttl/5 }

func (r *Registrar) renew(ctx context.Context, reg state.Registration, answers chan<- renewal) {
	a := renewal{start: time.Now()}
	// An answer that comes later than this proves nothing.
	rctx, cancel := context.WithTimeout(ctx, trust(reg.TTL))
	defer cancel()
	a.ttl, a.err = r.registry.KeepAlive(rctx, reg)
	if a.err == nil {
		r.metrics.keepAlive.Observe(time.Since(a.start).Seconds())
	}
	select {
	case answers <- a:
	case <-ctx.Done():
	}
}

// deregister gives the registration back, so that the leader need not wait for
// its TTL. It is not worth more than half of that.
func (r *Registrar) deregister(ctx context.Context, reg state.Registration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reg.TTL/2)
	defer cancel()
	if err := r.registry.Deregister(ctx, reg); err != nil {
		r.log.Warn("registration is left to expire", "node", reg.Owner.Node, "err", err)
		return
	}
	r.log.Info("deregistered", "node", reg.Owner.Node, "revision", reg.Owner.Revision)
}

// sleep waits for d; false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

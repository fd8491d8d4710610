package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leaderd/leaderd/state"
)

// tenure is one lease with the session and the election on it.
type tenure struct {
	*Elector
	trust    *trust
	lose     func(Reason)
	end      context.CancelFunc // of life
	session  *concurrency.Session
	election *concurrency.Election
}

// tenure goes through one tenure: grant, campaign, lead, resign. The error is why
// no term was led, is errWorkFailed, or wraps ErrFatal.
//
// Three contexts, each of which ends with the one before it:
//
//	life   all of the tenure, its clean-up too
//	held   until the hold on the lease is lost or given up
//	work   until, besides, Run's context ends: campaign and lead
//
// Only work depends on Run's context, so the lease is kept while the work stops,
// and the session can still revoke it afterwards.
func (e *Elector) tenure(ctx context.Context, lead Lead) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	held, cancelHeld := context.WithCancelCause(life)
	defer cancelHeld(nil)
	work, cancelWork := context.WithCancelCause(held)
	defer cancelWork(nil)
	defer context.AfterFunc(ctx, func() { cancelWork(context.Cause(ctx)) })()

	lease, trust, err := e.grant(ctx)
	if err != nil {
		return err
	}
	t := &tenure{Elector: e, trust: trust, end: end, lose: func(r Reason) {
		trust.end()
		cancelHeld(&LostError{Reason: r})
		e.metrics.leader.Set(0)
	}}
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancelHeld(nil)
	watches.Go(func() { trust.watch(held, func() { t.lose(ReasonExpired) }) })

	if err := t.open(life, held, lease); err != nil {
		return err
	}
	defer context.AfterFunc(t.session.Ctx(), func() { t.lose(ReasonLeaseGone) })()

	// Cancelled, Campaign deletes its key under the session's client's context,
	// which nothing else would bound.
	abandon := context.AfterFunc(work, func() { t.bound() })
	term, revision, err := t.campaign(work)
	if err != nil || !abandon() {
		return errors.Join(err, t.close(life, false))
	}
	watches.Go(func() { t.guard(held, term, revision) })
	return t.lead(life, work, term, lead)
}

// grant gets a lease. Its trust counts from the request's start, as all do.
func (e *Elector) grant(ctx context.Context) (clientv3.LeaseID, *trust, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), e.cfg.TTL)
	defer cancel()
	resp, err := e.client.Grant(ctx, int64(e.cfg.TTL/time.Second))
	if err != nil {
		return 0, nil, fmt.Errorf("grant lease: %w", err)
	}
	e.heard(start)
	ttl := min(time.Duration(resp.TTL)*time.Second, e.cfg.TTL)
	return resp.ID, newTrust(start, ttl-e.cfg.TrustMargin), nil
}

// open makes the session on the lease, and the election. The session's client is
// the elector's but for keep-alives, and for a context that ends with life.
func (t *tenure) open(life, held context.Context, lease clientv3.LeaseID) error {
	k := &keeper{
		lease:   lease,
		ttl:     t.cfg.TTL,
		margin:  t.cfg.TrustMargin,
		trust:   t.trust,
		renew:   t.renew,
		lose:    t.lose,
		alive:   t.heard,
		log:     t.log,
		metrics: t.metrics,
	}
	client := clientv3.NewCtxClient(life, clientv3.WithZapLogger(t.client.GetLogger()))
	client.KV = t.client.KV
	client.Watcher = t.client.Watcher
	client.Lease = keptLease{Lease: t.client.Lease, keep: func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(held, cancel)()
		k.run(ctx)
	}}
	session, err := concurrency.NewSession(client, concurrency.WithContext(life),
		concurrency.WithLease(lease), concurrency.WithTTL(int(t.cfg.TTL/time.Second)))
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	t.session = session
	t.election = concurrency.NewElection(session, root(t.cfg.Prefix))
	return nil
}

// campaign blocks until the election is won and the victory verified. The
// revision is that of the verifying read.
func (t *tenure) campaign(work context.Context) (Term, int64, error) {
	t.metrics.campaigns.Inc()
	if err := t.election.Campaign(clientv3.WithRequireLeader(work), t.value); err != nil {
		if work.Err() != nil {
			err = context.Cause(work)
		}
		return Term{}, 0, fmt.Errorf("campaign: %w", err)
	}
	term := Term{Term: state.Term{Number: t.election.Rev(), Key: t.election.Key()}, trust: t.trust}
	revision, err := t.verify(work, term)
	if err != nil {
		return Term{}, 0, err
	}
	return term, revision, nil
}

// verify reads the first key of the election and answers the revision of the
// read, or errNotElected where the key is not this tenure's.
func (t *tenure) verify(ctx context.Context, term Term) (int64, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), t.cfg.TTL/2)
	defer cancel()
	resp, err := t.client.Get(ctx, root(t.cfg.Prefix)+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return 0, fmt.Errorf("verify term %d: %w", term.Number, err)
	}
	if len(resp.Kvs) == 0 || string(resp.Kvs[0].Key) != term.Key || !t.owns(resp.Kvs[0], term) {
		return 0, fmt.Errorf("verify term %d: %w", term.Number, errNotElected)
	}
	return resp.Header.Revision, nil
}

// lead runs the work of a term, waits for it, and resigns.
func (t *tenure) lead(life, work context.Context, term Term, lead Lead) error {
	log := t.log.With("term", term.Number)
	log.Info("leading", "key", term.Key)
	t.term.Store(&term)
	t.metrics.term.Set(float64(term.Number))
	t.metrics.leader.Set(1)
	returned := make(chan error, 1)
	go protect(work, term, lead, returned)

	stopped, err := t.await(work, returned)
	t.metrics.leader.Set(0)
	t.term.Store(nil)
	// From here on the term is over; whatever is found out later is no loss.
	cause := context.Cause(work)
	t.trust.end()

	var lost *LostError
	var panicked *PanicError
	reason := Reason("")
	switch {
	case !stopped:
		reason = ReasonStuck
		log.Error("leader work did not stop, the process must exit", "limit", t.cfg.StopLimit, "cause", cause)
	case errors.As(err, &panicked):
		reason = ReasonPanicked
		log.Error("leader work panicked, resigned", "panic", panicked.Value, "stack", string(panicked.Stack))
	case errors.As(cause, &lost):
		reason = lost.Reason
		log.Warn("term lost, leader work was cancelled and has stopped, campaigning again", "reason", lost.Reason, "err", err)
	case cause != nil:
		log.Info("leader work stopped, resigned", "cause", cause, "err", err)
	case err != nil:
		reason = ReasonFailed
		log.Warn("leader work failed, resigned", "err", err)
	default:
		log.Info("stepped down")
	}
	if reason != "" {
		t.metrics.lost.WithLabelValues(string(reason)).Inc()
	}
	if !stopped {
		t.session.Orphan()
		return fmt.Errorf("lead term %d: %w", term.Number, ErrStuck)
	}
	if cerr := t.close(life, lost == nil); cerr != nil {
		log.Warn("resignation unconfirmed, the lease is left to expire", "err", cerr)
	}
	if errors.Is(err, ErrFatal) {
		return fmt.Errorf("lead term %d: %w", term.Number, err)
	}
	if reason == ReasonFailed || reason == ReasonPanicked {
		return errWorkFailed
	}
	return nil
}

// await waits for the work to return; once it is told to, for StopLimit at most.
func (t *tenure) await(work context.Context, returned <-chan error) (stopped bool, err error) {
	select {
	case err = <-returned:
		return true, err
	case <-work.Done():
	}
	limit := time.NewTimer(t.cfg.StopLimit)
	defer limit.Stop()
	select {
	case err = <-returned:
		return true, err
	case <-limit.C:
		return false, nil
	}
}

// protect calls lead and sends what it returned, or its panic or Goexit as an
// error.
func protect(ctx context.Context, term Term, lead Lead, returned chan<- error) {
	var err error
	done := false
	defer func() {
		if !done {
			v := recover()
			if v == nil {
				v = errors.New("runtime.Goexit")
			}
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		returned <- err
	}()
	err = lead(ctx, term)
	done = true
}

// close ends the session, and with resign deletes the key first. It takes half a
// TTL at most.
func (t *tenure) close(life context.Context, resign bool) error {
	defer t.bound().Stop()
	var errs []error
	if resign {
		if err := t.election.Resign(life); err != nil {
			errs = append(errs, fmt.Errorf("delete key: %w", err))
		}
	}
	// A lease that is gone already is as good as revoked.
	if err := t.session.Close(); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		errs = append(errs, fmt.Errorf("revoke lease: %w", err))
	}
	return errors.Join(errs...)
}

// bound ends the tenure's life in half a TTL, and all requests with it.
func (t *tenure) bound() *time.Timer { return time.AfterFunc(t.cfg.TTL/2, t.end) }

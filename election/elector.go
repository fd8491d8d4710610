package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lead is the work of a leader in one term. It blocks until ctx ends, and by its
// return all of its goroutines have ended. The cause of ctx is a *LostError where
// the term was lost, else the cause of Run's context. To return nil earlier is to
// step down.
type Lead func(ctx context.Context, term Term) error

// Elector campaigns for one node. Its methods are safe for concurrent use.
type Elector struct {
	client  *clientv3.Client
	cfg     Config
	value   string
	renew   renewer
	log     hclog.Logger
	metrics *metrics

	running atomic.Bool
	term    atomic.Pointer[Term]
	alive   atomic.Pointer[time.Time]
}

// New returns an elector that uses the client, which stays the caller's and must
// outlive Run. It registers the metrics and starts nothing. The error lists all
// violations of the configuration.
//
// The client should try to reconnect at least once a second or two
// (grpc.WithConnectParams): by grpc's default its pauses grow to two minutes, and
// a node that comes back from a partition takes no part for so long.
func New(client *clientv3.Client, cfg Config) (*Elector, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure elector: %w", err)
	}
	v, err := encodeValue(cfg.Name, cfg.Address)
	if err != nil {
		return nil, err
	}
	return &Elector{
		client:  client,
		cfg:     cfg,
		value:   v,
		renew:   newRenewer(client),
		log:     cfg.Logger,
		metrics: newMetrics(cfg.Metrics),
	}, nil
}

// Run campaigns until ctx ends, and calls lead in each term that it wins: one
// call at a time, on a goroutine of its own. It blocks until the last term's work
// has returned, its key is deleted and its lease revoked, or half a TTL was spent
// on the latter two, and then returns nil.
//
// Failures of etcd, lost terms, and errors and panics of lead are logged and
// followed by another campaign. After an error or panic of lead it pauses for
// RetryMax, and twice as long after each further one in a row, up to 15 times
// RetryMax, so that a node which cannot lead leaves the others to it. Run returns an error only where it wraps ErrFatal:
// lead's own, ErrStuck, and ErrRunning for a second Run at the same time. After
// ErrStuck the process must exit.
func (e *Elector) Run(ctx context.Context, lead Lead) error {
	if !e.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer e.running.Store(false)

	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = e.cfg.RetryMin
	pause.MaxInterval = e.cfg.RetryMax
	pause.RandomizationFactor = 0.5
	pause.Multiplier = 2
	failures, failedTerms := 0, 0
	for ctx.Err() == nil {
		began := time.Now()
		err := e.tenure(ctx, lead)
		if errors.Is(err, ErrFatal) {
			return err
		}
		failed := errors.Is(err, errWorkFailed)
		switch {
		case failed:
			failedTerms++
			err = nil // it was told when the term ended
		case err == nil:
			failedTerms = 0
		}
		if ctx.Err() != nil {
			break
		}
		// A tenure that ends as soon as it began is no progress, be it with a term.
		if time.Since(began) > e.cfg.RetryMax {
			pause.Reset()
		}
		wait := pause.NextBackOff()
		if failed {
			wait = jittered(min(e.cfg.RetryMax<<min(failedTerms-1, 4), maxFailedPauses*e.cfg.RetryMax))
			e.log.Warn("leaving the lead to others for a while", "pause", wait.Round(time.Millisecond), "terms_failed", failedTerms)
		}
		if err == nil {
			failures = 0
		} else if failures++; failures == 1 {
			e.log.Warn("campaign ended without a term, campaigning again until one is won", "err", err)
		} else {
			e.log.Debug("campaign ended without a term again", "err", err, "failures", failures, "pause", wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// maxFailedPauses bounds the pause after terms whose work failed, in RetryMax.
const maxFailedPauses = 15

// jittered is from half to one and a half of d, at random.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// Term returns the term that this node is in; false where it leads not, or no
// longer.
func (e *Elector) Term() (Term, bool) {
	t := e.term.Load()
	if t == nil || !t.Trusted(time.Now()) {
		return Term{}, false
	}
	return *t, true
}

// Heartbeat is the start of the last request by which etcd granted or prolonged
// this node's lease, with a monotonic reading; the zero time before the first. A
// running elector, leading or not, is healthy while this is younger than its TTL
// or so.
func (e *Elector) Heartbeat() time.Time {
	if at := e.alive.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

func (e *Elector) heard(at time.Time) { e.alive.Store(&at) }

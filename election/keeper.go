package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// renewer sends one keep-alive request and answers the TTL that etcd gave, in
// seconds; 0 for a lease it does not know.
type renewer func(ctx context.Context, lease clientv3.LeaseID) (ttl int64, err error)

// newRenewer makes single requests of the client's connection, since
// clientv3.KeepAliveOnce repeats itself without a pause while etcd is away. A
// client within the server's process has no connection to lose, nor to use.
func newRenewer(c *clientv3.Client) renewer {
	if c.ActiveConnection() == nil {
		return func(ctx context.Context, lease clientv3.LeaseID) (int64, error) {
			resp, err := c.KeepAliveOnce(ctx, lease)
			if err != nil {
				return 0, err
			}
			return resp.TTL, nil
		}
	}
	remote := clientv3.RetryLeaseClient(c)
	return func(ctx context.Context, lease clientv3.LeaseID) (int64, error) {
		ctx, cancel := context.WithCancel(ctx) // ends the stream
		defer cancel()
		stream, err := remote.LeaseKeepAlive(ctx)
		if err != nil {
			return 0, err
		}
		// A failed Send has its error in Recv.
		_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease)})
		resp, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		return resp.GetTTL(), nil
	}
}

// keeper keeps one lease alive and its trust up to date.
//
// A request goes out every fifth of the TTL, whether or not the last ones were
// answered, so that one slow member of etcd holds up none; each answer counts
// from the start of its own request.
type keeper struct {
	lease   clientv3.LeaseID
	ttl     time.Duration
	margin  time.Duration
	trust   *trust
	renew   renewer
	lose    func(Reason)
	alive   func(at time.Time) // told the start of each answered request
	log     hclog.Logger
	metrics *metrics
}

type renewal struct {
	start time.Time
	ttl   int64
	err   error
}

// run blocks until ctx ends or the lease turns out to be gone.
func (k *keeper) run(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	every := k.ttl / 5
	answers := make(chan renewal)
	timer := time.NewTimer(every)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			requests.Go(func() { k.request(ctx, answers) })
			timer.Reset(every)
		case r := <-answers:
			switch {
			case r.err == nil && r.ttl > 0:
				if failures > 0 {
					k.log.Info("keep-alive answered again", "failures", failures)
					failures = 0
				}
				k.answered(r)
			case r.err == nil || errors.Is(r.err, rpctypes.ErrLeaseNotFound):
				k.lose(ReasonLeaseGone)
				return
			default:
				k.metrics.keepFailed.Inc()
				if failures++; failures == 1 && time.Now().Before(k.trust.deadline()) {
					k.log.Warn("keep-alive failed, trying on until the deadline", "err", r.err,
						"left", time.Until(k.trust.deadline()).Round(time.Millisecond))
				}
				timer.Reset(every / 4)
			}
		}
	}
}

func (k *keeper) request(ctx context.Context, answers chan<- renewal) {
	r := renewal{start: time.Now()}
	// An answer that comes later than this proves nothing.
	rctx, cancel := context.WithDeadline(ctx, r.start.Add(k.ttl-k.margin))
	defer cancel()
	r.ttl, r.err = k.renew(rctx, k.lease)
	if r.err == nil {
		k.metrics.keepAlive.Observe(time.Since(r.start).Seconds())
	} else {
		r.err = fmt.Errorf("keep lease %x alive: %w", int64(k.lease), rpctypes.Error(r.err))
	}
	select {
	case answers <- r:
	case <-ctx.Done():
	}
}

func (k *keeper) answered(r renewal) {
	ttl := min(time.Duration(r.ttl)*time.Second, k.ttl)
	k.trust.extend(time.Now(), r.start.Add(ttl-k.margin))
	k.alive(r.start)
}

// keptLease is the Lease that a session sees: keep-alives are the keeper's, so
// that the session is done exactly when the keeper is.
type keptLease struct {
	clientv3.Lease
	keep func(ctx context.Context)
}

// KeepAlive starts the keeper. The session, its only caller, waits for the
// channel's end.
func (l keptLease) KeepAlive(ctx context.Context, _ clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	ended := make(chan *clientv3.LeaseKeepAliveResponse)
	go func() {
		defer close(ended)
		l.keep(ctx)
	}()
	return ended, nil
}

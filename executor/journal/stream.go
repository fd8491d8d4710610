package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
)

const minRetryWait = 10 * time.Millisecond

// pauses are the waits between tries.
func (c *Client) pauses() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = minRetryWait, c.cfg.MaxRetryWait, 2
	return b
}

// errExpelled ends a stream that is fit otherwise: a message could not be
// encoded, and those entries of it that can be are sent again.
var errExpelled = errors.New("an entry cannot be encoded")

// record keeps a Record stream to one node after the other until ctx ends, and
// leaves nothing open.
func (c *Client) record(ctx context.Context) {
	pause := c.pauses()
	failures := 0
	for ctx.Err() == nil {
		n, err := c.nodes.pick()
		var answered bool
		if err == nil {
			answered, err = c.stream(ctx, n)
		}
		again := c.reclaim()
		if ctx.Err() != nil {
			return
		}
		if answered {
			failures = 0
			pause.Reset()
		}
		if errors.Is(err, errExpelled) {
			continue
		}
		c.nodes.failed(n)
		c.metrics.failovers.Inc()
		c.metrics.resent.Add(float64(again))
		if failures++; failures == 1 {
			c.log.Warn("journal stream ended, going on with the next control node", "node", n.address, "unanswered", again, "err", err)
		} else {
			c.log.Debug("journal stream ended again", "node", n.address, "unanswered", again, "failures", failures, "err", err)
		}
		sleep(ctx, pause.NextBackOff())
	}
}

// stream is one Record stream, from its opening to its end. answered tells
// whether it was of any use.
func (c *Client) stream(ctx context.Context, n node) (answered bool, err error) {
	c.mu.Lock()
	c.heard = time.Now()
	c.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.watch(ctx) })
	group.Go(func() error {
		s, err := n.client.Record(ctx)
		if err != nil {
			return err
		}
		group.Go(func() error {
			for {
				m, err := s.Recv()
				if errors.Is(err, io.EOF) {
					return fmt.Errorf("the node ended the stream: %w", err)
				}
				if err != nil {
					return err
				}
				answered = true
				if err := c.settle(m.GetAnswers()); err != nil {
					return err
				}
			}
		})
		return c.send(ctx, s)
	})
	err = group.Wait()
	return answered, err
}

// send sends what callers bring. It returns nil where the stream is broken, since
// the receiver knows why.
func (c *Client) send(ctx context.Context, s workerv1.JournalService_RecordClient) error {
	m := &workerv1.RecordRequest{}
	for {
		// Callers that are about to bring theirs go first: a greater message is
		// cheaper than a further one.
		runtime.Gosched()
		m.Entries = c.take(m.GetEntries()[:0])
		n := len(m.GetEntries())
		if n == 0 {
			select {
			case <-c.wake:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		c.metrics.batch.Observe(float64(n))
		err := s.Send(m)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case c.expel(m.GetEntries()) > 0:
			return errExpelled
		default:
			return err
		}
	}
}

// watch ends a stream that is overdue with answers, also while it is opened or
// does not take what is sent.
func (c *Client) watch(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Patience / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := c.owes(time.Now()); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

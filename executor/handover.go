package executor

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/leaderd/leaderd/executor/runner"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
)

// noteTimeout is how long a leader may take to hear that runs were handed back.
const noteTimeout = 2 * time.Second

// handOver stops the runs of a draining desk that are to go on elsewhere, and answers
// how many it found. Those whose claims are under way follow when these are answered.
func (d *desk) handOver() int {
	d.mu.Lock()
	var away []*run
	n := 0
	for _, e := range d.entries {
		switch {
		case e.place != claimed && e.place != claiming || !e.plan.spec.handover:
		case e.place == claimed && e.run != nil:
			e.run.away.Store(true)
			away = append(away, e.run)
			n++
		case e.place == claiming:
			n++
		}
	}
	d.mu.Unlock()
	for _, r := range away {
		// Whoever begins work looks at away after it has set stop.
		if stop := r.stop.Load(); stop != nil {
			(*stop)(runner.ErrDrained)
		}
	}
	return n
}

// tellHandedBack tells the leader of runs that were handed back, until ctx ends or all
// runs are over: then the end of the registration tells. The drain has ended the
// session, and other runs may be awaited for long.
func (x *Executor) tellHandedBack(ctx context.Context, d *desk) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = minReconnect
	pause.MaxInterval = maxReconnect
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.idle:
			return
		case <-d.handed:
		}
		leader, _ := x.leaders.Follow()
		err := errors.New("nobody leads")
		if leader.Address != "" {
			err = x.tell(ctx, d, leader.Address)
		}
		if err == nil {
			pause.Reset()
			continue
		}
		x.log.Debug("leader does not hear that runs were handed back, trying on", "leader", leader.Name, "err", err)
		sleep(ctx, pause.NextBackOff())
		signal(d.handed)
	}
}

// tell says once that runs were handed back. A leader that does not know of that takes
// it for an executor that came and went, and finds the runs later.
func (x *Executor) tell(ctx context.Context, d *desk, address string) error {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	s, hangUp, err := x.dial(ctx, address)
	if err != nil {
		return err
	}
	defer hangUp()
	err = s.Send(&workerv1.AttendRequest{Kind: &workerv1.AttendRequest_Hello{Hello: &workerv1.Hello{
		Node: d.owner.Node, OwnerRevision: d.owner.Revision, HandedBack: true,
	}}})
	if err != nil {
		return lastError(s, err)
	}
	if _, err = s.Recv(); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

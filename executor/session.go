package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
)

const (
	// quietFailures is how many tries to attend a leader fail before it is told.
	quietFailures = 5
	// welcomeTimeout is how long a leader may take to connect and welcome.
	welcomeTimeout = 5 * time.Second
	minReconnect   = 20 * time.Millisecond
	maxReconnect   = 2 * time.Second
	// maxHeld is about the size of Hello. What is not listed is told when it is
	// planned again.
	maxHeld = 2 << 20

	minPulse     = 10 * time.Millisecond
	maxPulse     = time.Minute
	defaultPulse = time.Second
)

// Causes that end a session.
var (
	errSilent    = errors.New("the leader is silent")
	errNewLeader = errors.New("there is a new leader")
)

// stream is an Attend stream. One goroutine sends and one receives. Both calls
// end when the context of the stream does.
type stream interface {
	Send(*workerv1.AttendRequest) error
	Recv() (*workerv1.AttendResponse, error)
}

// attender opens an Attend stream to a leader; hangUp, never nil, frees what it
// took, after both sides of the stream have come to rest.
type attender func(ctx context.Context, address string) (s stream, hangUp func(), err error)

// grpcAttender attends over gRPC, with a connection of its own each time.
func grpcAttender(dial Dial) attender {
	return func(ctx context.Context, address string) (stream, func(), error) {
		nothing := func() {}
		conn, err := dial(address)
		if err != nil {
			return nil, nothing, err
		}
		hangUp := func() {
			// Its only error is that it was closed before.
			_ = conn.Close()
		}
		s, err := workerv1.NewLeaderServiceClient(conn).Attend(ctx)
		if err != nil {
			hangUp()
			return nil, nothing, err
		}
		return s, hangUp, nil
	}
}

// session is one Attend stream with one leadership. Any failure ends it whole.
type session struct {
	term    int64
	specs   map[uint32]*spec // the receiver's alone
	reports *reports
}

// attend has a session with the leader, again and again, until ctx ends.
func (x *Executor) attend(ctx context.Context, d *desk) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = minReconnect
	pause.MaxInterval = maxReconnect
	pause.Multiplier = 2
	highest := int64(0)
	failures := 0
	for ctx.Err() == nil {
		leader, changed := x.leaders.Follow()
		if leader.Address == "" {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		highest = max(highest, leader.Term)
		term, err := x.converse(ctx, d, leader, highest)
		switch {
		case ctx.Err() != nil:
			return
		case term > 0:
			highest, failures = term, 0
			x.log.Info("session with the leader ended", "leader", leader.Name, "term", term, "err", err)
			pause.Reset()
		default:
			// A leader that was just elected is known before it takes sessions.
			if failures++; failures == quietFailures {
				x.log.Warn("leader cannot be attended, trying on", "leader", leader.Name, "address", leader.Address, "err", err)
			}
		}
		timer := time.NewTimer(pause.NextBackOff())
		select {
		case <-timer.C:
		case <-changed:
			pause.Reset()
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// converse has one session, and answers why it ended and the leadership, 0 where
// it was not welcomed.
func (x *Executor) converse(ctx context.Context, d *desk, leader Leader, highest int64) (int64, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c := &conversation{
		executor: x,
		desk:     d,
		session:  &session{specs: make(map[uint32]*spec), reports: newReports(end)},
		highest:  highest,
		begun:    time.Now(),
		opened:   make(chan struct{}),
	}
	c.patience.Store(int64(welcomeTimeout))
	var receiver sync.WaitGroup
	receiver.Go(func() { end(c.receive(ctx, end, leader)) })
	c.watch(ctx, end)
	receiver.Wait()
	d.detach(c.session)
	return c.welcomed.Load(), context.Cause(ctx)
}

// conversation is a session's goroutines' common state.
type conversation struct {
	executor *Executor
	desk     *desk
	session  *session
	highest  int64
	begun    time.Time
	opened   chan struct{} // closed at the welcome
	heard    atomic.Int64  // time of the last message since begun
	patience atomic.Int64  // silence that ends the session
	welcomed atomic.Int64  // the leadership, once it welcomed us
}

// watch ends the session when the leader is silent or another one leads. It
// blocks until the session ends.
func (c *conversation) watch(ctx context.Context, end context.CancelCauseFunc) {
	timer := time.NewTimer(welcomeTimeout)
	defer timer.Stop()
	opened := c.opened
	for {
		leader, changed := c.executor.leaders.Follow()
		term := max(c.welcomed.Load(), c.highest)
		if leader.Address != "" && leader.Term > term {
			end(errNewLeader)
			return
		}
		silence := time.Since(c.begun) - time.Duration(c.heard.Load())
		left := time.Duration(c.patience.Load()) - silence
		if left <= 0 {
			end(fmt.Errorf("%w for %s", errSilent, silence.Round(time.Millisecond)))
			return
		}
		timer.Reset(left)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-opened:
			opened = nil // less patience from now on
		case <-timer.C:
		}
	}
}

// receive opens the stream, starts the sender once it is welcomed, and takes what
// the leader says until something fails. The sender has ended when it returns.
func (c *conversation) receive(ctx context.Context, end context.CancelCauseFunc, leader Leader) error {
	s, hangUp, err := c.executor.dial(ctx, leader.Address)
	if err != nil {
		return fmt.Errorf("attend %s: %w", leader.Address, err)
	}
	defer hangUp()
	d := c.desk
	if err := s.Send(&workerv1.AttendRequest{Kind: &workerv1.AttendRequest_Hello{Hello: &workerv1.Hello{
		Node: d.owner.Node, OwnerRevision: d.owner.Revision, Held: d.heldRuns(maxHeld), Unrecorded: d.unrecorded(),
	}}}); err != nil {
		return fmt.Errorf("send hello: %w", lastError(s, err))
	}
	first, err := s.Recv()
	if err != nil {
		return fmt.Errorf("receive welcome: %w", err)
	}
	w := first.GetWelcome()
	if w == nil {
		return fmt.Errorf("first message is a %T, not a welcome", first.GetKind())
	}
	if w.GetTerm() < c.highest {
		return fmt.Errorf("term %d is over: %d was seen", w.GetTerm(), c.highest)
	}
	pulse := w.GetPulseInterval().AsDuration()
	if pulse <= 0 {
		pulse = defaultPulse
	}
	pulse = min(max(pulse, minPulse), maxPulse)
	c.session.term = w.GetTerm()
	c.listened()
	c.patience.Store(int64(3 * pulse))
	c.welcomed.Store(w.GetTerm())
	close(c.opened)
	d.attach(c.session)
	c.executor.metrics.sessions.Inc()
	c.executor.log.Info("session with the leader began", "leader", leader.Name, "term", w.GetTerm(),
		"horizon", w.GetHorizon().AsDuration(), "pulse", pulse)

	var sender sync.WaitGroup
	defer sender.Wait()
	sender.Go(func() { end(c.send(ctx, s, pulse)) })
	for {
		m, err := s.Recv()
		if err != nil {
			err = fmt.Errorf("receive: %w", err)
			end(err)
			return err
		}
		c.listened()
		if err := c.handle(ctx, m); err != nil {
			end(err)
			return err
		}
	}
}

func (c *conversation) listened() { c.heard.Store(int64(time.Since(c.begun))) }

// handle does what one message asks for.
func (c *conversation) handle(ctx context.Context, m *workerv1.AttendResponse) error {
	switch k := m.GetKind().(type) {
	case *workerv1.AttendResponse_Plan:
		for _, p := range k.Plan.GetSpecs() {
			c.session.specs[p.GetRef()] = newSpec(c.session, p)
		}
		if err := c.desk.take(c.session, k.Plan.GetEntries()); err != nil {
			return err
		}
		err := c.session.reports.settle(ctx)
		c.listened() // we did not listen meanwhile
		return err
	case *workerv1.AttendResponse_Revoke:
		c.desk.revoke(c.session, k.Revoke.GetRefs())
	case *workerv1.AttendResponse_Cancel:
		c.desk.cancel(k.Cancel)
	case *workerv1.AttendResponse_Pulse, *workerv1.AttendResponse_Welcome:
	default:
		// A newer leader's message that this version does not know.
	}
	return nil
}

// send sends pulses and reports until something fails.
func (c *conversation) send(ctx context.Context, s stream, every time.Duration) error {
	pulse := time.NewTicker(every)
	defer pulse.Stop()
	reports := c.session.reports
	flush := time.NewTimer(reportDelay)
	flush.Stop()
	if err := c.pulse(s); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pulse.C:
			if err := c.pulse(s); err != nil {
				return err
			}
			continue
		case <-reports.some:
			flush.Reset(reportDelay)
			continue
		case <-flush.C:
		case <-reports.many:
		}
		flush.Stop()
		batch := reports.take()
		size := reportBatch
		if len(batch) > 8*reportBatch {
			size = reportLarge
		}
		for len(batch) > 0 {
			n := min(len(batch), size)
			if err := s.Send(message(batch[:n])); err != nil {
				return fmt.Errorf("send report: %w", err)
			}
			batch = batch[n:]
		}
	}
}

func (c *conversation) pulse(s stream) error {
	if err := s.Send(&workerv1.AttendRequest{Kind: &workerv1.AttendRequest_Pulse{Pulse: &workerv1.Pulse{
		Clock: c.executor.cfg.Wall().UnixMicro(),
		Free:  int32(c.desk.free()), // bounded by state.MaxCapacity
	}}}); err != nil {
		return fmt.Errorf("send pulse: %w", err)
	}
	return nil
}

// lastError is the reason of a failed Send, which Recv has.
func lastError(s stream, err error) error {
	if _, reason := s.Recv(); reason != nil {
		return reason
	}
	return err
}

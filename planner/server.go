package planner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// maxTurn is after how long a loop that has not turned counts as stuck.
const maxTurn = 15 * time.Second

// Why sessions end.
var (
	errReplaced     = errors.New("the executor attends anew")
	errUnregistered = errors.New("the executor's registration is not known")
	errDeregistered = errors.New("the executor's registration ended")
	errSlow         = errors.New("the executor does not read its plan")
	errSilent       = errors.New("the executor was silent for three pulses")
	errLeft         = errors.New("the executor left")

	// errClosedGone: the end of the closed part is not stored any more.
	errClosedGone = errors.New("it is gone, or an older one was put back")
	// errChangedMeanwhile: slots that had no record have one now; look again.
	errChangedMeanwhile = errors.New("records were written meanwhile")
)

// Server is the gRPC face of a Planner: workerv1.LeaderService.
type Server struct {
	workerv1.UnimplementedLeaderServiceServer
	planner *Planner
}

// NewServer makes a Server.
func NewServer(p *Planner) *Server { return &Server{planner: p} }

// Attend is one executor's session with the running term; without one it is
// refused with NOT_LEADER.
func (srv *Server) Attend(stream workerv1.LeaderService_AttendServer) error {
	t := srv.planner.current()
	if t == nil {
		return notLeader()
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil || hello.GetNode() == "" || hello.GetOwnerRevision() == 0 {
		return status.Error(codes.InvalidArgument, "attend: the first message must be a hello with node and owner_revision")
	}
	if hello.GetHandedBack() {
		if !t.post(stream.Context(), t.lookForWaiting) {
			return notLeader()
		}
		return nil
	}
	s := newSession(state.Owner{Node: hello.GetNode(), Revision: hello.GetOwnerRevision()})
	ctx := stream.Context()
	if !t.post(ctx, func() { t.admit(s, hello, 0) }) {
		return notLeader()
	}
	err = serve(ctx, t, s, stream)
	t.post(context.WithoutCancel(ctx), func() { t.end(s, errLeft) })
	switch {
	case errors.Is(err, errTermOver):
		return notLeader()
	case errors.Is(err, errUnregistered), errors.Is(err, errDeregistered):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, errReplaced), errors.Is(err, errSlow), errors.Is(err, errSilent):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, errLeft):
		return nil
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}

// admit takes a session in once its registration is known: the news of it may
// be on the way.
func (t *term) admit(s *session, hello *workerv1.Hello, tries int) {
	node, ok := t.nodes[s.owner.Node]
	if (!t.gotNodes || !ok || node.Revision < s.owner.Revision) && tries < 20 {
		t.later(100*time.Millisecond, func() { t.admit(s, hello, tries+1) })
		return
	}
	select {
	case <-s.gone: // it left meanwhile
	default:
		t.attend(s, hello)
	}
}

// serve moves messages between the stream and the loop until one side ends.
func serve(ctx context.Context, t *term, s *session, stream workerv1.LeaderService_AttendServer) error {
	group, ctx := errgroup.WithContext(ctx)
	heard := make(chan struct{}, 1)
	group.Go(func() error { // receives; ends with the stream, when this handler returns
		var skew skew
		var told time.Duration
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return errLeft
			}
			if err != nil {
				return err
			}
			select {
			case heard <- struct{}{}:
			default:
			}
			if p := m.GetPulse(); p.GetClock() != 0 {
				now := t.now()
				ahead, ok := skew.add(micros(p.GetClock()), now)
				if ok && (ahead.Abs() > skewLimit || (ahead-told).Abs() > skewStep) {
					told = ahead
					t.post(ctx, func() { t.setSkew(s, ahead, now) })
				}
			}
			if r := m.GetReport(); r != nil && !t.post(ctx, func() { t.report(s, r, t.now()) }) {
				return errTermOver
			}
		}
	})
	return send(ctx, t, s, stream, heard)
}

// send sends until the session is gone, the executor falls silent or leaves.
// It does not wait for the receiver, which ends when the handler has returned.
// It sends the pulses too: a loop that has much to do loses no executor, whose
// return would give it more to do yet. One that has not turned for long is stuck,
// and does.
func send(ctx context.Context, t *term, s *session, stream workerv1.LeaderService_AttendServer, heard <-chan struct{}) error {
	silence := 3 * t.cfg.PulseInterval
	timer := time.NewTimer(silence)
	defer timer.Stop()
	pulse := time.NewTicker(t.cfg.PulseInterval)
	defer pulse.Stop()
	welcomed := false
	for {
		select {
		case m := <-s.out:
			if err := stream.Send(m); err != nil {
				return fmt.Errorf("send: %w", err)
			}
			welcomed = true
			pulse.Reset(t.cfg.PulseInterval)
		case <-pulse.C:
			if !welcomed || time.Since(time.UnixMicro(t.beat.Load())) > maxTurn {
				continue
			}
			if err := stream.Send(&workerv1.AttendResponse{
				Kind: &workerv1.AttendResponse_Pulse{Pulse: &workerv1.Pulse{Clock: t.now().UnixMicro()}},
			}); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		case <-heard:
			timer.Reset(silence)
		case <-timer.C:
			return errSilent
		case <-s.gone:
			return s.err
		case <-t.over:
			return errTermOver
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func notLeader() error {
	st := status.New(codes.FailedPrecondition, "this node does not lead")
	if with, err := st.WithDetails(&errdetails.ErrorInfo{
		Domain: "leaderd",
		Reason: leaderdv1.ErrorReason_ERROR_REASON_NOT_LEADER.String(),
	}); err == nil {
		st = with
	}
	return st.Err()
}

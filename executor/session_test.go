package executor

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

func TestEntriesOutliveTheirSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.lead(5)
		due := soon(10 * time.Second)
		l.plan(noop(1, nil), slot(1, due))
		l.hangUp()
		until(due)
		require.Len(t, r.work.started(), 1)
		require.True(t, r.work.started()[0].at.Equal(due))
		require.Empty(t, l.steps())
		r.close()
	})
}

func TestASilentLeaderIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(r *rig, _ *Config) { r.mute = true })
		r.leaders.lead(5)
		begun := time.Now()
		l := r.next(5)
		next := <-r.links
		require.True(t, next.begun.Sub(begun) >= 3*testPulse && next.begun.Sub(begun) < 4*testPulse, next.begun.Sub(begun))
		require.Equal(t, "n1", l.hello.GetNode())
		// One that never welcomes is given up as well.
		third := <-r.links
		require.Less(t, third.begun.Sub(next.begun), welcomeTimeout+2*time.Second)
		r.close()
	})
}

func TestTheNewestLeaderIsAttended(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.lead(5)
		r.leaders.lead(8)
		synctest.Wait()
		require.Len(t, r.links, 1, "a new leader is attended at once")
		l := <-r.links
		l.welcome(7) // an older leadership at the new one's address
		synctest.Wait()
		l.plan(noop(1, nil), slot(1, soon(3*time.Second)))
		pass(5 * time.Second)
		require.Empty(t, r.journal.claimed())
		l = r.fresh(9) // newer than is known
		r.leaders.lead(9)
		due := soon(3 * time.Second)
		l.plan(noop(1, nil), slot(1, due))
		until(due)
		require.Equal(t, steps(stepClaimed, stepFinished), l.steps())
		require.Empty(t, r.links)
		r.close()
	})
}

func TestAPlanOfAnUnknownSpecEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		l := r.lead(5)
		l.plan(nil, slot(77, soon(3*time.Second)))
		l = r.next(5)
		l.plan(noop(1, nil), &workerv1.Entry{Ref: 1, Due: -1})
		r.next(5)
		require.Empty(t, r.journal.claimed())
		r.close()
	})
}

func TestReportsAreBoundedAndNeverBlock(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	reports := newReports(end)
	for range reportHard {
		reports.add(progress{})
	}
	require.NoError(t, ctx.Err())
	reports.add(progress{})
	require.ErrorIs(t, context.Cause(ctx), errReports)
	require.ErrorIs(t, reports.settle(ctx), errReports)
	require.Len(t, reports.take(), reportHard)
	require.NoError(t, reports.settle(ctx))
	require.Empty(t, reports.take())
}

// leaderServer is a leader over gRPC that plans one run and tells its reports.
type leaderServer struct {
	workerv1.UnimplementedLeaderServiceServer
	plan    *workerv1.Plan
	reports chan workerv1.Progress_Step
}

func (s *leaderServer) Attend(stream grpc.BidiStreamingServer[workerv1.AttendRequest, workerv1.AttendResponse]) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	if hello.GetHello().GetNode() != "n1" {
		return errors.New("unknown node")
	}
	for _, m := range []*workerv1.AttendResponse{
		{Kind: &workerv1.AttendResponse_Welcome{Welcome: &workerv1.Welcome{Term: 5, PulseInterval: durationpb.New(time.Minute)}}},
		{Kind: &workerv1.AttendResponse_Plan{Plan: s.plan}},
	} {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, p := range m.GetReport().GetProgress() {
			s.reports <- p.GetStep()
		}
	}
}

func TestAttendOverGRPC(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	leader := &leaderServer{
		plan:    &workerv1.Plan{Specs: noop(1, nil), Entries: []*workerv1.Entry{slot(1, time.Now().Add(100*time.Millisecond))}},
		reports: make(chan workerv1.Progress_Step, 8),
	}
	workerv1.RegisterLeaderServiceServer(server, leader)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	l := &leaders{leader: Leader{Address: listener.Addr().String(), Term: 5}, changed: make(chan struct{})}
	x, err := New(Waiting(&journal{}), l, &work{}, func(address string) (*grpc.ClientConn, error) {
		return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}, Config{Node: state.Node{Name: "n1"}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	require.Equal(t, stepClaimed, <-leader.reports)
	require.Equal(t, stepFinished, <-leader.reports)
	stop()
	require.NoError(t, <-ended)
	server.Stop()
	require.NoError(t, <-served)
}

package rpc_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderd/leaderd/internal/rpc"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a journal of which only what a test sets is there.
type service struct {
	workerv1.UnimplementedJournalServiceServer
	keepAlive func(context.Context, *workerv1.KeepAliveRequest) (*workerv1.KeepAliveResponse, error)
	follow    func(workerv1.JournalService_FollowLeaderServer) error
}

func (s *service) KeepAlive(ctx context.Context, req *workerv1.KeepAliveRequest) (*workerv1.KeepAliveResponse, error) {
	return s.keepAlive(ctx, req)
}

func (s *service) FollowLeader(_ *workerv1.FollowLeaderRequest, stream workerv1.JournalService_FollowLeaderServer) error {
	return s.follow(stream)
}

// conns counts a client's connections.
type conns struct {
	stats.Handler
	begun, ended atomic.Int32
}

func (c *conns) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *conns) HandleRPC(context.Context, stats.RPCStats)                         {}
func (c *conns) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *conns) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.begun.Add(1)
	case *stats.ConnEnd:
		c.ended.Add(1)
	}
}

// start serves s on a listener in memory until stop, and dials it.
func start(t *testing.T, s *service, cfg rpc.ServerConfig, options ...grpc.DialOption) (workerv1.JournalServiceClient, *conns, func()) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	srv, err := rpc.NewServer(cfg)
	require.NoError(t, err)
	workerv1.RegisterJournalServiceServer(srv, s)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = rpc.Serve(ctx, srv, listener, time.Second, nil) })
	seen := &conns{}
	conn, err := rpc.Dial("node", rpc.ClientConfig{Options: append([]grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithStatsHandler(seen),
	}, options...)})
	require.NoError(t, err)
	return workerv1.NewJournalServiceClient(conn), seen, func() {
		require.NoError(t, conn.Close())
		cancel()
		serving.Wait()
	}
}

// until sends one answer and then says nothing for as long as the stream lasts.
func until(stream workerv1.JournalService_FollowLeaderServer) error {
	if err := stream.Send(&workerv1.FollowLeaderResponse{Name: "a"}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// An idle stream, and an idle connection without one, live through minutes of
// keep-alive pings: the server takes none of them for too many.
func TestIdleConnectionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, seen, stop := start(t, &service{follow: until}, rpc.ServerConfig{})
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.FollowLeader(ctx, &workerv1.FollowLeaderRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 1, seen.begun.Load())
		require.Zero(t, seen.ended.Load(), "the connection of an idle stream was closed")

		cancel()
		_, err = stream.Recv()
		require.Equal(t, codes.Canceled, status.Code(err))
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 1, seen.begun.Load())
		require.Zero(t, seen.ended.Load(), "an idle connection was closed")
	})
}

// The same test finds a server whose policy does not fit the clients'.
func TestIdleConnectionsAreLostToAStricterPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, seen, stop := start(t, &service{follow: until}, rpc.ServerConfig{Options: []grpc.ServerOption{
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Minute}),
		}})
		defer stop()
		stream, err := client.FollowLeader(t.Context(), &workerv1.FollowLeaderRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		require.NotZero(t, seen.ended.Load())
	})
}

// mute is a connection whose peer vanishes without a word.
type mute struct {
	net.Conn
	gone *atomic.Bool
}

func (m mute) Write(p []byte) (int, error) {
	if m.gone.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// A peer that vanished without a word is noticed on both sides.
func TestDeadPeersAreNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		ended := make(chan struct{})
		listener := bufconn.Listen(1 << 20)
		srv, err := rpc.NewServer(rpc.ServerConfig{})
		require.NoError(t, err)
		workerv1.RegisterJournalServiceServer(srv, &service{follow: func(stream workerv1.JournalService_FollowLeaderServer) error {
			defer close(ended)
			return until(stream)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { _ = rpc.Serve(ctx, srv, listener, time.Second, nil) })
		conn, err := rpc.Dial("node", rpc.ClientConfig{Options: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				c, err := listener.DialContext(ctx)
				return mute{c, &gone}, err
			}),
		}})
		require.NoError(t, err)
		stream, err := workerv1.NewJournalServiceClient(conn).FollowLeader(t.Context(), &workerv1.FollowLeaderRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		gone.Store(true)
		_, err = stream.Recv()
		require.Equal(t, codes.Unavailable, status.Code(err))
		<-ended
		require.NoError(t, conn.Close())
		cancel()
		serving.Wait()
	})
}

func TestPanicsEndOneRPC(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := &service{
		keepAlive: func(_ context.Context, req *workerv1.KeepAliveRequest) (*workerv1.KeepAliveResponse, error) {
			if req.GetLease() == 13 {
				panic("unlucky")
			}
			return &workerv1.KeepAliveResponse{}, nil
		},
		follow: func(workerv1.JournalService_FollowLeaderServer) error { panic("follow me") },
	}
	client, seen, stop := start(t, s, rpc.ServerConfig{Registerer: reg})
	defer stop()
	_, err := client.KeepAlive(t.Context(), &workerv1.KeepAliveRequest{Lease: 13})
	require.Equal(t, codes.Internal, status.Code(err))
	require.NotContains(t, err.Error(), "unlucky", "what went wrong inside is not the caller's")
	stream, err := client.FollowLeader(t.Context(), &workerv1.FollowLeaderRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Internal, status.Code(err))
	_, err = client.KeepAlive(t.Context(), &workerv1.KeepAliveRequest{Lease: 1})
	require.NoError(t, err)
	require.Zero(t, seen.ended.Load())

	families, err := reg.Gather()
	require.NoError(t, err)
	for i, f := range slices.Backward(families) {
		if !strings.HasPrefix(f.GetName(), "leaderd_") {
			families = slices.Delete(families, i, i+1)
		}
	}
	require.Len(t, families, 1)
	require.Equal(t, "leaderd_rpc_panics_total", families[0].GetName())
	require.InDelta(t, 2, families[0].GetMetric()[0].GetCounter().GetValue(), 0)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestMessagesAreBounded(t *testing.T) {
	s := &service{keepAlive: func(_ context.Context, req *workerv1.KeepAliveRequest) (*workerv1.KeepAliveResponse, error) {
		return &workerv1.KeepAliveResponse{}, nil
	}}
	client, _, stop := start(t, s, rpc.ServerConfig{})
	defer stop()
	_, err := client.KeepAlive(t.Context(), &workerv1.KeepAliveRequest{Name: strings.Repeat("x", rpc.MaxMessageBytes-100)})
	require.NoError(t, err)
	_, err = client.KeepAlive(t.Context(), &workerv1.KeepAliveRequest{Name: strings.Repeat("x", rpc.MaxMessageBytes)})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

// Streams that drain do not end are cut off when the grace is over.
func TestServeEndsWithinItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, deaf := range []bool{false, true} {
			drained := make(chan struct{})
			s := &service{follow: func(stream workerv1.JournalService_FollowLeaderServer) error {
				if err := stream.Send(&workerv1.FollowLeaderResponse{}); err != nil {
					return err
				}
				if !deaf {
					<-drained
					return status.Error(codes.Unavailable, "leaving")
				}
				<-stream.Context().Done()
				return nil
			}}
			listener := bufconn.Listen(1 << 20)
			srv, err := rpc.NewServer(rpc.ServerConfig{})
			require.NoError(t, err)
			workerv1.RegisterJournalServiceServer(srv, s)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- rpc.Serve(ctx, srv, listener, 10*time.Second, func() { close(drained) }) }()
			conn, err := rpc.Dial("node", rpc.ClientConfig{Options: []grpc.DialOption{
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
			}})
			require.NoError(t, err)
			stream, err := workerv1.NewJournalServiceClient(conn).FollowLeader(t.Context(), &workerv1.FollowLeaderRequest{})
			require.NoError(t, err)
			_, err = stream.Recv()
			require.NoError(t, err)
			begun := time.Now()
			cancel()
			require.NoError(t, <-served)
			_, err = stream.Recv()
			require.Equal(t, codes.Unavailable, status.Code(err))
			if deaf {
				require.Equal(t, 10*time.Second, time.Since(begun), "virtual time")
			} else {
				require.Zero(t, time.Since(begun), "virtual time")
			}
			require.NoError(t, conn.Close())
			synctest.Wait()
		}
	})
}

func TestServeTellsOfABrokenListener(t *testing.T) {
	listener := bufconn.Listen(1)
	require.NoError(t, listener.Close())
	srv, err := rpc.NewServer(rpc.ServerConfig{})
	require.NoError(t, err)
	require.Error(t, rpc.Serve(t.Context(), srv, listener, time.Second, nil))
}

func TestDialRefusesNonsense(t *testing.T) {
	_, err := rpc.Dial("node:1", rpc.ClientConfig{Options: []grpc.DialOption{grpc.WithDefaultServiceConfig("{")}})
	require.ErrorContains(t, err, "dial node:1")
}

// A pod that is replaced keeps its name and has another address, so that the name is
// looked up for each connection: by whoever dials, who is given the name.
func TestDialLooksTheNameUpEachTime(t *testing.T) {
	dialled := make(chan string)
	conn, err := rpc.Dial("localhost:7400", rpc.ClientConfig{Options: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			select {
			case dialled <- address:
			case <-ctx.Done():
			}
			return nil, net.ErrClosed
		}),
	}})
	require.NoError(t, err)
	conn.Connect()
	for range 3 {
		require.Equal(t, "localhost:7400", <-dialled)
		conn.ResetConnectBackoff()
		conn.Connect()
	}
	require.NoError(t, conn.Close())
}

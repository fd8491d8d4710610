package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// ServerConfig shapes a server.
type ServerConfig struct {
	// Credentials protect the listener. Default: none, in plain text.
	Credentials credentials.TransportCredentials
	// Logger gets panics and failed RPCs. Default: none.
	Logger hclog.Logger
	// Registerer gets the metrics of every RPC, grpc_server_…, and
	// leaderd_rpc_panics_total. Default: none.
	Registerer prometheus.Registerer
	// Options are added last, and so may override ours. Default: none.
	Options []grpc.ServerOption
}

// NewServer makes a server without services. Interceptors see a panic as an RPC
// that failed with INTERNAL.
func NewServer(cfg ServerConfig) (*grpc.Server, error) {
	log := cfg.Logger
	if log == nil {
		log = hclog.NewNullLogger()
	}
	panics := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "leaderd_rpc_panics_total",
		Help: "Handlers of RPCs that panicked.",
	})
	metrics := grpcprom.NewServerMetrics(
		grpcprom.WithServerHandlingTimeHistogram(grpcprom.WithHistogramBuckets(prometheus.ExponentialBuckets(0.0005, 4, 9))))
	if cfg.Registerer != nil {
		for _, c := range []prometheus.Collector{panics, metrics} {
			if err := cfg.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("register metrics of the rpc server: %w", err)
			}
		}
	}
	rescue := recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
		method, _ := grpc.Method(ctx)
		panics.Inc()
		log.Error("panic in a handler; its rpc ends, all else goes on", "method", method, "panic", p, "stack", string(debug.Stack()))
		return status.Error(codes.Internal, "internal error")
	})
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.KeepaliveParams(serverKeepAlive),
		grpc.KeepaliveEnforcementPolicy(enforcement),
		grpc.ConnectionTimeout(HandshakeTimeout),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(
			metrics.UnaryServerInterceptor(), logUnary(log), recovery.UnaryServerInterceptor(rescue)),
		grpc.ChainStreamInterceptor(
			metrics.StreamServerInterceptor(), logStream(log), recovery.StreamServerInterceptor(rescue)),
	}
	if cfg.Credentials != nil {
		options = append(options, grpc.Creds(cfg.Credentials))
	}
	return grpc.NewServer(append(options, cfg.Options...)...), nil
}

// logUnary logs what went wrong on our side; what the caller did wrong is his to
// log, and told at Debug.
func logUnary(log hclog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		logFailure(log, info.FullMethod, err)
		return resp, err
	}
}

func logStream(log hclog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		err := handler(srv, stream)
		logFailure(log, info.FullMethod, err)
		return err
	}
}

func logFailure(log hclog.Logger, method string, err error) {
	if err == nil {
		return
	}
	switch code := status.Code(err); code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		log.Warn("rpc failed", "method", method, "code", code, "err", err)
	default:
		if log.IsDebug() {
			log.Debug("rpc refused", "method", method, "code", code, "err", err)
		}
	}
}

// Serve serves on the listener until ctx ends. Then it calls drain, which must
// make long-lived streams end soon and may be nil, sends GOAWAY, and gives the
// RPCs that run up to grace; those that are left are cut off: their contexts
// end. It returns when the last handler has returned, so what handlers use may be
// closed then. The error is nil unless the listener failed.
func Serve(ctx context.Context, srv *grpc.Server, listener net.Listener, grace time.Duration, drain func()) error {
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	var failed error
	select {
	case err := <-served:
		failed = fmt.Errorf("serve %s: %w", listener.Addr(), err)
		served <- nil
	case <-ctx.Done():
	}
	if drain != nil {
		drain()
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		srv.GracefulStop()
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		srv.Stop()
		<-stopped
	}
	if err := <-served; failed == nil && err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		failed = fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	return failed
}

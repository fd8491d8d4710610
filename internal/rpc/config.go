package rpc

import (
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

// Settings that client and server share.
const (
	// KeepAliveTime is after how long a silence a side pings the other; gRPC
	// allows clients no less.
	KeepAliveTime = 10 * time.Second
	// KeepAliveTimeout is how long it then waits for any sign of life.
	KeepAliveTimeout = 5 * time.Second
	// MinPingInterval is what a server lets a client do; half of KeepAliveTime,
	// since timers are late and pings arrive in bursts.
	MinPingInterval = KeepAliveTime / 2
	// MaxMessageBytes bounds a message that is received.
	MaxMessageBytes = 4 << 20
	// MaxReconnectWait bounds the wait before a lost address is tried again.
	MaxReconnectWait = 2 * time.Second
	// ConnectTimeout bounds one attempt to connect, handshakes included.
	ConnectTimeout = 3 * time.Second
	// HandshakeTimeout bounds what a server waits for the handshakes of a new
	// connection.
	HandshakeTimeout = 10 * time.Second
)

var (
	clientKeepAlive = keepalive.ClientParameters{
		Time:                KeepAliveTime,
		Timeout:             KeepAliveTimeout,
		PermitWithoutStream: true,
	}
	serverKeepAlive = keepalive.ServerParameters{
		Time:    KeepAliveTime,
		Timeout: KeepAliveTimeout,
	}
	enforcement = keepalive.EnforcementPolicy{
		MinTime:             MinPingInterval,
		PermitWithoutStream: true,
	}
	reconnect = backoff.Config{
		BaseDelay:  100 * time.Millisecond,
		Multiplier: 1.6,
		Jitter:     0.2,
		MaxDelay:   MaxReconnectWait,
	}
)

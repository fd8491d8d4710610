package rpc

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// ClientConfig shapes connections to other nodes.
type ClientConfig struct {
	// Credentials protect the connection. Default: none, in plain text.
	Credentials credentials.TransportCredentials
	// Options are added last, and so may override ours. Default: none.
	Options []grpc.DialOption
}

// Dial makes a connection to the host:port address. It does not wait: the first
// RPC connects, and the connection reconnects by itself until it is closed. A name
// is looked up for each attempt to connect: gRPC's own resolver looks again after 30 s
// at the earliest, and so keeps to the address of a pod that has long been replaced. It
// fails only where the options are wrong.
func Dial(address string, cfg ClientConfig) (*grpc.ClientConn, error) {
	creds := cfg.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(clientKeepAlive),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: ConnectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes)),
		// Nodes are dialled one by one; a name stands for one of them.
		grpc.WithDisableServiceConfig(),
		// An idle connection to a control node is kept: the next claim is urgent.
		grpc.WithIdleTimeout(0),
	}, cfg.Options...)
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return conn, nil
}

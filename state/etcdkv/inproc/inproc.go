// Package inproc is the store on an etcd member of the same process, called
// directly: half the cost of a request is the connection. It costs this process the
// etcd server as a dependency; package etcdkv alone does not.
package inproc

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/state/etcdkv"
)

// New makes a store whose reads, writes and leases go to server directly, past
// etcd's authentication, and whose watches go over client, whose endpoint should be
// server's own: watches over a connection are faster and end reliably.
func New(server *etcdserver.EtcdServer, client *clientv3.Client) *etcdkv.KV {
	return etcdkv.New(client, etcdkv.Options{
		KV:    &kvClient{KVClient: adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(server)), server: server},
		Lease: adapter.LeaseServerToLeaseClient(v3rpc.NewQuotaLeaseServer(server)),

		InProcess: true,
	})
}

// kvClient refuses, as the server does over a connection, what needs a leader while
// there is none, instead of holding it.
type kvClient struct {
	pb.KVClient
	server *etcdserver.EtcdServer
}

func (c *kvClient) leaderless() bool { return c.server.Leader() == 0 }

// Txn implements etcd's KV client.
func (c *kvClient) Txn(ctx context.Context, in *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	if c.leaderless() {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	return c.KVClient.Txn(ctx, in, opts...)
}

// Range implements etcd's KV client.
func (c *kvClient) Range(ctx context.Context, in *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	if !in.Serializable && c.leaderless() {
		return nil, rpctypes.ErrGRPCNoLeader
	}
	return c.KVClient.Range(ctx, in, opts...)
}

package etcdkv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/peer"

	"github.com/leaderd/leaderd/state/kv"
)

// Greatest messages. A request above the server's own limit is refused by it, with
// an answer that tells; this one only keeps absurd ones off the wire. Answers may be
// as large as the caller's page makes them.
const (
	maxSendBytes = 2 * 1024 * 1024
	maxRecvBytes = math.MaxInt32
)

// connect is gRPC's default but for the greatest wait, whose two minutes would
// outlast every lease.
var connect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 3 * time.Second,
}

// ClientConfig is the part of a client's configuration that this package relies on,
// for the given endpoints: no retries of requests, a dead connection noticed within
// 15 s while a request or watch is under way (a ping each 10 s, answered within
// 5 s; etcd breaks the connection of a client that pings without one), and a lost
// endpoint tried again every 2 s. Add credentials, TLS and a logger.
func ClientConfig(endpoints ...string) clientv3.Config {
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(connect)},
		MaxUnaryRetries:      1, // one attempt
		MaxCallSendMsgSize:   maxSendBytes,
		MaxCallRecvMsgSize:   maxRecvBytes,
	}
}

// Options are the parts of etcd's API to use instead of the client's connection,
// each by itself; nil keeps the connection. See package inproc.
type Options struct {
	KV    pb.KVClient
	Lease pb.LeaseClient
	Watch pb.WatchClient
	// InProcess says that KV and Lease call etcd directly: there is no connection
	// that a request might not have reached.
	InProcess bool
}

// KV is the store. Its methods may be called concurrently.
type KV struct {
	kv        pb.KVClient
	lease     pb.LeaseClient
	watch     pb.WatchClient
	inProcess bool

	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

var _ kv.KV = (*KV)(nil)

// New makes a store over the connection of client, which must have one: a client of
// etcd's v3client package has none, and is not needed (see package inproc). The
// client stays the caller's, who closes it after the last use of the store; it
// should be made from ClientConfig.
func New(client *clientv3.Client, o Options) *KV {
	s := &KV{
		kv: o.KV, lease: o.Lease, watch: o.Watch, inProcess: o.InProcess,
		watchers: map[*watcher]struct{}{},
	}
	conn := client.ActiveConnection()
	if s.kv == nil {
		s.kv = pb.NewKVClient(conn)
	}
	if s.lease == nil {
		s.lease = pb.NewLeaseClient(conn)
	}
	if s.watch == nil {
		s.watch = pb.NewWatchClient(conn)
	}
	return s
}

// request is one request under way.
type request struct {
	op        string
	inProcess bool
	peer      peer.Peer // set once the request was handed to a connection
}

// begin answers the context and the options for a request, or why it must not begin.
func (s *KV) begin(ctx context.Context, r *request) (context.Context, []grpc.CallOption, error) {
	r.inProcess = s.inProcess
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("etcd %s: %w: %w", r.op, kv.ErrUnavailable, context.Cause(ctx))
	}
	if s.inProcess {
		return ctx, nil, nil
	}
	return clientv3.WithRequireLeader(ctx), []grpc.CallOption{
		grpc.WaitForReady(false), // no connection is an answer
		grpc.MaxCallSendMsgSize(maxSendBytes),
		grpc.MaxCallRecvMsgSize(maxRecvBytes),
		grpc.Peer(&r.peer),
	}, nil
}

// Txn implements kv.KV.
func (s *KV) Txn(ctx context.Context, t kv.Txn) (kv.TxnResult, error) {
	in, err := encode(&t)
	if err != nil {
		return kv.TxnResult{}, fmt.Errorf("etcd txn: %w", err)
	}
	r := request{op: "txn"}
	rctx, opts, err := s.begin(ctx, &r)
	if err != nil {
		return kv.TxnResult{}, err
	}
	out, err := s.kv.Txn(rctx, in, opts...)
	if err != nil {
		return kv.TxnResult{}, r.writeError(ctx, err, in)
	}
	var res kv.TxnResult
	if err := decode(out, &t, &res); err != nil {
		return kv.TxnResult{}, fmt.Errorf("etcd txn: %w: %w", kv.ErrUnknown, err)
	}
	res.Revision = out.Header.Revision
	return res, nil
}

// Range implements kv.KV.
func (s *KV) Range(ctx context.Context, key, end string, o kv.RangeOptions) (kv.RangeResult, error) {
	r := request{op: "range"}
	rctx, opts, err := s.begin(ctx, &r)
	if err != nil {
		return kv.RangeResult{}, err
	}
	if o.Serializable {
		rctx = ctx // a member without a leader may answer
	}
	out, err := s.kv.Range(rctx, &pb.RangeRequest{
		Key:          []byte(key),
		RangeEnd:     rangeEnd(end),
		Limit:        o.Limit,
		Revision:     max(o.Revision, 0),
		KeysOnly:     o.KeysOnly,
		Serializable: o.Serializable,
	}, opts...)
	if err != nil {
		return kv.RangeResult{}, r.readError(ctx, err)
	}
	return kv.RangeResult{
		KVs:      keyValues(out.Kvs),
		More:     out.More,
		Count:    out.Count,
		Revision: out.Header.Revision,
	}, nil
}

// rangeEnd is nil for no end: in process, an empty one that is not nil means all
// keys.
func rangeEnd(end string) []byte {
	if end == "" {
		return nil
	}
	return []byte(end)
}

// Grant implements kv.KV.
func (s *KV) Grant(ctx context.Context, ttl time.Duration) (kv.LeaseID, time.Duration, error) {
	seconds, err := kv.TTLSeconds(ttl)
	if err != nil {
		return 0, 0, err
	}
	r := request{op: "grant"}
	rctx, opts, err := s.begin(ctx, &r)
	if err != nil {
		return 0, 0, err
	}
	in := &pb.LeaseGrantRequest{TTL: seconds}
	out, err := s.lease.LeaseGrant(rctx, in, opts...)
	if err != nil {
		return 0, 0, r.writeError(ctx, err, in)
	}
	return kv.LeaseID(out.ID), time.Duration(out.TTL) * time.Second, nil
}

// KeepAlive implements kv.KV. It opens a stream for one exchange.
func (s *KV) KeepAlive(ctx context.Context, id kv.LeaseID) (time.Duration, error) {
	r := request{op: "keep alive"}
	rctx, opts, err := s.begin(ctx, &r)
	if err != nil {
		return 0, err
	}
	rctx, cancel := context.WithCancel(rctx)
	defer cancel()
	stream, err := s.lease.LeaseKeepAlive(rctx, opts...)
	if err != nil {
		return 0, r.readError(ctx, err)
	}
	// A failed Send only says that the stream has ended; Recv says why.
	_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)})
	out, err := stream.Recv()
	if err != nil {
		return 0, r.readError(ctx, err)
	}
	if out.TTL <= 0 {
		return 0, fmt.Errorf("etcd keep lease %x alive: %w", int64(id), kv.ErrLeaseNotFound)
	}
	return time.Duration(out.TTL) * time.Second, nil
}

// Revoke implements kv.KV.
func (s *KV) Revoke(ctx context.Context, id kv.LeaseID) error {
	r := request{op: "revoke"}
	rctx, opts, err := s.begin(ctx, &r)
	if err != nil {
		return err
	}
	in := &pb.LeaseRevokeRequest{ID: int64(id)}
	_, err = s.lease.LeaseRevoke(rctx, in, opts...)
	if err == nil || errors.Is(classOf(err), kv.ErrLeaseNotFound) {
		return nil
	}
	return r.writeError(ctx, err, in)
}

// Compact implements kv.KV. It returns when the compaction is agreed upon; etcd
// frees the space later.
func (s *KV) Compact(ctx context.Context, rev int64) error {
	r := request{op: "compact"}
	rctx, opts, err := s.begin(ctx, &r)
	if err != nil {
		return err
	}
	in := &pb.CompactionRequest{Revision: rev}
	_, err = s.kv.Compact(rctx, in, opts...)
	if err != nil {
		return r.writeError(ctx, err, in)
	}
	return nil
}

package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// elsewhere has a request that a member refused because it knows no leader asked
// again at once, so that it goes to the next members: a member that is cut off
// from the others refuses all it is asked, and the client goes on giving it each
// n-th request. A rhythm of requests can thus have it get the same one each time;
// grants of the leader's lease did, for as long as the member was cut off. Such a
// refusal is certain: the request had no effect.
//
// Where there is no leader at all, every member is asked once.
func elsewhere(members int) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		var err error
		for range max(1, members) {
			if err = invoker(ctx, method, req, reply, cc, opts...); !knowsNoLeader(err) || ctx.Err() != nil {
				return err
			}
		}
		return err
	}
}

func knowsNoLeader(err error) bool {
	return err != nil && status.Convert(err).Message() == rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader)
}

package node

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/election"
	"github.com/leaderd/leaderd/internal/api"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
)

// leaderQueue asks whoever leads what waits, over a connection of its own each time: it
// is asked seldom.
type leaderQueue struct {
	observer *election.Observer
	dial     func(address string) (*grpc.ClientConn, error)
}

// ListWaiting implements api.LeaderQueue.
func (q leaderQueue) ListWaiting(ctx context.Context, req *workerv1.ListWaitingRequest) (_ *workerv1.ListWaitingResponse, err error) {
	leader := q.observer.Current()
	if leader.Address == "" {
		return nil, api.ErrNoLeader
	}
	conn, err := q.dial(leader.Address)
	if err != nil {
		return nil, fmt.Errorf("dial the leader at %s: %w", leader.Address, err)
	}
	defer func() { _ = conn.Close() }() // its only error is that it was closed before
	res, err := workerv1.NewLeaderServiceClient(conn).ListWaiting(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask the leader at %s: %w", leader.Address, err)
	}
	return res, nil
}

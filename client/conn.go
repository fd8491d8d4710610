package client

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	// passes is how often all nodes are tried, with a pause between that begins at
	// firstPause and doubles: long enough for etcd to elect a leader.
	passes     = 4
	firstPause = 250 * time.Millisecond
	// connectFor is how long a call waits for a connection to a node while there are
	// others to try.
	connectFor = time.Second
)

// Conn is a connection to whichever of some control nodes answers, for the generated
// clients of all services. It stays with the one that answered last, and leaves one that
// did not answer in time. It is safe for concurrent use.
//
// A call that fails since a node cannot be reached, or is not able to serve it at the
// moment, goes to the next node, several times around. One that may have been carried out
// does so only where a second time does no harm: not if it would make another run, or find
// nothing to delete any more. Such a call's error is UNAVAILABLE.
type Conn struct {
	nodes []*grpc.ClientConn
	last  atomic.Int64
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Over makes a Conn of connections to one control node each, of which there is at least
// one. They are its own from then on: Close closes them.
func Over(nodes ...*grpc.ClientConn) *Conn { return &Conn{nodes: nodes} }

// Invoke implements grpc.ClientConnInterface.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	wait := firstPause
	for pass := 1; ; pass++ {
		reached, err := c.pass(ctx, method, args, reply, opts)
		// Where nobody listens, nobody will in a second: say so at once.
		if err == nil || !reached || pass == passes || !mayRepeat(args, true, err) {
			return err
		}
		pause(ctx, wait)
		if ctx.Err() != nil {
			return err // it says more than that the time is up
		}
		wait *= 2
	}
}

// pass tries every node once, and tells whether any was reached.
func (c *Conn) pass(ctx context.Context, method string, args, reply any, opts []grpc.CallOption) (reached bool, err error) {
	first := int(c.last.Load())
	var failures []error
	for i := range c.nodes {
		at := (first + i) % len(c.nodes)
		var p peer.Peer // set once the request was handed to a connection
		var err error
		if i < len(c.nodes)-1 && !connected(ctx, c.nodes[at]) {
			err = status.Errorf(codes.Unavailable, "no connection within %s", connectFor)
		} else {
			err = c.nodes[at].Invoke(ctx, method, args, reply, append(slices.Clip(opts), grpc.Peer(&p))...)
		}
		sent := p.Addr != nil
		if err == nil || !mayRepeat(args, sent, err) {
			if status.Code(err) == codes.DeadlineExceeded && Reason(err) == "" {
				at = (at + 1) % len(c.nodes) // it may be stuck
			}
			c.last.Store(int64(at))
			return sent, err
		}
		reached = reached || sent
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	// What a node said says more than that another was not reached.
	for _, err := range failures {
		if Reason(err) != "" {
			return reached, err
		}
	}
	return reached, failures[0]
}

// connected waits until a node is connected, or is known not to listen, for a while.
func connected(ctx context.Context, node *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, connectFor)
	defer cancel()
	node.Connect()
	for {
		switch now := node.GetState(); now {
		case connectivity.Idle, connectivity.Connecting:
			if !node.WaitForStateChange(ctx, now) {
				return false
			}
			node.Connect()
		default:
			return true // the call tells
		}
	}
}

// NewStream implements grpc.ClientConnInterface, without another try.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.nodes[c.last.Load()].NewStream(ctx, desc, method, opts...)
}

// Close closes all connections. Calls under way fail.
func (c *Conn) Close() error {
	var errs []error
	for _, node := range c.nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}

// mayRepeat tells whether a request that failed with err may be made once more.
func mayRepeat(request any, sent bool, err error) bool {
	if status.Code(err) != codes.Unavailable {
		return false
	}
	// A node that says so itself has done nothing.
	return !sent || Reason(err) != "" || repeatable(request)
}

// repeatable tells whether a second request that is equal does nothing else than the
// first. It would make another run, find nothing to delete any more, or a thing that is not
// as its etag says, since the first has changed it; or it would take away what a run has
// saved since.
func repeatable(request any) bool {
	switch r := request.(type) {
	case *leaderdv1.TriggerJobRequest, *leaderdv1.CreateBackfillRequest, *leaderdv1.DeleteJobRequest,
		*leaderdv1.DeleteCalendarRequest, *leaderdv1.RequeueDeadLetterRequest, *leaderdv1.DropDeadLetterRequest,
		*leaderdv1.DeleteCheckpointsRequest:
		return false
	case *leaderdv1.SetCheckpointRequest:
		return !r.GetReplace()
	case *leaderdv1.SubmitRunRequest:
		return r.GetIdempotencyKey() != ""
	case *leaderdv1.RetryRunRequest:
		return r.GetIdempotencyKey() != ""
	case *leaderdv1.SubmitRunsRequest:
		return !slices.ContainsFunc(r.GetRequests(), func(one *leaderdv1.SubmitRunRequest) bool { return one.GetIdempotencyKey() == "" })
	case *leaderdv1.UpdateJobRequest:
		return r.GetJob().GetEtag() == ""
	case *leaderdv1.UpdateCalendarRequest:
		return r.GetCalendar().GetEtag() == ""
	case *leaderdv1.PauseJobRequest:
		return r.GetEtag() == ""
	case *leaderdv1.ResumeJobRequest:
		return r.GetEtag() == ""
	}
	return true
}

// Reason is the name of the leaderd.v1.ErrorReason that a node gave for an error of a
// generated client, or empty.
func Reason(err error) string {
	st, _ := status.FromError(err)
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

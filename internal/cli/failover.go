package cli

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	// passes is how often all addresses are tried, with a pause between that
	// begins at firstPause and doubles: long enough for etcd to elect a leader.
	passes     = 4
	firstPause = 250 * time.Millisecond
)

// unrepeatable are the methods of which a second call does something else than
// the first: it makes another run, or finds nothing to delete any more.
var unrepeatable = []string{
	"/leaderd.v1.JobService/TriggerJob",
	"/leaderd.v1.JobService/DeleteJob",
	"/leaderd.v1.BackfillService/CreateBackfill",
}

// failover is a connection to whichever of some control nodes answers. It stays
// with the one that answered last. It may be used concurrently.
type failover struct {
	conns []*grpc.ClientConn
	last  atomic.Int64
}

var _ grpc.ClientConnInterface = (*failover)(nil)

// Invoke implements grpc.ClientConnInterface. A request goes to the next node
// only where the one before certainly did not carry it out, or where that does no
// harm.
func (f *failover) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	pause := firstPause
	for pass := 1; ; pass++ {
		reached, err := f.pass(ctx, method, args, reply, opts)
		// Where nobody listens, nobody will in a second: say so at once.
		if err == nil || !reached || pass == passes || !again(method, true, err) {
			return err
		}
		timer := time.NewTimer(pause)
		pause *= 2
		select {
		case <-ctx.Done():
			timer.Stop()
			return err // it says more than that the time is up
		case <-timer.C:
		}
	}
}

// pass tries every node once, and tells whether any was reached.
func (f *failover) pass(ctx context.Context, method string, args, reply any, opts []grpc.CallOption) (reached bool, err error) {
	first := int(f.last.Load())
	var failures []error
	for i := range f.conns {
		at := (first + i) % len(f.conns)
		var p peer.Peer // set once the request was handed to a connection
		err := f.conns[at].Invoke(ctx, method, args, reply, append(slices.Clip(opts), grpc.Peer(&p))...)
		sent := p.Addr != nil
		if err == nil || !again(method, sent, err) {
			f.last.Store(int64(at))
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
		if reason(err) != "" {
			return reached, err
		}
	}
	return reached, failures[0]
}

// again tells whether a request that failed with err may be made once more.
func again(method string, sent bool, err error) bool {
	if status.Code(err) != codes.Unavailable {
		return false
	}
	// A node that says so itself has done nothing.
	return !sent || reason(err) != "" || !slices.Contains(unrepeatable, method)
}

// reason is the reason that leaderd gave for an error, or empty.
func reason(err error) string {
	st, _ := status.FromError(err)
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// NewStream implements grpc.ClientConnInterface, without failing over.
func (f *failover) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return f.conns[f.last.Load()].NewStream(ctx, desc, method, opts...)
}

func (f *failover) close() error {
	var errs []error
	for _, c := range f.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

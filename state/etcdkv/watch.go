package etcdkv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/state/kv"
)

// watcher is one watch on a stream of its own. Its goroutine receives and hands
// over; it ends with the stream, and Close waits for it.
type watcher struct {
	s       *KV
	stream  pb.Watch_WatchClient
	cancel  context.CancelCauseFunc
	batches chan kv.WatchBatch
	done    chan struct{} // closed when the goroutine has ended
	err     error         // why; set before done is closed

	send sync.Mutex // the stream's Send
}

// Watch implements kv.KV.
func (s *KV) Watch(ctx context.Context, key, end string, from int64) (kv.Watcher, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("etcd watch: %w: %w", kv.ErrUnavailable, context.Cause(ctx))
	}
	if key == "" {
		key = "\x00"
	}
	// The stream outlives ctx, which bounds only its opening.
	sctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(context.Background()))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	stream, err := open(sctx, s.watch, &pb.WatchCreateRequest{
		Key:            []byte(key),
		RangeEnd:       rangeEnd(end),
		StartRevision:  from,
		ProgressNotify: true,
		Fragment:       true,
	})
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(nil)
		return nil, watchError(ctx, err)
	}
	w := &watcher{
		s: s, stream: stream, cancel: cancel,
		batches: make(chan kv.WatchBatch),
		done:    make(chan struct{}),
	}
	s.mu.Lock()
	s.watchers[w] = struct{}{}
	s.mu.Unlock()
	go func() {
		defer close(w.done)
		w.err = w.receive(sctx)
		cancel(nil)
		s.mu.Lock()
		delete(s.watchers, w)
		s.mu.Unlock()
	}()
	return w, nil
}

// open makes a watch and returns when the server has it.
func open(ctx context.Context, client pb.WatchClient, in *pb.WatchCreateRequest) (pb.Watch_WatchClient, error) {
	stream, err := client.Watch(ctx,
		grpc.WaitForReady(false),
		grpc.MaxCallSendMsgSize(maxSendBytes),
		grpc.MaxCallRecvMsgSize(maxRecvBytes),
	)
	if err != nil {
		return nil, err
	}
	// A failed Send only says that the stream has ended; Recv says why.
	_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: in}})
	r, err := stream.Recv()
	switch {
	case err != nil:
		return nil, err
	case r.Canceled:
		return nil, canceled(r)
	case !r.Created:
		return nil, errors.New("an answer to no request")
	}
	return stream, nil
}

// canceled is why the server ended a watch.
func canceled(r *pb.WatchResponse) error {
	if r.CompactRevision != 0 {
		return fmt.Errorf("before revision %d: %w", r.CompactRevision, kv.ErrCompacted)
	}
	for desc, class := range classes {
		// Some reasons are the whole text of a gRPC error, which ends in ours.
		if strings.HasSuffix(r.CancelReason, desc) {
			return fmt.Errorf("%w: %s", class, r.CancelReason)
		}
	}
	return fmt.Errorf("%w: canceled: %s", kv.ErrUnavailable, r.CancelReason)
}

func watchError(ctx context.Context, err error) error {
	for _, class := range []error{kv.ErrCompacted, kv.ErrPermission, kv.ErrInvalid, kv.ErrUnavailable} {
		if errors.Is(err, class) {
			return fmt.Errorf("etcd watch: %w", err)
		}
	}
	r := request{op: "watch"}
	return r.readError(ctx, err)
}

// receive hands over what the server sends until the stream ends.
func (w *watcher) receive(ctx context.Context) error {
	var events []kv.Event // of the message under way
	for {
		r, err := w.stream.Recv()
		if err == nil && r.Canceled {
			err = canceled(r)
		}
		if err != nil {
			if errors.Is(context.Cause(ctx), kv.ErrClosed) {
				return kv.ErrClosed
			}
			return watchError(ctx, err)
		}
		events = appendEvents(events, r.Events)
		if r.Fragment {
			continue // more of the same revisions follows at once
		}
		b := kv.WatchBatch{Events: events, Revision: r.Header.GetRevision()}
		if n := len(events); n > 0 {
			// While it catches a watch up the server names its newest revision,
			// and has yet to send what lies between.
			b.Revision = events[n-1].KV.ModRevision
		}
		events = nil
		select {
		case w.batches <- b:
		case <-ctx.Done():
			return kv.ErrClosed
		}
	}
}

func appendEvents(out []kv.Event, in []*mvccpb.Event) []kv.Event {
	out = slices.Grow(out, len(in))
	for _, ev := range in {
		e := kv.Event{Deleted: ev.Type == mvccpb.Event_DELETE}
		keyValue(ev.Kv, &e.KV)
		out = append(out, e)
	}
	return out
}

// Next implements kv.Watcher.
func (w *watcher) Next(ctx context.Context) (kv.WatchBatch, error) {
	if ctx.Err() != nil {
		return kv.WatchBatch{}, fmt.Errorf("etcd watch: %w", context.Cause(ctx))
	}
	select {
	case b := <-w.batches:
		return b, nil
	case <-w.done:
		return kv.WatchBatch{}, w.err
	case <-ctx.Done():
		return kv.WatchBatch{}, fmt.Errorf("etcd watch: %w", context.Cause(ctx))
	}
}

// Close implements kv.Watcher.
func (w *watcher) Close() {
	w.cancel(kv.ErrClosed)
	<-w.done
}

// Progress implements kv.KV.
func (s *KV) Progress(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("etcd progress: %w: %w", kv.ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	watchers := slices.Collect(maps.Keys(s.watchers))
	s.mu.Unlock()
	for _, w := range watchers {
		// A stream that has ended tells its own reader.
		w.send.Lock()
		_ = w.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
			ProgressRequest: &pb.WatchProgressRequest{},
		}})
		w.send.Unlock()
	}
	return nil
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// Register implements executor.Registry. It tries node after node until ctx ends.
// A try that is abandoned may yet make a registration; the next one takes the name
// over from it.
func (c *Client) Register(ctx context.Context, n state.Node, ttl time.Duration) (state.Registration, error) {
	var reg state.Registration
	err := c.unary(ctx, func(ctx context.Context, client workerv1.JournalServiceClient) error {
		resp, err := client.Register(ctx, &workerv1.RegisterRequest{
			Name: n.Name, Node: codec.NodeToProto(&n), Ttl: durationpb.New(ttl),
		})
		if err == nil {
			reg = codec.RegistrationFromProto(n.Name, resp)
		}
		return err
	})
	if err != nil {
		return state.Registration{}, fmt.Errorf("register node %s: %w", n.Name, err)
	}
	return reg, nil
}

// Deregister implements executor.Registry. It tries node after node until ctx
// ends.
func (c *Client) Deregister(ctx context.Context, reg state.Registration) error {
	err := c.unary(ctx, func(ctx context.Context, client workerv1.JournalServiceClient) error {
		_, err := client.Deregister(ctx, &workerv1.DeregisterRequest{
			Lease: reg.Lease, Name: reg.Owner.Node, OwnerRevision: reg.Owner.Revision,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("deregister node %s: %w", reg.Owner.Node, err)
	}
	return nil
}

// GetCheckpoint implements executor.Keeper. It tries node after node until ctx ends.
func (c *Client) GetCheckpoint(ctx context.Context, of state.CheckpointRef) (state.SavedCheckpoint, error) {
	var resp *workerv1.GetCheckpointResponse
	err := c.unary(ctx, func(ctx context.Context, client workerv1.JournalServiceClient) (err error) {
		resp, err = client.GetCheckpoint(ctx, &workerv1.GetCheckpointRequest{
			Namespace: of.Job.Namespace, Job: of.Job.Name, Run: string(of.Run), Shard: int32(of.Shard), OfJob: of.OfJob,
		})
		return err
	})
	if err != nil {
		return state.SavedCheckpoint{}, fmt.Errorf("get checkpoint %s %s: %w", of.Job, of.Run, err)
	}
	return codec.SavedCheckpointFromProto(resp), nil
}

// GetPayload implements executor.Payloads. It tries node after node until ctx ends.
func (c *Client) GetPayload(ctx context.Context, id state.JobID, run state.RunID) ([]byte, error) {
	var resp *workerv1.GetPayloadResponse
	err := c.unary(ctx, func(ctx context.Context, client workerv1.JournalServiceClient) (err error) {
		resp, err = client.GetPayload(ctx, &workerv1.GetPayloadRequest{Namespace: id.Namespace, Job: id.Name, Run: string(run)})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get payload %s %s: %w", id, run, err)
	}
	return resp.GetPayload(), nil
}

// unary tries a call at node after node, until one answers or ctx ends.
func (c *Client) unary(ctx context.Context, try func(context.Context, workerv1.JournalServiceClient) error) error {
	pause := c.pauses()
	for {
		n, err := c.nodes.pick()
		if err == nil {
			once, cancel := context.WithTimeout(ctx, c.cfg.TryTimeout)
			err = try(once, n.client)
			cancel()
			if err == nil {
				return nil
			}
			if ctx.Err() == nil && !passing(status.Code(err)) {
				return refused(err)
			}
		}
		if errors.Is(err, ErrClosed) {
			return err
		}
		c.nodes.failed(n)
		sleep(ctx, pause.NextBackOff())
		if ctx.Err() != nil {
			return fmt.Errorf("%w; last: %w", gaveUp(ctx, true), refused(err))
		}
	}
}

// KeepAlive implements executor.Registry. Where a node takes longer than a tenth
// of the TTL, the next one is asked too, and the first answer counts: a node that
// hangs, or a store that is slow, does not cost the registration. It tries until
// ctx ends.
func (c *Client) KeepAlive(ctx context.Context, reg state.Registration) (time.Duration, error) {
	ttl, err := c.keepAlive(ctx, reg)
	if err != nil {
		return 0, fmt.Errorf("keep node %s: %w", reg.Owner.Node, err)
	}
	return ttl, nil
}

// renewal is one node's answer to a keep-alive.
type renewal struct {
	node node
	ttl  time.Duration
	err  error
}

func (c *Client) keepAlive(ctx context.Context, reg state.Registration) (time.Duration, error) {
	var tries sync.WaitGroup
	defer tries.Wait()
	all, cancel := context.WithCancel(ctx)
	defer cancel()

	hedge := min(max(reg.TTL/10, 100*time.Millisecond), time.Second)
	pause := c.pauses()
	answers := make(chan renewal)
	next := time.NewTimer(0)
	defer next.Stop()
	var asked node // last
	var last error
	for {
		select {
		case <-next.C:
			c.nodes.failed(asked) // it was too slow, if it was asked at all
			n, err := c.nodes.pick()
			if errors.Is(err, ErrClosed) {
				return 0, err
			}
			asked = n
			if err != nil {
				last = err
				next.Reset(min(pause.NextBackOff(), hedge))
				continue
			}
			tries.Go(func() { keepOnce(all, n, reg, answers) })
			next.Reset(hedge)
		case a := <-answers:
			switch {
			case a.err == nil:
				return a.ttl, nil
			case !passing(status.Code(a.err)):
				return 0, refused(a.err)
			}
			last = a.err
			c.nodes.failed(a.node)
			if a.node.address == asked.address {
				next.Reset(min(pause.NextBackOff(), hedge))
			}
		case <-ctx.Done():
			if last == nil {
				return 0, gaveUp(ctx, true)
			}
			return 0, fmt.Errorf("%w; last: %w", gaveUp(ctx, true), refused(last))
		}
	}
}

// keepOnce asks one node; a try that outlasts the TTL proves nothing.
func keepOnce(ctx context.Context, n node, reg state.Registration, answers chan<- renewal) {
	once, cancel := context.WithTimeout(ctx, reg.TTL)
	defer cancel()
	resp, err := n.client.KeepAlive(once, &workerv1.KeepAliveRequest{
		Lease: reg.Lease, Name: reg.Owner.Node, OwnerRevision: reg.Owner.Revision,
	})
	select {
	case answers <- renewal{n, resp.GetTtl().AsDuration(), err}:
	case <-ctx.Done():
	}
}

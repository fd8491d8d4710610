package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaderd/leaderd/executor"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
)

// leader is who leads, as far as it was told.
type leader struct {
	mu      sync.Mutex
	now     executor.Leader
	highest int64         // term that was ever told
	changed chan struct{} // closed at the next change
}

func newLeader() leader { return leader{changed: make(chan struct{})} }

// Follow implements executor.Leaders: who leads as last told, the zero Leader
// before the first word. A node that is behind is not believed.
func (c *Client) Follow() (executor.Leader, <-chan struct{}) {
	l := &c.leader
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.changed
}

// told takes what a node said.
func (l *leader) told(now executor.Leader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now == l.now || now.Term != 0 && now.Term < l.highest {
		return
	}
	l.highest = max(l.highest, now.Term)
	l.now = now
	close(l.changed)
	l.changed = make(chan struct{})
}

// errSilent ends a stream of which nothing is heard.
var errSilent = errors.New("nothing was heard for three pulses")

// followLeader keeps a FollowLeader stream to one node after the other until ctx
// ends.
func (c *Client) followLeader(ctx context.Context) {
	pause := c.pauses()
	for ctx.Err() == nil {
		n, err := c.nodes.pick()
		var heard bool
		if err == nil {
			heard, err = c.followAt(ctx, n)
		}
		if ctx.Err() != nil {
			return
		}
		c.nodes.failed(n)
		if heard {
			pause.Reset()
		}
		c.log.Debug("leader is asked for at the next control node", "node", n.address, "err", err)
		sleep(ctx, pause.NextBackOff())
	}
}

// followAt hears one node until it falls silent or the stream ends.
func (c *Client) followAt(ctx context.Context, n node) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(c.cfg.TryTimeout, func() { cancel(errSilent) })
	defer silence.Stop()
	stream, err := n.client.FollowLeader(ctx, &workerv1.FollowLeaderRequest{})
	for err == nil {
		var m *workerv1.FollowLeaderResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		heard = true
		silence.Reset(max(3*m.GetPulseInterval().AsDuration(), c.cfg.TryTimeout))
		c.leader.told(executor.Leader{Name: m.GetName(), Address: m.GetAddress(), Term: m.GetTerm()})
	}
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return heard, err
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// call is one caller's entry on its way. Its flags are guarded by Client.mu.
type call struct {
	entry workerv1.RecordEntry
	bytes int
	done  chan reply // of one

	message *message // that it went out with
	sent    bool     // at least once
	given   bool     // the caller has gone
}

type reply struct {
	answer *workerv1.RecordAnswer
	err    error
}

// message is one that was sent on a stream.
type message struct {
	at   time.Time
	left int // entries without an answer
}

// do sends an entry, as often as it takes, and answers its answer.
func (c *Client) do(ctx context.Context, k *call) (*workerv1.RecordAnswer, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if k.bytes > MaxMessageBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrEntry, k.bytes, MaxMessageBytes)
	}
	k.done = make(chan reply, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	if len(c.queue) == 0 && len(c.open) == 0 {
		c.heard = time.Now()
	}
	c.queue = append(c.queue, k)
	c.mu.Unlock()
	notify(c.wake)

	select {
	case r := <-k.done:
		return r.result()
	case <-ctx.Done():
	}
	c.mu.Lock()
	k.given = true
	sent := k.sent
	c.mu.Unlock()
	select {
	case r := <-k.done:
		return r.result()
	default:
	}
	return nil, gaveUp(ctx, sent)
}

func (r reply) result() (*workerv1.RecordAnswer, error) {
	if r.err != nil {
		return nil, r.err
	}
	if code := codes.Code(r.answer.GetCode()); code != codes.OK {
		return nil, &Error{Code: code, Message: r.answer.GetError()}
	}
	return r.answer, nil
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take moves the next entries for one message to into.
func (c *Client) take(into []*workerv1.RecordEntry) []*workerv1.RecordEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, bytes := 0, 0
	var m *message
	for _, k := range c.queue {
		if len(into) == MaxEntries || len(into) > 0 && bytes+k.bytes > MaxMessageBytes {
			break
		}
		n++
		if k.given {
			continue
		}
		if m == nil {
			m = &message{at: time.Now()}
			c.sends = append(c.sends, m)
		}
		c.lastID++
		k.entry.Id = c.lastID
		k.sent, k.message = true, m
		m.left++
		c.open[c.lastID] = k
		bytes += k.bytes
		into = append(into, &k.entry)
	}
	left := copy(c.queue, c.queue[n:])
	clear(c.queue[left:])
	c.queue = c.queue[:left]
	return into
}

// settle gives answers to their callers. An error says that the node cannot do
// its work; what it refused for that reason stays open.
func (c *Client) settle(answers []*workerv1.RecordAnswer) (unavailable error) {
	c.mu.Lock()
	c.heard = time.Now()
	for _, a := range answers {
		k := c.open[a.GetId()]
		if k == nil {
			continue
		}
		if code := codes.Code(a.GetCode()); code == codes.Unavailable {
			unavailable = &Error{Code: code, Message: a.GetError()}
			continue
		}
		delete(c.open, a.GetId())
		k.message.left--
		k.done <- reply{answer: a}
	}
	c.mu.Unlock()
	return unavailable
}

// reclaim puts what a stream left open at the head of the queue, in its order.
func (c *Client) reclaim() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := make([]*call, 0, len(c.open)+len(c.queue))
	for _, k := range c.open {
		if !k.given {
			left = append(left, k)
		}
	}
	slices.SortFunc(left, func(a, b *call) int { return int(a.entry.GetId()) - int(b.entry.GetId()) })
	n := len(left)
	c.queue = append(left, c.queue...)
	clear(c.open)
	c.sends = nil
	return n
}

// owes tells whether the stream is overdue, and with what.
func (c *Client) owes(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open)+len(c.queue) == 0 {
		return nil
	}
	if quiet := now.Sub(c.heard); quiet > c.cfg.Patience {
		return fmt.Errorf("nothing was answered for %s", quiet.Round(time.Millisecond))
	}
	for len(c.sends) > 0 && c.sends[0].left == 0 {
		c.sends = c.sends[1:]
	}
	if len(c.sends) > 0 {
		if age := now.Sub(c.sends[0].at); age > 5*c.cfg.Patience {
			return fmt.Errorf("an entry was not answered for %s", age.Round(time.Millisecond))
		}
	}
	return nil
}

// expel gives the entries that cannot be encoded back to their callers, and
// answers how many there were.
func (c *Client) expel(entries []*workerv1.RecordEntry) int {
	n := 0
	for _, e := range entries {
		_, err := proto.Marshal(e)
		if err == nil {
			continue
		}
		n++
		c.mu.Lock()
		if k := c.open[e.GetId()]; k != nil {
			delete(c.open, e.GetId())
			k.message.left--
			k.done <- reply{err: fmt.Errorf("%w: %w", ErrEntry, err)}
		}
		c.mu.Unlock()
	}
	return n
}

// close gives up all that waits.
func (c *Client) close() {
	c.mu.Lock()
	c.closed = true
	for _, k := range c.queue {
		err := ErrClosed
		if k.sent {
			err = errors.Join(kv.ErrUnknown, ErrClosed)
		}
		k.done <- reply{err: err}
	}
	c.queue = nil
	c.mu.Unlock()
	c.nodes.close()
}

// The sizes of entries, rather too large than too small: numbers and the
// messages' own bytes are taken at their greatest.
const (
	plainBytes   = 320
	attemptBytes = 128
	limitBytes   = 64
	// of hooks that have not run
	hookBytesEach = 16
	breakerBytes  = 64
)

func liveBytes(l *state.Live) int {
	n := plainBytes + len(l.Job.Namespace) + len(l.Job.Name) + len(l.Run) + len(l.Owner.Node)
	if l.Circuit != nil {
		n += breakerBytes + len(l.Circuit.Target)
	}
	n += len(l.Correlation) + len(l.LimitKey)
	for _, u := range l.Upstream {
		n += breakerBytes + len(u.Job) + len(u.Run)
	}
	for i := range l.Attempts {
		n += attemptBytes + len(l.Attempts[i].Node) + len(l.Attempts[i].Error) + len(l.Attempts[i].Message)
	}
	for i := range l.Holds {
		n += limitBytes + len(l.Holds[i].Limit.Namespace) + len(l.Holds[i].Limit.Name) + len(l.Holds[i].Limit.Key)
	}
	return n
}

func claimBytes(c *state.Claim) int {
	n := liveBytes(&c.Live) + len(c.Job.Namespace) + len(c.Job.Name)
	for i := range c.Limits {
		n += limitBytes + len(c.Limits[i].Name)
	}
	return n
}

func finishBytes(f *state.Finish) int {
	return liveBytes(f.Live) + attemptBytes + len(f.Attempt.Node) + len(f.Attempt.Error) + len(f.Attempt.Message) + len(f.Reason) + len(f.Tail) + len(f.Result) +
		hookBytesEach*len(f.Hooks)
}

func hookBytes(r *state.HookReport) int {
	return plainBytes + len(r.Job.Namespace) + len(r.Job.Name) + len(r.Run) + len(r.Hook.Error) + len(r.Hook.Tail)
}

func doubleBytes(r *state.DoubleReport) int {
	return plainBytes + attemptBytes + len(r.Job.Namespace) + len(r.Job.Name) + len(r.Run) + len(r.Attempt.Node) + len(r.Attempt.Error)
}

func checkpointBytes(c *state.Checkpoint) int { return liveBytes(&c.Live) + len(c.Data) }

func progressBytes(p *state.ProgressReport) int {
	return plainBytes + len(p.Live.Job.Namespace) + len(p.Live.Job.Name) + len(p.Live.Run) + len(p.Progress.Message)
}

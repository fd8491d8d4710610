package journal_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/executor/journal"
	server "github.com/leaderd/leaderd/internal/journal"
	"github.com/leaderd/leaderd/internal/rpc"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// control is a control node that serves the journal over loopback.
type control struct {
	address string
	grpc    *grpc.Server
	journal *server.Server
	leaders *leaders
}

// newControl serves st until the test ends or stop.
func newControl(t testing.TB, st server.Store, cfg server.Config) *control {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &control{address: listener.Addr().String(), leaders: newLeaders()}
	c.journal, err = server.NewServer(st, c.leaders, cfg)
	require.NoError(t, err)
	c.grpc, err = rpc.NewServer(rpc.ServerConfig{})
	require.NoError(t, err)
	workerv1.RegisterJournalServiceServer(c.grpc, c.journal)
	var serving sync.WaitGroup
	serving.Go(func() { _ = c.grpc.Serve(listener) })
	t.Cleanup(func() {
		c.kill()
		serving.Wait()
	})
	return c
}

// kill cuts all connections.
func (c *control) kill() { c.grpc.Stop() }

// leave ends as a node that drains does.
func (c *control) leave() {
	c.journal.Drain()
	c.grpc.GracefulStop()
}

// leaders is who leads, for a test to say.
type leaders struct {
	mu      sync.Mutex
	now     server.Leader
	changed chan struct{}
}

func newLeaders() *leaders { return &leaders{changed: make(chan struct{})} }

func (l *leaders) Follow() (server.Leader, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.changed
}

func (l *leaders) set(now server.Leader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = now
	close(l.changed)
	l.changed = make(chan struct{})
}

// newClient runs a client until the test ends.
func newClient(t testing.TB, cfg journal.Config, controls ...*control) *journal.Client {
	t.Helper()
	var addresses []string
	for _, c := range controls {
		addresses = append(addresses, c.address)
	}
	client, err := journal.New(journal.Static(addresses...), dial, cfg)
	require.NoError(t, err)
	run(t, client)
	return client
}

func dial(address string) (*grpc.ClientConn, error) { return rpc.Dial(address, rpc.ClientConfig{}) }

func run(t testing.TB, client *journal.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = client.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

var due = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

// claimOf is a claim of the slot number n of a job.
func claimOf(job state.JobID, revision int64, owner state.Owner, n int) state.Claim {
	slot := due.Add(time.Duration(n) * time.Second)
	return state.Claim{
		Job: job, JobRevision: revision,
		Live: state.Live{
			Job: job, Run: state.SlotRunID(slot), Shards: 1, Generation: 1, Attempt: 1,
			Owner: owner, Term: 7, Due: slot, Claimed: slot.Add(-time.Second),
		},
	}
}

func finishOf(live state.Live) state.Finish {
	return state.Finish{
		Live: &live,
		Attempt: state.Attempt{
			Number: live.Attempt, Node: live.Owner.Node, Token: live.Token, Term: live.Term,
			Claimed: live.Claimed, Started: live.Due, Ended: live.Due.Add(time.Second), State: state.StateSucceeded,
		},
	}
}

// instant is a store that answers at once, and whose hooks a test may set before
// it is used.
type instant struct {
	claim     func(context.Context, state.Claim) (state.ClaimResult, error)
	keepAlive func(context.Context, state.Registration) (time.Duration, error)
}

func (s *instant) Claim(ctx context.Context, c state.Claim) (state.ClaimResult, error) {
	if s.claim != nil {
		return s.claim(ctx, c)
	}
	live := c.Live
	live.State, live.Token = state.StateRunning, 42
	return state.ClaimResult{Status: state.Claimed, Live: &live}, nil
}

func (s *instant) Finish(context.Context, state.Finish) (state.TokenStatus, error) {
	return state.TokenStored, nil
}

func (s *instant) Checkpoint(_ context.Context, c state.Checkpoint) (state.CheckpointResult, error) {
	return state.CheckpointResult{Status: state.TokenStored, Revision: int64(len(c.Data))}, nil
}

func (s *instant) SaveProgress(context.Context, state.ProgressReport) (state.TokenStatus, error) {
	return state.TokenStored, nil
}

func (s *instant) NoteHook(context.Context, state.HookReport) error { return nil }

func (s *instant) NoteDouble(context.Context, state.DoubleReport) error { return nil }

func (s *instant) GetCheckpoint(context.Context, state.CheckpointRef) (state.SavedCheckpoint, error) {
	return state.SavedCheckpoint{Data: []byte("half way"), Number: 4, Revision: 9}, nil
}

func (s *instant) Register(_ context.Context, n state.Node, ttl time.Duration) (state.Registration, error) {
	return state.Registration{Owner: state.Owner{Node: n.Name, Revision: 5}, Lease: 6, TTL: ttl}, nil
}

func (s *instant) KeepAliveNode(ctx context.Context, reg state.Registration) (time.Duration, error) {
	if s.keepAlive != nil {
		return s.keepAlive(ctx, reg)
	}
	return 5 * time.Second, nil
}

func (s *instant) GetPayload(context.Context, state.JobID, state.RunID) ([]byte, error) {
	return nil, nil
}

func (s *instant) Deregister(_ context.Context, reg state.Registration) error {
	if reg.Lease == 0 {
		return fmt.Errorf("no lease")
	}
	return nil
}

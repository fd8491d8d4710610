package journal

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/leaderd/leaderd/internal/rpc"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gated is a store whose claims wait for the gate, and count.
type gated struct {
	Store
	gate                  chan struct{} // closed: open
	begun, ended, givenUp atomic.Int32
	most                  atomic.Int32 // at a time
}

func newGated() *gated { return &gated{gate: make(chan struct{})} }

func (g *gated) Claim(ctx context.Context, c state.Claim) (state.ClaimResult, error) {
	running := g.begun.Add(1) - g.ended.Load()
	for most := g.most.Load(); running > most && !g.most.CompareAndSwap(most, running); most = g.most.Load() {
	}
	defer g.ended.Add(1)
	select {
	case <-g.gate:
	case <-ctx.Done():
		g.givenUp.Add(1)
		return state.ClaimResult{}, fmt.Errorf("%w: %w", kv.ErrUnknown, context.Cause(ctx))
	}
	live := c.Live
	live.Token = 42
	return state.ClaimResult{Status: state.Claimed, Live: &live}, nil
}

// nobody leads.
type nobody struct{}

func (nobody) Follow() (Leader, <-chan struct{}) { return Leader{}, nil }

// start serves st in memory until the test ends.
func start(t *testing.T, st Store, cfg Config) (*Server, workerv1.JournalServiceClient) {
	t.Helper()
	s, err := NewServer(st, nobody{}, cfg)
	require.NoError(t, err)
	listener := bufconn.Listen(1 << 20)
	srv, err := rpc.NewServer(rpc.ServerConfig{})
	require.NoError(t, err)
	workerv1.RegisterJournalServiceServer(srv, s)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = rpc.Serve(ctx, srv, listener, time.Minute, s.Drain) })
	conn, err := rpc.Dial("node", rpc.ClientConfig{Options: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		serving.Wait()
	})
	return s, workerv1.NewJournalServiceClient(conn)
}

func entry(id uint64) *workerv1.RecordEntry {
	slot := time.Unix(int64(id)*60, 0)
	return &workerv1.RecordEntry{Id: id, Kind: &workerv1.RecordEntry_Claim{Claim: codec.ClaimToProto(&state.Claim{
		Job: state.JobID{Namespace: "default", Name: "job"}, JobRevision: 3,
		Live: state.Live{
			Run: state.SlotRunID(slot), Due: slot, Shards: 1, Attempt: 1, Owner: state.Owner{Node: "e", Revision: 5},
		},
	})}}
}

func entries(from, to uint64) *workerv1.RecordRequest {
	m := &workerv1.RecordRequest{}
	for id := from; id < to; id++ {
		m.Entries = append(m.Entries, entry(id))
	}
	return m
}

// answered receives n answers, and fails on two to the same entry.
func answered(t *testing.T, stream workerv1.JournalService_RecordClient, n int) map[uint64]*workerv1.RecordAnswer {
	t.Helper()
	got := map[uint64]*workerv1.RecordAnswer{}
	for len(got) < n {
		m, err := stream.Recv()
		require.NoError(t, err)
		for _, a := range m.GetAnswers() {
			require.Nil(t, got[a.GetId()])
			got[a.GetId()] = a
		}
	}
	return got
}

func eventually(t *testing.T, what func() bool) {
	t.Helper()
	require.Eventually(t, what, time.Minute, time.Millisecond)
}

// The client says that it has said all: what it asked is answered, then the
// stream ends well.
func TestHalfClosedStreamIsAnswered(t *testing.T) {
	g := newGated()
	_, client := start(t, g, Config{})
	stream, err := client.Record(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(entries(1, 101)))
	require.NoError(t, stream.CloseSend())
	eventually(t, func() bool { return g.begun.Load() == 100 })
	close(g.gate)
	for id, a := range answered(t, stream, 100) {
		require.Zero(t, a.GetCode())
		require.EqualValues(t, state.Claimed, a.GetClaim().GetStatus(), id)
		require.EqualValues(t, 42, a.GetClaim().GetToken())
	}
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
}

// What was begun goes on when the stream breaks, for as long as Linger.
func TestEntriesOutlastTheirStream(t *testing.T) {
	for _, patient := range []bool{true, false} {
		g := newGated()
		cfg := Config{Linger: time.Minute}
		if !patient {
			cfg.Linger = 100 * time.Millisecond
		}
		_, client := start(t, g, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.Record(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(entries(1, 101)))
		eventually(t, func() bool { return g.begun.Load() == 100 })
		cancel()
		_, err = stream.Recv()
		require.Equal(t, codes.Canceled, status.Code(err))
		if patient {
			close(g.gate)
		}
		eventually(t, func() bool { return g.ended.Load() == 100 })
		if patient {
			require.Zero(t, g.givenUp.Load())
		} else {
			require.EqualValues(t, 100, g.givenUp.Load())
		}
	}
}

// A node that drains answers what was begun, and leaves the rest to others.
func TestDrain(t *testing.T) {
	g := newGated()
	s, client := start(t, g, Config{})
	stream, err := client.Record(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(entries(1, 101)))
	eventually(t, func() bool { return g.begun.Load() == 100 })
	follower, err := client.FollowLeader(t.Context(), &workerv1.FollowLeaderRequest{})
	require.NoError(t, err)
	_, err = follower.Recv()
	require.NoError(t, err)
	s.Drain()
	s.Drain()
	_, err = follower.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	close(g.gate)
	answered(t, stream, 100)
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.EqualValues(t, 100, g.begun.Load())

	// A stream that is opened later ends at once.
	stream, err = client.Record(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
}

// No more entries than allowed are begun; the others wait on the wire.
func TestInFlightIsBounded(t *testing.T) {
	g := newGated()
	_, client := start(t, g, Config{MaxInFlight: 1000})
	stream, err := client.Record(t.Context())
	require.NoError(t, err)
	var sending sync.WaitGroup
	sending.Go(func() { // it is held up, too
		for i := range uint64(10) {
			if err := stream.Send(entries(500*i+1, 500*i+501)); err != nil {
				t.Error(err)
			}
		}
	})
	eventually(t, func() bool { return g.begun.Load() == 1000 })
	close(g.gate)
	answered(t, stream, 5000)
	sending.Wait()
	require.EqualValues(t, 5000, g.begun.Load())
	require.LessOrEqual(t, g.most.Load(), int32(1000))
}

func TestMessageLimits(t *testing.T) {
	g := newGated()
	close(g.gate)
	_, client := start(t, g, Config{})
	stream, err := client.Record(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(entries(1, MaxEntries+1)))
	answered(t, stream, MaxEntries)
	require.NoError(t, stream.Send(entries(1, MaxEntries+2)))
	_, err = stream.Recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "message has 513 entries; at most 512 are allowed")
}

// An entry that is wrong is answered so, alone, with everything that is wrong.
func TestEntriesAreChecked(t *testing.T) {
	g := newGated()
	close(g.gate)
	_, client := start(t, g, Config{})
	stream, err := client.Record(t.Context())
	require.NoError(t, err)

	run := "20261130T020000Z"
	finish := func(f *workerv1.Finish) *workerv1.RecordEntry {
		return &workerv1.RecordEntry{Kind: &workerv1.RecordEntry_Finish{Finish: f}}
	}
	for _, test := range []struct {
		entry *workerv1.RecordEntry
		code  codes.Code
		texts []string
	}{
		{&workerv1.RecordEntry{}, codes.Unimplemented, []string{"entry has no kind that this node knows"}},
		{
			&workerv1.RecordEntry{Kind: &workerv1.RecordEntry_Claim{Claim: &workerv1.Claim{}}},
			codes.InvalidArgument,
			[]string{
				"namespace: is empty", "job: is empty", "run: has 0 bytes; 1–64 are allowed", "live.shards: 0 is not above",
				"live.attempt: 0 is below 1", "live.owner: is empty", "live.ownerRevision: 0", "jobRevision: 0", "live.due: is missing",
			},
		},
		{
			finish(&workerv1.Finish{
				Namespace: "a/b", Job: "c", Live: &statev1.Live{Run: "x y", Shard: -1},
				Attempt: &statev1.Attempt{State: uint32(state.StateSkipped), Error: strings.Repeat("e", state.MaxErrorBytes+1)},
				Tail:    make([]byte, state.MaxTailBytes+1), Reason: strings.Repeat("r", state.MaxReasonBytes+1),
			}),
			codes.InvalidArgument,
			[]string{
				`namespace: "a/b" contains "/"`, `run: "x y" contains " "`, "shard: -1 is outside 0–", "token: 0 is no token",
				"attempt.state: a run cannot go from running to skipped", "attempt: an error has 1025 bytes; at most 1024",
				"tail: has 8193 bytes; at most 8192", "reason: has 513 bytes; at most 512",
			},
		},
		{
			finish(&workerv1.Finish{
				Namespace: "a", Job: "c", Token: 3,
				Live: &statev1.Live{Run: run, Attempts: make([]*statev1.Attempt, state.MaxAttemptRecords+1)}, Retry: 5,
			}),
			codes.InvalidArgument,
			[]string{"finish: live.attempts: has 21 attempts; at most 20 are allowed"},
		},
		{
			&workerv1.RecordEntry{Kind: &workerv1.RecordEntry_Checkpoint{Checkpoint: &workerv1.Checkpoint{
				Namespace: "a", Job: "c", Run: strings.Repeat("r", 65), Data: make([]byte, state.MaxCheckpoint+1),
			}}},
			codes.InvalidArgument,
			[]string{"run: has 65 bytes", "token: 0", "data: has 262145 bytes; at most 262144 are allowed"},
		},
	} {
		test.entry.Id = 1
		require.NoError(t, stream.Send(&workerv1.RecordRequest{Entries: []*workerv1.RecordEntry{test.entry, entry(2)}}))
		got := answered(t, stream, 2)
		require.Equal(t, test.code, codes.Code(got[1].GetCode()))
		for _, text := range test.texts {
			require.Contains(t, got[1].GetError(), text)
		}
		require.Zero(t, got[2].GetCode())
	}

	_, err = client.GetCheckpoint(t.Context(), &workerv1.GetCheckpointRequest{Namespace: "a", Job: "b", Run: "", Shard: 0})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

func TestRegistrations(t *testing.T) {
	db := memkv.New()
	defer db.Close()
	st, err := store.New(db, store.Config{})
	require.NoError(t, err)
	defer st.Close()
	reg := prometheus.NewRegistry()
	_, client := start(t, st, Config{Registerer: reg})

	labels := map[string]string{"": "x", "k": strings.Repeat("v", state.MaxLabelBytes+1)}
	_, err = client.Register(t.Context(), &workerv1.RegisterRequest{
		Name: "-", Ttl: durationpb.New(time.Millisecond),
		Node: &statev1.Node{Capacity: -1, Labels: labels, Address: strings.Repeat("a", 513), Version: strings.Repeat("v", 513)},
	})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	for _, text := range []string{
		"name: ", "node: has no role", "node.capacity: -1 is outside 0–1048576", "node.labels: a key has 0 bytes; 1–128 are allowed",
		"node.labels: a value has 129 bytes; at most 128", "node.address: has 513 bytes", "node.version: has 513 bytes", "ttl: 1ms is outside 1s–1h",
	} {
		require.ErrorContains(t, err, text)
	}

	register := func() *workerv1.RegisterResponse {
		resp, err := client.Register(t.Context(), &workerv1.RegisterRequest{
			Name: "a", Ttl: durationpb.New(10 * time.Second), Node: &statev1.Node{Executor: true, Capacity: 3, Address: "a:1"},
		})
		require.NoError(t, err)
		return resp
	}
	keep := func(r *workerv1.RegisterResponse) error {
		resp, err := client.KeepAlive(t.Context(), &workerv1.KeepAliveRequest{
			Lease: r.GetLease(), Name: "a", OwnerRevision: r.GetOwnerRevision(),
		})
		if err == nil {
			require.Equal(t, 10*time.Second, resp.GetTtl().AsDuration())
		}
		return err
	}
	first := register()
	require.Equal(t, 10*time.Second, first.GetTtl().AsDuration())
	require.NoError(t, keep(first))
	second := register()
	require.Greater(t, second.GetOwnerRevision(), first.GetOwnerRevision())
	require.Equal(t, codes.NotFound, status.Code(keep(first)), "its name was taken, though its lease lasts")
	require.NoError(t, keep(second))
	nodes, err := st.ListNodes(t.Context())
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	require.Equal(t, "a:1", nodes[0].Address)
	for range 2 {
		_, err = client.Deregister(t.Context(), &workerv1.DeregisterRequest{
			Lease: second.GetLease(), Name: "a", OwnerRevision: second.GetOwnerRevision(),
		})
		require.NoError(t, err)
	}
	require.Equal(t, codes.NotFound, status.Code(keep(second)))

	families, err := reg.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, families)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestConfig(t *testing.T) {
	_, err := NewServer(nil, nobody{}, Config{MaxInFlight: 1, Linger: time.Hour, PulseInterval: 1})
	require.ErrorContains(t, err, "max_in_flight: 1 is outside 512–1048576")
	require.ErrorContains(t, err, "linger: 1h0m0s is outside 100ms–1m")
	require.ErrorContains(t, err, "pulse_interval: 1ns")
}

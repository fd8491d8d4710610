package api

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderd/leaderd/planner"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const billing = "namespaces/default/jobs/billing"

// served is the API over a real gRPC connection and a store in memory.
type served struct {
	db      kv.KV
	store   *store.Store
	jobs    leaderdv1.JobServiceClient
	runs    leaderdv1.RunServiceClient
	cluster leaderdv1.ClusterServiceClient
	dead    leaderdv1.DeadLetterServiceClient

	circuits leaderdv1.CircuitServiceClient

	timeline    leaderdv1.TimelineServiceClient
	backfills   leaderdv1.BackfillServiceClient
	calendars   leaderdv1.CalendarServiceClient
	clock       atomic.Pointer[time.Time] // nil: the real one
	saved       leaderdv1.CheckpointServiceClient
	submissions leaderdv1.SubmissionServiceClient
	queued      leaderdv1.QueueServiceClient
	queue       queue
	adhoc       atomic.Int64 // jobs that submissions made, as the watch tells
}

// wall is what the API takes for the time.
func (s *served) wall() time.Time {
	if at := s.clock.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// at sets the clock that the API reads.
func (s *served) at(now time.Time) { s.clock.Store(&now) }

type leadership struct{}

func (leadership) Leader() (string, int64) { return "n1", 7 }

type counts struct{ adhoc *atomic.Int64 }

func (counts) Len() (jobs, broken int) { return 2, 1 }

func (c counts) Adhoc() int { return int(c.adhoc.Load()) }

func (counts) Has(state.JobID) bool { return false }

// Together says that three others are due in every full hour.
func (counts) Together(instants []time.Time, _ state.JobID) (jobs int, found []planner.Together) {
	for _, at := range instants {
		one := planner.Together{At: at}
		if at.Minute() == 0 {
			one.Jobs, one.Some = 3, []state.JobID{{Namespace: "default", Name: "a"}}
		}
		found = append(found, one)
	}
	return 4, found
}

// serve serves the API from db, which wrap may make faulty.
func serve(t *testing.T, wrap func(kv.KV) kv.KV) *served {
	t.Helper()
	mem := memkv.New()
	var db kv.KV = mem
	if wrap != nil {
		db = wrap(mem)
	}
	st, err := store.New(db, store.Config{})
	require.NoError(t, err)
	cache, nodes := st.JobsCache(), st.NodesCache()
	s := &served{db: mem, store: st}
	server, err := New(Config{
		Node: "n1", Reader: st, Lister: cache, Versions: st, Putter: st, Pauser: st, Triggerer: st, Submitter: st, Canceller: st, Repeater: st, Backfills: st, Calendars: st, Checkpoint: st,
		Runs: st, DeadLetters: st, Circuits: st, Watermark: st,
		Leadership: leadership{}, Nodes: nodes, Jobs: counts{&s.adhoc}, Wall: s.wall, Queue: &s.queue, Holders: st,
	})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	for _, run := range []func(context.Context) error{cache.Run, nodes.Run} {
		go func() { done <- run(ctx) }()
	}
	listener := bufconn.Listen(1 << 20)
	rpc := grpc.NewServer()
	server.Register(rpc)
	go func() { _ = rpc.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///api", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		rpc.Stop()
		cancel()
		for range cap(done) {
			require.NoError(t, <-done)
		}
		st.Close()
		mem.Close()
	})
	s.jobs = leaderdv1.NewJobServiceClient(conn)
	s.runs = leaderdv1.NewRunServiceClient(conn)
	s.dead = leaderdv1.NewDeadLetterServiceClient(conn)
	s.circuits = leaderdv1.NewCircuitServiceClient(conn)
	s.timeline = leaderdv1.NewTimelineServiceClient(conn)
	s.backfills = leaderdv1.NewBackfillServiceClient(conn)
	s.cluster = leaderdv1.NewClusterServiceClient(conn)
	s.calendars = leaderdv1.NewCalendarServiceClient(conn)
	s.saved = leaderdv1.NewCheckpointServiceClient(conn)
	s.submissions = leaderdv1.NewSubmissionServiceClient(conn)
	s.queued = leaderdv1.NewQueueServiceClient(conn)
	return s
}

func spec(schedules ...string) *leaderdv1.JobSpec {
	return &leaderdv1.JobSpec{
		Schedules: schedules,
		Target:    &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
	}
}

// put creates or replaces a job.
func (s *served) put(t *testing.T, name string, spec *leaderdv1.JobSpec) *leaderdv1.UpdateJobResponse {
	t.Helper()
	res, err := s.jobs.UpdateJob(t.Context(), &leaderdv1.UpdateJobRequest{
		Job: &leaderdv1.Job{Name: name, Spec: spec}, AllowMissing: true,
	})
	require.NoError(t, err)
	return res
}

// requireFailure checks an error's code and reason.
func requireFailure(t *testing.T, err error, code codes.Code, reason leaderdv1.ErrorReason) {
	t.Helper()
	require.Equal(t, code, status.Code(err), "%v", err)
	require.Equal(t, reason.String(), reasonOf(err), "%v", err)
}

func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return info.GetReason()
		}
	}
	return ""
}

// requireBadFields checks that exactly these fields are refused.
func requireBadFields(t *testing.T, err error, fields ...string) {
	t.Helper()
	requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
	var got []string
	for _, d := range status.Convert(err).Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, f := range bad.GetFieldViolations() {
				require.NotEmpty(t, f.GetDescription())
				got = append(got, f.GetField())
			}
		}
	}
	slices.Sort(got)
	slices.Sort(fields)
	require.Equal(t, fields, got, "%v", err)
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{})
	for _, field := range []string{"Node", "Reader", "Lister", "Versions", "Putter", "Pauser", "Triggerer", "Canceller", "Repeater", "Checkpoint", "Runs", "Watermark", "Leadership", "Nodes", "Jobs"} {
		require.ErrorContains(t, err, field+": is required")
	}
}

func TestClusterStatus(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	for _, name := range []string{"n2", "n1"} {
		_, err := s.store.Register(ctx, state.Node{Name: name, Control: true, Capacity: 3, Labels: map[string]string{"a": "b"}}, time.Minute)
		require.NoError(t, err)
	}
	status := func() *leaderdv1.GetClusterStatusResponse {
		res, err := s.cluster.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{})
		require.NoError(t, err)
		return res
	}
	require.Eventually(t, func() bool {
		res := status()
		return len(res.GetNodes()) == 2
	}, 10*time.Second, time.Millisecond)
	res := status()
	require.Equal(t, "n1", res.GetLeader())
	require.EqualValues(t, 7, res.GetTerm())
	require.Equal(t, "n1", res.GetAnsweredBy())
	require.Nil(t, res.GetWatermark())
	require.Nil(t, res.GetLateness())
	require.Equal(t, "n1", res.GetNodes()[0].GetName())
	require.True(t, res.GetNodes()[0].GetLeader())
	require.False(t, res.GetNodes()[1].GetLeader())

	leader := state.Term{Number: 7, Key: s.store.Prefix() + "leader/a"}
	put, err := s.db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(leader.Key, nil, 0)}})
	require.NoError(t, err)
	leader.Number = put.Revision
	require.NoError(t, s.store.PutWatermark(ctx, leader, state.Watermark{
		Instant: time.Now(), Written: time.Now(),
		Lateness: state.Lateness{Starts: 3, P50: time.Millisecond, P99: time.Second, Max: time.Minute},
		Clocks:   []state.ClockSkew{{Node: res.GetNodes()[1].GetName(), Ahead: -2 * time.Second}},
	}))
	res = status()
	require.Nil(t, res.GetNodes()[0].GetClockAhead())
	require.Equal(t, -2*time.Second, res.GetNodes()[1].GetClockAhead().AsDuration())
	require.EqualValues(t, 3, res.GetLateness().GetStarts())
	require.Equal(t, time.Minute, res.GetLateness().GetMax().AsDuration())
	require.Less(t, res.GetWatermarkLag().AsDuration(), time.Minute)
}

// spoil makes the stored value of a job of the default namespace unreadable.
func spoil(t *testing.T, s *served, name string) {
	t.Helper()
	_, err := s.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{
		kv.Put(store.DefaultPrefix+"jobs/default/"+name, []byte("\xff\xff"), 0),
	}})
	require.NoError(t, err)
}

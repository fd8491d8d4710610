package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// node is a control node of its own, which answers as it is told.
type node struct {
	leaderdv1.UnimplementedJobServiceServer
	leaderdv1.UnimplementedSubmissionServiceServer
	address string
	calls   atomic.Int64
	answer  func(context.Context) error
}

func (n *node) TriggerJob(ctx context.Context, _ *leaderdv1.TriggerJobRequest) (*leaderdv1.TriggerJobResponse, error) {
	n.calls.Add(1)
	return &leaderdv1.TriggerJobResponse{}, n.answer(ctx)
}

func (n *node) GetJob(ctx context.Context, _ *leaderdv1.GetJobRequest) (*leaderdv1.GetJobResponse, error) {
	n.calls.Add(1)
	return &leaderdv1.GetJobResponse{}, n.answer(ctx)
}

func (n *node) SubmitRun(ctx context.Context, _ *leaderdv1.SubmitRunRequest) (*leaderdv1.SubmitRunResponse, error) {
	n.calls.Add(1)
	return &leaderdv1.SubmitRunResponse{Run: "r"}, n.answer(ctx)
}

func ready(context.Context) error { return nil }

// broken is how a connection ends in the middle of a call, as far as a caller sees.
func broken(context.Context) error { return status.Error(codes.Unavailable, "transport is closing") }

func away(context.Context) error {
	st, err := status.New(codes.Unavailable, "the store is away").WithDetails(&errdetails.ErrorInfo{Reason: "STORE_UNAVAILABLE"})
	if err != nil {
		return err
	}
	return st.Err()
}

// silent answers when its caller has gone.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

func startNode(t *testing.T, answer func(context.Context) error, opts ...grpc.ServerOption) *node {
	t.Helper()
	n := &node{answer: answer}
	server := grpc.NewServer(opts...)
	leaderdv1.RegisterJobServiceServer(server, n)
	leaderdv1.RegisterSubmissionServiceServer(server, n)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n.address = listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	return n
}

func connect(t *testing.T, addresses ...string) *Conn {
	t.Helper()
	var nodes []*grpc.ClientConn
	for _, address := range addresses {
		c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		nodes = append(nodes, c)
	}
	c := Over(nodes...)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// A node from which nothing comes back, whose machine is off perhaps, keeps no call from
// another one.
func TestConnPassesANodeThatCannotBeReached(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it never accepts
	require.NoError(t, err)
	defer func() { require.NoError(t, mute.Close()) }()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	live := startNode(t, ready)
	c := connect(t, gone.Addr().String(), mute.Addr().String(), live.address)
	_, err = leaderdv1.NewJobServiceClient(c).TriggerJob(t.Context(), &leaderdv1.TriggerJobRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 1, live.calls.Load())
}

// A node that is stuck takes one call's time, and not that of the next.
func TestConnLeavesANodeThatIsStuck(t *testing.T) {
	stuck, live := startNode(t, silent), startNode(t, ready)
	jobs := leaderdv1.NewJobServiceClient(connect(t, stuck.address, live.address))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := jobs.GetJob(ctx, &leaderdv1.GetJobRequest{})
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	_, err = jobs.GetJob(t.Context(), &leaderdv1.GetJobRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 1, stuck.calls.Load())
	require.EqualValues(t, 1, live.calls.Load())
}

// What may have been carried out goes to another node only where that does no harm; what a
// node says that it has not done goes in any case.
func TestConnRepeatsOnlyWhatItMay(t *testing.T) {
	trigger := func(ctx context.Context, c *Conn) error {
		_, err := leaderdv1.NewJobServiceClient(c).TriggerJob(ctx, &leaderdv1.TriggerJobRequest{})
		return err
	}
	submit := func(key string) func(context.Context, *Conn) error {
		return func(ctx context.Context, c *Conn) error {
			_, err := leaderdv1.NewSubmissionServiceClient(c).SubmitRun(ctx, &leaderdv1.SubmitRunRequest{IdempotencyKey: key})
			return err
		}
	}
	for _, c := range []struct {
		name   string
		answer func(context.Context) error
		call   func(context.Context, *Conn) error
		again  bool
	}{
		{"trigger, broken", broken, trigger, false},
		{"trigger, not done", away, trigger, true},
		{"submission without a key, broken", broken, submit(""), false},
		{"submission with a key, broken", broken, submit("k"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, second := startNode(t, c.answer), startNode(t, ready)
			err := c.call(t.Context(), connect(t, first.address, second.address))
			require.EqualValues(t, 1, first.calls.Load())
			if c.again {
				require.NoError(t, err)
				require.EqualValues(t, 1, second.calls.Load())
				return
			}
			require.Equal(t, codes.Unavailable, status.Code(err))
			require.Zero(t, second.calls.Load())
		})
	}
}

// TestEveryCallIsKnown wants it decided of each method whether it may be sent again.
func TestEveryCallIsKnown(t *testing.T) {
	know := map[string]bool{
		"CreateBackfill": false, "TriggerJob": false, "DeleteJob": false, "DeleteCalendar": false, "RequeueDeadLetter": false,
		"DropDeadLetter": false, "RetryRun": false, "SubmitRun": false, "SubmitRuns": true, // of none
		"CancelBackfill": true, "CancelRun": true, "DeleteCheckpoints": false, "SetCheckpoint": true, "ListCheckpoints": true, "ResetCircuit": true, "UpdateCalendar": true,
		"UpdateJob": true, "PauseJob": true, "ResumeJob": true,
		"ExplainSlot": true, "GetBackfill": true, "GetCalendar": true, "GetCheckpoint": true, "GetCircuit": true, "GetClusterStatus": true,
		"GetDeadLetter": true, "GetJob": true, "GetRun": true, "GetRunResult": true, "ListBackfills": true, "ListCalendars": true,
		"ListDeadLetters": true, "ListJobVersions": true, "ListJobs": true, "ListQueue": true, "ListRuns": true, "ListShards": true,
		"ListSlots": true, "SimulateJob": true, "WaitRun": true,
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("leaderd.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				want, ok := know[string(m.Name())]
				require.True(t, ok, "%s: may it be sent again? see repeatable", m.FullName())
				req, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
				require.NoError(t, err)
				require.Equal(t, want, repeatable(req.New().Interface()), m.FullName())
			}
		}
		return true
	})
	require.True(t, repeatable(&leaderdv1.RetryRunRequest{IdempotencyKey: "k"}))
	for _, m := range []proto.Message{
		&leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Etag: "7"}}, &leaderdv1.PauseJobRequest{Etag: "7"},
		&leaderdv1.ResumeJobRequest{Etag: "7"}, &leaderdv1.SetCheckpointRequest{Replace: true}, &leaderdv1.UpdateCalendarRequest{Calendar: &leaderdv1.Calendar{Etag: "7"}},
		&leaderdv1.SubmitRunsRequest{Requests: []*leaderdv1.SubmitRunRequest{{IdempotencyKey: "k"}, {}}},
	} {
		require.False(t, repeatable(m), "%T", m)
	}
}

// Over TLS a node shows that it is the one that was named.
func TestDialOverTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	live := startNode(t, ready, grpc.Creds(credentials.NewServerTLSFromCert(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})))
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	c, err := Dial(live.address, credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	sent, err := c.Submit(ctx, Submission{Job: "a"})
	require.NoError(t, err)
	require.Equal(t, "r", sent.Run)
}

package client

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster answers as one that fails for a while would.
type cluster struct {
	leaderdv1.UnimplementedSubmissionServiceServer
	leaderdv1.UnimplementedRunServiceServer

	mu    sync.Mutex
	fails int // so many calls, or wishes of a call, fail first
	keys  map[string]string
	calls []int // wishes of each
	waits int
	why   string
}

func (c *cluster) fail() error {
	if c.fails == 0 {
		return nil
	}
	c.fails--
	return status.Error(codes.Unavailable, "no leader")
}

func (c *cluster) take(req *leaderdv1.SubmitRunRequest) (run string, duplicate bool, err error) {
	if strings.HasSuffix(req.GetJob(), "/absent") {
		return "", false, status.Error(codes.NotFound, "job: there is none")
	}
	key := req.GetJob() + " " + req.GetIdempotencyKey()
	if run, ok := c.keys[key]; ok {
		return run, true, nil
	}
	run = fmt.Sprintf("%s/runs/%d", req.GetJob(), len(c.keys))
	c.keys[key] = run
	return run, false, nil
}

// SubmitRun takes the wish, and fails all the same while it is to fail.
func (c *cluster) SubmitRun(_ context.Context, req *leaderdv1.SubmitRunRequest) (*leaderdv1.SubmitRunResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	run, duplicate, err := c.take(req)
	if failed := c.fail(); failed != nil {
		return nil, failed
	}
	return &leaderdv1.SubmitRunResponse{Run: run, Duplicate: duplicate}, err
}

// SubmitRuns has the first wishes fail while they are to.
func (c *cluster) SubmitRuns(_ context.Context, req *leaderdv1.SubmitRunsRequest) (*leaderdv1.SubmitRunsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, len(req.GetRequests()))
	resp := &leaderdv1.SubmitRunsResponse{}
	for _, one := range req.GetRequests() {
		var r leaderdv1.SubmitResult
		err := c.fail()
		if err == nil {
			r.Run, r.Duplicate, err = c.take(one)
		}
		if s := status.Convert(err); err != nil {
			r.Error = &leaderdv1.SubmitError{Code: int32(s.Code()), Message: s.Message()}
		}
		resp.Results = append(resp.Results, &r)
	}
	return resp, nil
}

func (c *cluster) WaitRun(_ context.Context, req *leaderdv1.WaitRunRequest) (*leaderdv1.WaitRunResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits++
	return &leaderdv1.WaitRunResponse{Run: &leaderdv1.Run{Name: req.GetName()}, Done: c.waits == 3}, nil
}

func (c *cluster) GetRunResult(_ context.Context, req *leaderdv1.GetRunResultRequest) (*leaderdv1.GetRunResultResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fail(); err != nil {
		return nil, err
	}
	return &leaderdv1.GetRunResultResponse{Result: []byte("of " + req.GetName())}, nil
}

func (c *cluster) CancelRun(_ context.Context, req *leaderdv1.CancelRunRequest) (*leaderdv1.CancelRunResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fail(); err != nil {
		return nil, err
	}
	c.why = req.GetName() + ": " + req.GetReason()
	return &leaderdv1.CancelRunResponse{}, nil
}

// dial answers a cluster that fails so often first, and its client.
func dial(t *testing.T, fails int) (*cluster, *Client) {
	t.Helper()
	c := &cluster{fails: fails, keys: map[string]string{}}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(8 << 20))
	leaderdv1.RegisterSubmissionServiceServer(server, c)
	leaderdv1.RegisterRunServiceServer(server, c)
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	client, err := Dial("one:1, two:2", insecure.NewCredentials(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
	return c, client
}

// A wish that was taken although its caller heard of a failure makes one run; with a
// key of the caller's it may have been somebody else's.
func TestSubmitAgain(t *testing.T) {
	for key, duplicate := range map[string]bool{"": false, "order-7": true} {
		c, client := dial(t, 2)
		sent, err := client.Submit(t.Context(), Submission{Job: "a", Key: key})
		require.NoError(t, err)
		require.Equal(t, Submitted{Run: "namespaces/default/jobs/a/runs/0", Duplicate: duplicate}, sent)
		require.Len(t, c.keys, 1)
	}
}

func TestRefused(t *testing.T) {
	c, client := dial(t, 0)
	for text, s := range map[string]Submission{
		"job: there is none":              {Job: "ns/absent"},
		`job: "a/b/c" is not`:             {Job: "a/b/c"},
		"at and delay are both set":       {Job: "a", At: time.Now(), Delay: time.Second},
		`job: "" is not namespace/name`:   {},
		`job: "/a" is not namespace/name`: {Job: "/a"},
	} {
		_, err := client.Submit(t.Context(), s)
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, err, text)
	}
	require.Empty(t, c.keys)
	_, err := Dial(" , ", insecure.NewCredentials())
	require.ErrorContains(t, err, "no address")
}

// A submission that brings a spec need not name a job.
func TestSubmitSpec(t *testing.T) {
	c, client := dial(t, 0)
	spec := &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}}
	for job, name := range map[string]string{
		"": "namespaces/default", "shop/": "namespaces/shop", "a": "namespaces/default/jobs/a", "shop/a": "namespaces/shop/jobs/a",
	} {
		sent, err := client.Submit(t.Context(), Submission{Job: job, Spec: spec})
		require.NoError(t, err)
		require.Contains(t, sent.Run, name+"/runs/")
	}
	require.Len(t, c.keys, 4)
	_, err := client.Submit(t.Context(), Submission{Job: "/a", Spec: spec})
	require.ErrorIs(t, err, ErrRefused)
}

// Of many wishes each has its answer in its place: those that failed for a while are
// sent again, those that were refused are not.
func TestSubmitAll(t *testing.T) {
	c, client := dial(t, 3)
	all := make([]Submission, most+5)
	for i := range all {
		all[i] = Submission{Job: fmt.Sprintf("ns/j%d", i), Key: "k"}
	}
	all[1].Job, all[4].Job = "ns/absent", "no/such/job"
	all[6] = all[5]
	answers, err := client.SubmitAll(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, answers, len(all))
	for i, a := range answers {
		switch i {
		case 1, 4:
			require.ErrorIs(t, a.Err, ErrRefused)
			require.Empty(t, a.Run)
		default:
			require.NoError(t, a.Err)
			require.Contains(t, a.Run, strings.Replace(all[i].Job, "ns/", "namespaces/ns/jobs/", 1)+"/runs/")
			require.Equal(t, i == 6, a.Duplicate)
		}
	}
	require.Equal(t, answers[5].Run, answers[6].Run)
	require.Equal(t, []int{most, 3, 4}, c.calls)
	require.Len(t, c.keys, len(all)-3)
}

// What is large goes in several calls.
func TestSubmitAllIsBounded(t *testing.T) {
	c, client := dial(t, 0)
	all := make([]Submission, 7)
	for i := range all {
		all[i] = Submission{Job: "a", Payload: make([]byte, 1<<20)}
	}
	_, err := client.SubmitAll(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, []int{3, 3, 1}, c.calls)
}

func TestWaitResultCancel(t *testing.T) {
	c, client := dial(t, 2)
	run, err := client.Wait(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, "r", run.GetName())
	require.Equal(t, 3, c.waits)
	result, err := client.Result(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, "of r", string(result))
	c.fails = 1
	require.NoError(t, client.Cancel(t.Context(), "r", "no need"))
	require.Equal(t, "r: no need", c.why)
}

// A context that ends says so, and what went wrong last.
func TestContextEnds(t *testing.T) {
	_, client := dial(t, 1<<30)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, context.DeadlineExceeded)
	defer cancel()
	_, err := client.Submit(ctx, Submission{Job: "a"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrRefused)
	answers, err := client.SubmitAll(ctx, []Submission{{Job: "a"}, {Job: "b"}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, answers, 2)
}

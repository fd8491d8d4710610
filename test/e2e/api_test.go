package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/internal/history"
	"github.com/leaderd/leaderd/internal/rpc"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	// callTimeout is what one node gets to answer: a stopped one does not.
	callTimeout = 3 * time.Second
	// longestCall is what it gets when all have been asked in vain again and again:
	// the machine may be slow.
	longestCall = 24 * time.Second
)

// api is a client of a cluster that goes from node to node until one answers.
// It may be used concurrently.
type api struct {
	t         testing.TB
	addresses []string
	conns     []*grpc.ClientConn

	mu   sync.Mutex
	good int // index of the node that answered last
}

func newAPI(t testing.TB, addresses ...string) *api {
	t.Helper()
	a := &api{t: t, addresses: addresses}
	for _, address := range addresses {
		conn, err := rpc.Dial(address, rpc.ClientConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() }) // fails only if closed before
		a.conns = append(a.conns, conn)
	}
	return a
}

// prefer has one of the nodes asked first from now on.
func (a *api) prefer(nodes ...*node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.good = slices.Index(a.addresses, nodes[0].api)
}

// do calls one node after the other until one has an answer that another would
// not change.
func (a *api) do(ctx context.Context, call func(context.Context, *grpc.ClientConn) error) error {
	for asked := 0; ; asked++ {
		a.mu.Lock()
		at := a.good
		a.mu.Unlock()
		limit := min(callTimeout<<min(asked/(2*len(a.conns)), 10), longestCall)
		one, cancel := context.WithTimeout(ctx, limit)
		err := call(one, a.conns[at])
		cancel()
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Unknown, codes.Canceled:
		default:
			return err
		}
		a.mu.Lock()
		if a.good == at {
			a.good = (at + 1) % len(a.conns)
		}
		a.mu.Unlock()
		tick := time.NewTimer(20 * time.Millisecond)
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("no node answers: %w", err)
		}
	}
}

// call is do with a typed answer, bounded by patience; it fails the test on
// error.
func call[Req, Resp any](a *api, method method[Req, Resp], req Req) Resp {
	a.t.Helper()
	resp, err := try(a, method, req)
	require.NoError(a.t, err)
	return resp
}

// method is one of all services'.
type method[Req, Resp any] = func(leaderd, context.Context, Req, ...grpc.CallOption) (Resp, error)

// try is call for requests that may be refused.
func try[Req, Resp any](a *api, method method[Req, Resp], req Req) (Resp, error) {
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	return within(ctx, a, method, req)
}

// within is try, bounded by a context.
func within[Req, Resp any](ctx context.Context, a *api, method method[Req, Resp], req Req) (resp Resp, err error) {
	err = a.do(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		resp, err = method(leaderd{
			leaderdv1.NewJobServiceClient(conn), leaderdv1.NewRunServiceClient(conn), leaderdv1.NewClusterServiceClient(conn),
		}, ctx, req)
		return err
	})
	return resp, err
}

// leaderd is all services together, so that a method can be named by itself.
type leaderd struct {
	leaderdv1.JobServiceClient
	leaderdv1.RunServiceClient
	leaderdv1.ClusterServiceClient
}

func jobName(name string) string { return "namespaces/default/jobs/" + name }

// apply stores jobs, many at a time.
func (a *api) apply(jobs ...*leaderdv1.Job) {
	a.t.Helper()
	var g errgroup.Group
	g.SetLimit(16)
	for _, j := range jobs {
		g.Go(func() error {
			_, err := try(a, leaderd.UpdateJob, &leaderdv1.UpdateJobRequest{Job: j, AllowMissing: true})
			if err != nil {
				return fmt.Errorf("apply %s: %w", j.GetName(), err)
			}
			return nil
		})
	}
	require.NoError(a.t, g.Wait())
}

func (a *api) pause(name string) *leaderdv1.Job {
	a.t.Helper()
	return call(a, leaderd.PauseJob, &leaderdv1.PauseJobRequest{Name: jobName(name)}).GetJob()
}

func (a *api) resume(name string) {
	a.t.Helper()
	call(a, leaderd.ResumeJob, &leaderdv1.ResumeJobRequest{Name: jobName(name)})
}

func (a *api) remove(name string) {
	a.t.Helper()
	_, err := try(a, leaderd.DeleteJob, &leaderdv1.DeleteJobRequest{Name: jobName(name)})
	if status.Code(err) != codes.NotFound { // an earlier try may have done it
		require.NoError(a.t, err)
	}
}

// trigger asks for a run and answers its name.
func (a *api) trigger(name string) string {
	a.t.Helper()
	return call(a, leaderd.TriggerJob, &leaderdv1.TriggerJobRequest{Name: jobName(name)}).GetRun()
}

func (a *api) status() *leaderdv1.GetClusterStatusResponse {
	a.t.Helper()
	return call(a, leaderd.GetClusterStatus, &leaderdv1.GetClusterStatusRequest{})
}

// run reads a run by its resource name, nil where there is none.
func (a *api) run(name string) *leaderdv1.Run {
	a.t.Helper()
	resp, err := try(a, leaderd.GetRun, &leaderdv1.GetRunRequest{Name: name})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	require.NoError(a.t, err)
	return resp.GetRun()
}

// runs lists the runs of a job, the newest first, or of all.
func (a *api) runs(job string) []*leaderdv1.Run {
	a.t.Helper()
	parent := "namespaces/-/jobs/-"
	if job != "" {
		parent = jobName(job)
	}
	var out []*leaderdv1.Run
	token := ""
	for {
		resp := call(a, leaderd.ListRuns, &leaderdv1.ListRunsRequest{Parent: parent, PageSize: 1000, PageToken: token})
		out = append(out, resp.GetRuns()...)
		if token = resp.GetNextPageToken(); token == "" {
			return out
		}
	}
}

// awaitRun waits until a run is over and answers it.
func (a *api) awaitRun(name string) *leaderdv1.Run {
	a.t.Helper()
	var run *leaderdv1.Run
	await(a.t, name+" is over", func(context.Context) error {
		run = a.run(name)
		if !over(run.GetState()) {
			return fmt.Errorf("it is %s", run.GetState())
		}
		return nil
	})
	return run
}

// awaitLeader waits until a node other than those leads and answers its name.
func (a *api) awaitLeader(not ...string) string {
	a.t.Helper()
	var leader string
	await(a.t, "there is a leader", func(context.Context) error {
		leader = a.status().GetLeader()
		if leader == "" {
			return fmt.Errorf("there is none")
		}
		if slices.Contains(not, leader) {
			return fmt.Errorf("%s still leads", leader)
		}
		return nil
	})
	return leader
}

// awaitWatermark waits until all slots up to then are accounted for.
func (a *api) awaitWatermark(then time.Time) {
	a.t.Helper()
	await(a.t, "the watermark reaches "+then.Format(time.RFC3339), func(context.Context) error {
		if mark := a.status().GetWatermark().AsTime(); mark.Before(then) {
			return fmt.Errorf("it is at %s", mark.Format(time.RFC3339Nano))
		}
		return nil
	})
}

// awaitNodes waits until exactly n nodes are registered.
func (a *api) awaitNodes(n int) {
	a.t.Helper()
	await(a.t, fmt.Sprintf("%d nodes are registered", n), func(context.Context) error {
		if s := a.status(); len(s.GetNodes()) != n {
			return fmt.Errorf("there are %d", len(s.GetNodes()))
		}
		return nil
	})
}

func over(s leaderdv1.Run_State) bool { return s >= leaderdv1.Run_STATE_SUCCEEDED }

func stateName(s leaderdv1.Run_State) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATE_"))
}

// historic is a run as package history takes it.
func historic(r *leaderdv1.Run) history.Run {
	parts := strings.Split(r.GetName(), "/")
	out := history.Run{
		Job: parts[3], ID: parts[5], State: stateName(r.GetState()), Reason: r.GetReason(),
		Due: r.GetDueTime().AsTime(), Count: r.GetSlotCount(), Generation: r.GetJobGeneration(), Ended: r.GetRevision(),
	}
	if r.GetState() == leaderdv1.Run_STATE_UNREADABLE {
		out.Unreadable = r.GetDetail()
	}
	if r.GetUntilTime() != nil {
		out.Until = r.GetUntilTime().AsTime()
	}
	out.Doubles = len(r.GetDoubles())
	for _, at := range r.GetAttempts() {
		a := history.Attempt{
			Number: int(at.GetNumber()), Token: at.GetToken(), Term: at.GetTerm(), Node: at.GetNode(), State: stateName(at.GetState()),
			Unclaimed: at.GetUnclaimed(),
		}
		if at.GetStartTime() != nil {
			a.Started = at.GetStartTime().AsTime()
		}
		if at.GetEndTime() != nil {
			a.Ended = at.GetEndTime().AsTime()
		}
		out.Attempts = append(out.Attempts, a)
	}
	return out
}

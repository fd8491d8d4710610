package cli

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is the API over some maps.
type fake struct {
	leaderdv1.UnimplementedJobServiceServer
	leaderdv1.UnimplementedRunServiceServer
	leaderdv1.UnimplementedTimelineServiceServer
	leaderdv1.UnimplementedBackfillServiceServer
	fill *leaderdv1.Backfill
	leaderdv1.UnimplementedClusterServiceServer

	mu         sync.Mutex
	jobs       map[string]*leaderdv1.Job
	runs       []*leaderdv1.Run // all of them, the newest first
	actors     map[string]bool
	calls      []string
	fail       func(method string) error
	leaderless int // so many questions for the status are answered without a leader
	listed     func(*leaderdv1.ListRunsRequest)
	late       *leaderdv1.LateRuns

	slots []*leaderdv1.ListSlotsResponse // of each page
	asked *leaderdv1.ListSlotsRequest    // the last

	explained *leaderdv1.ExplainSlotResponse
	explain   *leaderdv1.ExplainSlotRequest // the last

	simulated *leaderdv1.SimulateJobResponse
}

var slot = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

// startFake serves the API on loopback until the test ends.
func startFake(t *testing.T) (*fake, string) {
	t.Helper()
	f := &fake{jobs: map[string]*leaderdv1.Job{}, actors: map[string]bool{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.serve(t, l)
	return f, l.Addr().String()
}

func (f *fake) serve(t *testing.T, l net.Listener) {
	s := grpc.NewServer(grpc.UnaryInterceptor(f.intercept))
	leaderdv1.RegisterJobServiceServer(s, f)
	leaderdv1.RegisterRunServiceServer(s, f)
	leaderdv1.RegisterTimelineServiceServer(s, f)
	leaderdv1.RegisterBackfillServiceServer(s, f)
	leaderdv1.RegisterClusterServiceServer(s, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
}

func (f *fake) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	f.calls = append(f.calls, method)
	md, _ := metadata.FromIncomingContext(ctx)
	for _, a := range md.Get(actorKey) {
		f.actors[a] = true
	}
	if f.fail != nil {
		if err := f.fail(method); err != nil {
			return nil, err
		}
	}
	return h(ctx, req)
}

func apiErr(code codes.Code, reason leaderdv1.ErrorReason, message string, details ...protoadapt.MessageV1) error {
	st, err := status.New(code, message).WithDetails(append(details,
		&errdetails.ErrorInfo{Reason: reason.String(), Domain: "leaderd"})...)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func notFound(name string) error {
	return apiErr(codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND, name+" does not exist")
}

func (f *fake) GetJob(_ context.Context, r *leaderdv1.GetJobRequest) (*leaderdv1.GetJobResponse, error) {
	j, ok := f.jobs[r.GetName()]
	if !ok {
		return nil, notFound(r.GetName())
	}
	return &leaderdv1.GetJobResponse{Job: j}, nil
}

// ListJobs answers one job a page.
func (f *fake) ListJobs(_ context.Context, r *leaderdv1.ListJobsRequest) (*leaderdv1.ListJobsResponse, error) {
	resp := &leaderdv1.ListJobsResponse{}
	for _, name := range slices.Sorted(maps.Keys(f.jobs)) {
		if name <= r.GetPageToken() || r.GetParent() != "namespaces/-" && !strings.HasPrefix(name, r.GetParent()+"/") {
			continue
		}
		if len(resp.GetJobs()) == 1 {
			resp.NextPageToken = resp.GetJobs()[0].GetName()
			break
		}
		resp.Jobs = append(resp.Jobs, f.jobs[name])
	}
	return resp, nil
}

func (f *fake) UpdateJob(_ context.Context, r *leaderdv1.UpdateJobRequest) (*leaderdv1.UpdateJobResponse, error) {
	spec := r.GetJob().GetSpec()
	if spec.GetTarget() == nil {
		return nil, apiErr(codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD, "the job is not allowed",
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: "spec", Description: "has no target"},
				{Field: "spec.timeZone", Description: "is bad too"},
			}})
	}
	j := &leaderdv1.Job{
		Name: r.GetJob().GetName(), Spec: spec, Uid: "u1", Generation: 1, Etag: "e1",
		CreateTime: timestamppb.New(slot), UpdateTime: timestamppb.New(slot), UpdatedBy: "somebody",
	}
	result := leaderdv1.UpdateJobResponse_RESULT_CREATED
	if old := f.jobs[j.GetName()]; old != nil {
		result = leaderdv1.UpdateJobResponse_RESULT_UPDATED
		if proto.Equal(old.GetSpec(), spec) {
			result = leaderdv1.UpdateJobResponse_RESULT_UNCHANGED
		}
		if e := r.GetJob().GetEtag(); e != "" && e != old.GetEtag() {
			return nil, apiErr(codes.Aborted, leaderdv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH, "the job changed in between")
		}
	}
	if !r.GetValidateOnly() {
		f.jobs[j.GetName()] = j
	}
	answer := proto.CloneOf(j)
	if s := spec.GetSchedules(); len(s) > 0 && !strings.HasPrefix(s[0], "@at 2020") {
		answer.NextSlot = timestamppb.New(slot)
	}
	return &leaderdv1.UpdateJobResponse{Job: answer, Result: result}, nil
}

func (f *fake) DeleteJob(_ context.Context, r *leaderdv1.DeleteJobRequest) (*emptypb.Empty, error) {
	if f.jobs[r.GetName()] == nil {
		return nil, notFound(r.GetName())
	}
	delete(f.jobs, r.GetName())
	return &emptypb.Empty{}, nil
}

func (f *fake) PauseJob(_ context.Context, r *leaderdv1.PauseJobRequest) (*leaderdv1.PauseJobResponse, error) {
	j := f.jobs[r.GetName()]
	if j == nil {
		return nil, notFound(r.GetName())
	}
	j.Paused, j.PauseReason, j.PauseActor, j.PausedUntil = true, r.GetReason(), "ada", r.GetUntil()
	return &leaderdv1.PauseJobResponse{Job: j}, nil
}

func (f *fake) ResumeJob(_ context.Context, r *leaderdv1.ResumeJobRequest) (*leaderdv1.ResumeJobResponse, error) {
	j := f.jobs[r.GetName()]
	if j == nil {
		return nil, notFound(r.GetName())
	}
	j.Paused, j.PauseReason, j.PauseActor, j.PausedUntil = false, "", "", nil
	return &leaderdv1.ResumeJobResponse{Job: j}, nil
}

func (f *fake) TriggerJob(_ context.Context, r *leaderdv1.TriggerJobRequest) (*leaderdv1.TriggerJobResponse, error) {
	if f.jobs[r.GetName()] == nil {
		return nil, notFound(r.GetName())
	}
	return &leaderdv1.TriggerJobResponse{Run: r.GetName() + "/runs/r1"}, nil
}

func (f *fake) GetRun(_ context.Context, r *leaderdv1.GetRunRequest) (*leaderdv1.GetRunResponse, error) {
	for _, run := range f.runs {
		if run.GetName() == r.GetName() {
			return &leaderdv1.GetRunResponse{Run: run}, nil
		}
	}
	return nil, apiErr(codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND, "there is no run "+r.GetName())
}

func (f *fake) ListRuns(_ context.Context, r *leaderdv1.ListRunsRequest) (*leaderdv1.ListRunsResponse, error) {
	if f.listed != nil {
		f.listed(r)
	}
	resp := &leaderdv1.ListRunsResponse{}
	prefix, _, _ := strings.Cut(r.GetParent(), "/-")
	for _, run := range f.runs {
		if strings.HasPrefix(run.GetName(), prefix+"/") {
			resp.Runs = append(resp.Runs, run)
		}
	}
	if n := int(r.GetPageSize()); len(resp.GetRuns()) > n {
		resp.Runs = resp.GetRuns()[:n]
	}
	return resp, nil
}

func (f *fake) GetClusterStatus(context.Context, *leaderdv1.GetClusterStatusRequest) (*leaderdv1.GetClusterStatusResponse, error) {
	if f.leaderless > 0 {
		f.leaderless--
		return &leaderdv1.GetClusterStatusResponse{AnsweredBy: "n2"}, nil
	}
	return &leaderdv1.GetClusterStatusResponse{
		Leader: "n1", Term: 7, Watermark: timestamppb.New(slot), WatermarkLag: durationpb.New(40 * time.Millisecond),
		Jobs: int64(len(f.jobs)), QuarantinedJobs: 1, AnsweredBy: "n2", ZoneData: "2025c", Late: f.late,
		Lateness: &leaderdv1.Lateness{Starts: 9, P50: durationpb.New(time.Millisecond), P99: durationpb.New(3 * time.Millisecond), Max: durationpb.New(4 * time.Millisecond)},
		Nodes: []*leaderdv1.Node{{
			Name: "n1", Control: true, Executor: true, Address: "n1:7400", Capacity: 256, Version: "v1", Leader: true,
			StartTime: timestamppb.New(slot), Labels: map[string]string{"b": "2", "a": "1"},
		}},
	}, nil
}

func runOf(job string, due time.Time, state leaderdv1.Run_State, late, took time.Duration) *leaderdv1.Run {
	start := due.Add(late)
	code := int32(cmp.Compare(int(state), int(leaderdv1.Run_STATE_SUCCEEDED)))
	return &leaderdv1.Run{
		Name: job + "/runs/" + due.UTC().Format("20060102T150405Z"), State: state, DueTime: timestamppb.New(due),
		SlotCount: 1, JobGeneration: 1,
		Attempts: []*leaderdv1.Attempt{{
			Number: 1, Node: "n1", Token: 42, Term: 7, State: state, ExitCode: &code,
			StartTime: timestamppb.New(start), EndTime: timestamppb.New(start.Add(took)),
		}},
	}
}

// cmdline runs a command line against address.
func cmdline(t *testing.T, address, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	d := Deps{
		Version: "v1.2.3", Environ: []string{"LEADERD_ADDRESS=" + address},
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
	}
	code = Main(t.Context(), d, args)
	return code, out.String(), errs.String()
}

// succeed wants exit status 0, nothing on standard error, and answers the rest.
func succeed(t *testing.T, address, stdin string, args ...string) string {
	t.Helper()
	code, stdout, stderr := cmdline(t, address, stdin, args...)
	require.Zero(t, code, "%s", stderr)
	require.Empty(t, stderr)
	return stdout
}

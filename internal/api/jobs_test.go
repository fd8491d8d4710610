package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/planner"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

func TestEachBadFieldIsNamed(t *testing.T) {
	s := serve(t, nil)
	update := func(req *leaderdv1.UpdateJobRequest) error {
		_, err := s.jobs.UpdateJob(t.Context(), req)
		return err
	}
	with := func(change func(*leaderdv1.JobSpec)) *leaderdv1.UpdateJobRequest {
		sp := spec("@daily")
		change(sp)
		return &leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Name: billing, Spec: sp}, AllowMissing: true}
	}
	command := func(c *leaderdv1.Command) func(*leaderdv1.JobSpec) {
		return func(sp *leaderdv1.JobSpec) { sp.Target = &leaderdv1.JobSpec_Command{Command: c} }
	}
	request := func(h *leaderdv1.Http) func(*leaderdv1.JobSpec) {
		return func(sp *leaderdv1.JobSpec) { sp.Target = &leaderdv1.JobSpec_Http{Http: h} }
	}
	url := "https://example.com"
	for _, tc := range []struct {
		field  string
		change func(*leaderdv1.JobSpec)
	}{
		{"spec.description", func(sp *leaderdv1.JobSpec) { sp.Description = strings.Repeat("x", 1025) }},
		{"spec.labels", func(sp *leaderdv1.JobSpec) { sp.Labels = map[string]string{" ": ""} }},
		{"spec.schedules[1]", func(sp *leaderdv1.JobSpec) { sp.Schedules = []string{"@daily", "*/60 * * * *"} }},
		{"spec.schedules[0]", func(sp *leaderdv1.JobSpec) { sp.Schedules = []string{"0 0 30 2 *"} }},
		{"spec.schedules[0]", func(sp *leaderdv1.JobSpec) { sp.Schedules = []string{""} }},
		{"spec.timeZone", func(sp *leaderdv1.JobSpec) { sp.TimeZone = "Mars/Base" }},
		{"spec.timeZone", func(sp *leaderdv1.JobSpec) { sp.TimeZone = "Local" }},
		{"spec.overlap", func(sp *leaderdv1.JobSpec) { sp.Overlap = 77 }},
		{"spec.catchUp", func(sp *leaderdv1.JobSpec) { sp.CatchUp = 77 }},
		{"spec.guarantee", func(sp *leaderdv1.JobSpec) { sp.Guarantee = -1 }},
		{"spec.startDeadline", func(sp *leaderdv1.JobSpec) { sp.StartDeadline = durationpb.New(time.Millisecond) }},
		{"spec.startDeadline", func(sp *leaderdv1.JobSpec) { sp.StartDeadline = durationpb.New(0) }},
		{"spec.timeout", func(sp *leaderdv1.JobSpec) { sp.Timeout = &durationpb.Duration{Seconds: 1 << 40} }},
		{"spec.timeout", func(sp *leaderdv1.JobSpec) { sp.Timeout = &durationpb.Duration{Seconds: 1, Nanos: -1} }},
		{"spec.killGrace", func(sp *leaderdv1.JobSpec) { sp.KillGrace = durationpb.New(time.Hour) }},
		{"spec.nodeSelector", func(sp *leaderdv1.JobSpec) { sp.NodeSelector = map[string]string{"": ""} }},
		{"spec", func(sp *leaderdv1.JobSpec) { sp.Target = nil }},
		{"spec.command", command(&leaderdv1.Command{})},
		{"spec.command", command(nil)},
		{"spec.command.argv[0]", command(&leaderdv1.Command{Argv: []string{""}})},
		{"spec.command.shell", command(&leaderdv1.Command{Shell: "\x00"})},
		{"spec.command.env", command(&leaderdv1.Command{Shell: "x", Env: map[string]string{"LEADERD_X": ""}})},
		{"spec.command.dir", command(&leaderdv1.Command{Shell: "x", Dir: "here"})},
		{"spec.http.method", request(&leaderdv1.Http{Url: url, Method: "a b"})},
		{"spec.http.url", request(&leaderdv1.Http{Url: "example.com"})},
		{"spec.http.headers", request(&leaderdv1.Http{Url: url, Headers: map[string]string{"LEADERD-Token": ""}})},
		{"spec.http.body", request(&leaderdv1.Http{Url: url, Body: make([]byte, 256<<10+1)})},
		{"spec.http.expectedCodes[0]", request(&leaderdv1.Http{Url: url, ExpectedCodes: []int32{1}})},
		{"spec", command(&leaderdv1.Command{Argv: []string{strings.Repeat("x", 600<<10)}})},
	} {
		requireBadFields(t, update(with(tc.change)), tc.field)
	}

	ok := func() *leaderdv1.UpdateJobRequest { return with(func(*leaderdv1.JobSpec) {}) }
	for field, change := range map[string]func(*leaderdv1.UpdateJobRequest){
		"name":       func(r *leaderdv1.UpdateJobRequest) { r.Job.Name = "billing" },
		"spec":       func(r *leaderdv1.UpdateJobRequest) { r.Job.Spec = nil },
		"etag":       func(r *leaderdv1.UpdateJobRequest) { r.Job.Etag = "17" },
		"updateMask": func(r *leaderdv1.UpdateJobRequest) { r.UpdateMask = &fieldmaskpb.FieldMask{Paths: []string{"paused"}} },
		"reason":     func(r *leaderdv1.UpdateJobRequest) { r.Reason = strings.Repeat("x", 513) },
	} {
		req := ok()
		change(req)
		requireBadFields(t, update(req), field)
	}
	requireBadFields(t, update(&leaderdv1.UpdateJobRequest{}), "name", "spec")

	// All at once.
	req := with(func(sp *leaderdv1.JobSpec) {
		sp.Overlap = 77
		sp.Schedules = []string{"x", "y"}
		sp.Timeout = durationpb.New(-time.Second)
	})
	req.Job.Name, req.Reason = "namespaces/-/jobs/a b", "\x00"
	requireBadFields(t, update(req), "name", "name", "reason", "spec.overlap", "spec.schedules[0]", "spec.schedules[1]", "spec.timeout")

	_, err := s.jobs.GetJob(t.Context(), &leaderdv1.GetJobRequest{Name: billing})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND)
}

func TestBadNamesAndPages(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	for _, name := range []string{
		"", "billing", "namespaces/default/jobs/", "namespaces//jobs/x", "namespaces/default/jobs/a/b",
		"namespaces/default/jobs/a b", "namespaces/default/job/x", "namespaces/default/jobs/-", "/namespaces/default/jobs/x",
		"namespaces/default/jobs/..", "namespaces/default/jobs/" + strings.Repeat("x", 129),
	} {
		_, err := s.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: name})
		requireBadFields(t, err, "name")
		_, err = s.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: name})
		requireBadFields(t, err, "name")
		_, err = s.jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: name})
		requireBadFields(t, err, "name")
		_, err = s.jobs.ResumeJob(ctx, &leaderdv1.ResumeJobRequest{Name: name})
		requireBadFields(t, err, "name")
		_, err = s.jobs.TriggerJob(ctx, &leaderdv1.TriggerJobRequest{Name: name})
		requireBadFields(t, err, "name")
	}
	_, err := s.jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: "x", Etag: "!", Reason: "\x01"})
	requireBadFields(t, err, "name", "etag", "reason")
	for _, until := range []*timestamppb.Timestamp{
		timestamppb.New(time.Now().Add(-time.Minute)), timestamppb.New(time.Now().Add(3661 * 24 * time.Hour)), {Nanos: -1},
	} {
		_, err = s.jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: billing, Until: until})
		requireBadFields(t, err, "until")
	}
	_, err = s.jobs.TriggerJob(ctx, &leaderdv1.TriggerJobRequest{Name: billing, Reason: strings.Repeat("x", 513)})
	requireBadFields(t, err, "reason")

	_, err = s.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: "default", PageSize: -1, PageToken: "???"})
	requireBadFields(t, err, "parent", "pageSize", "pageToken")
	for _, run := range []string{"", "x", "20261130", "20261330T020000Z", "20261130T020000Z/x", "20261130T020000Z-a b"} {
		_, err = s.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: billing + "/runs/" + run})
		requireBadFields(t, err, "name")
	}
	_, err = s.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: "namespaces/-", PageSize: -1})
	requireBadFields(t, err, "parent", "pageSize")

	many := metadata.AppendToOutgoingContext(ctx, ActorMetadata, strings.Repeat("x", 129))
	_, err = s.jobs.DeleteJob(many, &leaderdv1.DeleteJobRequest{Name: billing})
	requireBadFields(t, err, "metadata."+ActorMetadata)
}

func TestJobOverTheAPI(t *testing.T) {
	s := serve(t, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), ActorMetadata, "anna")

	_, err := s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Name: billing, Spec: spec("0 1 * * *")}})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND)

	// Trying changes nothing.
	req := &leaderdv1.UpdateJobRequest{
		Job: &leaderdv1.Job{Name: billing, Spec: spec("0 1 * * *")}, AllowMissing: true, ValidateOnly: true,
	}
	tried, err := s.jobs.UpdateJob(ctx, req)
	require.NoError(t, err)
	require.Equal(t, leaderdv1.UpdateJobResponse_RESULT_CREATED, tried.GetResult())
	require.Empty(t, tried.GetJob().GetEtag())
	_, err = s.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: billing})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND)

	req.ValidateOnly = false
	made, err := s.jobs.UpdateJob(ctx, req)
	require.NoError(t, err)
	require.Equal(t, leaderdv1.UpdateJobResponse_RESULT_CREATED, made.GetResult())
	require.Equal(t, "anna", made.GetJob().GetUpdatedBy())
	require.Equal(t, 1, made.GetJob().GetNextSlot().AsTime().Hour())
	same, err := s.jobs.UpdateJob(ctx, req)
	require.NoError(t, err)
	require.Equal(t, leaderdv1.UpdateJobResponse_RESULT_UNCHANGED, same.GetResult())
	require.True(t, proto.Equal(made.GetJob(), same.GetJob()))

	// The next slot is the answered version's (scenario J02).
	up := s.put(t, billing, spec("0 2 * * *"))
	require.Equal(t, leaderdv1.UpdateJobResponse_RESULT_UPDATED, up.GetResult())
	got, err := s.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: billing})
	require.NoError(t, err)
	require.Equal(t, 2, got.GetJob().GetNextSlot().AsTime().Hour())
	require.Equal(t, Anonymous, got.GetJob().GetUpdatedBy())
	require.True(t, proto.Equal(up.GetJob(), got.GetJob()))

	for _, err := range []error{
		second(s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Name: billing, Spec: spec(), Etag: made.GetJob().GetEtag()}})),
		second(s.jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: billing, Etag: made.GetJob().GetEtag()})),
		second(s.jobs.ResumeJob(ctx, &leaderdv1.ResumeJobRequest{Name: billing, Etag: made.GetJob().GetEtag()})),
		second(s.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: billing, Etag: made.GetJob().GetEtag()})),
	} {
		requireFailure(t, err, codes.Aborted, leaderdv1.ErrorReason_ERROR_REASON_ETAG_MISMATCH)
	}

	until := timestamppb.New(time.Now().Add(time.Hour).Truncate(time.Second))
	paused, err := s.jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: billing, Reason: "audit", Etag: up.GetJob().GetEtag(), Until: until})
	require.NoError(t, err)
	require.True(t, paused.GetJob().GetPaused())
	require.Equal(t, "audit", paused.GetJob().GetPauseReason())
	require.True(t, paused.GetJob().GetNextSlot().AsTime().After(until.AsTime()), "the first one after the pause")
	require.Equal(t, until.AsTime(), paused.GetJob().GetPausedUntil().AsTime())
	require.Equal(t, "anna", paused.GetJob().GetPauseActor())
	_, err = s.jobs.TriggerJob(ctx, &leaderdv1.TriggerJobRequest{Name: billing})
	requireFailure(t, err, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_JOB_PAUSED)
	resumed, err := s.jobs.ResumeJob(ctx, &leaderdv1.ResumeJobRequest{Name: billing})
	require.NoError(t, err)
	require.NotNil(t, resumed.GetJob().GetNextSlot())

	triggered, err := s.jobs.TriggerJob(ctx, &leaderdv1.TriggerJobRequest{Name: billing, Reason: "now", AllowOverlap: true})
	require.NoError(t, err)
	run, err := s.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: triggered.GetRun()})
	require.NoError(t, err)
	require.Equal(t, leaderdv1.Run_STATE_PENDING, run.GetRun().GetState())
	require.Equal(t, triggered.GetRun(), run.GetRun().GetName())

	_, err = s.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: billing})
	require.NoError(t, err)
	for _, err := range []error{
		second(s.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: billing})),
		second(s.jobs.TriggerJob(ctx, &leaderdv1.TriggerJobRequest{Name: billing})),
		second(s.jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: billing})),
	} {
		requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_JOB_NOT_FOUND)
	}
}

func second[T any](_ T, err error) error { return err }

func TestListJobsOverTheAPI(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	for _, ns := range []string{"a", "a-b", "b"} {
		for i := range 30 {
			s.put(t, fmt.Sprintf("namespaces/%s/jobs/j%02d", ns, i), spec("@daily"))
			// What was written is in every later list.
			res, err := s.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: "namespaces/" + ns})
			require.NoError(t, err)
			require.Len(t, res.GetJobs(), i+1)
		}
	}
	for parent, want := range map[string]int{"namespaces/a": 30, "namespaces/-": 90, "namespaces/none": 0} {
		seen := map[string]bool{}
		req := &leaderdv1.ListJobsRequest{Parent: parent, PageSize: 7}
		for {
			res, err := s.jobs.ListJobs(ctx, req)
			require.NoError(t, err)
			for _, j := range res.GetJobs() {
				require.False(t, seen[j.GetName()])
				seen[j.GetName()] = true
			}
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
			_, err = s.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: "namespaces/b", PageToken: req.GetPageToken()})
			requireBadFields(t, err, "pageToken")
		}
		require.Len(t, seen, want)
	}
}

func TestListJobsFitsAMessage(t *testing.T) {
	s := serve(t, nil)
	big := spec()
	big.Target = &leaderdv1.JobSpec_Http{Http: &leaderdv1.Http{Url: "http://a/", Body: make([]byte, 256<<10)}}
	for i := range 20 {
		s.put(t, fmt.Sprintf("namespaces/a/jobs/j%02d", i), big)
	}
	seen := 0
	req := &leaderdv1.ListJobsRequest{Parent: "namespaces/-", PageSize: 1000}
	for {
		res, err := s.jobs.ListJobs(t.Context(), req)
		require.NoError(t, err)
		require.Less(t, proto.Size(res), 3<<20)
		seen += len(res.GetJobs())
		if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	require.Equal(t, 20, seen)
}

func TestQuarantineIsTold(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	s.put(t, billing, spec("@daily"))
	spoil(t, s, "broken")
	// An expression that an earlier version let pass, and a target of a later one.
	for name, sp := range map[string]*leaderdv1.JobSpec{
		"never": spec("@daily", "0 0 30 2 *"), "later": {Schedules: []string{"@daily"}}, "zone": {TimeZone: "Old/Zone", Schedules: []string{"@daily"}, Target: spec().GetTarget()},
	} {
		value, err := proto.Marshal(&statev1.Job{Spec: sp, Generation: 1})
		require.NoError(t, err)
		_, err = s.db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(store.DefaultPrefix+"jobs/default/"+name, value, 0)}})
		require.NoError(t, err)
	}
	res, err := s.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: "namespaces/default"})
	require.NoError(t, err)
	said := map[string]string{}
	for _, j := range res.GetJobs() {
		said[strings.TrimPrefix(j.GetName(), "namespaces/default/jobs/")] = j.GetQuarantine()
		require.NotEmpty(t, j.GetEtag())
	}
	require.Len(t, said, 5)
	require.Empty(t, said["billing"])
	require.Contains(t, said["broken"], "cannot be read")
	require.Contains(t, said["never"], "spec.schedules[1]: ")
	require.Contains(t, said["later"], "no target")
	require.Contains(t, said["zone"], ": zone ")

	got, err := s.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: "namespaces/default/jobs/broken"})
	require.NoError(t, err)
	require.NotEmpty(t, got.GetJob().GetQuarantine())
	_, err = s.jobs.PauseJob(ctx, &leaderdv1.PauseJobRequest{Name: "namespaces/default/jobs/broken"})
	requireFailure(t, err, codes.FailedPrecondition, leaderdv1.ErrorReason_ERROR_REASON_JOB_QUARANTINED)
	require.Empty(t, s.put(t, "namespaces/default/jobs/broken", spec("@daily")).GetJob().GetQuarantine())
}

func TestNextSlotIsTheVersions(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC)
	job := &state.Job{
		Anchor: now.Add(-70 * time.Second), Effective: now.Add(-time.Minute),
		Spec: state.JobSpec{Schedules: []string{"0 3 * * *", "@every 1m"}, NoOp: true},
	}
	next := func() time.Time {
		plan := planner.Compile(job)
		require.NoError(t, plan.Broken)
		return plan.NextSlot(now)
	}
	require.Equal(t, now.Add(50*time.Second), next(), "@every counts from the anchor")
	job.Effective = now.Add(time.Hour)
	require.Equal(t, now.Add(time.Hour+50*time.Second), next(), "and from when the version counts")
	job.Spec.Schedules = []string{"@at 2020-01-01T00:00:00Z"}
	require.True(t, next().IsZero())
	job.Spec.Schedules = nil
	require.True(t, next().IsZero())
}

// A slot that will not run is not what comes next.
func TestNextSlotIsOneThatRuns(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	_, err := s.calendars.UpdateCalendar(t.Context(), &leaderdv1.UpdateCalendarRequest{
		Calendar: &leaderdv1.Calendar{Name: holidays, Spec: onDate("12-01")}, AllowMissing: true,
	})
	require.NoError(t, err)
	named := spec("0 9 * * *")
	named.ExcludedCalendars = []string{"holidays"}
	day := func(n int) time.Time { return time.Date(2026, 12, n, 9, 0, 0, 0, time.UTC) }
	require.Equal(t, day(2), s.put(t, billing, named).GetJob().GetNextSlot().AsTime(), "not that of the holiday")
	paused, err := s.jobs.PauseJob(t.Context(), &leaderdv1.PauseJobRequest{Name: billing, Until: timestamppb.New(day(3).Add(time.Hour))})
	require.NoError(t, err)
	require.Equal(t, day(4), paused.GetJob().GetNextSlot().AsTime(), "the first one after the pause")

	named.ExcludedCalendars, named.OnlyCalendars = nil, []string{"holidays"}
	named.Schedules = []string{"0 9 2 * *"}
	require.Nil(t, s.put(t, "namespaces/default/jobs/never", named).GetJob().GetNextSlot(), "the calendar excludes all")
	require.Nil(t, s.put(t, "namespaces/default/jobs/past", spec("@at 2020-01-01T00:00:00Z")).GetJob().GetNextSlot())
}

func TestCallerIsGone(t *testing.T) {
	s := serve(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: billing})
	require.Equal(t, codes.Canceled, status.Code(err))
}

package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

func TestSubmitSpec(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	ctx := t.Context()
	want := spec()
	first, err := s.submissions.SubmitRun(ctx, &leaderdv1.SubmitRunRequest{Job: "namespaces/shop", Spec: want, IdempotencyKey: "k", Reason: "once"})
	require.NoError(t, err)
	name, _, _ := strings.Cut(first.GetRun(), "/runs/")
	require.Regexp(t, `^namespaces/shop/jobs/adhoc-[a-z0-9]{26}$`, name)
	job, err := s.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: name})
	require.NoError(t, err)
	require.True(t, job.GetJob().GetAdhoc())
	require.Empty(t, job.GetJob().GetQuarantine())
	other := spec()
	other.Description = "other"
	res, err := s.submissions.SubmitRuns(ctx, &leaderdv1.SubmitRunsRequest{Requests: []*leaderdv1.SubmitRunRequest{
		{Job: "namespaces/shop", Spec: want, IdempotencyKey: "k"},
		{Job: "namespaces/shop", Spec: other, IdempotencyKey: "k"},
		{Job: "namespaces/shop/jobs/reindex", Spec: want},
		{Job: "namespaces/shop/jobs/reindex"},
		{Job: "namespaces/shop"},
	}})
	require.NoError(t, err)
	r := res.GetResults()
	require.Equal(t, first.GetRun(), r[0].GetRun())
	require.True(t, r[0].GetDuplicate())
	require.EqualValues(t, codes.FailedPrecondition, r[1].GetError().GetCode())
	require.Contains(t, r[1].GetError().GetMessage(), "another payload, spec or limit key")
	// Which of these two came first is not said.
	require.Contains(t, r[2].GetRun(), "namespaces/shop/jobs/reindex/runs/")
	require.EqualValues(t, codes.InvalidArgument, r[4].GetError().GetCode())
	_, err = s.submissions.SubmitRun(ctx, &leaderdv1.SubmitRunRequest{Job: "namespaces/shop/jobs/reindex", Spec: want})
	requireFailure(t, err, codes.AlreadyExists, leaderdv1.ErrorReason_ERROR_REASON_JOB_EXISTS)
	require.ErrorContains(t, err, "there is a job namespaces/shop/jobs/reindex already")

	for adhoc, n := range map[bool]int{false: 0, true: 2} {
		list, err := s.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: "namespaces/shop", ShowAdhoc: adhoc})
		require.NoError(t, err)
		require.Len(t, list.GetJobs(), n)
	}
	update, err := s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{Job: &leaderdv1.Job{Name: name, Spec: want}})
	require.NoError(t, err)
	require.False(t, update.GetJob().GetAdhoc())
	require.Equal(t, leaderdv1.UpdateJobResponse_RESULT_UPDATED, update.GetResult())
	_, err = s.jobs.DeleteJob(ctx, &leaderdv1.DeleteJobRequest{Name: "namespaces/shop/jobs/reindex"})
	require.NoError(t, err)
}

// What a job of a submission cannot have is named, all at once.
func TestSubmitBadSpec(t *testing.T) {
	s := serve(t, nil)
	bad := func(job string, change func(*leaderdv1.JobSpec), fields ...string) {
		t.Helper()
		sp := spec()
		change(sp)
		_, err := s.submissions.SubmitRun(t.Context(), &leaderdv1.SubmitRunRequest{Job: job, Spec: sp})
		requireBadFields(t, err, fields...)
	}
	const shop = "namespaces/shop"
	bad("shop", func(*leaderdv1.JobSpec) {}, "job")
	bad("namespaces/", func(*leaderdv1.JobSpec) {}, "job")
	bad("jobs/shop", func(*leaderdv1.JobSpec) {}, "job")
	bad("", func(*leaderdv1.JobSpec) {}, "job")
	bad(shop, func(sp *leaderdv1.JobSpec) { sp.Target = nil }, "spec")
	bad(shop, func(sp *leaderdv1.JobSpec) { sp.Description = strings.Repeat("x", state.MaxDescription+1) }, "spec.description")
	bad(shop, func(sp *leaderdv1.JobSpec) {
		sp.Target = &leaderdv1.JobSpec_Command{Command: &leaderdv1.Command{Shell: strings.Repeat("x", 64<<10)}}
		sp.Hooks = &leaderdv1.Hooks{
			OnExit:    &leaderdv1.Hook{Target: &leaderdv1.Hook_Command{Command: &leaderdv1.Command{Shell: strings.Repeat("x", 64<<10)}}},
			OnFailure: &leaderdv1.Hook{Target: &leaderdv1.Hook_Command{Command: &leaderdv1.Command{Shell: strings.Repeat("x", 64<<10)}}},
		}
	}, "spec")
	bad(shop, func(sp *leaderdv1.JobSpec) {
		at := timestamppb.New(noon)
		sp.Schedules, sp.TimeZone, sp.StartTime, sp.EndTime = []string{"@daily"}, "Europe/Berlin", at, timestamppb.New(noon.Add(time.Hour))
		sp.Jitter, sp.MissingTime, sp.RepeatedTime = durationpb.New(time.Second), leaderdv1.MissingTime_MISSING_TIME_SKIP, leaderdv1.RepeatedTime_REPEATED_TIME_LAST
		sp.ExcludedCalendars, sp.OnlyCalendars = []string{"a"}, []string{"b"}
		sp.CatchUp, sp.CatchUpWindow, sp.CatchUpLimit = leaderdv1.CatchUp_CATCH_UP_ALL, durationpb.New(time.Minute), 5
		sp.After = &leaderdv1.After{Jobs: []string{"x"}}
	}, "spec.schedules", "spec.timeZone", "spec.startTime", "spec.endTime", "spec.jitter", "spec.missingTime", "spec.repeatedTime",
		"spec.excludedCalendars", "spec.onlyCalendars", "spec.catchUp", "spec.catchUpWindow", "spec.catchUpLimit", "spec.after")
}

// watched is what the watch of jobs tells.
type watched struct {
	counts
	jobs map[state.JobID]bool
}

func (w *watched) Adhoc() int              { return len(w.jobs) }
func (w *watched) Has(id state.JobID) bool { return w.jobs[id] }

// The bound holds also for what the watch has not told of yet; one that was made and
// deleted before that counts for a minute.
func TestAdhocDoor(t *testing.T) {
	id := func(name string) state.JobID { return state.JobID{Namespace: "shop", Name: name} }
	w := &watched{jobs: map[state.JobID]bool{id("a"): true}}
	d := &adhocDoor{jobs: w, max: 3}
	require.True(t, d.enter(id("b"), noon))
	require.True(t, d.enter(id("c"), noon))
	require.False(t, d.enter(id("d"), noon))
	d.leave(id("c"))
	require.True(t, d.enter(id("d"), noon))
	w.jobs[id("b")] = true
	require.False(t, d.enter(id("e"), noon), "b is known twice, and counts once")
	delete(w.jobs, id("a"))
	require.True(t, d.enter(id("e"), noon))
	require.False(t, d.enter(id("f"), noon.Add(time.Minute)))
	require.True(t, d.enter(id("f"), noon.Add(time.Minute+time.Second)), "d and e were deleted before the watch told of them")
}

// A cluster that has its fill refuses by name, and answers what it took before.
func TestTooManyAdhocJobs(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	ctx := t.Context()
	req := &leaderdv1.SubmitRunRequest{Job: "namespaces/shop", Spec: spec(), IdempotencyKey: "k"}
	first, err := s.submissions.SubmitRun(ctx, req)
	require.NoError(t, err)
	s.adhoc.Store(state.MaxAdhocJobs)
	again, err := s.submissions.SubmitRun(ctx, req)
	require.NoError(t, err)
	require.Equal(t, first.GetRun(), again.GetRun())
	require.True(t, again.GetDuplicate())
	req.IdempotencyKey = "l"
	_, err = s.submissions.SubmitRun(ctx, req)
	requireFailure(t, err, codes.ResourceExhausted, leaderdv1.ErrorReason_ERROR_REASON_TOO_MANY_ADHOC_JOBS)
	require.ErrorContains(t, err, "there are 10000 jobs that submissions made")
	s.adhoc.Store(0)
	_, err = s.submissions.SubmitRun(ctx, req)
	require.NoError(t, err)
}

// A key of limits is the run's for good, and refused where it means nothing.
func TestSubmitLimitKey(t *testing.T) {
	s := serve(t, nil)
	s.at(noon)
	ctx := t.Context()
	s.put(t, billing, spec())
	submit := func(key string) (*leaderdv1.SubmitRunResponse, error) {
		return s.submissions.SubmitRun(ctx, &leaderdv1.SubmitRunRequest{Job: billing, LimitKey: key})
	}
	_, err := submit("acme")
	requireBadFields(t, err, "limitKey")
	require.ErrorContains(t, err, "the job has no limit with perKey")
	limited := spec()
	limited.Limits = []*leaderdv1.Limit{{Name: "customer", Max: 2, PerKey: true}}
	s.put(t, billing, limited)
	for _, bad := range []string{strings.Repeat("x", state.MaxLimitKey+1), "a\nb"} {
		_, err := submit(bad)
		requireBadFields(t, err, "limitKey")
	}
	sent, err := submit("acme")
	require.NoError(t, err)
	got, err := s.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: sent.GetRun()})
	require.NoError(t, err)
	require.Equal(t, "acme", got.GetRun().GetLimitKey())
	triggered, err := s.jobs.TriggerJob(ctx, &leaderdv1.TriggerJobRequest{Name: billing, LimitKey: "acme"})
	require.NoError(t, err)
	got, err = s.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: triggered.GetRun()})
	require.NoError(t, err)
	require.Equal(t, "acme", got.GetRun().GetLimitKey())
	_, err = s.jobs.TriggerJob(ctx, &leaderdv1.TriggerJobRequest{Name: billing, LimitKey: "a\nb"})
	requireBadFields(t, err, "limitKey")
	whole := "namespaces/default/jobs/whole"
	s.put(t, whole, spec())
	_, err = s.jobs.TriggerJob(ctx, &leaderdv1.TriggerJobRequest{Name: whole, LimitKey: "acme"})
	requireBadFields(t, err, "limitKey")
	_, err = s.submissions.SubmitRun(ctx, &leaderdv1.SubmitRunRequest{Job: "namespaces/shop", Spec: spec(), LimitKey: "acme"})
	requireBadFields(t, err, "limitKey")
	_, err = s.submissions.SubmitRun(ctx, &leaderdv1.SubmitRunRequest{Job: "namespaces/shop", Spec: limited, LimitKey: "acme"})
	require.NoError(t, err)
}

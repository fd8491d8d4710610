package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// past is a cluster's API with a past, in pages of two.
type past struct {
	late *leaderdv1.LateRuns
	leaderdv1.UnimplementedJobServiceServer
	leaderdv1.UnimplementedRunServiceServer
	leaderdv1.UnimplementedClusterServiceServer

	versions []*leaderdv1.JobVersion
	runs     []*leaderdv1.Run // by job, the newest first
	mark     *timestamppb.Timestamp
	lag      time.Duration
	// calls counts requests by their parents; onRuns is called with each list of
	// runs.
	calls map[string]int
	// now is what a run is by now that was listed before.
	now    *leaderdv1.Run
	onRuns func(calls int) error
}

func page[E any](all []E, token string, mine func(E) bool) (some []E, next string) {
	var found []E
	for _, e := range all {
		if mine(e) {
			found = append(found, e)
		}
	}
	begin, _ := strconv.Atoi(token)
	end := min(begin+2, len(found))
	if end < len(found) {
		next = strconv.Itoa(end)
	}
	return found[begin:end], next
}

func below(name, parent string) bool {
	prefix, _, all := strings.Cut(parent, "-")
	if !all {
		return strings.HasPrefix(name, parent+"/")
	}
	return strings.HasPrefix(name, prefix)
}

func (p *past) ListJobVersions(_ context.Context, r *leaderdv1.ListJobVersionsRequest) (*leaderdv1.ListJobVersionsResponse, error) {
	res := &leaderdv1.ListJobVersionsResponse{}
	res.Versions, res.NextPageToken = page(p.versions, r.GetPageToken(), func(v *leaderdv1.JobVersion) bool { return below(v.GetName(), r.GetParent()) })
	return res, nil
}

func (p *past) ListRuns(_ context.Context, r *leaderdv1.ListRunsRequest) (*leaderdv1.ListRunsResponse, error) {
	p.calls[r.GetParent()]++
	if p.onRuns != nil {
		if err := p.onRuns(p.calls[r.GetParent()]); err != nil {
			return nil, err
		}
	}
	res := &leaderdv1.ListRunsResponse{}
	res.Runs, res.NextPageToken = page(p.runs, r.GetPageToken(), func(v *leaderdv1.Run) bool { return below(v.GetName(), r.GetParent()) })
	return res, nil
}

func (p *past) GetClusterStatus(context.Context, *leaderdv1.GetClusterStatusRequest) (*leaderdv1.GetClusterStatusResponse, error) {
	return &leaderdv1.GetClusterStatusResponse{Watermark: p.mark, WatermarkLag: durationpb.New(p.lag), Jobs: 2, Term: 7, Late: p.late}, nil
}

const reportJob = "namespaces/default/jobs/report"

func minute(n int) time.Time { return slot.Add(time.Duration(n) * time.Minute) }

// goodPast has a job that is due every minute since slot, until the watermark at
// minute 10, and one that was deleted at minute 3.
func goodPast() *past {
	every := &leaderdv1.JobSpec{Schedules: []string{"* * * * *"}, Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}}
	version := func(job string, generation, revision int64, at time.Time, change leaderdv1.JobVersion_Change) *leaderdv1.JobVersion {
		return &leaderdv1.JobVersion{
			Name: fmt.Sprintf("%s/versions/%d", job, generation), Generation: generation, Change: change, Revision: revision, Spec: every,
			ChangeTime: timestamppb.New(at), EffectiveTime: timestamppb.New(at), AnchorTime: timestamppb.New(at),
		}
	}
	const gone = "namespaces/default/jobs/gone"
	p := &past{
		mark: timestamppb.New(minute(10).Add(time.Second)), lag: 500 * time.Millisecond, calls: map[string]int{},
		versions: []*leaderdv1.JobVersion{
			version(gone, 2, 40, minute(3).Add(30*time.Second), leaderdv1.JobVersion_CHANGE_DELETE),
			version(gone, 1, 10, minute(0), leaderdv1.JobVersion_CHANGE_CREATE),
			version(reportJob, 3, 62, minute(6).Add(40*time.Second), leaderdv1.JobVersion_CHANGE_RESUME),
			version(reportJob, 2, 55, minute(5).Add(30*time.Second), leaderdv1.JobVersion_CHANGE_PAUSE),
			version(reportJob, 1, 9, minute(0), leaderdv1.JobVersion_CHANGE_CREATE),
		},
	}
	p.versions[3].Paused = true
	for n := 3; n >= 1; n-- {
		p.runs = append(p.runs, p.run(gone, n))
	}
	for _, n := range []int{10, 9, 8, 7, 5, 2, 1} {
		p.runs = append(p.runs, p.run(reportJob, n))
	}
	outage := &leaderdv1.Run{
		Name: reportJob + "/runs/" + minute(3).Format("20060102T150405Z"), State: leaderdv1.Run_STATE_MISSED, Reason: "outage",
		DueTime: timestamppb.New(minute(3)), UntilTime: timestamppb.New(minute(4)), SlotCount: 2, JobGeneration: 1, Revision: 50,
	}
	p.runs = append(p.runs[:8], append([]*leaderdv1.Run{outage}, p.runs[8:]...)...)
	return p
}

func (p *past) run(job string, n int) *leaderdv1.Run {
	r := runOf(job, minute(n), leaderdv1.Run_STATE_SUCCEEDED, time.Millisecond, time.Millisecond)
	token := int64(10*n + 1)
	r.Attempts[0].Token, r.Revision, r.JobGeneration = token, token+1, 0
	return r
}

// of finds the report's run of a minute.
func (p *past) of(n int) *leaderdv1.Run {
	for _, r := range p.runs {
		if r.GetName() == reportJob+"/runs/"+minute(n).Format("20060102T150405Z") {
			return r
		}
	}
	return nil
}

func (p *past) drop(n int) {
	for i, r := range p.runs {
		if r == p.of(n) {
			p.runs = append(p.runs[:i:i], p.runs[i+1:]...)
			return
		}
	}
}

func (p *past) serve(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	leaderdv1.RegisterJobServiceServer(s, p)
	leaderdv1.RegisterRunServiceServer(s, p)
	leaderdv1.RegisterClusterServiceServer(s, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String()
}

func TestVerifyGood(t *testing.T) {
	p := goodPast()
	addr := p.serve(t)
	out := succeed(t, addr, "", "verify")
	require.Contains(t, out, "violations:  none\n")
	require.Contains(t, out, "window:      2026-11-30T01:10:01Z to 2026-11-30T02:10:01Z\n")
	require.Contains(t, out, "decided to:  2026-11-30T02:10:01Z, 500ms behind the cluster's clock\n")
	require.Contains(t, out, "jobs:        2\n")
	require.Contains(t, out, "due slots:   12\n")
	require.Contains(t, out, "verdicts:    10 succeeded, 2 missed:outage\n")
	require.Contains(t, out, "late:        p50 1ms, p99 1ms, max 1ms (10 starts)\n")
	require.Contains(t, out, "have: invariants 5, 7, 8, 9, 10, and parts of 1, 2, 3, 4, 6\n")
	require.NotContains(t, out, "notes:")

	var res verifyResult
	require.NoError(t, json.Unmarshal([]byte(succeed(t, addr, "", "verify", "-o", "json", "--job", "report")), &res))
	require.EqualValues(t, 1, res.Jobs)
	require.EqualValues(t, 9, res.Slots)
	require.Empty(t, res.Violations)
	require.NotEmpty(t, res.NotChecked)
	require.Contains(t, succeed(t, addr, "", "verify", "-o", "yaml", "-n", "default"), "violations: []\n")
	require.Contains(t, succeed(t, addr, "", "verify", "-n", "none"), "jobs:        0\n")

	// Where the window begins inside of a verdict on several slots, that is found;
	// older pages are not read.
	clear(p.calls)
	out = succeed(t, addr, "", "verify", "--from", minute(4).Format(time.RFC3339), "--to", minute(8).Format(time.RFC3339))
	require.Contains(t, out, "due slots:   4\n")
	require.Equal(t, 3, p.calls[reportJob])
}

// TestVerifyFinds spoils the past in one way a case.
func TestVerifyFinds(t *testing.T) {
	for name, c := range map[string]struct {
		want  string
		spoil func(p *past)
	}{
		"slot without a verdict":     {"2 unaccounted default/report 20261130T020800Z", func(p *past) { p.drop(8) }},
		"slot with two verdicts":     {"2 doubled default/report 20261130T020400Z", func(p *past) { p.addBehind(5, 4, 41) }},
		"run while paused":           {"2 undue default/report 20261130T020600Z", func(p *past) { p.addBehind(7, 6, 63) }},
		"claim after the pause":      {"3 unfenced default/report 20261130T020500Z", func(p *past) { p.of(5).Attempts[0].Token, p.of(5).Revision = 56, 57 }},
		"claim for an older version": {"3 unfenced default/report 20261130T020800Z", func(p *past) { p.of(8).JobGeneration = 1 }},
		"start before the slot": {"3 early default/report 20261130T020800Z", func(p *past) {
			p.of(8).Attempts[0].StartTime = timestamppb.New(minute(8).Add(-time.Millisecond))
		}},
		"overlap":           {"4 overlap default/report 20261130T020900Z", func(p *past) { p.of(8).Revision = 95 }},
		"unreadable record": {"6 unreadable default/report 20261130T020800Z", func(p *past) { spoilRun(p.of(8)) }},
		"tokens that fall": {"1 tokens default/report 20261130T020800Z", func(p *past) {
			p.of(8).Attempts = append([]*leaderdv1.Attempt{{Number: 1, Token: 85, State: leaderdv1.Run_STATE_LOST}}, p.of(8).GetAttempts()...)
			p.of(8).Attempts[1].Number = 2
			p.of(8).Revision = 86
		}},
		"more runs than a limit has places": {"4 overlap default/report 20261130T020500Z", func(p *past) { p.limit(52) }},
		"miss without a reason":             {"2 reasonless default/report 20261130T020300Z", func(p *past) { p.of(3).Reason = "" }},
		"slot whose deadline is over": {"2 overdue default/report 20261130T021000Z", func(p *past) {
			p.drop(10)
			p.mark, p.lag = timestamppb.New(minute(9)), 20*time.Minute
			p.versions = insert(p.versions, 2, &leaderdv1.JobVersion{
				Name: reportJob + "/versions/4", Generation: 4, Change: leaderdv1.JobVersion_CHANGE_PAUSE, Revision: 200, Paused: true,
				EffectiveTime: timestamppb.New(minute(10).Add(30 * time.Second)),
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := goodPast()
			c.spoil(p)
			addr := p.serve(t)
			code, out, stderr := cmdline(t, addr, "", "verify", "-o", "json")
			require.Equal(t, exitFailure, code, "%s%s", out, stderr)
			require.Empty(t, stderr)
			var res verifyResult
			require.NoError(t, json.Unmarshal([]byte(out), &res))
			var found []string
			for _, v := range res.Violations {
				found = append(found, fmt.Sprintf("%d %s %s %s", v.Invariant, v.Rule, v.Job, v.Run))
			}
			require.Contains(t, found, c.want)

			code, out, _ = cmdline(t, addr, "", "verify")
			require.Equal(t, exitFailure, code)
			require.Contains(t, strings.Join(strings.Fields(out), " "), c.want)
		})
	}
}

func insert(all []*leaderdv1.JobVersion, at int, v *leaderdv1.JobVersion) []*leaderdv1.JobVersion {
	return append(all[:at:at], append([]*leaderdv1.JobVersion{v}, all[at:]...)...)
}

// addBehind adds the run of a minute behind that of another, with a token.
func (p *past) addBehind(other, n int, token int64) {
	for i, r := range p.runs {
		if r == p.of(other) {
			added := p.run(reportJob, n)
			added.Attempts[0].Token, added.Revision = token, token+1
			p.runs = append(p.runs[:i+1:i+1], append([]*leaderdv1.Run{added}, p.runs[i+1:]...)...)
			return
		}
	}
}

func spoilRun(r *leaderdv1.Run) {
	name := r.GetName()
	r.Reset()
	r.Name, r.Detail, r.SlotCount = name, "its stored record cannot be read", 1
}

// What only one reading shows has changed meanwhile, and is not broken.
func TestVerifyLooksTwice(t *testing.T) {
	p := goodPast()
	missing := p.of(8)
	p.drop(8)
	p.onRuns = func(calls int) error {
		if calls == 6 && p.of(8) == nil { // the second reading begins
			p.runs = append(p.runs[:5:5], append([]*leaderdv1.Run{missing}, p.runs[5:]...)...)
		}
		return nil
	}
	require.Contains(t, succeed(t, p.serve(t), "", "verify", "--job", "report"), "violations:  none\n")
}

func TestVerifySaysWhatItCannotJudge(t *testing.T) {
	p := goodPast()
	p.versions = p.versions[:4] // generation 1 of the report is not kept any more
	out := succeed(t, p.serve(t), "", "verify")
	require.Contains(t, out, "default/report: slots up to 2026-11-30T02:05:30Z are not judged: versions before generation 2 are not kept")

	p = goodPast()
	p.versions[2].EffectiveTime = nil
	code, out, stderr := cmdline(t, p.serve(t), "", "verify")
	require.Equal(t, exitUnchecked, code)
	require.Contains(t, out, "default/report: none of its versions can be read")
	require.Equal(t, "error: 1 jobs could not be judged; see above\n", stderr)

	p = goodPast()
	p.lag = time.Hour
	p.mark = timestamppb.New(minute(10))
	_, out, _ = cmdline(t, p.serve(t), "", "verify", "--since", "70m")
	require.Contains(t, out, "slots after 2026-11-30T02:10:00Z are not decided yet: the watermark is 1h0m0s behind the cluster's clock")
}

// Slots after the watermark may be open: a note says who holds it, and a window that
// was to end there is not checked.
func TestVerifyBeyondTheWatermark(t *testing.T) {
	p := goodPast()
	p.lag = 5 * time.Minute
	p.late = &leaderdv1.LateRuns{Runs: 1, WorstJob: "namespaces/default/jobs/gpu", WorstDueTime: timestamppb.New(minute(11)), Reason: "no_matching_node"}
	const held = "5m0s behind the cluster's clock; default/gpu holds it, whose run due "
	addr := p.serve(t)
	out := succeed(t, addr, "", "verify")
	require.Contains(t, out, held)
	require.Contains(t, out, "has not started: no_matching_node, no executor has the labels of the job's nodeSelector and as much as its resources say")

	require.Contains(t, succeed(t, addr, "", "verify", "--to", minute(10).Format(time.RFC3339)), "none")
	code, _, stderr := cmdline(t, addr, "", "verify", "--to", minute(12).Format(time.RFC3339))
	require.Equal(t, exitUnchecked, code)
	require.Contains(t, stderr, "--to: slots after ")
	require.Contains(t, stderr, held)
}

func TestVerifyCannotCheck(t *testing.T) {
	p := goodPast()
	addr := p.serve(t)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--since: -1h0m0s is not positive", []string{"--since", "-1h"}},
		{"--from: \"yesterday\" is neither a duration", []string{"--from", "yesterday"}},
		{"--to: \"soon\" is neither a duration", []string{"--to", "soon"}},
		{"before it begins", []string{"--from", "2026-11-30T02:00:00Z", "--to", "2026-11-30T01:00:00Z"}},
		{"yet to come", []string{"--from", "2036-11-30T02:00:00Z", "--to", "2037-11-30T01:00:00Z"}},
		{"nothing was due before 1970", []string{"--from", "0001-01-01T00:00:00Z"}},
		{"exclude each other", []string{"--from", "2026-11-30T02:00:00Z", "--since", "1h"}},
		{"there is no job default/nope, and there was none", []string{"--job", "nope"}},
		{"takes no argument", []string{"report"}},
	} {
		code, _, stderr := cmdline(t, addr, "", append([]string{"verify"}, c.args...)...)
		require.Equal(t, exitUnchecked, code, "%v", c.args)
		require.Contains(t, stderr, c.want)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	code, _, stderr := cmdline(t, l.Addr().String(), "", "verify")
	require.Equal(t, exitUnchecked, code)
	require.Contains(t, stderr, "no control node answers")

	p.onRuns = func(int) error { return status.Error(codes.Internal, "disk on fire") }
	code, out, stderr := cmdline(t, addr, "", "verify")
	require.Equal(t, exitUnchecked, code)
	require.Contains(t, stderr, "disk on fire")
	require.Contains(t, out, "this is not all")

	// What was found before that is worse than what could not be read.
	p.drop(2)
	p.onRuns = func(calls int) error {
		if calls > 1 && p.calls["namespaces/default/jobs/later"] > 0 {
			return status.Error(codes.Internal, "disk on fire")
		}
		return nil
	}
	later := proto.CloneOf(p.versions[len(p.versions)-1])
	later.Name = "namespaces/default/jobs/later/versions/1"
	p.versions = append(p.versions, later)
	code, out, stderr = cmdline(t, addr, "", "verify")
	require.Equal(t, exitFailure, code)
	require.Contains(t, stderr, "error: disk on fire\n")
	require.Contains(t, out, "this is not all")

	p.mark = nil
	code, _, stderr = cmdline(t, addr, "", "verify")
	require.Equal(t, exitUnchecked, code)
	require.Contains(t, stderr, "there is nothing to verify")
}

package cli

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// limit has both jobs share a limit of one place, which the last run of the job that was
// deleted has until a revision; 0: as long as it is listed.
func (p *past) limit(until int64) (last *leaderdv1.Run) {
	for _, v := range p.versions {
		v.GetSpec().Limits = []*leaderdv1.Limit{{Name: "db", Scope: leaderdv1.Limit_SCOPE_CLUSTER, Max: 1}}
	}
	for _, r := range p.runs[:3] { // the other job's follow them
		r.Attempts[0].Token, r.Revision = r.GetAttempts()[0].GetToken()+4, r.GetRevision()+4
	}
	last = p.runs[0]
	if last.Revision = until; until == 0 {
		last.State, last.Attempts[0].State = leaderdv1.Run_STATE_RUNNING, leaderdv1.Run_STATE_RUNNING
	}
	return last
}

func (p *past) GetRun(_ context.Context, r *leaderdv1.GetRunRequest) (*leaderdv1.GetRunResponse, error) {
	if p.now == nil || p.now.GetName() != r.GetName() {
		return nil, status.Error(codes.NotFound, "it is gone")
	}
	return &leaderdv1.GetRunResponse{Run: p.now}, nil
}

// TestVerifyLooksAgainAtLimits: a run that was live when it was listed may have ended
// before one of another job took its place.
func TestVerifyLooksAgainAtLimits(t *testing.T) {
	p := goodPast()
	last := p.limit(0)
	p.now = proto.CloneOf(last)
	p.now.State, p.now.Revision = leaderdv1.Run_STATE_SUCCEEDED, 36
	addr := p.serve(t)
	require.Contains(t, succeed(t, addr, "", "verify"), "violations:  none\n")
	p.now.Revision = 52
	code, out, _ := cmdline(t, addr, "", "verify")
	require.Equal(t, exitFailure, code)
	require.Contains(t, out, "was claimed with token 51 while 1 runs were live at the limit db of the cluster, of at most 1, the first of them "+
		minute(3).Format("20060102T150405Z")+" of default/gone")
}

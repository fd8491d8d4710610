package cli

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/internal/history"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// limits judges the places at limits of all jobs together, once all are read.
func (v *verifier) limits(ctx context.Context, a *api) error {
	if len(v.crowded()) == 0 {
		return nil
	}
	// Those that were live when they were read may have ended since, before others of jobs
	// that were read later were claimed.
	for i := range v.held {
		h := &v.held[i]
		if h.To != 0 {
			continue
		}
		namespace, job, _ := strings.Cut(h.Job, "/")
		res, err := a.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: "namespaces/" + namespace + "/jobs/" + job + "/runs/" + h.Run})
		switch {
		case status.Code(err) == codes.NotFound:
			h.To = h.From // retention has removed it
		case err != nil:
			return err
		default:
			h.To = res.GetRun().GetRevision()
		}
	}
	found := v.crowded()
	room := min(len(found), maxFindings-len(v.findings))
	v.findings = append(v.findings, found[:room]...)
	v.more += len(found) - room
	return nil
}

// crowded are the runs of the window that were claimed though their limit was reached, and
// are not among the findings yet.
func (v *verifier) crowded() []history.Violation {
	return slices.DeleteFunc(v.within(history.Crowded(v.held)), func(x history.Violation) bool {
		return slices.ContainsFunc(v.findings, func(o history.Violation) bool { return o.Rule == x.Rule && o.Job == x.Job && o.Run == x.Run })
	})
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/internal/suggest"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// absentJob is what the API says of a job that there is not.
var absentJob = regexp.MustCompile(`^(namespaces/[^/]+)/jobs/([^/ ]+) does not exist$`)

// near appends to the error about a job that there is not the name of one of its
// namespace that is written nearly so. It looks at the first page of names; where they
// cannot be had the error stays as it is.
func near(ctx context.Context, a *api, err error) error {
	failed, ok := errors.AsType[*apiError](err)
	if !ok || status.Code(failed.err) != codes.NotFound {
		return err
	}
	name := absentJob.FindStringSubmatch(status.Convert(failed.err).Message())
	if name == nil {
		return err
	}
	resp, listErr := a.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: name[1], PageSize: pageSize})
	if listErr != nil {
		return err // which is what the caller has to know
	}
	var names []string
	for _, j := range resp.GetJobs() {
		_, job := splitJob(j.GetName())
		names = append(names, job)
	}
	if hint := suggest.Nearest(name[2], names); hint != "" {
		return fmt.Errorf("%w%s", err, hint)
	}
	return err
}

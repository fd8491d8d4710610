package cli

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// upstreamOf are the resource names of the jobs that a job runs after.
func upstreamOf(j *leaderdv1.Job) []string {
	ns, _ := splitJob(j.GetName())
	var names []string
	for _, name := range j.GetSpec().GetAfter().GetJobs() {
		names = append(names, "namespaces/"+ns+"/jobs/"+name)
	}
	return names
}

// inOrder are things with jobs so that each comes behind those that its job runs after,
// and else as they are. A circle is left as it is: the server says so.
func inOrder[E any](all []E, job func(E) *leaderdv1.Job) []E {
	at := make(map[string]int, len(all))
	for i, e := range all {
		at[job(e).GetName()] = i
	}
	out := make([]E, 0, len(all))
	seen := make([]bool, len(all))
	var visit func(i int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		for _, name := range upstreamOf(job(all[i])) {
			if before, ok := at[name]; ok {
				visit(before)
			}
		}
		out = append(out, all[i])
	}
	for i := range all {
		visit(i)
	}
	return out
}

// missingUpstream complains of jobs that are to run after others which are neither among
// the jobs nor in the cluster. A server that checks alone does not look for them.
func missingUpstream(ctx context.Context, d Deps, a *api, jobs []fileJob) (code int, err error) {
	there := make(map[string]bool, len(jobs))
	for _, j := range jobs {
		there[j.job.GetName()] = true
	}
	for _, j := range jobs {
		for i, name := range upstreamOf(j.job) {
			if strings.HasSuffix(name, "/") { // the server has said what is wrong with it
				continue
			}
			is, known := there[name]
			if !known {
				_, err := a.jobs.GetJob(ctx, &leaderdv1.GetJobRequest{Name: name})
				if err != nil && status.Code(err) != codes.NotFound {
					return code, err
				}
				is = err == nil
				there[name] = is
			}
			if !is {
				code = exitUsage
				fmt.Fprintf(d.Stderr, "error: %s: spec.after.jobs[%d]: there is no job %q in the namespace, nor in the files\n",
					j.where, i, j.job.GetSpec().GetAfter().GetJobs()[i])
			}
		}
	}
	return code, nil
}

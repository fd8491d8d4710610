package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	// completeWithin bounds what a shell waits for.
	completeWithin = 2 * time.Second
	// completePages bounds how many pages of jobs are looked at.
	completePages = 10
	// completeRuns is how many of a job's newest runs are offered.
	completeRuns = 50
)

// complete sets what is offered for a flag.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(flag, f)
}

// offer asks the API for what to complete with. A shell has no use for errors.
func (o *dialer) offer(cmd *cobra.Command, f func(ctx context.Context, a *api) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeWithin)
	defer cancel()
	a, err := o.dial()
	if err != nil {
		return nil, directive
	}
	defer a.close()
	out, err := f(ctx, a)
	if err != nil && len(out) == 0 {
		return nil, directive
	}
	slices.Sort(out)
	return slices.Compact(out), directive
}

// jobNames are resource names of jobs.
func jobNames(ctx context.Context, a *api, parent string) (names []string, err error) {
	looked := 0
	err = pages(func(token string) (string, error) {
		resp, err := a.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: parent, PageSize: pageSize, PageToken: token})
		for _, j := range resp.GetJobs() {
			names = append(names, j.GetName())
		}
		if looked++; looked == completePages {
			return "", err
		}
		return resp.GetNextPageToken(), err
	})
	return names, err
}

// namespaces completes with those that have jobs.
func (o *dialer) namespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.offer(cmd, func(ctx context.Context, a *api) ([]string, error) {
		names, err := jobNames(ctx, a, "namespaces/-")
		found := map[string]bool{}
		for _, name := range names {
			ns, _ := splitJob(name)
			found[ns] = true
		}
		return slices.Collect(maps.Keys(found)), err
	})
}

// completeJob completes the first most arguments (0: all) with jobs: short names
// in the namespace, or namespace/job once a slash is typed.
func (o *dialer) completeJob(ns *namespace, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.offer(cmd, func(ctx context.Context, a *api) ([]string, error) {
			parent, slash := ns.name, strings.IndexByte(typed, '/')
			if slash > 0 {
				parent = typed[:slash]
			}
			names, err := jobNames(ctx, a, "namespaces/"+parent)
			out := make([]string, 0, len(names))
			for _, name := range names {
				short := shortJob(name)
				if slash < 0 {
					_, short = splitJob(name)
				}
				if !slices.Contains(args, short) {
					out = append(out, short)
				}
			}
			return out, err
		})
	}
}

// completeRun completes a job and one of its runs.
func (o *dialer) completeRun(ns *namespace) cobra.CompletionFunc {
	job := o.completeJob(ns, 1)
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return job(cmd, args, typed)
		}
		return o.offer(cmd, func(ctx context.Context, a *api) ([]string, error) {
			parent, err := ns.job(args[0])
			if err != nil {
				return nil, err
			}
			resp, err := a.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: parent, PageSize: completeRuns})
			var ids []string
			for _, r := range resp.GetRuns() {
				ids = append(ids, runID(r.GetName()))
			}
			return ids, err
		})
	}
}

// nodes completes with the registered nodes.
func (o *dialer) nodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.offer(cmd, func(ctx context.Context, a *api) ([]string, error) {
		s, err := a.cluster.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{})
		var names []string
		for _, n := range s.GetNodes() {
			names = append(names, n.GetName())
		}
		return names, err
	})
}

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// That a job runs after another is a key, written with the change of the job that says
// so: followers/<ns>/<upstream>/<job>. The keys of a namespace are the edges of a graph
// that has no cycle: the change that adds edges compares that none has been added since
// it looked at all of them.

// ErrFollowed: other jobs run after the job.
var ErrFollowed = errors.New("other jobs run after it")

// MissingUpstreamError: a job is to run after jobs that are not there.
type MissingUpstreamError struct{ Names []string }

// Error names them.
func (e *MissingUpstreamError) Error() string {
	return "there is no job " + strings.Join(e.Names, ", ")
}

// CycleError: a job would run after itself.
type CycleError struct {
	// Path begins and ends with the job; each runs after the one before it.
	Path []string
}

// Error tells the way around.
func (e *CycleError) Error() string {
	return "the jobs run in a circle: " + strings.Join(e.Path, " -> ")
}

func (k keys) followersIn(namespace string) string {
	return k.prefix + "followers/" + escape(namespace) + "/"
}

// followersOf is where those of a job lie.
func (k keys) followersOf(upstream state.JobID) string {
	return k.followersIn(upstream.Namespace) + escape(upstream.Name) + "/"
}

func (k keys) follower(upstream state.JobID, job string) string {
	return k.followersOf(upstream) + escape(job)
}

// graph is which jobs of a namespace run after which, as of a revision.
type graph struct {
	after    map[string][]string // by the upstream job
	revision int64
}

func (s *Store) readGraph(ctx context.Context, namespace string) (graph, error) {
	prefix := s.keys.followersIn(namespace)
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, prefix, end(prefix), kv.RangeOptions{KeysOnly: true})
	})
	if err != nil {
		return graph{}, err
	}
	g := graph{after: make(map[string][]string), revision: res.Revision}
	for _, found := range res.KVs {
		from, to, _ := strings.Cut(found.Key[len(prefix):], "/")
		upstream, err := unescape(from)
		job, err2 := unescape(to)
		if err = errors.Join(err, err2); err != nil {
			s.log.Error("key of no job is passed over; delete it", "key", found.Key, "err", err)
			continue
		}
		g.after[upstream] = append(g.after[upstream], job)
	}
	return g, nil
}

// path is a way from a job to one of several others, along what runs after it; nil:
// there is none.
func (g *graph) path(from string, to []string) []string {
	seen := map[string]bool{from: true}
	ways := [][]string{{from}}
	for len(ways) > 0 {
		way := ways[0]
		ways = ways[1:]
		last := way[len(way)-1]
		if slices.Contains(to, last) {
			return way
		}
		for _, next := range g.after[last] {
			if !seen[next] {
				seen[next] = true
				ways = append(ways, append(slices.Clip(way), next))
			}
		}
	}
	return nil
}

// follow has a change of a job bring its edges from what was to next, either of which
// may be nil, and rely on what that takes. A dry run does not look for the jobs that are
// named: they may be about to be made.
func (s *Store) follow(ctx context.Context, id state.JobID, was *JobEntry, next *statev1.Job, dryRun bool, l *links) error {
	if next == nil {
		own := s.keys.followersOf(id)
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, own, end(own), kv.RangeOptions{KeysOnly: true, Limit: 3})
		})
		if err != nil {
			return err
		}
		if len(res.KVs) > 0 {
			names := make([]string, len(res.KVs))
			for i := range res.KVs {
				part := res.KVs[i].Key[len(own):]
				if names[i], err = unescape(part); err != nil {
					names[i] = fmt.Sprintf("none that can be read, by the key %q", res.KVs[i].Key)
				}
			}
			return fmt.Errorf("%w: %s", ErrFollowed, strings.Join(names, ", "))
		}
		l.compares = append(l.compares, absentBelow(own))
	}
	var before []string
	if was != nil {
		before = was.Message.GetSpec().GetAfter().GetJobs()
	}
	after := next.GetSpec().GetAfter().GetJobs()
	broken := was != nil && was.Broken != nil // it may have run after any
	if !broken && slices.Equal(before, after) {
		return nil
	}
	g, err := s.readGraph(ctx, id.Namespace)
	if err != nil {
		return err
	}
	if broken {
		for upstream, jobs := range g.after {
			if slices.Contains(jobs, id.Name) {
				before = append(before, upstream)
			}
		}
	}
	for _, name := range before {
		if upstream := (state.JobID{Namespace: id.Namespace, Name: name}); !slices.Contains(after, name) {
			l.ops = append(l.ops, kv.Delete(s.keys.follower(upstream, id.Name)))
			g.after[name] = slices.DeleteFunc(g.after[name], func(job string) bool { return job == id.Name })
		}
	}
	return s.addEdges(ctx, id, &g, before, after, dryRun, l)
}

// addEdges adds those of after that are not among before.
func (s *Store) addEdges(ctx context.Context, id state.JobID, g *graph, before, after []string, dryRun bool, l *links) error {
	added := slices.DeleteFunc(slices.Clone(after), func(name string) bool { return slices.Contains(before, name) })
	if len(added) == 0 {
		return nil
	}
	if way := g.path(id.Name, added); way != nil {
		return &CycleError{append(way, id.Name)}
	}
	read := kv.Txn{}
	for _, name := range added {
		read.Then = append(read.Then, keyOnly(s.keys.job(state.JobID{Namespace: id.Namespace, Name: name})))
	}
	res, _, err := s.send(ctx, read)
	if err != nil {
		return err
	}
	var missing []string
	for i, name := range added {
		upstream := state.JobID{Namespace: id.Namespace, Name: name}
		if len(res.Results[i].KVs) == 0 {
			missing = append(missing, name)
			continue
		}
		l.compares = append(l.compares, present(s.keys.job(upstream)))
		l.ops = append(l.ops, kv.Put(s.keys.follower(upstream, id.Name), nil, 0))
	}
	if missing != nil && !dryRun {
		return &MissingUpstreamError{missing}
	}
	edges := s.keys.followersIn(id.Namespace)
	l.compares = append(l.compares, kv.Compare{
		Key: edges, End: end(edges), Target: kv.TargetCreateRevision, Relation: kv.Less, Int: g.revision + 1,
	})
	return nil
}

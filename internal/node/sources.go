package node

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/leaderd/leaderd/election"
	"github.com/leaderd/leaderd/executor"
	journalserver "github.com/leaderd/leaderd/internal/journal"
	"github.com/leaderd/leaderd/planner"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// feedCatalog keeps the catalog of jobs as the cache has them, until ctx ends. A
// key below those of jobs that is none of them is logged and left alone.
func feedCatalog(ctx context.Context, s *store.Store, sub *store.Subscription, to *planner.Catalog, log hclog.Logger) error {
	stored := func(from kv.KeyValue) (planner.Stored, bool) {
		job, err := s.DecodeJob(from)
		if job.ID == (state.JobID{}) {
			log.Error("key is no job's and is left alone; delete it", "key", from.Key, "err", err)
			return planner.Stored{}, false
		}
		return planner.Stored{Job: job, Value: from.Value, Err: err}, true
	}
	for {
		u, err := sub.Next(ctx)
		if err != nil {
			return nil //nolint:nilerr // ctx ended
		}
		if u.Reset {
			to.Reset(func(yield func(planner.Stored) bool) {
				for _, from := range u.All {
					if job, ok := stored(*from); ok && !yield(job) {
						return
					}
				}
			})
			continue
		}
		for _, e := range u.Events {
			if !e.Deleted {
				if job, ok := stored(e.KV); ok {
					to.Set(job)
				}
			} else if job, _ := s.DecodeJob(e.KV); job.ID != (state.JobID{}) {
				to.Delete(job.ID, job.Revision)
			}
		}
	}
}

// followNodes is planner.Sources.Nodes.
func followNodes(cache *store.NodesCache) func(context.Context, func([]state.Node)) error {
	return func(ctx context.Context, each func([]state.Node)) error {
		sub := cache.Subscribe()
		defer sub.Close()
		for {
			if _, err := sub.Next(ctx); err != nil {
				return nil // ctx ended
			}
			each(cache.Nodes())
		}
	}
}

// followPending is planner.Sources.Pending. A pending run that cannot be read
// is logged and left alone.
func followPending(s *store.Store, cache *store.Cache, log hclog.Logger) func(context.Context, func(are, gone []state.Pending)) error {
	return followValues(cache, s.DecodePending, "unreadable pending run is left alone", log)
}

// followCancels is planner.Sources.Cancels, likewise.
func followCancels(s *store.Store, cache *store.Cache, log hclog.Logger) func(context.Context, func([]state.Cancel)) error {
	values := followValues(cache, s.DecodeCancel, "unreadable wish to cancel a run is left alone", log)
	return func(ctx context.Context, each func([]state.Cancel)) error {
		return values(ctx, func(are, _ []state.Cancel) { each(are) })
	}
}

// followValues tells all that is decoded of a cache, then what is new or changed, and, by
// what their keys tell, what is gone.
func followValues[T any](
	cache *store.Cache, decode func(kv.KeyValue) (T, error), broken string, log hclog.Logger,
) func(context.Context, func(are, gone []T)) error {
	return func(ctx context.Context, each func(are, gone []T)) error {
		sub := cache.Subscribe()
		defer sub.Close()
		for {
			u, err := sub.Next(ctx)
			if err != nil {
				return nil // ctx ended
			}
			var values, gone []T
			add := func(from kv.KeyValue) {
				v, err := decode(from)
				if err != nil {
					log.Error(broken, "key", from.Key, "err", err)
					return
				}
				values = append(values, v)
			}
			for _, from := range u.All {
				add(*from)
			}
			for _, e := range u.Events {
				if !e.Deleted {
					add(e.KV)
				} else if v, err := decode(kv.KeyValue{Key: e.KV.Key, ModRevision: e.KV.ModRevision}); err == nil {
					gone = append(gone, v)
				}
			}
			each(values, gone)
		}
	}
}

// followBackfills is planner.Sources.Backfills. A backfill that cannot be read is
// logged and left alone.
func followBackfills(s *store.Store, cache *store.Cache, log hclog.Logger) func(context.Context, func([]state.Backfill)) error {
	return func(ctx context.Context, each func([]state.Backfill)) error {
		sub := cache.Subscribe()
		defer sub.Close()
		for {
			u, err := sub.Next(ctx)
			if err != nil {
				return nil // ctx ended
			}
			each(s.ReadBackfills(u, func(key string, err error) {
				log.Error("unreadable backfill is left alone; delete its key", "key", key, "err", err)
			}))
		}
	}
}

// leaders is what an executor on a control node follows.
type leaders struct{ *election.Observer }

// Follow implements executor.Leaders.
func (l leaders) Follow() (executor.Leader, <-chan struct{}) {
	now, changed := l.Observer.Follow()
	return executor.Leader{Name: now.Name, Address: now.Address, Term: now.Term.Number}, changed
}

// localJournal is the store as an executor of the same process uses it.
type localJournal struct{ *store.Store }

// KeepAlive implements executor.Registry.
func (j localJournal) KeepAlive(ctx context.Context, reg state.Registration) (time.Duration, error) {
	return j.KeepAliveNode(ctx, reg)
}

// follow is who leads as the journal tells executors elsewhere.
type follow struct{ *election.Observer }

// Follow implements journal.Leaders.
func (f follow) Follow() (journalserver.Leader, <-chan struct{}) {
	now, changed := f.Observer.Follow()
	return journalserver.Leader{Name: now.Name, Address: now.Address, Term: now.Term.Number}, changed
}

// leadership is who leads as the API tells it.
type leadership struct{ *election.Observer }

// Leader implements api.Leadership.
func (l leadership) Leader() (node string, term int64) {
	now := l.Current()
	return now.Name, now.Term.Number
}

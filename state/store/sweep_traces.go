package store

import (
	"context"
	"slices"
	"time"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// savedRuns are the runs of a job that have checkpoints, which go with their records:
// few, since those of runs that succeeded have gone.
func (s *Store) savedRuns(ctx context.Context, id state.JobID) (map[state.RunID]bool, error) {
	saved := make(map[state.RunID]bool)
	prefix := s.keys.checkpoints() + jobPart(id) + "/"
	from, to := prefix, s.keys.checkpointsOfJob(id) // that of the job lies behind those of runs
	for from < to {
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, from, to, kv.RangeOptions{Limit: 1, KeysOnly: true})
		})
		if err != nil || len(res.KVs) == 0 {
			return saved, err
		}
		run, err := runPart(res.KVs[0].Key[len(prefix):])
		if err != nil {
			from = res.KVs[0].Key + "\x00"
			continue
		}
		saved[run] = true
		from = end(s.keys.checkpointsOf(id, run))
	}
	return saved, nil
}

// deadRuns are the dead letters, with the revisions of their keys, of those runs of a page
// that may have been given a payload, which then stays.
func (s *Store) deadRuns(ctx context.Context, id state.JobID, page []kv.KeyValue) (map[state.RunID]int64, error) {
	var read []kv.Op
	var runs []state.RunID
	for _, found := range page {
		if run, err := runPart(found.Key[len(s.keys.historyOf(id)):]); err == nil && run.Kind().Given() {
			read, runs = append(read, keyOnly(s.keys.deadRun(id, run))), append(runs, run)
		}
	}
	if len(read) == 0 {
		return nil, nil
	}
	res, _, err := s.send(ctx, kv.Txn{Then: read}) // too many reads for group commit
	if err != nil {
		return nil, err
	}
	dead := make(map[state.RunID]int64)
	for i, run := range runs {
		if revision := modRevision(res.Results[i]); revision != 0 {
			dead[run] = revision
		}
	}
	return dead, nil
}

// hooksMayTake is how long after the verdict it may yet be told what became of a hook: each
// may run for state.MaxHookTimeout, and wait for others on its executor before.
const hooksMayTake = 12 * time.Hour

// awaitsHooks tells whether a record may yet be told of its hooks, which finds it only while
// it is not packed.
func awaitsHooks(record *statev1.Record, written, young time.Time) bool {
	return !written.Before(young.Add(-hooksMayTake)) &&
		slices.ContainsFunc(record.GetHooks(), func(h *statev1.HookRun) bool { return h.GetState() == 0 })
}

package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

const (
	// newestKeys is how many keys a job's records may have to be looked through
	// at once for the newest.
	newestKeys = 2000
	// newestWindow is the time before the end that is searched first where
	// there are more; each further window is newestGrowth times as long.
	newestWindow = time.Minute
	newestGrowth = 4
	// newestLimit ends the search by windows: the rest is one.
	newestLimit = 366 * 24 * time.Hour
)

// runsBefore answers the ids of a job's newest runs before the given one
// (empty: of all), the newest first, at most n. One of them may not exist.
func (s *Store) runsBefore(ctx context.Context, id state.JobID, before state.RunID, n int) ([]state.RunID, error) {
	near, ok := runTime(before)
	if !ok {
		near = time.Now()
	}
	var runs []state.RunID
	look := func(prefix string) error {
		// The gate sorts behind all runs and is left out here.
		to := prefix + gate
		if before != "" {
			to = prefix + escape(string(before))
		}
		found, err := s.newestRuns(ctx, prefix, to, near, n)
		runs = append(runs, found...)
		return err
	}
	// In the order in which a run goes through them, so that one that goes on
	// meanwhile is seen twice rather than not at all.
	for _, prefix := range []string{s.keys.pending() + jobPart(id) + "/", s.keys.activeOf(id)} {
		if err := look(prefix); err != nil {
			return nil, err
		}
	}
	holder, err := s.gateRun(ctx, id)
	if err != nil {
		return nil, err
	}
	if holder != "" && (before == "" || holder < before) {
		runs = append(runs, holder)
	}
	to := s.keys.historyOf(id) + gate
	if before != "" {
		to = s.keys.historyRun(id, before)
	}
	past, err := s.pastRuns(ctx, id, to, before, near, n)
	if err != nil {
		return nil, err
	}
	runs = append(runs, past...)
	if slot := beginOf(before); before != "" && slot != before {
		// A shard of the slot of the same second lies behind the range that was
		// read. If there is none the run is not found later.
		runs = append(runs, slot)
	}
	sortNewest(runs)
	runs = slices.Compact(runs)
	return runs[:min(n, len(runs))], nil
}

// runTime is the time that a run's id begins with.
func runTime(run state.RunID) (time.Time, bool) {
	return beginOf(run).Slot()
}

// beginOf is the id of the slot at a run's time.
func beginOf(run state.RunID) state.RunID {
	begin, _, _ := strings.Cut(string(run), "-")
	return state.RunID(begin)
}

func sortNewest(runs []state.RunID) {
	slices.SortFunc(runs, func(a, b state.RunID) int { return cmp.Compare(b, a) })
}

// gateRun is the run whose record is at the job's gate, empty if none can be
// read.
func (s *Store) gateRun(ctx context.Context, id state.JobID) (state.RunID, error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.activeGate(id), "", kv.RangeOptions{})
	})
	if err != nil || len(res.KVs) == 0 {
		return "", err
	}
	l, err := decodeLive(id, true, res.KVs[0])
	if err != nil {
		s.log.Error("unreadable live record is left out", "key", res.KVs[0].Key, "err", err)
		return "", nil
	}
	return l.Run, nil
}

// newestRuns answers the last n distinct runs of the keys [prefix, to), the
// newest first. The seam reads upwards only; so where there are many keys it
// looks at windows of time that grow downwards from near, since runs' ids begin
// with their time.
func (s *Store) newestRuns(ctx context.Context, prefix, to string, near time.Time, n int) ([]state.RunID, error) {
	runs, more, err := s.lastRuns(ctx, prefix, prefix, to, n, 1)
	if err != nil || !more {
		return runs, err
	}
	runs = nil
	for window := newestWindow; ; window *= newestGrowth {
		from := prefix
		if window < newestLimit {
			from = prefix + escape(string(state.SlotRunID(near.Add(-window))))
		}
		if from < to {
			older, _, err := s.lastRuns(ctx, prefix, from, to, n-len(runs), 0)
			if err != nil {
				return nil, err
			}
			runs = append(runs, older...)
			to = from
		}
		if from == prefix || len(runs) >= n {
			return runs, nil
		}
	}
}

// lastRuns reads the keys [from, to) upwards, in at most pages pages (0: all),
// and answers their last n distinct runs, the newest first; more tells that it
// did not get to the end.
func (s *Store) lastRuns(ctx context.Context, prefix, from, to string, n, pages int) (runs []state.RunID, more bool, err error) {
	o := kv.RangeOptions{KeysOnly: true, Limit: newestKeys}
	for page := 1; from < to; page++ {
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, from, to, o)
		})
		if err != nil {
			return nil, false, err
		}
		for _, found := range res.KVs {
			run, err := runPart(found.Key[len(prefix):])
			if err != nil {
				s.log.Error("key of no run is passed over", "key", found.Key, "err", err)
				continue
			}
			if len(runs) == 0 || runs[len(runs)-1] != run {
				runs = append(runs, run)
			}
		}
		// One more than asked for: keys of shards order 12:00:00's slot behind
		// the runs triggered in that second, ids before them.
		if over := len(runs) - n - 1; over > 0 {
			runs = append(runs[:0], runs[over:]...)
		}
		if !res.More || len(res.KVs) == 0 {
			break
		}
		if page == pages {
			more = true
			break
		}
		from = res.KVs[len(res.KVs)-1].Key + "\x00"
	}
	sortNewest(runs)
	return runs[:min(n, len(runs))], more, nil
}

package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

const (
	// recentJobs is how many jobs one read-only transaction looks at: four ranges
	// each, and the gate.
	recentJobs = 24
	// recentKeys is how many keys each of the ranges may have; what has more is
	// read by itself.
	recentKeys = 200
	// recentLooked is how many runs a page looks at that leaves some out.
	recentLooked = 1000
	// recentDense is how many runs of one job in one window are known at once: the
	// newest. It is far more than a page and what one job starts in a second.
	recentDense = 10_000
)

// runRef names a run among those of all jobs.
type runRef struct {
	job state.JobID
	key string // the job's part of keys, which orders jobs
	run state.RunID
}

// compare orders runs, the newest first, and those of one id by job.
func (r *runRef) compare(other *runRef) int {
	return cmp.Or(cmp.Compare(other.run, r.run), cmp.Compare(r.key, other.key))
}

// listNewest is ListRuns over several jobs, the newest runs first.
func (s *Store) listNewest(ctx context.Context, l *ListRuns) (RunPage, error) {
	want := l.Limit + 1
	if l.Match != nil {
		want = max(want, recentLooked)
	}
	refs, more, err := s.newestOfAll(ctx, l, want)
	if err != nil {
		return RunPage{}, err
	}
	entries, err := s.readRefs(ctx, refs)
	if err != nil {
		return RunPage{}, err
	}
	var page RunPage
	size := 0
	for i := range refs {
		if len(page.Runs) == l.Limit {
			page.More = true
			return page, nil
		}
		e, found := entries[refs[i]]
		if !found { // gone since, or only guessed
			page.LastJob, page.LastRun = refs[i].job, refs[i].run
			continue
		}
		if !page.take(l, &size, &e) {
			return page, nil
		}
	}
	page.More = more
	return page, nil
}

// readRefs reads runs, by job; those that have no record are left out.
func (s *Store) readRefs(ctx context.Context, refs []runRef) (map[runRef]RunEntry, error) {
	byJob := make(map[state.JobID][]runRef)
	for _, r := range refs {
		byJob[r.job] = append(byJob[r.job], r)
	}
	read := make(map[runRef]RunEntry, len(refs))
	for id, all := range byJob {
		for part := range slices.Chunk(all, runsPerTxn) {
			runs := make([]state.RunID, len(part))
			for i := range part {
				runs[i] = part[i].run
			}
			entries, err := s.readRuns(ctx, id, runs)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				read[runRef{id, part[0].key, e.Run}] = e
			}
		}
	}
	return read, nil
}

// newestOfAll answers the newest n runs of all jobs that l asks for, the newest
// first; more tells that there may be further ones. It looks at windows of time
// that grow downwards, as newestRuns does.
func (s *Store) newestOfAll(ctx context.Context, l *ListRuns, n int) (refs []runRef, more bool, err error) {
	ids, err := s.jobsWithRuns(ctx, l)
	if err != nil {
		return nil, false, err
	}
	near, before := time.Now(), state.RunID("")
	after := runRef{l.AfterJob, jobPart(l.AfterJob), l.AfterRun}
	if at, ok := runTime(l.AfterRun); ok {
		// Others of the same second come behind it, too.
		near = at.Add(time.Second)
		before = state.SlotRunID(near)
	}
	first := state.RunID("")
	if !l.Since.IsZero() {
		first = state.SlotRunID(l.Since)
	}
	for window := newestWindow; ; window *= 2 * newestGrowth {
		from := first
		if window < newestLimit {
			from = max(first, state.SlotRunID(near.Add(-window)))
		}
		for part := range slices.Chunk(ids, recentJobs) {
			if refs, err = s.appendWindow(ctx, refs, part, from, before); err != nil {
				return nil, false, err
			}
		}
		slices.SortFunc(refs, func(a, b runRef) int { return a.compare(&b) })
		refs = slices.Compact(refs)
		if l.AfterRun != "" {
			refs = slices.DeleteFunc(refs, func(r runRef) bool { return r.compare(&after) <= 0 })
		}
		if from == first || len(refs) >= n {
			break
		}
		before = from
	}
	return refs[:min(n, len(refs))], len(refs) >= n, nil
}

// jobsWithRuns are all jobs that l asks for and that have a record of a run.
func (s *Store) jobsWithRuns(ctx context.Context, l *ListRuns) ([]state.JobID, error) {
	var ids []state.JobID
	from := ""
	if l.Namespace != "" {
		from = escape(l.Namespace) + "/"
	}
	for {
		id, ok, err := s.nextJobWithRuns(ctx, l, from)
		if err != nil || !ok {
			return ids, err
		}
		ids = append(ids, id)
		from = end(jobPart(id) + "/")
	}
}

// appendWindow adds the runs of some jobs in [from, before), where an empty
// bound is none.
func (s *Store) appendWindow(ctx context.Context, refs []runRef, ids []state.JobID, from, before state.RunID) ([]runRef, error) {
	type part struct {
		id               state.JobID
		prefix, from, to string
		packed           bool
	}
	var parts []part
	t := kv.Txn{}
	for _, id := range ids {
		// In the order in which a run goes through them: see below.
		for _, prefix := range []string{s.keys.pendingOf(id), s.keys.activeOf(id), s.keys.historyOf(id)} {
			p := part{id: id, prefix: prefix, from: prefix, to: prefix + gate}
			if from != "" {
				p.from = prefix + escape(string(from))
			}
			if before != "" {
				p.to = prefix + escape(string(before))
			}
			op := kv.GetRange(p.from, p.to, recentKeys)
			op.Keys = true
			parts, t.Then = append(parts, p), append(t.Then, op)
		}
		t.Then = append(t.Then, kv.Get(s.keys.activeGate(id)))
		parts = append(parts, part{id: id})
		packed := kv.GetRange(s.keys.segmentsFrom(id, from), end(s.keys.segmentsOf(id)), 1)
		packed.Keys = true
		t.Then = append(t.Then, packed)
		parts = append(parts, part{id: id, packed: true})
	}
	var res kv.TxnResult
	if err := s.repeat(ctx, func(ctx context.Context) (err error) {
		res, err = s.kv.Txn(ctx, t)
		return err
	}); err != nil {
		return nil, err
	}
	// again are jobs of which something is read later than in the transaction: then so
	// are their verdicts, or a run that ended in between would be seen nowhere.
	again := make(map[state.JobID]bool)
	for i, p := range parts {
		add := func(run state.RunID) {
			if run != "" && run >= from && (before == "" || run < before) {
				refs = append(refs, runRef{p.id, jobPart(p.id), run})
			}
		}
		read := &res.Results[i]
		switch {
		case p.packed:
			if len(read.KVs) == 0 && !again[p.id] {
				continue // nor was anything packed since, but what was read above
			}
			err := lookAgain(func() error {
				return s.packedRuns(ctx, p.id, from, before, func(packed *codec.Packed) bool {
					add(packed.Run)
					return true
				})
			})
			if err != nil {
				return nil, err
			}
		case p.prefix == "":
			for _, found := range read.KVs {
				if l, err := readGate(p.id, found); err == nil {
					add(l.Run)
				}
			}
		case read.More, again[p.id]:
			again[p.id] = true
			runs, _, err := s.lastRuns(ctx, p.prefix, p.from, p.to, recentDense, 0)
			if err != nil {
				return nil, err
			}
			for _, run := range runs {
				add(run)
			}
		default:
			for _, found := range read.KVs {
				if run, err := runPart(found.Key[len(p.prefix):]); err == nil {
					add(run)
				}
			}
		}
	}
	return refs, nil
}

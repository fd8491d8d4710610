package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// ListRuns asks for a page of runs: by job in order of the jobs' keys, and
// within a job the newest first.
type ListRuns struct {
	// Namespace and Job say whose runs; either may be empty, which means all.
	Namespace, Job string
	// NewestFirst orders runs by their ids over all jobs, the newest first. Each
	// page then looks at every job.
	NewestFirst bool
	// Since leaves out runs whose time is before; a verdict on a range counts as
	// its first slot. Zero leaves out none.
	Since time.Time
	// Match, if set, leaves out the runs that it says no to.
	Match func(*RunEntry) bool
	// AfterJob and AfterRun are Last of the page before; zero values ask for the
	// first page.
	AfterJob state.JobID
	AfterRun state.RunID
	// Limit is the most runs to answer, at least 1.
	Limit int
}

// RunPage answers a ListRuns.
type RunPage struct {
	Runs []RunEntry
	// More tells that there may be runs behind the last one. With Match that may
	// be so even of a page without runs: one looks at some thousands of them.
	More bool
	// LastJob and LastRun are where the page ends: the last run that was looked at.
	LastJob state.JobID
	LastRun state.RunID

	looked int
}

// maxLooked is how many runs one page with Match looks at.
const maxLooked = 4000

// take adds a run that was read to the page; false if there is no room for it.
func (p *RunPage) take(l *ListRuns, size *int, e *RunEntry) bool {
	if l.Match != nil && !l.Match(e) {
		p.LastJob, p.LastRun = e.Job, e.Run
		return true
	}
	if *size += e.size; len(p.Runs) > 0 && *size > MaxPageBytes {
		p.More = true
		return false
	}
	p.Runs = append(p.Runs, *e)
	p.LastJob, p.LastRun = e.Job, e.Run
	return true
}

// ListRuns reads a page of runs, live and past, straight from the store. Each
// run is as of one revision, but not all of one: pages go on from the last
// run's name, so a run that comes into being meanwhile is seen if it lies
// ahead, and none is seen twice. A page's stored values are bounded by
// MaxPageBytes too.
func (s *Store) ListRuns(ctx context.Context, l ListRuns) (RunPage, error) {
	if l.NewestFirst && (l.Namespace == "" || l.Job == "") {
		page, err := s.listNewest(ctx, &l)
		if err != nil {
			return RunPage{}, fmt.Errorf("list runs: %w", err)
		}
		return page, nil
	}
	var page RunPage
	size := 0
	from := ""
	if l.Namespace != "" {
		from = escape(l.Namespace) + "/"
	}
	if l.AfterRun != "" {
		full, err := s.appendRuns(ctx, &page, &size, &l, l.AfterJob, l.AfterRun)
		if err != nil {
			return RunPage{}, fmt.Errorf("list runs: %w", err)
		}
		if full {
			return page, nil
		}
		from = end(jobPart(l.AfterJob) + "/")
	}
	for {
		id, ok, err := s.nextJobWithRuns(ctx, &l, from)
		if err != nil {
			return RunPage{}, fmt.Errorf("list runs: %w", err)
		}
		if !ok {
			return page, nil
		}
		if len(page.Runs) == l.Limit {
			page.More = true
			return page, nil
		}
		full, err := s.appendRuns(ctx, &page, &size, &l, id, "")
		if err != nil {
			return RunPage{}, fmt.Errorf("list runs: %w", err)
		}
		if full {
			return page, nil
		}
		from = end(jobPart(id) + "/")
	}
}

// nextJobWithRuns is the first job, in order of keys, that is asked for, has
// any record of a run, and lies at from ("<ns>/<job>/") or behind it.
func (s *Store) nextJobWithRuns(ctx context.Context, l *ListRuns, from string) (id state.JobID, ok bool, err error) {
	return s.nextJob(ctx, []string{s.keys.history(), s.keys.active(), s.keys.pending(), s.keys.segments()}, l.Namespace, l.Job, from)
}

// nextJob is the first job, in order of keys, of a namespace and a name, where an
// empty one stands for all, that has a key below one of the prefixes at from
// ("<ns>/<job>/") or behind it.
func (s *Store) nextJob(ctx context.Context, prefixes []string, namespace, job, from string) (id state.JobID, ok bool, err error) {
	if namespace != "" && job != "" {
		// The only one: it is found or passed.
		id = state.JobID{Namespace: namespace, Name: job}
		return id, from <= jobPart(id)+"/", nil
	}
	for {
		rest, err := s.firstKey(ctx, prefixes, namespace, from)
		if err != nil || rest == "" {
			return id, false, err
		}
		id, more, err := parseJob(rest)
		if err != nil || more == "" {
			s.log.Error("key of no job is passed over", "key", rest, "err", err)
			from = rest + "\x00"
			continue
		}
		if job == "" || job == id.Name {
			return id, true, nil
		}
		// Go to the job of that name in this namespace, or else to the next
		// namespace.
		wanted := jobPart(state.JobID{Namespace: id.Namespace, Name: job}) + "/"
		if wanted < rest {
			wanted = end(escape(id.Namespace) + "/")
		}
		from = wanted
	}
}

// firstKey is the least key at from or behind it, without its prefix, among
// those below the prefixes; empty if there is none.
func (s *Store) firstKey(ctx context.Context, prefixes []string, namespace, from string) (string, error) {
	t := kv.Txn{Then: make([]kv.Op, len(prefixes))}
	for i, prefix := range prefixes {
		to := end(prefix)
		if namespace != "" {
			to = end(prefix + escape(namespace) + "/")
		}
		t.Then[i] = kv.GetRange(prefix+from, to, 1)
		t.Then[i].Keys = true
	}
	var res kv.TxnResult
	if err := s.repeat(ctx, func(ctx context.Context) (err error) {
		res, err = s.kv.Txn(ctx, t)
		return err
	}); err != nil {
		return "", err
	}
	first := ""
	for i, prefix := range prefixes {
		for _, found := range res.Results[i].KVs {
			if rest := strings.TrimPrefix(found.Key, prefix); first == "" || rest < first {
				first = rest
			}
		}
	}
	return first, nil
}

// appendRuns adds a job's newest runs before the given one (empty: all) to the
// page, and tells whether that is full.
func (s *Store) appendRuns(ctx context.Context, page *RunPage, size *int, l *ListRuns, id state.JobID, before state.RunID) (full bool, err error) {
	for {
		room := l.Limit - len(page.Runs)
		runs, err := s.runsBefore(ctx, id, before, room+1)
		if err != nil {
			return false, err
		}
		more := len(runs) > room
		runs = runs[:min(room, len(runs))]
		if n := sinceIn(runs, l.Since); n < len(runs) {
			runs, more = runs[:n], false
		}
		for part := range slices.Chunk(runs, runsPerTxn) {
			entries, err := s.readRuns(ctx, id, part)
			if err != nil {
				return false, err
			}
			for i := range entries {
				if !page.take(l, size, &entries[i]) {
					return true, nil
				}
			}
		}
		if !more {
			return false, nil
		}
		page.looked += len(runs)
		if len(page.Runs) == l.Limit || l.Match != nil && page.looked >= maxLooked {
			page.More = true
			return true, nil
		}
		// Some were gone when they were read, or are not asked for.
		before = runs[len(runs)-1]
	}
}

// sinceIn is how many of the runs, the newest first, are not before since.
func sinceIn(runs []state.RunID, since time.Time) int {
	if since.IsZero() {
		return len(runs)
	}
	first := state.SlotRunID(since)
	n := slices.IndexFunc(runs, func(r state.RunID) bool { return r < first })
	if n < 0 {
		return len(runs)
	}
	return n
}

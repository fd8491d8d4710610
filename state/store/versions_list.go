package store

import (
	"context"
	"fmt"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

const (
	// versionsPerTxn is how many versions one read-only transaction looks up at
	// most, and firstVersions how many while nobody knows how large they are.
	versionsPerTxn = 20
	firstVersions  = 4
)

// ListVersions asks for a page of jobs' versions: by job in order of the jobs'
// keys, and within a job the newest first.
type ListVersions struct {
	// Namespace and Job say whose versions; either may be empty, which means
	// all.
	Namespace, Job string
	// AfterJob and AfterGeneration are the last version of the page before;
	// zero values ask for the first page.
	AfterJob        state.JobID
	AfterGeneration int64
	// Limit is the most versions to answer, at least 1.
	Limit int
}

// VersionPage answers a ListVersions.
type VersionPage struct {
	Versions []VersionEntry
	// More tells that there may be versions behind the last one.
	More bool
}

// ListAllVersions reads a page of versions, of deleted jobs too, straight from
// the store. Pages go on from the last version's name: one that comes into being
// meanwhile is seen if it lies ahead. A page's stored values are bounded by
// MaxPageBytes too.
func (s *Store) ListAllVersions(ctx context.Context, l ListVersions) (VersionPage, error) {
	var (
		page VersionPage
		size int
		from string
		full bool
		err  error
	)
	if l.Namespace != "" {
		from = escape(l.Namespace) + "/"
	}
	if l.AfterGeneration != 0 {
		page.Versions, full, err = s.appendVersions(ctx, nil, &size, l.AfterJob, l.AfterGeneration, l.Limit)
		from = end(jobPart(l.AfterJob) + "/")
	}
	for err == nil && !full {
		var id state.JobID
		var ok bool
		if id, ok, err = s.nextJob(ctx, []string{s.keys.versions()}, l.Namespace, l.Job, from); err != nil || !ok {
			break
		}
		if len(page.Versions) == l.Limit {
			page.More = true
			break
		}
		page.Versions, full, err = s.appendVersions(ctx, page.Versions, &size, id, 0, l.Limit)
		from = end(jobPart(id) + "/")
	}
	if err != nil {
		return VersionPage{}, fmt.Errorf("list versions: %w", err)
	}
	page.More = page.More || full
	return page, nil
}

// appendVersions adds to to a job's versions before a generation (0: all), the newest
// first, until there are limit or MaxPageBytes; more tells that there are further
// ones. size is that of the stored values in to.
func (s *Store) appendVersions(
	ctx context.Context, to []VersionEntry, size *int, id state.JobID, before int64, limit int,
) (all []VersionEntry, more bool, err error) {
	last := end(s.keys.versionsOf(id))
	if before > 0 {
		last = s.keys.version(id, before)
	}
	// At most MaxVersionsKept.
	keys, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.versionsOf(id), last, kv.RangeOptions{KeysOnly: true})
	})
	if err != nil {
		return to, false, err
	}
	left := keys.KVs
	for part := firstVersions; len(left) > 0; {
		room := limit - len(to)
		if room <= 0 {
			return to, true, nil
		}
		part = min(part, room, len(left))
		ops := make([]kv.Op, part)
		for i := range ops {
			ops[i] = kv.Get(left[len(left)-1-i].Key)
		}
		left = left[:len(left)-part]
		var res kv.TxnResult
		if err := s.repeat(ctx, func(ctx context.Context) (err error) {
			res, err = s.kv.Txn(ctx, kv.Txn{Then: ops})
			return err
		}); err != nil {
			return to, false, err
		}
		largest := 1
		for i := range res.Results {
			for _, found := range res.Results[i].KVs { // none if it was swept meanwhile
				if *size += len(found.Value); len(to) > 0 && *size > MaxPageBytes {
					return to, true, nil
				}
				largest = max(largest, len(found.Value))
				to = append(to, s.versionEntry(id, found))
			}
		}
		part = min(versionsPerTxn, max(1, (MaxPageBytes-*size)/largest))
	}
	return to, false, nil
}

package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
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
		full, err = s.appendVersions(ctx, &page, &size, l.AfterJob, l.AfterGeneration, l.Limit)
		from = end(jobPart(l.AfterJob) + "/")
	}
	for err == nil && !full {
		var id state.JobID
		var ok bool
		if id, ok, err = s.nextJobWithVersions(ctx, &l, from); err != nil || !ok {
			break
		}
		if len(page.Versions) == l.Limit {
			page.More = true
			break
		}
		full, err = s.appendVersions(ctx, &page, &size, id, 0, l.Limit)
		from = end(jobPart(id) + "/")
	}
	if err != nil {
		return VersionPage{}, fmt.Errorf("list versions: %w", err)
	}
	page.More = page.More || full
	return page, nil
}

// nextJobWithVersions is the first job, in order of keys, that is asked for, has
// any version, and lies at from ("<ns>/<job>/") or behind it.
func (s *Store) nextJobWithVersions(ctx context.Context, l *ListVersions, from string) (id state.JobID, ok bool, err error) {
	prefix := s.keys.versions()
	to := end(prefix)
	if l.Namespace != "" {
		to = end(prefix + escape(l.Namespace) + "/")
	}
	for {
		if l.Namespace != "" && l.Job != "" {
			// The only one: it is found or passed.
			id = state.JobID{Namespace: l.Namespace, Name: l.Job}
			return id, from <= jobPart(id)+"/", nil
		}
		if prefix+from >= to {
			return id, false, nil
		}
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, prefix+from, to, kv.RangeOptions{KeysOnly: true, Limit: 1})
		})
		if err != nil || len(res.KVs) == 0 {
			return id, false, err
		}
		rest := strings.TrimPrefix(res.KVs[0].Key, prefix)
		id, more, err := parseJob(rest)
		if err != nil || more == "" {
			s.log.Error("key of no version is passed over", "key", rest, "err", err)
			from = rest + "\x00"
			continue
		}
		if l.Job == "" || l.Job == id.Name {
			return id, true, nil
		}
		// Go to the job of that name in this namespace, or else to the next
		// namespace.
		wanted := jobPart(state.JobID{Namespace: id.Namespace, Name: l.Job}) + "/"
		if wanted < rest {
			wanted = end(escape(id.Namespace) + "/")
		}
		from = wanted
	}
}

// appendVersions adds a job's versions before a generation (0: all) to the page,
// and tells whether that is full although there are more.
func (s *Store) appendVersions(ctx context.Context, page *VersionPage, size *int, id state.JobID, before int64, limit int) (full bool, err error) {
	from, to := s.keys.versionsOf(id), end(s.keys.versionsOf(id))
	if before > 0 {
		to = s.keys.version(id, before)
	}
	// At most MaxVersionsKept.
	keys, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, from, to, kv.RangeOptions{KeysOnly: true})
	})
	if err != nil {
		return false, err
	}
	for _, key := range slices.Backward(keys.KVs) {
		if len(page.Versions) == limit {
			return true, nil
		}
		got, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, key.Key, "", kv.RangeOptions{})
		})
		if err != nil {
			return false, err
		}
		for _, found := range got.KVs { // none if it was swept meanwhile
			if *size += len(found.Value); len(page.Versions) > 0 && *size > MaxPageBytes {
				return true, nil
			}
			page.Versions = append(page.Versions, s.versionEntry(id, found))
		}
	}
	return false, nil
}

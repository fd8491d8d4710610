package store

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// MaxPageBytes bounds the stored values of one page that a list answers; the
// first is answered whatever its size.
const MaxPageBytes = 2 << 20

// listKeys is how many values a list asks of the store at a time. The limit
// keeps one request small where values are large.
const listKeys = 64

// ListJobs asks for a page of jobs, in order of their keys.
type ListJobs struct {
	// Namespace to list; empty means all.
	Namespace string
	// After is the last job of the page before; the zero value asks for the
	// first page.
	After state.JobID
	// Limit is the most jobs to answer, at least 1.
	Limit int
	// Adhoc answers those that submissions made, too.
	Adhoc bool
}

// JobPage answers a ListJobs.
type JobPage struct {
	Jobs []JobEntry
	// More tells that there are jobs behind the last one.
	More bool
}

// bounds is the range of keys that l asks for.
func (k keys) bounds(l *ListJobs) (from, to string) {
	prefix := k.jobs()
	if l.Namespace != "" {
		prefix += escape(l.Namespace) + "/"
	}
	from, to = prefix, end(prefix)
	if l.After != (state.JobID{}) {
		from = max(from, k.job(l.After)+"\x00")
	}
	return from, to
}

// add decodes kvs into the page, up to the limits.
func (p *JobPage) add(s *Store, l *ListJobs, size *int, kvs []kv.KeyValue) (full bool) {
	for i := range kvs {
		if len(p.Jobs) == l.Limit || len(p.Jobs) > 0 && *size+len(kvs[i].Value) > MaxPageBytes {
			p.More = true
			return true
		}
		e := s.jobEntry(kvs[i])
		if e.Broken != nil && e.Job.ID == (state.JobID{}) {
			continue // the feed of the catalog tells of it
		}
		if e.Job.Adhoc && !l.Adhoc {
			continue
		}
		*size += len(kvs[i].Value)
		p.Jobs = append(p.Jobs, e)
	}
	return false
}

// ListJobs reads a page of jobs from the store itself, linearizably. Broken
// jobs are answered as such. See JobsCache for the cheap way.
func (s *Store) ListJobs(ctx context.Context, l ListJobs) (JobPage, error) {
	var (
		page     JobPage
		size     int
		from, to = s.keys.bounds(&l)
		o        = kv.RangeOptions{}
	)
	for from < to {
		o.Limit = int64(min(listKeys, l.Limit-len(page.Jobs)+1))
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, from, to, o)
		})
		if err != nil {
			return JobPage{}, fmt.Errorf("list jobs: %w", err)
		}
		if page.add(s, &l, &size, res.KVs) || !res.More {
			break
		}
		if o.Revision == 0 { // the first page's: the next ones answer the store's newest
			o.Revision = res.Revision
		}
		from = res.KVs[len(res.KVs)-1].Key + "\x00"
	}
	return page, nil
}

// VersionEntry is a stored version of a job.
type VersionEntry struct {
	// Version is what this version of leaderd reads from it. Where Broken is
	// set only its Job's ID and Generation are.
	Version state.JobVersion
	// Message is the stored message; nil where Broken is set.
	Message *statev1.Version
	// Revision is the store's, of the change.
	Revision int64
	// Broken wraps ErrCorrupt where the value cannot be read.
	Broken error
}

// ListVersions answers the newest versions of a job, also of a deleted one, the
// newest first: at most limit of those before the given generation; 0 means
// from the newest on. A page is bounded by MaxPageBytes too.
func (s *Store) ListVersions(ctx context.Context, id state.JobID, before int64, limit int) ([]VersionEntry, error) {
	size := 0
	entries, _, err := s.appendVersions(ctx, nil, &size, id, before, limit)
	if err != nil {
		return nil, fmt.Errorf("list versions of %s: %w", id, err)
	}
	return entries, nil
}

func (s *Store) versionEntry(id state.JobID, from kv.KeyValue) VersionEntry {
	e := VersionEntry{Revision: from.ModRevision}
	e.Version.Job.ID = id
	generation, err := s.keys.parseVersion(id, from.Key)
	e.Version.Job.Generation = generation
	var message statev1.Version
	if err == nil {
		err = proto.Unmarshal(from.Value, &message)
	}
	if err != nil {
		e.Broken = fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
		return e
	}
	e.Message = &message
	e.Version = state.JobVersion{
		Job:    codec.JobFromProto(message.GetJob()),
		Change: state.Change(message.GetChange()),
		Actor:  message.GetActor(),
		Reason: message.GetReason(),
		Time:   codec.Time(message.GetTime()),
	}
	e.Version.Job.ID, e.Version.Job.Generation = id, generation
	return e
}

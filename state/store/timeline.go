package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/mutant"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// GetWatermark answers the watermark; its Revision is 0 where none was written
// yet. For a value that cannot be read the error wraps ErrCorrupt, and only the
// Revision is answered.
func (s *Store) GetWatermark(ctx context.Context) (state.Watermark, error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.watermark(), "", kv.RangeOptions{})
	})
	if err != nil || len(res.KVs) == 0 {
		return state.Watermark{}, err
	}
	var p statev1.Watermark
	if err := readTimeline(res.KVs[0], &p); err != nil {
		return state.Watermark{Revision: res.KVs[0].ModRevision}, err
	}
	s.closed.note(p.GetInstant(), res.KVs[0].ModRevision)
	return state.Watermark{
		Instant:  codec.Time(p.GetInstant()),
		Written:  codec.Time(p.GetWritten()),
		Jobs:     p.GetJobs(),
		Term:     p.GetTerm(),
		Revision: res.KVs[0].ModRevision,
		Lateness: state.Lateness{
			Starts: p.GetStarts(),
			P50:    time.Duration(p.GetP50()) * time.Microsecond,
			P99:    time.Duration(p.GetP99()) * time.Microsecond,
			Max:    time.Duration(p.GetMax()) * time.Microsecond,
		},
		Late: state.Late{
			Runs:  p.GetLate().GetRuns(),
			Worst: state.JobID{Namespace: p.GetLate().GetNamespace(), Name: p.GetLate().GetJob()},
			Since: codec.Time(p.GetLate().GetDue()),

			Reason: p.GetLate().GetReason(),
		},
		UnreadableGates: gatesFromProto(p.GetUnreadableGates()),
		Clocks:          clocksFromProto(p.GetClocks()),
	}, nil
}

// timelineValue is what the keys of the timeline have in common. No leader has
// ever written one of them without an instant and its term.
type timelineValue interface {
	proto.Message
	GetInstant() int64
	GetTerm() int64
}

func readTimeline(from kv.KeyValue, to timelineValue) error {
	err := proto.Unmarshal(from.Value, to)
	if err == nil && (to.GetInstant() <= 0 || to.GetTerm() <= 0) {
		err = errors.New("it has no instant or no term")
	}
	if err != nil {
		return fmt.Errorf("%w: key %q, value %q: %w", ErrCorrupt, from.Key, clip(from.Value), err)
	}
	return nil
}

// clip shortens a value for a log.
func clip(value []byte) []byte { return value[:min(len(value), 64)] }

func gatesFromProto(from []*statev1.UnreadableGate) []state.JobID {
	var ids []state.JobID
	for _, g := range from {
		ids = append(ids, state.JobID{Namespace: g.GetNamespace(), Name: g.GetJob()})
	}
	return ids
}

func gatesToProto(ids []state.JobID) []*statev1.UnreadableGate {
	var to []*statev1.UnreadableGate
	for _, id := range ids[:min(len(ids), state.MaxUnreadableGates)] {
		to = append(to, &statev1.UnreadableGate{Namespace: id.Namespace, Job: id.Name})
	}
	return to
}

func clocksFromProto(from []*statev1.ClockSkew) []state.ClockSkew {
	var clocks []state.ClockSkew
	for _, c := range from {
		clocks = append(clocks, state.ClockSkew{Node: c.GetNode(), Ahead: time.Duration(c.GetAhead()) * time.Microsecond})
	}
	return clocks
}

func clocksToProto(clocks []state.ClockSkew) []*statev1.ClockSkew {
	var to []*statev1.ClockSkew
	for _, c := range clocks[:min(len(clocks), state.MaxClocks)] {
		to = append(to, &statev1.ClockSkew{Node: c.Node, Ahead: c.Ahead.Microseconds()})
	}
	return to
}

// PutWatermark writes the watermark while the term stands. After a kv error the
// outcome may be unknown; to write again is safe: what is carried out late, behind
// a newer watermark, changes nothing. A term's calls follow one another.
func (s *Store) PutWatermark(ctx context.Context, term state.Term, w state.Watermark) error {
	p := &statev1.Watermark{
		Instant: codec.Micros(w.Instant),
		Written: codec.Micros(w.Written),
		Term:    term.Number,
		Jobs:    w.Jobs,
		Starts:  w.Lateness.Starts,
		P50:     w.Lateness.P50.Microseconds(),
		P99:     w.Lateness.P99.Microseconds(),
		Max:     w.Lateness.Max.Microseconds(),

		UnreadableGates: gatesToProto(w.UnreadableGates),
		Clocks:          clocksToProto(w.Clocks),
	}
	if w.Late.Runs > 0 {
		p.Late = &statev1.Late{
			Runs: w.Late.Runs, Namespace: w.Late.Worst.Namespace, Job: w.Late.Worst.Name, Due: codec.Micros(w.Late.Since),
			Reason: w.Late.Reason,
		}
	}
	if err := s.putWatermark(ctx, term, p); err != nil {
		return fmt.Errorf("put watermark: %w", err)
	}
	return nil
}

func (s *Store) putWatermark(ctx context.Context, term state.Term, p *statev1.Watermark) error {
	if term.Number == 0 { // which would compare as "is not there"
		return state.ErrTermLost
	}
	value, err := proto.Marshal(p)
	if err != nil {
		return err
	}
	key := s.keys.watermark()
	was := s.closed.markRevision()
	for range maxTries {
		put := kv.Txn{
			If:   []kv.Compare{unchanged(key, was)},
			Then: []kv.Op{kv.Put(key, value, 0)},
			Else: []kv.Op{kv.Get(key), keyOnly(term.Key)},
		}
		if !mutant.Off(mutant.TermFence) {
			put.If = append(put.If, termGuard(term))
		}
		res, _, err := s.send(ctx, put)
		if err != nil {
			return err
		}
		if res.Succeeded {
			s.closed.note(p.GetInstant(), res.Revision)
			return nil
		}
		var found kv.KeyValue // none: somebody else has deleted it
		if kvs := res.Results[0].KVs; len(kvs) > 0 {
			found = kvs[0]
		}
		was = found.ModRevision
		if err := over(term, res); err != nil && !mutant.Off(mutant.TermFence) {
			return err
		}
		if wrote(res.Results[0], value) { // an earlier try did
			s.closed.note(p.GetInstant(), was)
			return nil
		}
	}
	return ErrContended
}

// closedCache is what the store knows of the closed part of the timeline. It is
// never newer than the truth, and every claim compares its revision.
type closedCache struct {
	mu    sync.Mutex
	known bool
	val   state.Closed
	// mark is the newest watermark that was read or written here, in microseconds;
	// marked is the revision at which its key was last seen here.
	mark, marked int64
}

// note notes a watermark that is stored, and the revision of its key.
func (c *closedCache) note(mark, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark, c.marked = max(c.mark, mark), max(c.marked, revision)
}

func (c *closedCache) markRevision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.marked
}

func (c *closedCache) newestMark() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark
}

func (c *closedCache) set(v state.Closed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || v.Revision > c.val.Revision {
		c.known, c.val = true, v
	}
}

func (c *closedCache) get() (state.Closed, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.val, c.known
}

func (s *Store) closedNow(ctx context.Context) (state.Closed, error) {
	if v, ok := s.closed.get(); ok {
		return v, nil
	}
	return s.GetClosed(ctx)
}

// GetClosed answers the closed part of the timeline. For a value that cannot be
// read the error wraps ErrCorrupt, and only the Revision is answered.
func (s *Store) GetClosed(ctx context.Context) (state.Closed, error) {
	res, err := s.look(ctx, kv.Get(s.closedKey), keyOnly(s.changedKey))
	if err != nil {
		return state.Closed{}, err
	}
	var v state.Closed
	if kvs := res.Results[0].KVs; len(kvs) > 0 {
		if v, err = decodeClosed(kvs[0]); err != nil {
			return v, err
		}
	}
	s.closed.set(v)
	if kvs := res.Results[1].KVs; len(kvs) > 0 {
		s.changed.set(kvs[0].ModRevision)
	}
	return v, nil
}

// LastChange answers the revision of the last change of any job, 0 where none is
// known: whoever follows the jobs up to there knows them as they are, or knew them
// when it was asked. It is a linearizable read.
func (s *Store) LastChange(ctx context.Context) (int64, error) {
	res, err := s.look(ctx, keyOnly(s.changedKey))
	if err != nil {
		return 0, fmt.Errorf("read the last change of a job: %w", err)
	}
	if kvs := res.Results[0].KVs; len(kvs) > 0 {
		s.changed.set(kvs[0].ModRevision)
		return kvs[0].ModRevision, nil
	}
	return 0, nil
}

// changedCache is the revision of the last change of any job, as far as it is
// known; 0 until there was one. It is never newer than the truth.
type changedCache struct{ revision atomic.Int64 }

func (c *changedCache) get() int64 { return c.revision.Load() }

func (c *changedCache) set(revision int64) {
	for was := c.get(); was < revision; was = c.get() {
		if c.revision.CompareAndSwap(was, revision) {
			return
		}
	}
}

func decodeClosed(from kv.KeyValue) (state.Closed, error) {
	if from.Key == "" {
		return state.Closed{}, nil
	}
	var p statev1.Closed
	if err := readTimeline(from, &p); err != nil {
		return state.Closed{Revision: from.ModRevision}, err
	}
	return state.Closed{Instant: codec.Time(p.GetInstant()), Mark: codec.Time(p.GetMark()), Revision: from.ModRevision}, nil
}

// olderVersions is how many of a job's older versions a new leader reads at a time.
const olderVersions = 20

// OlderVersions answers a page of a job's versions before a generation, 0 for all,
// the newest first. The Revision of each is that at which it was stored. One that
// cannot be read is left out. next is the generation before which the next page
// begins, 0 where there is none.
func (s *Store) OlderVersions(ctx context.Context, id state.JobID, before int64) (page []state.JobVersion, next int64, err error) {
	entries, err := s.ListVersions(ctx, id, before, olderVersions)
	if err != nil {
		return nil, 0, err
	}
	for i := range entries {
		next = entries[i].Version.Job.Generation
		if entries[i].Broken == nil {
			v := entries[i].Version
			v.Job.Revision = entries[i].Revision
			page = append(page, v)
		}
	}
	if next == 1 {
		next = 0
	}
	return page, next, nil
}

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// Older verdicts of a job are packed, many in one value. The key of such a segment
// says all that has to be known of it without its value, and lies at its last run:
// the segment that may have a run is the first at that run or behind it, and no two
// of a job overlap. A verdict moves from history/… into a segment in one
// transaction; so whoever looks for it there first and here later finds it.

// segment is one of a job's, as its key tells.
type segment struct {
	key         string
	revision    int64 // ModRevision
	first, last state.RunID
	runs        int
	// newest is when the last of its verdicts was written, in seconds, and reach the
	// last instant that one of them is about.
	newest, reach time.Time
}

// holds tells whether the segment may have a run.
func (g *segment) holds(run state.RunID) bool { return g.first <= run && run <= g.last }

// errMoved: a segment is not there any more: its verdicts were packed anew, or
// removed. Look again.
var errMoved = errors.New("segment moved")

func (k keys) segments() string                 { return k.prefix + "segments/" }
func (k keys) segmentsOf(id state.JobID) string { return k.segments() + jobPart(id) + "/" }
func (k keys) swept(id state.JobID) string      { return k.sweptJobs() + jobPart(id) }
func (k keys) sweptJobs() string                { return k.prefix + "swept/" }
func (k keys) segmentsFrom(id state.JobID, run state.RunID) string {
	if run == "" {
		return k.segmentsOf(id)
	}
	return k.segmentsOf(id) + escape(string(run))
}

// segmentKey is the key of a segment with these verdicts.
func (k keys) segmentKey(id state.JobID, of []codec.Packed) string {
	newest, reach := int64(0), int64(0)
	for i := range of {
		r := of[i].Record
		newest, reach = max(newest, r.GetRecorded()), max(reach, r.GetUntil())
		if at, ok := runTime(of[i].Run); ok {
			reach = max(reach, codec.Micros(at))
		}
	}
	const second = int64(time.Second / time.Microsecond)
	return fmt.Sprintf("%s%s,%s,%d,%d,%d", k.segmentsOf(id), escape(string(of[len(of)-1].Run)), escape(string(of[0].Run)),
		len(of), (newest+second-1)/second, reach/second)
}

// parseSegment reads a segment's key.
func parseSegment(prefix string, from kv.KeyValue) (segment, error) {
	g := segment{key: from.Key, revision: from.ModRevision}
	parts := strings.Split(from.Key[len(prefix):], ",")
	if len(parts) != 5 {
		return g, fmt.Errorf("%w: key %q names no segment", ErrCorrupt, from.Key)
	}
	last, err1 := unescape(parts[0])
	first, err2 := unescape(parts[1])
	runs, err3 := strconv.Atoi(parts[2])
	newest, err4 := strconv.ParseInt(parts[3], 10, 64)
	reach, err5 := strconv.ParseInt(parts[4], 10, 64)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return g, fmt.Errorf("%w: key %q names no segment: %w", ErrCorrupt, from.Key, err)
	}
	g.first, g.last, g.runs = state.RunID(first), state.RunID(last), runs
	g.newest, g.reach = time.Unix(newest, 0).UTC(), time.Unix(reach, 0).UTC()
	return g, nil
}

// segmentsOf are a job's segments with a last run at or behind from (empty: all), in
// order, without their values. One whose key cannot be read is logged and left out.
func (s *Store) segmentsOf(ctx context.Context, id state.JobID, from state.RunID) ([]segment, error) {
	var out []segment
	prefix := s.keys.segmentsOf(id)
	o := kv.RangeOptions{Limit: newestKeys, KeysOnly: true}
	for at := s.keys.segmentsFrom(id, from); ; {
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) { return s.kv.Range(ctx, at, end(prefix), o) })
		if err != nil {
			return nil, err
		}
		for _, found := range res.KVs {
			g, err := parseSegment(prefix, found)
			if err != nil {
				s.log.Error("key of no segment is passed over", "err", err)
				continue
			}
			out = append(out, g)
		}
		if !res.More || len(res.KVs) == 0 {
			return out, nil
		}
		o.Revision, at = res.Revision, res.KVs[len(res.KVs)-1].Key+"\x00"
	}
}

// openSegment is what a segment holds, in order; errMoved where it is gone, and
// ErrCorrupt where it cannot be read. What it answers is shared.
func (s *Store) openSegment(ctx context.Context, g *segment) ([]codec.Packed, error) {
	if of, ok := s.opened.get(g); ok {
		return of, nil
	}
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, g.key, "", kv.RangeOptions{})
	})
	if err != nil {
		return nil, err
	}
	if len(res.KVs) == 0 || res.KVs[0].ModRevision != g.revision {
		return nil, errMoved
	}
	of, err := codec.UnmarshalSegment(res.KVs[0].Value)
	if err != nil {
		return nil, fmt.Errorf("%w: key %q: %w", ErrCorrupt, g.key, err)
	}
	s.opened.put(g, of)
	return of, nil
}

// lookAgain calls look until it does not answer errMoved.
func lookAgain(look func() error) error {
	for range maxTries {
		if err := look(); !errors.Is(err, errMoved) {
			return err
		}
	}
	return ErrContended
}

// packedRuns calls each, in order, for every packed verdict of the runs in [from, to)
// that lies in a segment that can be read, until that answers false; an empty bound is
// none. After errMoved, look again from the beginning.
func (s *Store) packedRuns(ctx context.Context, id state.JobID, from, to state.RunID, each func(*codec.Packed) bool) error {
	segments, err := s.segmentsOf(ctx, id, from)
	if err != nil {
		return err
	}
	for i := range segments {
		g := &segments[i]
		if to != "" && g.first >= to {
			break
		}
		of, err := s.openSegment(ctx, g)
		if errors.Is(err, ErrCorrupt) {
			s.log.Error("unreadable segment is passed over", "err", err)
			continue
		}
		if err != nil {
			return err
		}
		for j := range of {
			if of[j].Run >= from && (to == "" || of[j].Run < to) && !each(&of[j]) {
				return nil
			}
		}
	}
	return nil
}

// packedBefore are the ids of a job's newest packed runs before the given one
// (empty: of all), the newest first, at most n.
func (s *Store) packedBefore(ctx context.Context, id state.JobID, before state.RunID, n int) (runs []state.RunID, err error) {
	err = lookAgain(func() error {
		runs = runs[:0]
		segments, err := s.segmentsOf(ctx, id, "")
		if err != nil {
			return err
		}
		for i := len(segments) - 1; i >= 0 && len(runs) < n; i-- {
			g := &segments[i]
			if before != "" && g.first >= before {
				continue
			}
			of, err := s.openSegment(ctx, g)
			if errors.Is(err, ErrCorrupt) {
				s.log.Error("unreadable segment is passed over", "err", err)
				continue
			}
			if err != nil {
				return err
			}
			for _, p := range slices.Backward(of) {
				if before == "" || p.Run < before {
					runs = append(runs, p.Run)
				}
			}
		}
		return nil
	})
	return runs[:min(n, len(runs))], err
}

// pastRuns answers the last n distinct runs with a verdict before a key, the newest
// first: see newestRuns.
func (s *Store) pastRuns(ctx context.Context, id state.JobID, to string, before state.RunID, near time.Time, n int) ([]state.RunID, error) {
	runs, err := s.newestRuns(ctx, s.keys.historyOf(id), to, near, n)
	if err != nil {
		return nil, err
	}
	packed, err := s.packedBefore(ctx, id, before, n)
	if err != nil || len(packed) == 0 {
		return runs, err
	}
	runs = append(runs, packed...)
	sortNewest(runs)
	runs = slices.Compact(runs)
	return runs[:min(n, len(runs))], nil
}

// readPacked reads the verdicts of runs that were found nowhere else, at most
// runsPerTxn; those that are in no segment are left out.
func (s *Store) readPacked(ctx context.Context, id state.JobID, runs []state.RunID) (found map[state.RunID]RunEntry, err error) {
	err = lookAgain(func() error {
		found, err = s.tryReadPacked(ctx, id, runs)
		return err
	})
	return found, err
}

func (s *Store) tryReadPacked(ctx context.Context, id state.JobID, runs []state.RunID) (map[state.RunID]RunEntry, error) {
	prefix := s.keys.segmentsOf(id)
	var t kv.Txn
	for _, run := range runs {
		op := kv.GetRange(s.keys.segmentsFrom(id, run), end(prefix), 1)
		op.Keys = true
		t.Then = append(t.Then, op)
	}
	var res kv.TxnResult
	if err := s.repeat(ctx, func(ctx context.Context) (err error) {
		res, err = s.kv.Txn(ctx, t)
		return err
	}); err != nil {
		return nil, err
	}
	var out map[state.RunID]RunEntry
	for i, run := range runs {
		for _, key := range res.Results[i].KVs {
			g, err := parseSegment(prefix, key)
			if err != nil || !g.holds(run) {
				continue // an unreadable key is told of by those who list
			}
			e := RunEntry{Job: id, Run: run, size: 1, packed: g}
			of, err := s.openSegment(ctx, &g)
			switch at, has := slices.BinarySearchFunc(of, run, func(p codec.Packed, run state.RunID) int {
				return strings.Compare(string(p.Run), string(run))
			}); {
			case errors.Is(err, ErrCorrupt):
				e.Broken = err
			case err != nil:
				return nil, err
			case !has:
				continue
			default:
				rec := codec.RecordFromProto(of[at].Record)
				rec.Job, rec.Run, rec.Revision = id, run, of[at].Revision
				e.Record, e.size = &rec, 64+proto.Size(of[at].Record)
			}
			if out == nil {
				out = make(map[state.RunID]RunEntry, len(runs))
			}
			out[run] = e
		}
	}
	return out, nil
}

// maxOpened is how many segments a store keeps unpacked, some hundred KiB each.
const maxOpened = 16

// openedSegments keeps the segments unpacked that were read last: a list of runs is
// read page by page.
type openedSegments struct {
	mu  sync.Mutex
	all []openedSegment // the one used last at the end
}

type openedSegment struct {
	key      string
	revision int64
	of       []codec.Packed
}

func (o *openedSegments) get(g *segment) ([]codec.Packed, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.all, func(s openedSegment) bool { return s.key == g.key && s.revision == g.revision })
	if i < 0 {
		return nil, false
	}
	found := o.all[i]
	o.all = append(slices.Delete(o.all, i, i+1), found)
	return found.of, true
}

func (o *openedSegments) put(g *segment, of []codec.Packed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) >= maxOpened {
		o.all = slices.Delete(o.all, 0, 1)
	}
	o.all = append(o.all, openedSegment{g.key, g.revision, of})
}

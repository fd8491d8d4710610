package store

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strings"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// pack makes the step that puts some of the candidates, which are in order, into one
// segment: into that which their runs lie in, or else into the last one while it has
// room, or a new one. Its packed is 0 where none of them can be.
func (s *Store) pack(ctx context.Context, sw *sweep, from []candidate) (*step, error) {
	most := min(max(sw.MaxRuns/8, packRuns), segmentRuns)
	for len(from) > 0 {
		at := sort.Search(len(sw.segments), func(i int) bool { return sw.segments[i].last >= from[0].run })
		if at == len(sw.segments) {
			return s.packBehind(ctx, sw, from[:min(len(from), most)], most)
		}
		g := &sw.segments[at]
		n, _ := slices.BinarySearchFunc(from, string(g.last)+"\x00", func(c candidate, to string) int { return strings.Compare(string(c.run), to) })
		of, err := s.openSegment(ctx, g)
		switch {
		case errors.Is(err, ErrCorrupt):
			s.log.Error("verdicts stay as they are, since the segment that they belong into cannot be read", "job", sw.Job, "err", err)
			from = from[n:]
			continue
		case err != nil:
			return nil, err
		}
		return s.packInto(sw, g, of, from[:n], most)
	}
	return &step{}, nil
}

// packBehind packs verdicts of later runs than any segment has.
func (s *Store) packBehind(ctx context.Context, sw *sweep, from []candidate, most int) (*step, error) {
	if n := len(sw.segments); n > 0 && sw.segments[n-1].runs < most && sw.spans(sw.segments[n-1].first, from) > 0 {
		g := &sw.segments[n-1]
		of, err := s.openSegment(ctx, g)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		if err == nil {
			from := from[:min(sw.spans(g.first, from), most-g.runs)]
			value, key, err := s.segmentValue(sw, merged(of, from))
			if err != nil {
				return nil, err
			}
			if len(value) <= segmentBytes {
				t := packing(from)
				t.replace(g, []kv.Op{kv.Put(key, value, 0)})
				return t, nil
			}
		}
	}
	from = from[:max(1, sw.spans(from[0].run, from))]
	for {
		value, key, err := s.segmentValue(sw, merged(nil, from))
		if err != nil {
			return nil, err
		}
		if len(value) <= segmentBytes || len(from) == 1 {
			t := packing(from)
			t.txn.Then = append(t.txn.Then, kv.Put(key, value, 0))
			return t, nil
		}
		from = from[:(len(from)+1)/2]
	}
}

// spans is how many of the candidates a segment may take whose first run is as given.
func (sw *sweep) spans(first state.RunID, from []candidate) int {
	begin, ok := runTime(first)
	if sw.Span == 0 || !ok {
		return len(from)
	}
	n := slices.IndexFunc(from, func(c candidate) bool {
		at, _ := runTime(c.run)
		return at.Sub(begin) > sw.Span
	})
	if n < 0 {
		return len(from)
	}
	return n
}

// packInto packs verdicts of runs that lie in a segment, which is split where it
// becomes too large: they were written long after those of the runs beside them. As many are
// taken at a time as leave the parts about as large as segments are, and the step within what
// the store takes in one request.
func (s *Store) packInto(sw *sweep, g *segment, of []codec.Packed, from []candidate, most int) (*step, error) {
	all := merged(of, from)
	value, key, err := s.segmentValue(sw, all)
	for err == nil && len(value) > 2*segmentBytes && len(from) > 1 {
		from = from[:(len(from)+1)/2]
		all = merged(of, from)
		value, key, err = s.segmentValue(sw, all)
	}
	if err != nil {
		return nil, err
	}
	puts := []kv.Op{kv.Put(key, value, 0)}
	if len(all) > 1 && (len(value) > segmentBytes || len(all) > 2*most) {
		puts = puts[:0]
		for _, part := range [][]codec.Packed{all[:len(all)/2], all[len(all)/2:]} {
			if value, key, err = s.segmentValue(sw, part); err != nil {
				return nil, err
			}
			puts = append(puts, kv.Put(key, value, 0))
		}
	}
	t := packing(from)
	t.replace(g, puts)
	return t, nil
}

// packing is the part of a step that takes verdicts from where they are.
func packing(from []candidate) *step {
	t := &step{packed: len(from)}
	for i := range from {
		t.remove(from[i].from.Key, from[i].from.ModRevision)
	}
	return t
}

// replace puts segments in the place of one.
func (t *step) replace(g *segment, puts []kv.Op) {
	t.txn.If = append(t.txn.If, unchanged(g.key, g.revision))
	if !slices.ContainsFunc(puts, func(op kv.Op) bool { return op.Key == g.key }) {
		t.txn.Then = append(t.txn.Then, kv.Delete(g.key))
	}
	t.txn.Then = append(t.txn.Then, puts...)
}

func (s *Store) segmentValue(sw *sweep, of []codec.Packed) (value []byte, key string, err error) {
	value, err = codec.MarshalSegment(of)
	return value, s.keys.segmentKey(sw.Job, of), err
}

// merged are verdicts of a segment and others, in order.
func merged(of []codec.Packed, from []candidate) []codec.Packed {
	all := slices.Clone(of)
	for i := range from {
		all = append(all, codec.Packed{Run: from[i].run, Revision: from[i].from.CreateRevision, Record: from[i].record})
	}
	slices.SortFunc(all, func(a, b codec.Packed) int { return strings.Compare(string(a.Run), string(b.Run)) })
	return all
}

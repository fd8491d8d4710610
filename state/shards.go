package state

import (
	"math"
	"strconv"
	"time"
)

// HeaderShard is the shard number of the header of a run that is split.
const HeaderShard = -1

// Shards says into what each run of a job is split, and when it counts as
// succeeded.
type Shards struct {
	// Count is how many there are; 0: as many as Params, or, with Broadcast, nodes.
	Count int
	// Range are numbers that they divide among themselves.
	Range *ShardRange
	// Broadcast makes one for each executor that matches the job's selector when the
	// run is split, which runs nowhere else.
	Broadcast bool
	// Params is what each is given.
	Params []map[string]string
	// Dynamic has the first step of each run list its shards. Of a run that is split Params
	// is what was listed.
	Dynamic *Listing
	// MinSuccess is how many must succeed; 0, or more than there are: all.
	MinSuccess int
	// StopOnFailure stops the others once the run cannot succeed any more.
	StopOnFailure bool
}

// ShardRange are the whole numbers from From to To, both included.
type ShardRange struct{ From, To int64 }

// Split is what one run is split into: fixed when its first shard is claimed, or when its
// first step has listed them.
type Split struct {
	Shards
	// Nodes are the executors of a broadcast's shards, in order.
	Nodes []string
	// Carried are shards that succeeded in earlier runs, of a run that repeats what else
	// was of one: they are not claimed, and count as succeeded. Resumed are others that go
	// on from the last checkpoints of earlier runs. See Record.Unfinished.
	Carried, Resumed []ShardsOf
}

// Part is what one shard is given beside its number.
type Part struct {
	// Range are its numbers, where HasRange; To is less than From where it has none.
	Range    ShardRange
	HasRange bool
	Params   map[string]string
	// Node is the only one that may run it; empty: any.
	Node string
}

// RunShards is a run that is split, as of one instant.
type RunShards struct {
	// Header is nil where the run has none: it is over, or was never split.
	Header *Live
	// Shards are those that have been claimed, by number.
	Shards []Live
	// Seen is the store's revision then.
	Seen int64
	// Over tells that the run has its verdict, and Listing that its first step is at
	// work, or waits.
	Over, Listing bool
}

// ShardEnd is more about how a shard ended.
type ShardEnd struct {
	Reason, Detail string
	Recorded       time.Time
	// Tail is the end of the output, at most MaxShardTail bytes.
	Tail        []byte
	OutputBytes int64
}

// Listed tells whether the runs' first steps list their shards.
func (s *Shards) Listed() bool { return s != nil && s.Dynamic != nil }

// Total is how many shards there are, but for a broadcast and what is listed, of which only
// a Split knows.
func (s *Shards) Total() int { return max(s.Count, len(s.Params)) }

// Total is how many shards the run has.
func (s *Split) Total() int {
	if s.Broadcast {
		return len(s.Nodes)
	}
	return s.Shards.Total()
}

// Needed is how many of them must succeed.
func (s *Split) Needed() int {
	if n := s.Total(); s.MinSuccess == 0 || s.MinSuccess > n {
		return n
	}
	return s.MinSuccess
}

// Part is what a shard is given. Ranges are divided as evenly as they can be, the
// first shards having one number more where they do not divide.
func (s *Split) Part(shard int) Part {
	var p Part
	if shard < 0 || shard >= s.Total() {
		return p
	}
	if s.Broadcast {
		p.Node = s.Nodes[shard]
	}
	if shard < len(s.Params) {
		p.Params = s.Params[shard]
	}
	if r := s.Range; r != nil {
		p.HasRange = true
		p.Range = r.part(uint64(shard), uint64(s.Total()))
	}
	return p
}

// size is how many numbers the range has, less one.
func (r *ShardRange) size() uint64 { return uint64(r.To) - uint64(r.From) }

// part is the i-th of n parts.
func (r *ShardRange) part(i, n uint64) ShardRange {
	numbers := r.size() + 1
	each, extra := numbers/n, numbers%n // the first extra parts have one more
	first := uint64(r.From) + i*each + min(i, extra)
	size := each
	if i < extra {
		size++
	}
	return ShardRange{From: int64(first), To: int64(first + size - 1)}
}

// ShardEnd is how a shard of a run that was split ended, nil for another run.
func (r *Record) ShardEnd(shard int) *Live {
	if shard < 0 || shard >= len(r.Ends) {
		return nil
	}
	return &r.Ends[shard]
}

// IsHeader tells whether the record stands for a run that is split.
func (l *Live) IsHeader() bool { return l.Split != nil }

func (s *Shards) check(v *Violations, target *JobSpec) {
	const field = "spec.shards"
	n := len(s.Params)
	switch {
	case s.Dynamic != nil && (s.Count != 0 || n > 0 || s.Range != nil || s.Broadcast):
		v.Add(field+".dynamic", "has each run list its shards, and stands beside no count, range, params or broadcast")
	case s.Dynamic != nil:
		s.Dynamic.check(v, target)
	case s.Broadcast && (s.Count != 0 || n > 0 || s.Range != nil):
		v.Add(field+".broadcast", "makes one shard for each matching executor, and stands beside no count, range or params")
	case s.Broadcast:
	case s.Count < 0 || s.Count > MaxShards:
		v.Add(field+".count", "%d is outside 1–%d", s.Count, MaxShards)
	case n > MaxShards:
		v.Add(field+".params", "has %d entries; at most %d are allowed", n, MaxShards)
	case s.Count == 0 && n == 0:
		v.Add(field, "says nothing of how many; one of count, params, broadcast and dynamic is required")
	case s.Count != 0 && n != 0 && s.Count != n:
		v.Add(field+".params", "has %d entries, but count is %d; leave count out", n, s.Count)
	}
	if r := s.Range; r != nil && r.To < r.From {
		v.Add(field+".range", "ends at %d, before it begins, at %d", r.To, r.From)
	} else if r != nil && r.size() > math.MaxInt64-1 {
		v.Add(field+".range", "has more than %d numbers", int64(math.MaxInt64))
	}
	most := s.Total()
	switch {
	case s.Broadcast:
		most = MaxShards
	case s.Dynamic != nil:
		most = s.Dynamic.Most()
	}
	if m := s.MinSuccess; m < 0 || m > most {
		v.Add(field+".minSuccess", "%d is outside 1–%d, the number of shards", m, most)
	}
	checkShardParams(v, field+".params", func(i int) string { return field + ".params[" + strconv.Itoa(i) + "]" }, s.Params, target.HTTP != nil)
}

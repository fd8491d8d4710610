package state

import (
	"slices"
	"time"
)

// Repeat is a wish for a run that repeats another one, which has ended and not succeeded.
type Repeat struct {
	// Pending is the new run; its Origin is the other. What that was given and belongs to
	// is added when the wish is stored.
	Pending Pending
	// FailedOnly makes only those shards again that have not succeeded. A run of one piece
	// goes on from the last checkpoint of the one that it repeats.
	FailedOnly bool
	// Key and KeyTTL are those of a Submission: of retries of a run with the same key only
	// the first makes a run.
	Key    string
	KeyTTL time.Duration
	Now    time.Time
}

// ShardsOf are some shards of a run, in order.
type ShardsOf struct {
	Run    RunID
	Shards []int
}

// CarriedFrom is the earlier run in which a shard has succeeded that is not made again;
// empty for others.
func (s *Split) CarriedFrom(shard int) RunID { return runOf(s.Carried, shard) }

// ResumedFrom is the earlier run from whose last checkpoint a shard goes on, where that is
// kept; empty for those that begin without one.
func (s *Split) ResumedFrom(shard int) RunID { return runOf(s.Resumed, shard) }

// Left is how many of the shards are made in the run: all that are not carried over.
func (s *Split) Left() int {
	n := s.Total()
	for i := range s.Carried {
		n -= len(s.Carried[i].Shards)
	}
	return n
}

func runOf(of []ShardsOf, shard int) RunID {
	for i := range of {
		if _, ok := slices.BinarySearch(of[i].Shards, shard); ok {
			return of[i].Run
		}
	}
	return ""
}

// with adds a shard that is behind all others of its run.
func with(of []ShardsOf, run RunID, shard int) []ShardsOf {
	for i := range of {
		if of[i].Run == run {
			of[i].Shards = append(of[i].Shards, shard)
			return of
		}
	}
	return append(of, ShardsOf{Run: run, Shards: []int{shard}})
}

// Unfinished is what a run is split into that makes only those shards again that have not
// succeeded in the run that was recorded, nil where there are none. The others are carried
// over from the run in which they did succeed. A shard that is made again goes on from where
// its last attempt was, in whatever run. There is no first step any more: what it listed
// stands.
func (r *Record) Unfinished() *Split {
	if r.Split == nil || len(r.Ends) != r.Split.Total() {
		return nil
	}
	s := *r.Split
	s.Dynamic, s.Carried, s.Resumed = nil, nil, nil
	for i := range r.Ends {
		from := r.Run
		if r.Ends[i].State == StateSucceeded {
			if carried := r.Split.CarriedFrom(i); carried != "" {
				from = carried
			}
			s.Carried = with(s.Carried, from, i)
			continue
		}
		if len(r.Ends[i].Attempts) == 0 {
			from = r.Split.ResumedFrom(i)
		}
		if from != "" {
			s.Resumed = with(s.Resumed, from, i)
		}
	}
	if s.Left() == 0 {
		return nil
	}
	return &s
}

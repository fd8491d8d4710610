package store

import (
	"context"
	"fmt"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// Holder is a run that is live, and keeps others waiting by that.
type Holder struct {
	Job state.JobID
	Run state.RunID
}

// LimitHolders answers the runs that have places at a limit, in order of place. Errors are
// those of package kv, and ErrCorrupt.
func (s *Store) LimitHolders(ctx context.Context, id state.LimitID) ([]Holder, error) {
	prefix := s.keys.limitPlaces(id)
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, prefix, end(prefix), kv.RangeOptions{})
	})
	var taken []taker
	if err == nil {
		taken, err = s.holdersAt(prefix, res.KVs)
	}
	if err != nil {
		return nil, fmt.Errorf("look who holds %s: %w", id, err)
	}
	return holdersOf(taken), nil
}

// GateHolders answers the runs that are live at a job's gate. Errors are those of package
// kv, and ErrCorrupt.
func (s *Store) GateHolders(ctx context.Context, id state.JobID, gate state.Gate) ([]Holder, error) {
	if gate.Limit == 0 {
		return s.gateRecordHolder(ctx, id)
	}
	prefix := s.keys.placesOf(id, gate.Key)
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, prefix, end(prefix), kv.RangeOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("look at the gate of %s: %w", id, err)
	}
	taken, err := s.holdersAt(prefix, res.KVs)
	if err != nil {
		return nil, fmt.Errorf("look at the gate of %s: %w", id, err)
	}
	for i := range taken {
		if taken[i].job.Namespace == "" { // as places of gates have it
			taken[i].job.Namespace = id.Namespace
		}
	}
	return holdersOf(taken), nil
}

// gateRecordHolder is the run whose live record is the job's gate, if that has no verdict.
func (s *Store) gateRecordHolder(ctx context.Context, id state.JobID) ([]Holder, error) {
	l, held, err := s.GateHolder(ctx, id)
	if err != nil || !held {
		return nil, err
	}
	live, err := s.LiveOf(ctx, id, l.Run)
	if err != nil || len(live) == 0 {
		return nil, err
	}
	return []Holder{{id, l.Run}}, nil
}

func holdersOf(taken []taker) []Holder {
	all := make([]Holder, 0, len(taken))
	for i := range taken {
		all = append(all, Holder{taken[i].job, taken[i].run})
	}
	return all
}

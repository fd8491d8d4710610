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
	// Unreadable is the key of its place where it cannot be read; Job and Run are empty
	// then.
	Unreadable string
}

// LimitHolders answers the runs that have places at a limit, in order of place. Errors are
// those of package kv.
func (s *Store) LimitHolders(ctx context.Context, id state.LimitID) ([]Holder, error) {
	held, err := s.holdersBelow(ctx, s.keys.limitPlaces(id), "")
	if err != nil {
		return nil, fmt.Errorf("look who holds %s: %w", id, err)
	}
	return held, nil
}

// GateHolders answers the runs that are live at a job's gate. Errors are those of package
// kv, and ErrCorrupt for a job whose live record is its gate.
func (s *Store) GateHolders(ctx context.Context, id state.JobID, gate state.Gate) ([]Holder, error) {
	if gate.Limit == 0 {
		return s.gateRecordHolder(ctx, id)
	}
	held, err := s.holdersBelow(ctx, s.keys.placesOf(id, gate.Key), id.Namespace)
	if err != nil {
		return nil, fmt.Errorf("look at the gate of %s: %w", id, err)
	}
	return held, nil
}

// holdersBelow are the runs that have places below a prefix.
func (s *Store) holdersBelow(ctx context.Context, prefix, namespace string) ([]Holder, error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, prefix, end(prefix), kv.RangeOptions{})
	})
	if err != nil {
		return nil, err
	}
	all := make([]Holder, 0, len(res.KVs))
	for _, t := range s.takersAt(prefix, namespace, res.KVs) {
		h := Holder{Job: t.job, Run: t.run}
		if t.run == "" {
			h.Unreadable = t.key
		}
		all = append(all, h)
	}
	return all, nil
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
	return []Holder{{Job: id, Run: l.Run}}, nil
}

package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// SweepCircuits forgets the circuits that no job names any more, while the term stands:
// those of targets, and what runs that outlived their job, or its breaker, have left.
// Errors are those of package kv, and state.ErrTermLost.
func (s *Store) SweepCircuits(ctx context.Context, term state.Term) error {
	if err := s.sweepCircuits(ctx, term); err != nil {
		return fmt.Errorf("sweep circuits: %w", err)
	}
	return nil
}

func (s *Store) sweepCircuits(ctx context.Context, term state.Term) error {
	if term.Number == 0 { // which would compare as "is not there"
		return state.ErrTermLost
	}
	of := map[string][]kv.KeyValue{} // by namespace, escaped
	prefix := s.keys.prefix + "circuits/"
	if err := s.scan(ctx, prefix, func(found kv.KeyValue) {
		namespace, rest, _ := strings.Cut(found.Key[len(prefix):], "/")
		kind, name, _ := strings.Cut(rest, "/")
		if (kind == "job" || kind == "target") && name != "" && !strings.Contains(name, "/") {
			of[namespace] = append(of[namespace], found)
		}
	}); err != nil || len(of) == 0 {
		return err
	}
	// As long as this stands no job begins to name one.
	changed, err := s.LastChange(ctx)
	if err != nil {
		return err
	}
	for namespace, circuits := range of {
		named, broken := map[string]bool{}, false
		if err := s.scan(ctx, s.keys.jobs()+namespace+"/", func(found kv.KeyValue) {
			switch job, err := s.DecodeJob(found); {
			case err != nil:
				broken = true // it may name any of them
			case job.Spec.CircuitBreaker != nil:
				named[s.keys.circuit(job.ID, job.Spec.CircuitBreaker)] = true
			}
		}); err != nil {
			return err
		}
		for _, found := range circuits {
			if broken || named[found.Key] {
				continue
			}
			if err := s.dropCircuit(ctx, term, found, changed); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropCircuit deletes a circuit as it was read; if it, or any job, has changed since it
// leaves it for the next time.
func (s *Store) dropCircuit(ctx context.Context, term state.Term, found kv.KeyValue, changed int64) error {
	r := &request{writes: []uint64{s.batch.hash(found.Key)}}
	r.txn.If = []kv.Compare{unchanged(found.Key, found.ModRevision), unchanged(s.changedKey, changed)}
	r.txn.Then = []kv.Op{kv.Delete(found.Key)}
	res, err := s.lead(ctx, term, r)
	if err != nil || res.Succeeded {
		return err
	}
	return over(term, res)
}

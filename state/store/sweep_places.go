package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// SweepPlaces gives the places at gates and limits back whose runs have no live record, while
// the term stands, and answers how many those were. Claims and verdicts write both in one
// transaction: so somebody has deleted the record, as one does that cannot be read. Errors
// are those of package kv, and state.ErrTermLost.
func (s *Store) SweepPlaces(ctx context.Context, term state.Term) (freed int, err error) {
	if freed, err = s.sweepPlaces(ctx, term); err != nil {
		return freed, fmt.Errorf("sweep places: %w", err)
	}
	return freed, nil
}

func (s *Store) sweepPlaces(ctx context.Context, term state.Term) (freed int, err error) {
	if term.Number == 0 { // which would compare as "is not there"
		return 0, state.ErrTermLost
	}
	gates := s.keys.prefix + "gates/"
	var all []taker
	for _, below := range []string{gates, s.keys.prefix + "limits/"} {
		if err := s.scan(ctx, below, func(found kv.KeyValue) {
			dir, namespace := found.Key[:strings.LastIndexByte(found.Key, '/')+1], ""
			if below == gates {
				part, _, _ := strings.Cut(found.Key[len(gates):], "/")
				namespace, _ = unescape(part) // else nobody has its places
			}
			if t := s.takersAt(dir, namespace, []kv.KeyValue{found})[0]; t.run != "" {
				all = append(all, t)
			}
		}); err != nil {
			return 0, err
		}
	}
	for i := range all {
		ok, err := s.freeOrphan(ctx, term, &all[i])
		if err != nil {
			return freed, err
		}
		if ok {
			freed++
		}
	}
	return freed, nil
}

// freeOrphan deletes a place as it was read, if its run has no live record.
func (s *Store) freeOrphan(ctx context.Context, term state.Term, t *taker) (bool, error) {
	gateKey, own := s.keys.activeGate(t.job), s.keys.shardsOf(t.job, t.run)
	res, err := s.look(ctx, kv.Get(gateKey), countRange(own))
	if err != nil || len(res.Results[1].KVs) > 0 {
		return false, err
	}
	for _, found := range res.Results[0].KVs {
		if l, err := decodeLive(t.job, true, found); err != nil || l.Run == t.run {
			return false, nil //nolint:nilerr // it may be the run's
		}
	}
	r := &request{
		writes: []uint64{s.batch.hash(t.key)},
		reads:  []uint64{s.batch.hash(gateKey), s.batch.hash(s.keys.activeOf(t.job))},
	}
	r.txn.If = []kv.Compare{unchanged(t.key, t.mod), unchanged(gateKey, modRevision(res.Results[0])), absentBelow(own)}
	r.txn.Then = []kv.Op{kv.Delete(t.key)}
	if res, err = s.lead(ctx, term, r); err != nil {
		return false, err
	}
	if !res.Succeeded {
		return false, over(term, res)
	}
	s.log.Warn("a place is free whose run has no record", "key", t.key, "job", t.job, "run", t.run)
	return true, nil
}

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// ratesPage is how many rates are looked at at a time, and ratesDropped how many are
// deleted in one transaction.
const (
	ratesPage    = 1000
	ratesDropped = 50
)

// SweepRates forgets the rates that have been full since before an instant, while the term
// stands: one that is not there is full. Errors are those of package kv, and
// state.ErrTermLost.
func (s *Store) SweepRates(ctx context.Context, term state.Term, before time.Time) error {
	if err := s.sweepRates(ctx, term, before); err != nil {
		return fmt.Errorf("sweep rates: %w", err)
	}
	return nil
}

func (s *Store) sweepRates(ctx context.Context, term state.Term, before time.Time) error {
	if term.Number == 0 { // which would compare as "is not there"
		return state.ErrTermLost
	}
	prefix := s.keys.prefix + "rates/"
	for from := prefix; ; {
		page, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, from, end(prefix), kv.RangeOptions{Limit: ratesPage})
		})
		if err != nil {
			return err
		}
		var old []kv.KeyValue
		for _, found := range page.KVs {
			if b := s.bucketOf(found.Key, []kv.KeyValue{found}); b.Full.Before(before) && b.Taken.Before(before) {
				old = append(old, found)
			}
		}
		for len(old) > 0 {
			n := min(len(old), ratesDropped)
			if err := s.dropRates(ctx, term, old[:n]); err != nil {
				return err
			}
			old = old[n:]
		}
		if !page.More {
			return nil
		}
		from = page.KVs[len(page.KVs)-1].Key + "\x00"
	}
}

// dropRates deletes rates as they were read; if one has changed since it leaves them all
// for the next time.
func (s *Store) dropRates(ctx context.Context, term state.Term, old []kv.KeyValue) error {
	t := kv.Txn{If: []kv.Compare{termGuard(term)}, Else: []kv.Op{keyOnly(term.Key)}}
	for i := range old {
		t.If = append(t.If, unchanged(old[i].Key, old[i].ModRevision))
		t.Then = append(t.Then, kv.Delete(old[i].Key))
	}
	res, _, err := s.send(ctx, t)
	if err != nil || res.Succeeded {
		return err
	}
	return over(term, res)
}

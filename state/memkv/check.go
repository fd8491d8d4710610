package memkv

import (
	"errors"
	"fmt"

	"github.com/leaderd/leaderd/state/kv"
)

// Refusals, with etcd's reasons.
var (
	errTooManyOps   = fmt.Errorf("too many operations: %w", kv.ErrInvalid)
	errDuplicateKey = fmt.Errorf("a key put twice, or put and deleted: %w", kv.ErrInvalid)
	errEmptyKey     = fmt.Errorf("empty key: %w", kv.ErrInvalid)
	errKind         = fmt.Errorf("operation, target or relation unknown: %w", kv.ErrInvalid)
)

// check refuses what etcd refuses before it looks at its state.
func check(t *kv.Txn) error {
	if err := checkShape(t, kv.MaxTxnOps); err != nil {
		return err
	}
	for _, ops := range [][]kv.Op{t.Then, t.Else} {
		if _, _, err := checkOverlaps(ops); err != nil {
			return err
		}
	}
	if n := requestSize(t); n > kv.MaxRequestBytes {
		return fmt.Errorf("%d bytes, more than %d: %w", n, int(kv.MaxRequestBytes), kv.ErrInvalid)
	}
	return nil
}

// checkShape checks t against limit, the operations (and compares) allowed at its
// level. Each level below has what this one leaves.
func checkShape(t *kv.Txn, limit int) error {
	n := max(len(t.If), len(t.Then), len(t.Else))
	if n > limit {
		return errTooManyOps
	}
	for i := range t.If {
		c := &t.If[i]
		if c.Key == "" {
			return errEmptyKey
		}
		if c.Target > kv.TargetLease || c.Relation > kv.Greater {
			return errKind
		}
	}
	for _, ops := range [][]kv.Op{t.Then, t.Else} {
		for i := range ops {
			op := &ops[i]
			var err error
			switch {
			case op.Kind == kv.OpTxn:
				err = checkShape(nested(op), limit-n)
			case op.Kind > kv.OpTxn:
				err = errKind
			case op.Key == "":
				err = errEmptyKey
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOverlaps refuses a key that is put twice, or put and deleted, by ops and
// what they nest, and answers the keys put and the ranges deleted. Both branches
// of a nested transaction count, but not against each other.
//
// It follows etcd's order, which leaves one hole: a nested transaction may delete
// what an earlier one beside it puts.
func checkOverlaps(ops []kv.Op) (map[string]struct{}, []*kv.Op, error) {
	var dels []*kv.Op
	for i := range ops {
		if ops[i].Kind == kv.OpDelete {
			dels = append(dels, &ops[i])
		}
	}
	puts := map[string]struct{}{}
	for i := range ops {
		if ops[i].Kind != kv.OpTxn {
			continue
		}
		t := nested(&ops[i])
		putsThen, delsThen, errThen := checkOverlaps(t.Then)
		putsElse, delsElse, errElse := checkOverlaps(t.Else)
		if err := errors.Join(errThen, errElse); err != nil {
			return nil, nil, err
		}
		for k := range putsThen {
			if _, twice := puts[k]; twice || deleted(dels, k) {
				return nil, nil, errDuplicateKey
			}
			puts[k] = struct{}{}
		}
		for k := range putsElse {
			_, twice := puts[k]
			_, own := putsThen[k]
			if twice && !own || deleted(dels, k) {
				return nil, nil, errDuplicateKey
			}
			puts[k] = struct{}{}
		}
		dels = append(append(dels, delsThen...), delsElse...)
	}
	for i := range ops {
		if ops[i].Kind != kv.OpPut {
			continue
		}
		k := ops[i].Key
		if _, twice := puts[k]; twice || deleted(dels, k) {
			return nil, nil, errDuplicateKey
		}
		puts[k] = struct{}{}
	}
	return puts, dels, nil
}

// deleted says whether one of dels covers key. A deletion of all keys from some
// key on covers none here: etcd compares its end literally.
func deleted(dels []*kv.Op, key string) bool {
	for _, d := range dels {
		if d.End == "" && d.Key == key || d.End != "" && d.Key <= key && key < d.End {
			return true
		}
	}
	return false
}

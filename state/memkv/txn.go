package memkv

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/leaderd/leaderd/state/kv"
)

// Txn implements kv.KV.
func (s *Store) Txn(ctx context.Context, t kv.Txn) (kv.TxnResult, error) {
	if err := refuse(ctx, "txn"); err != nil {
		return kv.TxnResult{}, err
	}
	if err := check(&t); err != nil {
		return kv.TxnResult{}, fmt.Errorf("txn: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return kv.TxnResult{}, errStopped
	}
	// All is decided and checked before anything is written.
	path := s.decide(&t, nil)
	if _, err := s.checkLeases(&t, path); err != nil {
		return kv.TxnResult{}, fmt.Errorf("txn: %w", err)
	}
	w := writer{s: s, rev: s.rev + 1}
	var r kv.TxnResult
	w.apply(&t, path, &r)
	w.commit()
	r.Revision = s.rev
	return r, nil
}

// empty stands for a nested transaction that is nil.
var empty kv.Txn

func nested(op *kv.Op) *kv.Txn {
	if op.Txn == nil {
		return &empty
	}
	return op.Txn
}

func branch(t *kv.Txn, succeeded bool) []kv.Op {
	if succeeded {
		return t.Then
	}
	return t.Else
}

// decide appends to path whether t's compares hold, then the same of the nested
// transactions of the branch taken, depth first: all against the state now.
func (s *Store) decide(t *kv.Txn, path []bool) []bool {
	succeeded := true
	for i := range t.If {
		if !s.holds(&t.If[i]) {
			succeeded = false
			break
		}
	}
	path = append(path, succeeded)
	ops := branch(t, succeeded)
	for i := range ops {
		if ops[i].Kind == kv.OpTxn {
			path = s.decide(nested(&ops[i]), path)
		}
	}
	return path
}

func (s *Store) holds(c *kv.Compare) bool {
	found, holds := false, true
	s.visit(c.Key, c.End, latest, func(v *version) bool {
		found = true
		holds = matches(c, &v.kv)
		return holds
	})
	if !found {
		return c.Target != kv.TargetValue && matches(c, &kv.KeyValue{})
	}
	return holds
}

func matches(c *kv.Compare, k *kv.KeyValue) bool {
	var r int
	switch c.Target {
	case kv.TargetCreateRevision:
		r = cmp.Compare(k.CreateRevision, c.Int)
	case kv.TargetModRevision:
		r = cmp.Compare(k.ModRevision, c.Int)
	case kv.TargetVersion:
		r = cmp.Compare(k.Version, c.Int)
	case kv.TargetLease:
		r = cmp.Compare(int64(k.Lease), c.Int)
	case kv.TargetValue:
		r = strings.Compare(string(k.Value), c.Value)
	}
	switch c.Relation {
	case kv.Equal:
		return r == 0
	case kv.NotEqual:
		return r != 0
	case kv.Less:
		return r < 0
	default:
		return r > 0
	}
}

// checkLeases makes sure that every lease named on the path exists, and answers
// the rest of the path.
func (s *Store) checkLeases(t *kv.Txn, path []bool) ([]bool, error) {
	ops := branch(t, path[0])
	path = path[1:]
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case kv.OpPut:
			if op.Lease != 0 && s.leases[op.Lease] == nil {
				return nil, fmt.Errorf("put %q with lease %x: %w", op.Key, int64(op.Lease), kv.ErrLeaseNotFound)
			}
		case kv.OpTxn:
			var err error
			if path, err = s.checkLeases(nested(op), path); err != nil {
				return nil, err
			}
		}
	}
	return path, nil
}

// writer collects the writes of one revision. The store is locked while it lives.
type writer struct {
	s      *Store
	rev    int64
	events []kv.Event
}

// apply runs the branch of t that path names and answers the rest of the path.
func (w *writer) apply(t *kv.Txn, path []bool, r *kv.TxnResult) []bool {
	r.Succeeded = path[0]
	ops := branch(t, path[0])
	path = path[1:]
	if len(ops) > 0 {
		r.Results = make([]kv.Result, len(ops))
	}
	for i := range ops {
		op, out := &ops[i], &r.Results[i]
		switch op.Kind {
		case kv.OpGet:
			w.get(op, out)
		case kv.OpPut:
			w.put(op.Key, op.Value, op.Lease)
		case kv.OpDelete:
			out.Deleted = w.deleteRange(op.Key, op.End)
		case kv.OpTxn:
			out.Txn = &kv.TxnResult{}
			path = w.apply(nested(op), path, out.Txn)
		}
	}
	return path
}

func (w *writer) get(op *kv.Op, out *kv.Result) {
	w.s.visit(op.Key, op.End, latest, func(v *version) bool {
		if op.Limit > 0 && int64(len(out.KVs)) == op.Limit {
			out.More = true
			return false
		}
		out.KVs = append(out.KVs, v.answer(op.Keys))
		return true
	})
}

func (w *writer) put(key string, value []byte, id kv.LeaseID) {
	it := w.s.keys[key]
	if it == nil {
		it = &item{key: key}
		w.s.keys[key] = it
		w.s.tree.ReplaceOrInsert(it)
	}
	n := kv.KeyValue{Key: it.key, CreateRevision: w.rev, ModRevision: w.rev, Version: 1, Lease: id}
	if len(value) > 0 {
		n.Value = bytes.Clone(value)
	}
	var old kv.LeaseID
	if v := it.at(latest); v != nil {
		n.CreateRevision, n.Version, old = v.kv.CreateRevision, v.kv.Version+1, v.kv.Lease
	}
	it.versions = append(it.versions, version{kv: n})
	w.events = append(w.events, kv.Event{KV: n})
	if old != id {
		w.s.detach(old, it.key)
		w.s.attach(id, it.key)
	}
}

func (w *writer) deleteRange(key, end string) int64 {
	var found []*version
	w.s.visit(key, end, latest, func(v *version) bool {
		found = append(found, v)
		return true
	})
	for _, v := range found {
		w.delete(v.kv.Key, v.kv.Lease)
	}
	return int64(len(found))
}

// delete removes a key that exists.
func (w *writer) delete(key string, id kv.LeaseID) {
	it := w.s.keys[key]
	n := kv.KeyValue{Key: it.key, ModRevision: w.rev}
	it.versions = append(it.versions, version{kv: n, gone: true})
	w.events = append(w.events, kv.Event{Deleted: true, KV: n})
	w.s.detach(id, it.key)
}

// commit makes the writes, if any, the newest revision.
func (w *writer) commit() {
	if len(w.events) == 0 {
		return
	}
	w.s.rev = w.rev
	w.s.log = append(w.s.log, w.events)
	w.s.notify(w.rev, w.events)
}

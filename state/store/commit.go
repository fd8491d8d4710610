package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state/kv"
)

// shape is how a batch is sent.
type shape uint8

const (
	// flat: one transaction without nested ones, all or nothing. It costs etcd the
	// least. If it is refused nothing was written, and nobody knows for whose
	// sake.
	flat shape = iota
	// nested: the guards are compared once, each request is a transaction inside.
	nested
	// single: each request is a transaction inside, with its own conditions.
	single
)

// optimism decides whether batches go flat. Each one that was refused costs a
// second transaction, so after refusals fewer are tried.
type optimism struct {
	skip, penalty int
}

const maxPenalty = 64

func (o *optimism) try() bool {
	if o.skip > 0 {
		o.skip--
		return false
	}
	return true
}

func (o *optimism) note(succeeded bool) {
	if succeeded {
		o.penalty /= 2
		return
	}
	o.penalty = min(2*o.penalty+1, maxPenalty)
	o.skip = o.penalty
}

// load is what a batch carries, as one flat transaction.
type load struct {
	guards                  []kv.Compare
	requests                int
	compares, writes, bytes int
}

// fits adds r to the load, unless it would be too much.
func (l *load) fits(r *request) bool {
	guards := l.guards
	for _, g := range r.conditions().guards {
		guards = addGuard(guards, g)
	}
	compares, writes, bytes := l.compares+len(r.txn.If), l.writes+len(r.txn.Then), l.bytes+r.bytes
	if l.requests > 0 && (len(guards)+compares > kv.MaxTxnOps || writes > kv.MaxTxnOps || bytes > batchBytes) {
		return false
	}
	l.guards, l.requests, l.compares, l.writes, l.bytes = guards, l.requests+1, compares, writes, bytes
	return true
}

// commit sends the batch until its outcome is known and answers each request.
// unsure tells that an earlier try may have been applied: a refusal of a later
// one does not tell.
func (b *batcher) commit(batch []*request, how shape, unsure bool) {
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		batch = b.wanted(batch, unsure)
		if len(batch) == 0 {
			return
		}
		if len(batch) == 1 {
			how = single
		}
		t := join(batch, how)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), b.time.timeout())
		res, err := b.kv.Txn(ctx, t)
		cancel()
		took := time.Since(begun)
		if err == nil || errors.Is(err, kv.ErrUnknown) {
			b.time.note(took)
		}
		b.metrics.commitSeconds.Observe(took.Seconds())
		if err == nil && how == flat {
			b.mu.Lock()
			b.flat.note(res.Succeeded)
			b.mu.Unlock()
		}

		switch {
		case err == nil && how == flat && !res.Succeeded:
			b.metrics.retries.WithLabelValues("flat").Inc()
			how = nested
			continue
		case err == nil && how == nested && !res.Succeeded:
			b.metrics.retries.WithLabelValues("guard").Inc()
			b.missed()
			how = single
			continue
		case err == nil:
			answer(batch, res, how)
			return
		case spoiled(err) && len(batch) > 1:
			// One of them spoils the others: find it.
			b.metrics.retries.WithLabelValues("invalid").Inc()
			b.commit(batch[:len(batch)/2], single, unsure)
			b.commit(batch[len(batch)/2:], single, unsure)
			return
		case spoiled(err), errors.Is(err, kv.ErrNoSpace), errors.Is(err, kv.ErrPermission):
			// etcd carries out the very request that crosses its quota.
			if unsure || errors.Is(err, kv.ErrNoSpace) {
				err = fmt.Errorf("%w: %w", kv.ErrUnknown, err)
			}
			for _, r := range batch {
				r.asker.answer(reply{err: err})
			}
			return
		case errors.Is(err, kv.ErrUnavailable):
			b.metrics.retries.WithLabelValues("unavailable").Inc()
		case errors.Is(err, kv.ErrTooManyRequests):
			b.metrics.retries.WithLabelValues("overloaded").Inc()
		default:
			// Perhaps it was applied. Then it will not be again: the compares
			// fail, and its caller looks why.
			unsure = true
			b.metrics.retries.WithLabelValues("unknown").Inc()
		}
		time.Sleep(wait/2 + rand.N(wait/2))
	}
}

// spoiled tells whether a transaction was refused for what is in it.
func spoiled(err error) bool {
	return errors.Is(err, kv.ErrInvalid) || errors.Is(err, kv.ErrLeaseNotFound)
}

// wanted leaves out the requests whose callers have gone.
func (b *batcher) wanted(batch []*request, unsure bool) []*request {
	if !slices.ContainsFunc(batch, (*request).gone) {
		return batch
	}
	left := make([]*request, 0, len(batch))
	for _, r := range batch {
		switch {
		case !r.gone():
			left = append(left, r)
		case unsure:
			r.asker.answer(reply{err: fmt.Errorf("%w: %w", kv.ErrUnknown, errGone)})
		default:
			r.asker.answer(reply{err: errGone})
		}
	}
	return left
}

// join makes one transaction of a batch.
func join(batch []*request, how shape) kv.Txn {
	if len(batch) == 1 {
		return alone(batch[0])
	}
	var t kv.Txn
	if how != single {
		for _, r := range batch {
			for _, g := range r.conditions().guards {
				t.If = addGuard(t.If, g)
			}
		}
	}
	if how == flat {
		compares, ops := len(t.If), 0
		for _, r := range batch {
			compares += len(r.txn.If)
			ops += len(r.txn.Then)
		}
		t.If = slices.Grow(t.If, compares-len(t.If))
		t.Then = make([]kv.Op, 0, ops)
		for _, r := range batch {
			t.If = append(t.If, r.txn.If...)
			t.Then = append(t.Then, r.txn.Then...)
		}
		return t
	}
	t.Then = make([]kv.Op, len(batch))
	for i, r := range batch {
		if how == single {
			inner := alone(r)
			t.Then[i] = kv.Nested(&inner)
		} else {
			t.Then[i] = kv.Nested(&r.txn)
		}
	}
	return t
}

// alone is a request's transaction under its own conditions.
func alone(r *request) kv.Txn {
	own := r.conditions().alone
	if len(own) == 0 && r.implied == nil {
		return r.txn
	}
	t := r.txn
	t.If = append(make([]kv.Compare, 0, len(own)+1+len(r.txn.If)), own...)
	if r.implied != nil {
		t.If = append(t.If, *r.implied)
	}
	t.If = append(t.If, r.txn.If...)
	return t
}

func addGuard(to []kv.Compare, g kv.Compare) []kv.Compare {
	if slices.Contains(to, g) {
		return to
	}
	return append(to, g)
}

// answer gives each request of a batch its part of the result.
func answer(batch []*request, res kv.TxnResult, how shape) {
	for i, r := range batch {
		part := res
		switch {
		case how == flat:
			n := len(r.txn.Then)
			part.Results, res.Results = res.Results[:n:n], res.Results[n:]
		case len(batch) > 1:
			part = *res.Results[i].Txn
			part.Revision = res.Revision
		}
		r.shared = how != single
		r.asker.answer(reply{res: part})
	}
}

// txnBytes is about the size of a transaction's request.
func txnBytes(t *kv.Txn) int {
	n := 0
	for i := range t.If {
		c := &t.If[i]
		n += len(c.Key) + len(c.End) + len(c.Value) + 16
	}
	for _, ops := range [][]kv.Op{t.Then, t.Else} {
		for i := range ops {
			n += len(ops[i].Key) + len(ops[i].End) + len(ops[i].Value) + 16
			if ops[i].Txn != nil {
				n += txnBytes(ops[i].Txn)
			}
		}
	}
	return n
}

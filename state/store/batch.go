package store

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leaderd/leaderd/state/kv"
)

const (
	// gather is how many requests wait before a second transaction goes out
	// beside one that is under way: fewer are cheaper in the next one.
	gather = 32
	// scan is how far into the queue a batch looks for requests that fit.
	scan = 2048
	// batchBytes is the greatest size of a batch, well below etcd's limit.
	batchBytes = 1 << 20
	// commitTimeout is after which a request outside group commit is sent again,
	// perhaps to another member of the store.
	commitTimeout = 2 * time.Second

	minRetry = 10 * time.Millisecond
	maxRetry = time.Second
)

// ErrClosed: the store is closed; nothing was written.
var ErrClosed = errors.New("store closed")

// request is one caller's transaction on its way through group commit.
type request struct {
	// guards are conditions that many requests share. They hold for the whole
	// batch at once, or, if one fails, are checked for each request alone.
	guards []kv.Compare
	txn    kv.Txn
	// writes and reads are hashes of the keys (or of wider things, see claim)
	// that the request changes and relies on.
	writes, reads []uint64
	bytes         int

	done  chan reply // of one
	sent  bool       // guarded by batcher.mu
	given bool       // the caller has gone; guarded by batcher.mu
}

type reply struct {
	res kv.TxnResult
	err error
}

// batcher is group commit: while transactions are under way further requests
// gather, then go out together as the nested transactions of one. Each caller
// gets its own answer.
//
// All compares of a transaction see the state before it, so requests of which
// one writes what another writes or reads never share a batch; they go out in
// the order in which they came.
type batcher struct {
	kv          kv.KV
	metrics     *metrics
	time        commitTime
	maxInFlight int
	maxBatch    int
	seed        maphash.Seed

	mu       sync.Mutex
	queue    []*request
	inFlight int
	writing  map[uint64]int32 // by requests under way
	reading  map[uint64]int32
	closed   bool
	flushes  sync.WaitGroup
}

func newBatcher(db kv.KV, cfg Config, m *metrics) *batcher {
	return &batcher{
		kv:          db,
		metrics:     m,
		maxInFlight: cfg.MaxInFlight,
		maxBatch:    cfg.MaxBatch,
		seed:        maphash.MakeSeed(),
		writing:     make(map[uint64]int32),
		reading:     make(map[uint64]int32),
	}
}

// hash is how writes and reads name a key.
func (b *batcher) hash(key string) uint64 { return maphash.String(b.seed, key) }

// close waits for what is under way; later requests get ErrClosed.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.flushes.Wait()
}

// do commits r and answers its transaction's own result. It asks again through
// every passing failure, for as long as ctx lasts. An error that wraps
// kv.ErrUnknown means that r may have been applied, or may yet be: ctx ended
// when r was under way, or r was refused for good after a try whose outcome is
// not known. After any other error it was not, and will not be.
func (b *batcher) do(ctx context.Context, r *request) (kv.TxnResult, error) {
	if err := ctx.Err(); err != nil {
		return kv.TxnResult{}, context.Cause(ctx)
	}
	r.done = make(chan reply, 1)
	r.bytes = txnBytes(&r.txn)

	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return kv.TxnResult{}, ErrClosed
	}
	b.queue = append(b.queue, r)
	if b.inFlight == 0 || b.inFlight < b.maxInFlight && len(b.queue) >= gather {
		b.inFlight++
		b.flushes.Go(b.flush)
	}
	b.mu.Unlock()

	select {
	case a := <-r.done:
		return a.res, a.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	r.given = true
	sent := r.sent
	b.mu.Unlock()
	if sent {
		select {
		case a := <-r.done:
			return a.res, a.err
		default:
		}
		return kv.TxnResult{}, fmt.Errorf("%w: %w", kv.ErrUnknown, context.Cause(ctx))
	}
	return kv.TxnResult{}, context.Cause(ctx)
}

// flush sends batch after batch until nothing fits.
func (b *batcher) flush() {
	for {
		b.mu.Lock()
		batch := b.take()
		if len(batch) == 0 {
			b.inFlight--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()

		b.metrics.batchSize.Observe(float64(len(batch)))
		b.commit(batch, true, false)

		b.mu.Lock()
		for _, r := range batch {
			release(b.writing, r.writes)
			release(b.reading, r.reads)
		}
		b.mu.Unlock()
	}
}

// take removes from the queue the next requests that may go out together, and
// beside those under way. A request that may not also holds up later ones that
// meet it.
func (b *batcher) take() []*request {
	var (
		batch                 []*request
		bytes                 int
		held                  bool
		heldWrites, heldReads map[uint64]int32
		kept                  = b.queue[:0]
		conflicts             = func(r *request, w, rd map[uint64]int32) bool {
			return meets(r.writes, w) || meets(r.writes, rd) || meets(r.reads, w)
		}
	)
	for i, r := range b.queue {
		if len(batch) == b.maxBatch || i == scan || len(batch) > 0 && bytes+r.bytes > batchBytes {
			kept = append(kept, b.queue[i:]...)
			break
		}
		if r.given {
			continue
		}
		if conflicts(r, b.writing, b.reading) || held && conflicts(r, heldWrites, heldReads) {
			if !held {
				held, heldWrites, heldReads = true, map[uint64]int32{}, map[uint64]int32{}
			}
			hold(heldWrites, r.writes)
			hold(heldReads, r.reads)
			kept = append(kept, r)
			continue
		}
		hold(b.writing, r.writes)
		hold(b.reading, r.reads)
		r.sent = true
		bytes += r.bytes
		batch = append(batch, r)
	}
	clear(b.queue[len(kept):])
	b.queue = kept
	return batch
}

func meets(keys []uint64, in map[uint64]int32) bool {
	if len(in) == 0 {
		return false
	}
	for _, k := range keys {
		if in[k] > 0 {
			return true
		}
	}
	return false
}

func hold(in map[uint64]int32, keys []uint64) {
	for _, k := range keys {
		in[k]++
	}
}

func release(in map[uint64]int32, keys []uint64) {
	for _, k := range keys {
		if in[k]--; in[k] == 0 {
			delete(in, k)
		}
	}
}

// commit sends the batch until its outcome is known and answers each request.
// With hoist the shared guards are compared once, for all. unsure tells that an
// earlier try may have been applied: a refusal of a later one does not tell.
func (b *batcher) commit(batch []*request, hoist, unsure bool) {
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		batch = b.wanted(batch)
		if len(batch) == 0 {
			return
		}
		t := join(batch, hoist)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), b.time.timeout())
		res, err := b.kv.Txn(ctx, t)
		cancel()
		took := time.Since(begun)
		if err == nil || errors.Is(err, kv.ErrUnknown) {
			b.time.note(took)
		}
		b.metrics.commitSeconds.Observe(took.Seconds())

		switch {
		case err == nil && hoist && len(batch) > 1 && !res.Succeeded:
			b.metrics.retries.WithLabelValues("guard").Inc()
			b.commit(batch, false, unsure)
			return
		case err == nil:
			answer(batch, res)
			return
		case errors.Is(err, kv.ErrInvalid) && len(batch) > 1:
			// One of them spoils the others: find it.
			b.metrics.retries.WithLabelValues("invalid").Inc()
			b.commit(batch[:len(batch)/2], false, unsure)
			b.commit(batch[len(batch)/2:], false, unsure)
			return
		case errors.Is(err, kv.ErrInvalid), errors.Is(err, kv.ErrNoSpace), errors.Is(err, kv.ErrPermission):
			if unsure {
				err = fmt.Errorf("%w: %w", kv.ErrUnknown, err)
			}
			for _, r := range batch {
				r.done <- reply{err: err}
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

// wanted leaves out the requests whose callers have gone.
func (b *batcher) wanted(batch []*request) []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range batch {
		if r.given {
			left := append([]*request(nil), batch[:i]...)
			for _, r := range batch[i+1:] {
				if !r.given {
					left = append(left, r)
				}
			}
			return left
		}
	}
	return batch
}

// join makes one transaction of a batch.
func join(batch []*request, hoist bool) kv.Txn {
	if len(batch) == 1 {
		return guarded(batch[0])
	}
	var t kv.Txn
	t.Then = make([]kv.Op, len(batch))
	for i, r := range batch {
		if hoist {
			for _, g := range r.guards {
				t.If = addGuard(t.If, g)
			}
			t.Then[i] = kv.Nested(&r.txn)
		} else {
			inner := guarded(r)
			t.Then[i] = kv.Nested(&inner)
		}
	}
	return t
}

func guarded(r *request) kv.Txn {
	if len(r.guards) == 0 {
		return r.txn
	}
	t := r.txn
	t.If = append(append(make([]kv.Compare, 0, len(r.guards)+len(t.If)), r.guards...), t.If...)
	return t
}

func addGuard(to []kv.Compare, g kv.Compare) []kv.Compare {
	if slices.Contains(to, g) {
		return to
	}
	return append(to, g)
}

// answer gives each request of a batch its part of the result.
func answer(batch []*request, res kv.TxnResult) {
	if len(batch) == 1 {
		batch[0].done <- reply{res: res}
		return
	}
	for i, r := range batch {
		part := *res.Results[i].Txn
		part.Revision = res.Revision
		r.done <- reply{res: part}
	}
}

// txnBytes is about the size of a transaction's request.
func txnBytes(t *kv.Txn) int {
	n := 0
	for _, c := range t.If {
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

package store

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
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
	common  *common     // what many requests share; nil: nothing
	implied *kv.Compare // what common's guards stand for beside alone; nil: nothing
	txn     kv.Txn
	// writes and reads are hashes of the keys (or of wider things, see claim)
	// that the request changes and relies on.
	writes, reads []uint64
	bytes         int

	stop   <-chan struct{} // closed when the caller has gone
	asker  asker
	sent   bool // guarded by batcher.mu
	shared bool // the answer was given under guards; the asker may read it
}

// common are conditions that many requests share: guards are compared once for a whole
// batch. If one fails there, each request is checked by itself, under alone instead: what
// the guards stand for, as far as it concerns that one. It is shared, and not written to.
type common struct{ guards, alone []kv.Compare }

var noCommon common

// conditions are those that the request has in common with others.
func (r *request) conditions() *common {
	if r.common == nil {
		return &noCommon
	}
	return r.common
}

// guard adds conditions that hold for the request in a batch as well as alone.
func (r *request) guard(c ...kv.Compare) {
	has := r.conditions()
	r.common = &common{append(slices.Clip(has.guards), c...), append(slices.Clip(has.alone), c...)}
}

// gone tells whether the caller has gone.
func (r *request) gone() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

type reply struct {
	res kv.TxnResult
	err error
}

// asker is who is told a request's answer, once. It must not block.
type asker interface{ answer(reply) }

// waiter is an asker that somebody waits for.
type waiter chan reply // of one

func (w waiter) answer(a reply) { w <- a }

// askerFunc is an asker that goes on from there.
type askerFunc func(reply)

func (f askerFunc) answer(a reply) { f(a) }

// errGone: the caller of a request has gone before it was sent.
var errGone = errors.New("the caller has gone")

// batcher is group commit: while transactions are under way further requests
// gather, then go out together as one, which is flat where that may well succeed,
// and holds them as nested transactions where not (see shape). Each caller gets its
// own answer.
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

	// missed is called when guards failed. It must not block.
	missed func()

	mu       sync.Mutex
	queue    []*request
	flat     optimism
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
		missed:      func() {},
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
// not known or for want of space. After any other error it was not, and will not
// be.
func (b *batcher) do(ctx context.Context, r *request) (kv.TxnResult, error) {
	if err := ctx.Err(); err != nil {
		return kv.TxnResult{}, context.Cause(ctx)
	}
	done := make(waiter, 1)
	r.stop, r.asker = ctx.Done(), done
	b.submit(r)
	select {
	case a := <-done:
		return a.res, gaveUp(ctx, a.err)
	case <-ctx.Done():
	}
	b.mu.Lock()
	sent := r.sent
	b.mu.Unlock()
	if !sent {
		return kv.TxnResult{}, context.Cause(ctx)
	}
	select {
	case a := <-done:
		return a.res, gaveUp(ctx, a.err)
	default:
	}
	return kv.TxnResult{}, fmt.Errorf("%w: %w", kv.ErrUnknown, context.Cause(ctx))
}

// gaveUp puts the reason for which ctx ended into the batcher's answer to it.
func gaveUp(ctx context.Context, err error) error {
	switch {
	case !errors.Is(err, errGone):
		return err
	case errors.Is(err, kv.ErrUnknown):
		return fmt.Errorf("%w: %w", kv.ErrUnknown, context.Cause(ctx))
	default:
		return context.Cause(ctx)
	}
}

// submit queues r, whose asker gets the answer, as do tells of it. After r.stop
// is closed the answer may be errGone, beside kv.ErrUnknown where r was under
// way.
func (b *batcher) submit(r *request) {
	r.bytes = txnBytes(&r.txn)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		r.asker.answer(reply{err: ErrClosed})
		return
	}
	b.queue = append(b.queue, r)
	if b.inFlight == 0 || b.inFlight < b.maxInFlight && len(b.queue) >= gather {
		b.inFlight++
		b.flushes.Go(b.flush)
	}
	b.mu.Unlock()
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
		how := nested
		if len(batch) > 1 && b.flat.try() {
			how = flat
		}
		b.mu.Unlock()

		b.metrics.batchSize.Observe(float64(len(batch)))
		b.commit(batch, how, false)

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
		load                  load
		held                  bool
		heldWrites, heldReads map[uint64]int32
		kept                  = b.queue[:0]
		conflicts             = func(r *request, w, rd map[uint64]int32) bool {
			if mutant.Off(mutant.Conflicts) {
				return false
			}
			return meets(r.writes, w) || meets(r.writes, rd) || meets(r.reads, w)
		}
	)
	for i, r := range b.queue {
		if len(batch) == b.maxBatch || i == scan {
			kept = append(kept, b.queue[i:]...)
			break
		}
		if r.gone() {
			r.asker.answer(reply{err: errGone})
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
		if !load.fits(r) {
			kept = append(kept, b.queue[i:]...)
			break
		}
		hold(b.writing, r.writes)
		hold(b.reading, r.reads)
		r.sent = true
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

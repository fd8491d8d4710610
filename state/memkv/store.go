package memkv

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/leaderd/leaderd/state/kv"
)

// latest reads the newest state, inside a transaction too.
const latest = math.MaxInt64

// Store is the store. Its methods may be called concurrently.
type Store struct {
	opts options

	mu        sync.RWMutex
	closed    bool
	rev       int64
	compacted int64 // -1 before the first compaction, as in etcd
	keys      map[string]*item
	tree      *btree.BTree[*item] // the same items, in order
	log       [][]kv.Event        // log[i] holds the events of revision logFirst + i
	logFirst  int64
	leases    map[kv.LeaseID]*lease
	lastLease kv.LeaseID
	watchers  map[int64]*watcher // by number; an address would make their order differ from run to run
	watched   int64              // the newest number

	timers sync.WaitGroup // armed timers of leases, and those that have fired and run
}

var _ kv.KV = (*Store)(nil)

type options struct {
	minTTL   time.Duration
	progress time.Duration
}

// Option changes a Store's settings.
type Option func(*options)

// WithMinTTL sets the least TTL that Grant gives, in whole seconds; default 2 s,
// etcd's with its default election timeout.
func WithMinTTL(d time.Duration) Option { return func(o *options) { o.minTTL = d } }

// WithProgressInterval sets how long a watch is silent before it delivers
// progress; default 10 min, as etcd's.
func WithProgressInterval(d time.Duration) Option { return func(o *options) { o.progress = d } }

// New makes an empty store, at revision 1. Close it.
func New(opts ...Option) *Store {
	s := &Store{
		opts:      options{minTTL: 2 * time.Second, progress: 10 * time.Minute},
		rev:       1,
		compacted: -1,
		keys:      map[string]*item{},
		tree:      btree.New(32, func(a, b *item) bool { return a.key < b.key }),
		logFirst:  2,
		leases:    map[kv.LeaseID]*lease{},
		watchers:  map[int64]*watcher{},
	}
	for _, f := range opts {
		f(&s.opts)
	}
	return s
}

// Close ends all watches and stops all leases, whose keys stay, and returns when
// nothing of the store runs any more. Later calls answer kv.ErrUnavailable. It may
// be called twice.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	for l := range maps.Values(s.leases) {
		s.disarm(l)
	}
	for _, w := range s.watchers {
		s.end(w, errStopped)
	}
	s.mu.Unlock()
	s.timers.Wait()
}

// errStopped is what a closed store answers.
var errStopped = fmt.Errorf("memkv: store closed: %w", kv.ErrUnavailable)

// refuse is the error of a call that must not begin, or nil.
func refuse(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("memkv %s: %w: %w", op, kv.ErrUnavailable, context.Cause(ctx))
	}
	return nil
}

// Range implements kv.KV.
func (s *Store) Range(ctx context.Context, key, end string, o kv.RangeOptions) (kv.RangeResult, error) {
	if err := refuse(ctx, "range"); err != nil {
		return kv.RangeResult{}, err
	}
	if key == "" {
		return kv.RangeResult{}, fmt.Errorf("range: empty key: %w", kv.ErrInvalid)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	at := o.Revision
	switch {
	case s.closed:
		return kv.RangeResult{}, errStopped
	case at > s.rev:
		return kv.RangeResult{}, fmt.Errorf("range at revision %d: not yet there: %w", at, kv.ErrInvalid)
	case at > 0 && at < s.compacted:
		return kv.RangeResult{}, fmt.Errorf("range at revision %d: %w", at, kv.ErrCompacted)
	case at <= 0:
		at = s.rev
	}
	r := kv.RangeResult{Revision: s.rev}
	s.visit(key, end, at, func(v *version) bool {
		r.Count++
		if o.Limit > 0 && int64(len(r.KVs)) == o.Limit {
			r.More = true
		} else {
			r.KVs = append(r.KVs, v.answer(o.KeysOnly))
		}
		return true
	})
	return r, nil
}

// Compact implements kv.KV. It holds up everything else while it visits all keys.
func (s *Store) Compact(ctx context.Context, rev int64) error {
	if err := refuse(ctx, "compact"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errStopped
	case rev <= s.compacted:
		return fmt.Errorf("compact at revision %d: %w", rev, kv.ErrCompacted)
	case rev > s.rev:
		return fmt.Errorf("compact at revision %d: not yet there: %w", rev, kv.ErrInvalid)
	}
	s.compacted = rev
	var gone []*item
	s.tree.Ascend(func(it *item) bool {
		it.compact(rev)
		if len(it.versions) == 0 {
			gone = append(gone, it)
		}
		return true
	})
	for _, it := range gone {
		s.tree.Delete(it)
		delete(s.keys, it.key)
	}
	if n := rev - s.logFirst; n >= 0 {
		// The revision itself can still be watched from.
		s.log = append([][]kv.Event(nil), s.log[n:]...)
		s.logFirst = rev
		s.log[0] = lastOfEachKey(s.log[0])
	}
	for _, w := range s.watchers {
		w.wakeUp() // those left behind learn it now
	}
	return nil
}

// lastOfEachKey drops the events that a later one of the same revision supersedes.
func lastOfEachKey(events []kv.Event) []kv.Event {
	last := make(map[string]int, len(events))
	for i, e := range events {
		last[e.KV.Key] = i
	}
	kept := make([]kv.Event, 0, len(last))
	for i, e := range events {
		if last[e.KV.Key] == i {
			kept = append(kept, e)
		}
	}
	return kept
}

package memkv

import (
	"context"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/state/kv"
)

// maxBatch is the number of revisions with events that a batch may hold.
const maxBatch = 1000

// watcher reads the store's history from next on. All fields but the channels are
// guarded by the store's lock.
type watcher struct {
	s          *Store
	number     int64
	key, end   string
	next       int64 // first revision not looked at yet
	progress   bool  // asked for
	progressAt time.Time
	err        error         // why it ended
	wake       chan struct{} // something to look at; holds one
	done       chan struct{} // closed when err is set
}

// Watch implements kv.KV.
func (s *Store) Watch(ctx context.Context, key, end string, from int64) (kv.Watcher, error) {
	if err := refuse(ctx, "watch"); err != nil {
		return nil, err
	}
	if key == "" {
		key = "\x00"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errStopped
	case from < 0:
		return nil, fmt.Errorf("watch from revision %d: %w", from, kv.ErrCompacted)
	case from == 0:
		from = s.rev + 1
	}
	w := &watcher{
		s: s, key: key, end: end, next: from,
		progressAt: time.Now().Add(s.opts.progress),
		wake:       make(chan struct{}, 1),
		done:       make(chan struct{}),
	}
	s.watched++
	w.number = s.watched
	s.watchers[w.number] = w
	return w, nil
}

// Progress implements kv.KV.
func (s *Store) Progress(ctx context.Context) error {
	if err := refuse(ctx, "progress"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errStopped
	}
	for _, w := range s.watchers {
		w.progress = true
		w.wakeUp()
	}
	return nil
}

// notify tells the watchers of a new revision. Those that have seen all before it
// and nothing in it are done with it at once, so that none has to search a long
// history later.
func (s *Store) notify(rev int64, events []kv.Event) {
	for _, w := range s.watchers {
		switch {
		case w.wants(events):
			w.wakeUp()
		case w.next == rev:
			w.next++
		}
	}
}

func (w *watcher) wants(events []kv.Event) bool {
	for i := range events {
		if within(events[i].KV.Key, w.key, w.end) {
			return true
		}
	}
	return false
}

func (w *watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// end ends w for reason err, unless it has ended already.
func (s *Store) end(w *watcher, err error) {
	if w.err == nil {
		w.err = err
		close(w.done)
		delete(s.watchers, w.number)
	}
}

// Close implements kv.Watcher.
func (w *watcher) Close() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.end(w, kv.ErrClosed)
}

// Next implements kv.Watcher.
func (w *watcher) Next(ctx context.Context) (kv.WatchBatch, error) {
	for {
		if ctx.Err() != nil {
			return kv.WatchBatch{}, fmt.Errorf("watch: %w", context.Cause(ctx))
		}
		b, wait, err := w.take()
		if err != nil {
			return kv.WatchBatch{}, fmt.Errorf("watch: %w", err)
		}
		if wait <= 0 {
			return b, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-w.wake:
		case <-w.done:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// take answers what there is to deliver, or how long to wait for progress.
func (w *watcher) take() (kv.WatchBatch, time.Duration, error) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.err == nil && w.next < s.compacted {
		s.end(w, fmt.Errorf("from revision %d: %w", w.next, kv.ErrCompacted))
	}
	if w.err != nil {
		return kv.WatchBatch{}, 0, w.err
	}
	b := w.scan()
	wait := time.Until(w.progressAt)
	if len(b.Events) == 0 && !w.progress && wait > 0 {
		return kv.WatchBatch{}, wait, nil
	}
	w.progressAt = time.Now().Add(s.opts.progress)
	w.progress = w.progress && len(b.Events) > 0
	if len(b.Events) == 0 && b.Revision < w.next-1 {
		// It begins in the future, and has seen nothing yet.
		return kv.WatchBatch{}, s.opts.progress, nil
	}
	return b, 0, nil
}

// scan looks at the revisions from next on and answers their events.
func (w *watcher) scan() kv.WatchBatch {
	s := w.s
	var b kv.WatchBatch
	for n := 0; w.next <= s.rev && n < maxBatch; w.next++ {
		if w.next < s.logFirst {
			continue // a fresh store's revision 1, which wrote nothing
		}
		found := len(b.Events)
		for _, e := range s.log[w.next-s.logFirst] {
			if within(e.KV.Key, w.key, w.end) {
				b.Events = append(b.Events, e)
			}
		}
		if len(b.Events) > found {
			n++
		}
	}
	b.Revision = min(w.next-1, s.rev)
	return b
}

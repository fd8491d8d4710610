package memkv

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leaderd/leaderd/state/kv"
)

// lease ends ttl after it was granted or last kept alive, by its timer.
type lease struct {
	id    kv.LeaseID
	ttl   time.Duration
	keys  map[string]struct{}
	timer *time.Timer
}

// Grant implements kv.KV.
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (kv.LeaseID, time.Duration, error) {
	if err := refuse(ctx, "grant"); err != nil {
		return 0, 0, err
	}
	seconds, err := kv.TTLSeconds(ttl)
	if err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, 0, errStopped
	}
	s.lastLease++
	l := &lease{
		id:   s.lastLease,
		ttl:  max(time.Duration(seconds)*time.Second, s.opts.minTTL),
		keys: map[string]struct{}{},
	}
	s.leases[l.id] = l
	s.timers.Add(1)
	l.timer = time.AfterFunc(l.ttl, func() {
		defer s.timers.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed && s.leases[l.id] == l {
			s.drop(l)
		}
	})
	return l.id, l.ttl, nil
}

// disarm stops l's timer; one that has fired already ends by itself.
func (s *Store) disarm(l *lease) {
	if l.timer.Stop() {
		s.timers.Done()
	}
}

// KeepAlive implements kv.KV.
func (s *Store) KeepAlive(ctx context.Context, id kv.LeaseID) (time.Duration, error) {
	if err := refuse(ctx, "keep alive"); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errStopped
	}
	l := s.leases[id]
	if l != nil && !l.timer.Stop() {
		// Its time is over and its timer waits for the lock. It must be gone, with
		// its keys, before anyone hears so.
		s.drop(l)
		l = nil
	}
	if l == nil {
		return 0, fmt.Errorf("keep lease %x alive: %w", int64(id), kv.ErrLeaseNotFound)
	}
	l.timer.Reset(l.ttl)
	return l.ttl, nil
}

// Revoke implements kv.KV.
func (s *Store) Revoke(ctx context.Context, id kv.LeaseID) error {
	if err := refuse(ctx, "revoke"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errStopped
	}
	if l := s.leases[id]; l != nil {
		s.disarm(l)
		s.drop(l)
	}
	return nil
}

// drop forgets l and deletes its keys under one revision.
func (s *Store) drop(l *lease) {
	delete(s.leases, l.id)
	w := writer{s: s, rev: s.rev + 1}
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		w.delete(key, 0)
	}
	w.commit()
}

func (s *Store) attach(id kv.LeaseID, key string) {
	if l := s.leases[id]; l != nil {
		l.keys[key] = struct{}{}
	}
}

func (s *Store) detach(id kv.LeaseID, key string) {
	if l := s.leases[id]; l != nil {
		delete(l.keys, key)
	}
}

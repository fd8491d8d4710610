package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderd/leaderd/state/kv"
)

// Errors, to be matched with errors.Is, besides those of package kv.
var (
	// ErrNotFound: there is no such thing.
	ErrNotFound = errors.New("not found")
	// ErrChanged: it is not as the caller expected it.
	ErrChanged = errors.New("changed in between")
	// ErrTooLarge: it is above a limit of package state.
	ErrTooLarge = errors.New("too large")
	// ErrExists: it exists already.
	ErrExists = errors.New("exists already")
)

// Config shapes a Store.
type Config struct {
	// Prefix of all keys; it must end in '/'. Default DefaultPrefix.
	Prefix string
	// MaxInFlight is how many group-commit transactions may be under way at a
	// time, 1–64. Default 4.
	MaxInFlight int
	// MaxBatch is how many requests one of them carries at most, 1–96.
	// Default 64.
	MaxBatch int
	// Logger gets what the store has to say. Default: none.
	Logger hclog.Logger
	// Registerer gets the store's metrics. Default: none.
	Registerer prometheus.Registerer
}

// WithDefaults fills every unset field with its default.
func (c Config) WithDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 4
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = 64
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Validate answers all violations.
func (c Config) Validate() error {
	var errs []error
	if !strings.HasSuffix(c.Prefix, "/") {
		errs = append(errs, fmt.Errorf("prefix: %q must end in '/'", c.Prefix))
	}
	if c.MaxInFlight < 1 || c.MaxInFlight > 64 {
		errs = append(errs, fmt.Errorf("max_in_flight: %d is outside 1–64", c.MaxInFlight))
	}
	if c.MaxBatch < 1 || c.MaxBatch > 96 {
		errs = append(errs, fmt.Errorf("max_batch: %d is outside 1–96", c.MaxBatch))
	}
	return errors.Join(errs...)
}

// Store keeps the domain in a kv.KV. Its methods may be called concurrently;
// they block until the store has answered or their context is done.
type Store struct {
	kv       kv.KV
	keys     keys
	log      hclog.Logger
	batch    *batcher
	closed   closedCache
	changed  changedCache
	holders  holders
	places   places
	buckets  buckets
	headers  headers
	circuits circuits
	// keyLeases are those of idempotency keys.
	keyLeases keyLeases
	metrics   *metrics
	opened    openedSegments
	// Keys that every claim compares.
	closedKey, changedKey string
	shared                sharedGuards

	learning atomic.Bool
}

// New makes a Store. Close it when all callers have returned.
func New(db kv.KV, cfg Config) (*Store, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	m := newMetrics(cfg.Registerer)
	k := keys{cfg.Prefix}
	s := &Store{
		kv:         db,
		keys:       k,
		closedKey:  k.closed(),
		changedKey: k.changed(),
		log:        cfg.Logger,
		batch:      newBatcher(db, cfg, m),
		metrics:    m,
	}
	s.batch.missed = s.learn
	return s, nil
}

// learn looks up what guards failed, unless somebody is at it.
func (s *Store) learn() {
	if !s.learning.CompareAndSwap(false, true) {
		return
	}
	s.batch.flushes.Go(func() {
		defer s.learning.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
		defer cancel()
		if _, err := s.GetClosed(ctx); err != nil {
			s.log.Debug("what claims share is not known, looking again later", "err", err)
		}
	})
}

// Close waits for the group commits that are under way.
func (s *Store) Close() { s.batch.close() }

// Prefix is where the store's keys are.
func (s *Store) Prefix() string { return s.keys.prefix }

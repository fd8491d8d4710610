package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// GetWatermark answers the watermark; its Revision is 0 where none was written
// yet.
func (s *Store) GetWatermark(ctx context.Context) (state.Watermark, error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.watermark(), "", kv.RangeOptions{})
	})
	if err != nil || len(res.KVs) == 0 {
		return state.Watermark{}, err
	}
	var p statev1.Watermark
	if err := proto.Unmarshal(res.KVs[0].Value, &p); err != nil {
		return state.Watermark{}, fmt.Errorf("watermark: %w", err)
	}
	return state.Watermark{
		Instant:  codec.Time(p.GetInstant()),
		Written:  codec.Time(p.GetWritten()),
		Term:     p.GetTerm(),
		Revision: res.KVs[0].ModRevision,
		Lateness: state.Lateness{
			Starts: p.GetStarts(),
			P50:    time.Duration(p.GetP50()) * time.Microsecond,
			P99:    time.Duration(p.GetP99()) * time.Microsecond,
			Max:    time.Duration(p.GetMax()) * time.Microsecond,
		},
	}, nil
}

// PutWatermark writes the watermark while the term stands. After a kv error the
// outcome may be unknown; to write again is safe.
func (s *Store) PutWatermark(ctx context.Context, term state.Term, w state.Watermark) error {
	value, err := proto.Marshal(&statev1.Watermark{
		Instant: codec.Micros(w.Instant),
		Written: codec.Micros(w.Written),
		Term:    term.Number,
		Starts:  w.Lateness.Starts,
		P50:     w.Lateness.P50.Microseconds(),
		P99:     w.Lateness.P99.Microseconds(),
		Max:     w.Lateness.Max.Microseconds(),
	})
	if err != nil {
		return err
	}
	return s.putFenced(ctx, term, s.keys.watermark(), value)
}

// putFenced writes a key of the leader's alone while its term stands.
func (s *Store) putFenced(ctx context.Context, term state.Term, key string, value []byte) error {
	if term.Number == 0 { // which would compare as "is not there"
		return fmt.Errorf("put %s: %w", key, state.ErrTermLost)
	}
	res, _, err := s.send(ctx, kv.Txn{
		If:   []kv.Compare{termGuard(term)},
		Then: []kv.Op{kv.Put(key, value, 0)},
	})
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	if !res.Succeeded {
		return fmt.Errorf("put %s: %w", key, state.ErrTermLost)
	}
	return nil
}

// closedCache is what the store knows of the closed part of the timeline. It is
// never newer than the truth, and every claim compares its revision.
type closedCache struct {
	mu    sync.Mutex
	known bool
	val   state.Closed
}

func (c *closedCache) set(v state.Closed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || v.Revision > c.val.Revision {
		c.known, c.val = true, v
	}
}

func (c *closedCache) get() (state.Closed, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.val, c.known
}

func (s *Store) closedNow(ctx context.Context) (state.Closed, error) {
	if v, ok := s.closed.get(); ok {
		return v, nil
	}
	return s.GetClosed(ctx)
}

// GetClosed answers the closed part of the timeline.
func (s *Store) GetClosed(ctx context.Context) (state.Closed, error) {
	res, err := s.look(ctx, kv.Get(s.keys.closed()))
	if err != nil {
		return state.Closed{}, err
	}
	var v state.Closed
	if kvs := res.Results[0].KVs; len(kvs) > 0 {
		if v, err = decodeClosed(kvs[0]); err != nil {
			return v, err
		}
	}
	s.closed.set(v)
	return v, nil
}

func decodeClosed(from kv.KeyValue) (state.Closed, error) {
	if from.Key == "" {
		return state.Closed{}, nil
	}
	var p statev1.Closed
	if err := proto.Unmarshal(from.Value, &p); err != nil {
		return state.Closed{}, fmt.Errorf("closed: %w", err)
	}
	return state.Closed{Instant: codec.Time(p.GetInstant()), Revision: from.ModRevision}, nil
}

// olderVersions is how many of a job's older versions a new leader looks at.
const olderVersions = 20

// OlderVersions answers a job's newest versions before a generation, the newest
// first, at most olderVersions. One that cannot be read is left out.
func (s *Store) OlderVersions(ctx context.Context, id state.JobID, before int64) ([]state.JobVersion, error) {
	entries, err := s.ListVersions(ctx, id, before, olderVersions)
	if err != nil {
		return nil, err
	}
	versions := make([]state.JobVersion, 0, len(entries))
	for i := range entries {
		if entries[i].Broken == nil {
			versions = append(versions, entries[i].Version)
		}
	}
	return versions, nil
}

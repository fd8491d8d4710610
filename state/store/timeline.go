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
	res, err := s.kv.Range(ctx, s.keys.watermark(), "", kv.RangeOptions{})
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
	res, err := s.kv.Txn(ctx, kv.Txn{
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
	res, err := s.kv.Range(ctx, s.keys.closed(), "", kv.RangeOptions{})
	if err != nil {
		return state.Closed{}, err
	}
	var v state.Closed
	if len(res.KVs) > 0 {
		if v, err = decodeClosed(res.KVs[0]); err != nil {
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

// CloseTimeline closes the timeline up to instant while the term stands: no
// slot at or before it is claimed any more, but for those that a plan of this
// closing catches up. It never opens what is closed. The answer is the closed
// part as it is now.
func (s *Store) CloseTimeline(ctx context.Context, term state.Term, instant time.Time) (state.Closed, error) {
	was, err := s.GetClosed(ctx)
	if err != nil {
		return was, err
	}
	if instant.Before(was.Instant) {
		instant = was.Instant
	}
	value, err := proto.Marshal(&statev1.Closed{Instant: codec.Micros(instant), Term: term.Number})
	if err != nil {
		return was, err
	}
	if err := s.putFenced(ctx, term, s.keys.closed(), value); err != nil {
		return was, err
	}
	return s.GetClosed(ctx)
}

// Decide gives a slot that did not start a verdict (skipped or missed) while
// the term stands; rec.Due and rec.Run name it. pending is the revision of the
// pending key that goes with it, 0 for none. ok is false where the run has a
// record already.
func (s *Store) Decide(ctx context.Context, term state.Term, rec state.Record, exclusive bool, pending int64) (ok bool, err error) {
	if err := state.CheckTransition(state.StateNone, rec.State); err != nil && pending == 0 {
		return false, err
	}
	if err := state.CheckTransition(state.StatePending, rec.State); err != nil && pending != 0 {
		return false, err
	}
	value, err := proto.Marshal(codec.RecordToProto(&rec))
	if err != nil {
		return false, err
	}
	var gateMod int64
	if exclusive {
		gateMod = s.holders.get(rec.Job).token
	}
	historyKey, gateKey := s.keys.historyRun(rec.Job, rec.Run), s.keys.activeGate(rec.Job)
	shards := s.keys.activeOf(rec.Job) + escape(string(rec.Run)) + "/"
	for range maxTries {
		r := &request{guards: []kv.Compare{termGuard(term)}}
		r.txn.If = []kv.Compare{
			absent(historyKey),
			{Key: shards, End: end(shards), Target: kv.TargetCreateRevision},
			unchanged(gateKey, gateMod),
		}
		r.txn.Then = []kv.Op{kv.Put(historyKey, value, 0)}
		r.txn.Else = []kv.Op{keyOnly(historyKey), countRange(shards), kv.Get(gateKey)}
		r.writes = append(r.writes, s.batch.hash(historyKey))
		r.reads = append(r.reads, s.batch.hash(gateKey), s.batch.hash(s.keys.activeShard(rec.Job, rec.Run, 0)))
		if pending != 0 {
			pendingKey := s.keys.pendingRun(rec.Job, rec.Run)
			r.txn.If = append(r.txn.If, unchanged(pendingKey, pending))
			r.txn.Then = append(r.txn.Then, kv.Delete(pendingKey))
			r.writes = append(r.writes, s.batch.hash(pendingKey))
			r.txn.Else = append(r.txn.Else, keyOnly(pendingKey))
		}
		res, stored, err := s.fenced(ctx, term, r)
		if err != nil {
			return false, fmt.Errorf("decide %s %s: %w", rec.Job, rec.Run, err)
		}
		if stored {
			return true, nil
		}
		if len(res.Results[0].KVs) > 0 || len(res.Results[1].KVs) > 0 {
			return false, nil
		}
		if pending != 0 && (len(res.Results[3].KVs) == 0 || res.Results[3].KVs[0].ModRevision != pending) {
			return false, nil
		}
		// The gate is not as assumed. It may be this very run's.
		gateMod = 0
		if kvs := res.Results[2].KVs; len(kvs) > 0 {
			held, err := decodeLive(rec.Job, true, kvs[0])
			if err != nil {
				return false, err
			}
			if held.Run == rec.Run {
				return false, nil
			}
			gateMod = held.Token
		}
	}
	return false, fmt.Errorf("decide %s %s: %w", rec.Job, rec.Run, ErrContended)
}

// DecideRange gives all slots from rec.Due to rec.Until one verdict while the
// term stands and the timeline has been closed to rec.Until at revision closed.
// ok is false where one of them has a record, or the timeline was closed again.
func (s *Store) DecideRange(ctx context.Context, term state.Term, rec state.Record, closed int64) (ok bool, err error) {
	if err := state.CheckTransition(state.StateNone, rec.State); err != nil {
		return false, err
	}
	value, err := proto.Marshal(codec.RecordToProto(&rec))
	if err != nil {
		return false, err
	}
	first, last := s.keys.historyRun(rec.Job, state.SlotRunID(rec.Due)), s.keys.historyRun(rec.Job, state.SlotRunID(rec.Until))
	r := &request{guards: []kv.Compare{termGuard(term), unchanged(s.keys.closed(), closed)}}
	r.txn.If = []kv.Compare{{Key: first, End: last + "\x00", Target: kv.TargetCreateRevision}}
	r.txn.Then = []kv.Op{kv.Put(first, value, 0)}
	r.txn.Else = []kv.Op{kv.Get(first)}
	r.writes = append(r.writes, s.batch.hash(first))
	res, stored, err := s.fenced(ctx, term, r)
	if err != nil {
		return false, fmt.Errorf("decide %s %s–%s: %w", rec.Job, state.SlotRunID(rec.Due), state.SlotRunID(rec.Until), err)
	}
	if kvs := res.Results[0].KVs; !stored && len(kvs) > 0 {
		// Perhaps by an earlier try of this.
		stored = string(kvs[0].Value) == string(value)
	}
	return stored, nil
}

func countRange(prefix string) kv.Op {
	op := kv.GetRange(prefix, end(prefix), 1)
	op.Keys = true
	return op
}

// olderVersions is how many of a job's older versions a new leader looks at.
const olderVersions = 20

// OlderVersions answers a job's newest versions before a generation, the newest
// first, at most olderVersions. One that cannot be read is left out.
func (s *Store) OlderVersions(ctx context.Context, id state.JobID, before int64) ([]state.Job, error) {
	entries, err := s.ListVersions(ctx, id, before, olderVersions)
	if err != nil {
		return nil, err
	}
	jobs := make([]state.Job, 0, len(entries))
	for i := range entries {
		if entries[i].Broken == nil {
			jobs = append(jobs, entries[i].Version.Job)
		}
	}
	return jobs, nil
}

package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

const (
	// pageKeys is how many keys a scan reads at a time.
	pageKeys = 5000
	// getsPerTxn is how many keys one read-only transaction looks up.
	getsPerTxn = 100
)

// ListLive answers the live records that want says yes to, in order of job. It
// reads active/ in pages at one revision, and leaves out the dead records that
// finished runs left at their jobs' gates. A record that cannot be read is
// logged and left out.
func (s *Store) ListLive(ctx context.Context, want func(*state.Live) bool) ([]state.Live, error) {
	var live []state.Live
	prefix := s.keys.active()
	err := s.scan(ctx, prefix, func(from kv.KeyValue) {
		id, more, err := parseJob(from.Key[len(prefix):])
		if err == nil {
			var l state.Live
			if l, err = decodeLive(id, more == gate, from); err == nil && want(&l) {
				live = append(live, l)
			}
		}
		if err != nil {
			s.log.Error("unreadable live record is left alone", "key", from.Key, "err", err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list live runs: %w", err)
	}
	return s.undecided(ctx, live)
}

// undecided leaves only those live records whose run has no verdict.
func (s *Store) undecided(ctx context.Context, live []state.Live) ([]state.Live, error) {
	kept := live[:0]
	for begin := 0; begin < len(live); begin += getsPerTxn {
		part := live[begin:min(begin+getsPerTxn, len(live))]
		ops := make([]kv.Op, len(part))
		for i := range part {
			ops[i] = keyOnly(s.keys.historyRun(part[i].Job, part[i].Run))
		}
		res, err := s.kv.Txn(ctx, kv.Txn{Then: ops})
		if err != nil {
			return nil, fmt.Errorf("list live runs: %w", err)
		}
		for i := range part {
			if len(res.Results[i].KVs) == 0 {
				kept = append(kept, part[i])
			}
		}
	}
	return kept, nil
}

// scan calls each for every key below prefix, as of one revision.
func (s *Store) scan(ctx context.Context, prefix string, each func(kv.KeyValue)) error {
	o := kv.RangeOptions{Limit: pageKeys}
	for from, to := prefix, end(prefix); ; {
		res, err := s.kv.Range(ctx, from, to, o)
		if err != nil {
			return err
		}
		for _, found := range res.KVs {
			each(found)
		}
		if !res.More {
			return nil
		}
		o.Revision = res.Revision
		if o.Revision == 0 || len(res.KVs) == 0 {
			return fmt.Errorf("scan %s: a page without keys or revision", prefix)
		}
		from = res.KVs[len(res.KVs)-1].Key + "\x00"
	}
}

// ListDecided answers which slots of a job, from first to last, have a verdict
// or a live record.
func (s *Store) ListDecided(ctx context.Context, id state.JobID, first, last time.Time) (state.Decided, error) {
	d := state.Decided{Slots: make(map[time.Time]struct{})}
	prefix := s.keys.historyOf(id)
	from, to := s.keys.historyRun(id, state.SlotRunID(first)), s.keys.historyRun(id, state.SlotRunID(last))+"\x00"
	for {
		res, err := s.kv.Range(ctx, from, to, kv.RangeOptions{Limit: pageKeys})
		if err != nil {
			return d, fmt.Errorf("list verdicts of %s: %w", id, err)
		}
		for _, found := range res.KVs {
			run, err := unescape(found.Key[len(prefix):])
			if err != nil {
				continue
			}
			slot, ok := state.RunID(run).Slot()
			if !ok {
				continue
			}
			d.Slots[slot] = struct{}{}
			var p statev1.Record
			if err := proto.Unmarshal(found.Value, &p); err == nil && p.GetCount() > 1 {
				d.Ranges = append(d.Ranges, codec.RecordFromProto(&p))
			}
		}
		if !res.More {
			break
		}
		from = res.KVs[len(res.KVs)-1].Key + "\x00"
	}
	active := s.keys.activeOf(id)
	return d, s.scan(ctx, active, func(found kv.KeyValue) {
		if l, err := decodeLive(id, strings.HasSuffix(found.Key, "/"+gate), found); err == nil {
			if slot, ok := l.Run.Slot(); ok {
				d.Slots[slot] = struct{}{}
			}
		}
	})
}

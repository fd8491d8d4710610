package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// ErrTooMany: there are as many of these as are allowed.
var ErrTooMany = errors.New("too many")

func (k keys) backfills() string { return k.prefix + "backfills/" }

func (k keys) backfillsOf(id state.JobID) string { return k.backfills() + jobPart(id) + "/" }

func (k keys) backfill(id state.JobID, b state.BackfillID) string {
	return k.backfillsOf(id) + escape(string(b))
}

// backfillSlots is there while the backfill is under way. It is written once, so that
// the backfill's own value, which changes with each run, stays small.
func (k keys) backfillSlots(id state.JobID, b state.BackfillID) string {
	return k.backfillSlotsOf(id) + escape(string(b))
}

func (k keys) backfillSlotsOf(id state.JobID) string {
	return k.prefix + "backfillslots/" + jobPart(id) + "/"
}

// BackfillsCache is a cache of all backfills.
func (s *Store) BackfillsCache() *Cache { return NewCache(s.kv, s.keys.backfills(), s.log) }

// DecodeBackfill reads a backfill from its key and value. An error wraps ErrCorrupt.
func (s *Store) DecodeBackfill(from kv.KeyValue) (state.Backfill, error) {
	b := state.Backfill{Revision: from.ModRevision}
	id, run, err := parseRunKey(s.keys.backfills(), from.Key)
	var message statev1.Backfill
	if err == nil {
		err = proto.Unmarshal(from.Value, &message)
	}
	if err == nil {
		b = codec.BackfillFromProto(&message)
		b.Revision = from.ModRevision
		if b.Total < 1 || b.Next < 0 || b.Next > b.Total || b.Concurrency < 1 {
			err = fmt.Errorf("it has %d of %d slots, %d at a time", b.Next, b.Total, b.Concurrency)
		}
		for _, i := range b.Open {
			if i < 0 || i >= b.Next {
				err = fmt.Errorf("slot %d of it is under way, of %d", i, b.Next)
			}
		}
	}
	b.Job, b.ID = id, state.BackfillID(run)
	if err == nil && !b.ID.Valid() {
		err = fmt.Errorf("%q is no backfill's id", b.ID)
	}
	if err != nil {
		return b, fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
	}
	return b, nil
}

// ReadBackfills are the backfills of an update of BackfillsCache's. Those that cannot
// be read are told to bad and left out.
func (s *Store) ReadBackfills(u Update, bad func(key string, err error)) []state.Backfill {
	var all []state.Backfill
	add := func(from *kv.KeyValue) {
		b, err := s.DecodeBackfill(*from)
		if err != nil {
			bad(from.Key, err)
			return
		}
		all = append(all, b)
	}
	for _, from := range u.All {
		add(from)
	}
	for i := range u.Events {
		if !u.Events[i].Deleted {
			add(&u.Events[i].KV)
		}
	}
	return all
}

// CreateBackfill stores a backfill of slots, in order of their runs, while the job has
// a revision; another one is ErrChanged. It forgets the oldest ended ones of the job
// beyond state.MaxBackfillsKept. ErrTooMany says that state.MaxBackfillsActive are
// under way, ErrExists that there is one of the id.
func (s *Store) CreateBackfill(ctx context.Context, b state.Backfill, slots []time.Time, job int64) (state.Backfill, error) {
	revision, err := s.createBackfill(ctx, &b, slots, job)
	if err != nil {
		return b, fmt.Errorf("create backfill %s %s: %w", b.Job, b.ID, err)
	}
	b.Revision = revision
	return b, nil
}

func (s *Store) createBackfill(ctx context.Context, b *state.Backfill, slots []time.Time, job int64) (int64, error) {
	b.Total = len(slots)
	value, err := proto.Marshal(codec.BackfillToProto(b))
	if err != nil {
		return 0, err
	}
	list, err := proto.Marshal(codec.BackfillSlotsToProto(slots))
	if err != nil {
		return 0, err
	}
	key, jobKey, all := s.keys.backfill(b.Job, b.ID), s.keys.job(b.Job), s.keys.backfillsOf(b.Job)
	unsure := false
	for range maxTries {
		entries, seen, err := s.jobBackfills(ctx, b.Job)
		if err != nil {
			return 0, err
		}
		t := kv.Txn{
			If: []kv.Compare{
				unchanged(jobKey, job), absent(key),
				// None has been made since they were counted.
				{Key: all, End: end(all), Target: kv.TargetCreateRevision, Relation: kv.Less, Int: seen + 1},
			},
			Then: []kv.Op{kv.Put(key, value, 0), kv.Put(s.keys.backfillSlots(b.Job, b.ID), list, 0)},
			Else: []kv.Op{kv.Get(key), keyOnly(jobKey)},
		}
		active, ended := 0, 0
		for _, e := range slices.Backward(entries) {
			if e.Broken == nil && e.Backfill.Active() {
				active++
			} else if ended++; ended >= state.MaxBackfillsKept && e.Backfill.ID != b.ID && len(t.Then) < kv.MaxTxnOps/2 {
				t.Then = append(t.Then, kv.Delete(s.keys.backfill(b.Job, e.Backfill.ID)))
				t.Then = append(t.Then, kv.Delete(s.keys.backfillSlots(b.Job, e.Backfill.ID)))
			}
		}
		if active >= state.MaxBackfillsActive {
			return 0, ErrTooMany
		}
		res, again, err := s.send(ctx, t)
		switch unsure = unsure || again; {
		case err != nil:
			return 0, err
		case res.Succeeded:
			return res.Revision, nil
		}
		if found := res.Results[0].KVs; len(found) > 0 {
			// By an earlier try, it may have moved on since.
			if made, err := s.DecodeBackfill(found[0]); unsure && err == nil && made.SameWish(b) {
				return made.Revision, nil
			}
			return 0, ErrExists
		}
		if modRevision(res.Results[1]) != job {
			return 0, ErrChanged
		}
	}
	return 0, ErrContended
}

// BackfillEntry is a stored backfill.
type BackfillEntry struct {
	Backfill state.Backfill
	// Broken wraps ErrCorrupt where it cannot be read; Job and ID are set then, as
	// far as the key tells.
	Broken error
}

// jobBackfills are the backfills of a job, the oldest first, as of a revision. They are
// few.
func (s *Store) jobBackfills(ctx context.Context, id state.JobID) (entries []BackfillEntry, seen int64, err error) {
	prefix := s.keys.backfillsOf(id)
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, prefix, end(prefix), kv.RangeOptions{})
	})
	if err != nil {
		return nil, 0, err
	}
	for _, found := range res.KVs {
		b, err := s.DecodeBackfill(found)
		entries = append(entries, BackfillEntry{Backfill: b, Broken: err})
	}
	return entries, res.Revision, nil
}

func (s *Store) backfillsBelow(ctx context.Context, prefix string) ([]BackfillEntry, error) {
	var entries []BackfillEntry
	err := s.scan(ctx, prefix, func(found kv.KeyValue) {
		b, err := s.DecodeBackfill(found)
		entries = append(entries, BackfillEntry{Backfill: b, Broken: err})
	})
	return entries, err
}

// GetBackfill reads a backfill; there being none is ErrNotFound, a broken one
// ErrCorrupt.
func (s *Store) GetBackfill(ctx context.Context, id state.JobID, b state.BackfillID) (state.Backfill, error) {
	found, err := s.getBackfill(ctx, id, b)
	if err != nil {
		return found, fmt.Errorf("get backfill %s %s: %w", id, b, err)
	}
	return found, nil
}

func (s *Store) getBackfill(ctx context.Context, id state.JobID, b state.BackfillID) (state.Backfill, error) {
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, s.keys.backfill(id, b), "", kv.RangeOptions{})
	})
	if err == nil && len(res.KVs) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return state.Backfill{}, err
	}
	return s.DecodeBackfill(res.KVs[0])
}

// ListBackfills asks for a page of backfills, in order of job and the newest first
// within a job.
type ListBackfills struct {
	// Namespace and Job select; empty stands for all.
	Namespace, Job string
	// AfterJob and After are the last one of the page before.
	AfterJob state.JobID
	After    state.BackfillID
	Limit    int
}

// ListBackfills answers a page, and whether there are more. Of a job at most
// state.MaxBackfillsActive and state.MaxBackfillsKept are stored, so all that is
// selected is read for each page.
func (s *Store) ListBackfills(ctx context.Context, l ListBackfills) (page []BackfillEntry, more bool, err error) {
	prefix := s.keys.backfills()
	switch {
	case l.Namespace != "" && l.Job != "":
		prefix = s.keys.backfillsOf(state.JobID{Namespace: l.Namespace, Name: l.Job})
	case l.Namespace != "":
		prefix += escape(l.Namespace) + "/"
	}
	all, err := s.backfillsBelow(ctx, prefix)
	if err != nil {
		return nil, false, fmt.Errorf("list backfills: %w", err)
	}
	order := func(a, b *state.Backfill) int {
		if c := strings.Compare(a.Job.Namespace, b.Job.Namespace); c != 0 {
			return c
		}
		if c := strings.Compare(a.Job.Name, b.Job.Name); c != 0 {
			return c
		}
		return strings.Compare(string(b.ID), string(a.ID))
	}
	slices.SortStableFunc(all, func(a, b BackfillEntry) int { return order(&a.Backfill, &b.Backfill) })
	last := state.Backfill{Job: l.AfterJob, ID: l.After}
	for i := range all {
		b := &all[i].Backfill
		if l.Job != "" && b.Job.Name != l.Job || l.After != "" && order(b, &last) <= 0 {
			continue
		}
		if len(page) == l.Limit {
			return page, true, nil
		}
		page = append(page, all[i])
	}
	return page, false, nil
}

// CancelBackfill asks for a backfill's end, with running for that of its runs that are
// under way too, and answers it as it is then. One that has ended, or whose end was
// asked for, is left alone, but that running may be asked for later. Errors are as in
// GetBackfill.
func (s *Store) CancelBackfill(
	ctx context.Context, id state.JobID, b state.BackfillID, actor, reason string, running bool, now time.Time,
) (state.Backfill, error) {
	for range maxEdits {
		have, err := s.getBackfill(ctx, id, b)
		if err == nil && !have.Cancel(now, actor, reason, running) {
			return have, nil
		}
		var done bool
		if err == nil {
			done, err = s.putBackfill(ctx, state.Term{}, &have, nil)
		}
		if err != nil {
			return have, fmt.Errorf("cancel backfill %s %s: %w", id, b, err)
		}
		if done {
			return have, nil
		}
	}
	return state.Backfill{}, fmt.Errorf("cancel backfill %s %s: %w", id, b, ErrContended)
}

// putBackfill writes b over the one of its revision, with the pending runs of more
// slots; done is false where that has changed. With a term it is the leader's, and an
// ended one's slots are forgotten.
func (s *Store) putBackfill(ctx context.Context, term state.Term, b *state.Backfill, fed []state.Pending) (done bool, err error) {
	key := s.keys.backfill(b.Job, b.ID)
	value, err := proto.Marshal(codec.BackfillToProto(b))
	if err != nil {
		return false, err
	}
	t := kv.Txn{
		If:   []kv.Compare{unchanged(key, b.Revision)},
		Then: []kv.Op{kv.Put(key, value, 0)},
		Else: []kv.Op{kv.Get(key)},
	}
	for i := range fed {
		p := &fed[i]
		wish, err := marshalPending(p)
		if err != nil {
			return false, err
		}
		t.Then = append(t.Then, kv.Put(s.keys.pendingRun(p.Job, p.Run), wish, 0))
	}
	if !b.Active() {
		t.Then = append(t.Then, kv.Delete(s.keys.backfillSlots(b.Job, b.ID)))
	}
	if term.Number != 0 {
		t.If = append(t.If, termGuard(term))
		t.Else = append(t.Else, keyOnly(term.Key))
	}
	res, unsure, err := s.send(ctx, t)
	if err != nil {
		return false, err
	}
	if res.Succeeded {
		b.Revision = res.Revision
		return true, nil
	}
	if found := res.Results[0].KVs; unsure && len(found) > 0 && bytes.Equal(found[0].Value, value) {
		b.Revision = found[0].ModRevision
		return true, nil
	}
	if term.Number != 0 {
		return false, over(term, res)
	}
	return false, nil
}

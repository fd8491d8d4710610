package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// Dead letters lie beside the history: a copy of the verdict, written with it in one
// transaction, so that neither is there without the other. Unlike the record it goes
// when it is requeued or dropped, or when there are too many of its job, and not with
// the history. What a run was to work on stays as long as there is either.

const (
	// maxTrimmed is how many dead letters one transaction drops.
	maxTrimmed = 32
	// deadKeys is how many are read at a time: each has the end of its run's output.
	deadKeys = 200
)

// buryRequest adds the dead letter of a verdict to the request that stores it, where
// the job keeps them.
func (s *Store) buryRequest(r *request, l *state.Live, rec *state.Record, value []byte) {
	if !l.DeadLetter || !rec.State.Dead() {
		return
	}
	key := s.keys.deadRun(l.Job, l.Run)
	r.txn.Then = append(r.txn.Then, kv.Put(key, value, 0))
	r.writes = append(r.writes, s.batch.hash(key))
}

// ListDead asks for a page of dead letters, in order of job and run.
type ListDead struct {
	// Namespace and Job say whose; either may be empty, which means all.
	Namespace, Job string
	// AfterJob and AfterRun are the last of the page before; zero for the first page.
	AfterJob state.JobID
	AfterRun state.RunID
	// Limit is the most to answer, at least 1.
	Limit int
}

// ListDead answers a page of dead letters, whose stored values are bounded by MaxPageBytes
// too, and whether there are more behind it. Those that cannot be read have Broken set.
// Errors are those of package kv.
func (s *Store) ListDead(ctx context.Context, l ListDead) (page []RunEntry, more bool, err error) {
	from := s.keys.dead()
	switch {
	case l.Namespace != "" && l.Job != "":
		from = s.keys.deadOf(state.JobID{Namespace: l.Namespace, Name: l.Job})
	case l.Namespace != "":
		from += escape(l.Namespace) + "/"
	}
	to := end(from)
	if l.AfterRun != "" {
		from = s.keys.deadRun(l.AfterJob, l.AfterRun) + "\x00"
	}
	size := 0
	for {
		res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
			return s.kv.Range(ctx, from, to, kv.RangeOptions{Limit: int64(min(l.Limit+1, deadKeys))})
		})
		if err != nil {
			return nil, false, fmt.Errorf("list dead letters: %w", err)
		}
		for _, found := range res.KVs {
			e, ok := s.deadEntry(found)
			if !ok || l.Job != "" && e.Job.Name != l.Job {
				continue
			}
			if size += len(found.Value); len(page) == l.Limit || len(page) > 0 && size > MaxPageBytes {
				return page, true, nil
			}
			page = append(page, e)
		}
		if !res.More {
			return page, false, nil
		}
		from = res.KVs[len(res.KVs)-1].Key + "\x00"
	}
}

// deadEntry reads a dead letter; ok is false for a key that names no run.
func (s *Store) deadEntry(found kv.KeyValue) (RunEntry, bool) {
	id, run, err := parseRunKey(s.keys.dead(), found.Key)
	if err != nil {
		s.log.Error("a key among dead letters names no run and is left alone", "key", found.Key, "err", err)
		return RunEntry{}, false
	}
	e := RunEntry{Job: id, Run: run}
	rec, err := decodeRecord(id, run, found)
	if err != nil {
		e.Broken = err
		return e, true
	}
	e.Record = &rec
	return e, true
}

// GetDead answers a dead letter: its record, with the key's revision. Errors:
// ErrNotFound, ErrCorrupt, and those of package kv.
func (s *Store) GetDead(ctx context.Context, id state.JobID, run state.RunID) (state.Record, error) {
	res, err := s.look(ctx, kv.Get(s.keys.deadRun(id, run)))
	if err == nil && len(res.Results[0].KVs) == 0 {
		err = ErrNotFound
	}
	var rec state.Record
	if err == nil {
		rec, err = decodeRecord(id, run, res.Results[0].KVs[0])
	}
	if err != nil {
		return rec, fmt.Errorf("dead letter %s %s: %w", id, run, err)
	}
	return rec, nil
}

// RequeueDead makes a run of a dead letter's job, as PutPending does for p, and drops
// the dead letter in the same transaction: one is requeued once. p.Origin is its run; what
// a submitted one was to work on the new one, which is then a submitted one too, gets.
// Errors are those of PutPending; ErrNotFound also where the dead letter is not there.
func (s *Store) RequeueDead(ctx context.Context, p state.Pending) (state.Pending, error) {
	for range maxTries {
		rec, err := s.GetDead(ctx, p.Job, p.Origin)
		if err != nil {
			return p, err
		}
		l := letter{run: p.Origin, revision: rec.Revision}
		payload, err := s.takeOver(ctx, &p, &rec)
		if err != nil {
			return p, err
		}
		if p.Origin.Kind().Given() {
			if err := s.lookForRecords(ctx, p.Job, []*letter{&l}); err != nil {
				return p, fmt.Errorf("requeue %s %s: %w", p.Job, p.Origin, err)
			}
		}
		p.Revision, err = s.putPending(ctx, &p, &l, payload)
		if errors.Is(err, errMoved) {
			continue
		}
		if err != nil {
			return p, fmt.Errorf("requeue %s %s: %w", p.Job, p.Origin, err)
		}
		return p, nil
	}
	return p, fmt.Errorf("requeue %s %s: %w", p.Job, p.Origin, ErrContended)
}

// letter is a dead letter that is to go.
type letter struct {
	run      state.RunID
	revision int64 // of its key
	// record tells whether the run's record was there, of a run that may have been given a
	// payload.
	record bool
}

// lookForRecords tells of which dead letters there still is the record.
func (s *Store) lookForRecords(ctx context.Context, id state.JobID, letters []*letter) error {
	var read []kv.Op
	for _, l := range letters {
		read = append(read, keyOnly(s.keys.historyRun(id, l.run)))
	}
	res, _, err := s.send(ctx, kv.Txn{Then: read}) // too many reads for group commit
	if err != nil {
		return err
	}
	for i, l := range letters {
		l.record = len(res.Results[i].KVs) > 0
	}
	return nil
}

// dropLetter has a transaction drop a dead letter, and with it what the run was to work on
// where the record has gone: else that goes with the record.
func (s *Store) dropLetter(t *kv.Txn, id state.JobID, l *letter) {
	t.Then = append(t.Then, kv.Delete(s.keys.deadRun(id, l.run)))
	switch record := s.keys.historyRun(id, l.run); {
	case !l.run.Kind().Given():
	case l.record:
		t.If = append(t.If, present(record))
	default:
		t.If = append(t.If, absent(record))
		t.Then = append(t.Then, kv.Delete(s.keys.payload(id, l.run)))
	}
}

// DropDead deletes a dead letter. Errors: ErrNotFound where there is none, and those of
// package kv.
func (s *Store) DropDead(ctx context.Context, id state.JobID, run state.RunID) error {
	if err := s.dropDead(ctx, id, run); err != nil {
		return fmt.Errorf("drop dead letter %s %s: %w", id, run, err)
	}
	return nil
}

func (s *Store) dropDead(ctx context.Context, id state.JobID, run state.RunID) error {
	for try := range maxTries {
		res, err := s.look(ctx, keyOnly(s.keys.deadRun(id, run)), keyOnly(s.keys.historyRun(id, run)))
		switch {
		case err != nil:
			return err
		case len(res.Results[0].KVs) == 0 && try == 0:
			return ErrNotFound
		case len(res.Results[0].KVs) == 0:
			return nil // it went by an earlier try, or by another call
		}
		r := &request{writes: []uint64{s.batch.hash(s.keys.deadRun(id, run))}}
		s.dropLetter(&r.txn, id, &letter{run: run, record: len(res.Results[1].KVs) > 0})
		if res, err = s.batch.do(ctx, r); err != nil || res.Succeeded {
			return err
		}
	}
	return ErrContended
}

// TrimDead drops the dead letters of a job that were due first, down to keep of them,
// while the term stands, and answers how many. Errors are those of package kv, and
// state.ErrTermLost.
func (s *Store) TrimDead(ctx context.Context, term state.Term, id state.JobID, keep int) (dropped int, err error) {
	for refused := 0; refused < maxTries; {
		n, done, err := s.trimDead(ctx, term, id, keep)
		if err != nil {
			return dropped, fmt.Errorf("trim dead letters of %s: %w", id, err)
		}
		if done {
			return dropped, nil
		}
		if n == 0 {
			refused++
		}
		dropped += n
	}
	return dropped, fmt.Errorf("trim dead letters of %s: %w", id, ErrContended)
}

// trimDead carries out one step; done tells that there was none to do.
func (s *Store) trimDead(ctx context.Context, term state.Term, id state.JobID, keep int) (dropped int, done bool, err error) {
	from := s.keys.deadOf(id)
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, from, end(from), kv.RangeOptions{Limit: maxTrimmed, KeysOnly: true})
	})
	if err != nil {
		return 0, false, err
	}
	n := min(int(res.Count)-keep, len(res.KVs))
	if n <= 0 {
		return 0, true, nil
	}
	r := &request{}
	var given []*letter
	for _, found := range res.KVs[:n] {
		// One that is requeued or dropped meanwhile is gone all the same.
		r.writes = append(r.writes, s.batch.hash(found.Key))
		if run, err := runPart(found.Key[len(from):]); err == nil && run.Kind().Given() {
			given = append(given, &letter{run: run})
		} else {
			r.txn.Then = append(r.txn.Then, kv.Delete(found.Key))
		}
	}
	if len(given) > 0 {
		if err := s.lookForRecords(ctx, id, given); err != nil {
			return 0, false, err
		}
	}
	for _, l := range given {
		s.dropLetter(&r.txn, id, l)
	}
	got, err := s.lead(ctx, term, r)
	if err != nil {
		return 0, false, err
	}
	if !got.Succeeded {
		return 0, false, over(term, got)
	}
	return n, false, nil
}

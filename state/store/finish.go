package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// ErrStartedOnce: an attempt that had started shall be made again, but its job's
// guarantee is at most once.
var ErrStartedOnce = errors.New("the run starts at most once")

// Finish makes the end of an attempt real: the run's verdict, or, where f.Retry
// is set, a wait for a further attempt from then on. It is idempotent.
// TokenFenced says that the attempt is no longer the run's: nothing was changed.
// Errors besides those of package kv: ErrTooLarge, ErrStartedOnce, and a state
// that no running attempt can end in. After kv.ErrUnknown it must be asked
// again.
func (s *Store) Finish(ctx context.Context, f state.Finish) (state.TokenStatus, error) {
	if f.Live.Circuit != nil {
		status, err := s.finishCounted(ctx, &f)
		return s.finishAnswer(&f, status, err)
	}
	e, status, err := s.beginFinish(&f)
	if e != nil {
		res, failed := s.batch.do(ctx, e.request)
		status, err = s.finished(ctx, e, res, failed)
	}
	return s.finishAnswer(&f, status, err)
}

// StartFinish is Finish for callers that do not wait: done gets the answer, once,
// from another goroutine or from within the call. It must not block. f is the
// store's until then.
func (s *Store) StartFinish(ctx context.Context, f *state.Finish, done func(state.TokenStatus, error)) {
	if f.Live.Circuit != nil { // which may have to be read
		s.batch.flushes.Go(func() { done(s.Finish(ctx, *f)) })
		return
	}
	e, status, err := s.beginFinish(f)
	if e == nil {
		done(s.finishAnswer(f, status, err))
		return
	}
	e.request.stop = ctx.Done()
	e.request.asker = askerFunc(func(rep reply) {
		if rep.err == nil && !rep.res.Succeeded {
			s.batch.flushes.Go(func() { s.answerFinish(ctx, e, rep, done) }) // it reads why
			return
		}
		s.answerFinish(ctx, e, rep, done)
	})
	s.batch.submit(e.request)
}

func (s *Store) answerFinish(ctx context.Context, e *ending, rep reply, done func(state.TokenStatus, error)) {
	status, err := s.finished(ctx, e, rep.res, gaveUp(ctx, rep.err))
	done(s.finishAnswer(e.of, status, err))
}

func (s *Store) finishAnswer(f *state.Finish, status state.TokenStatus, err error) (state.TokenStatus, error) {
	if err != nil {
		return 0, fmt.Errorf("finish %s %s: %w", f.Live.Job, f.Live.Run, err)
	}
	s.metrics.finishes[status].Inc()
	return status, nil
}

// ending is a finish on its way.
type ending struct {
	of      *state.Finish
	to      state.RunState
	request *request
	listed  bool // its run's shards
}

// beginFinish makes the request, or answers nil and what is known without one.
func (s *Store) beginFinish(f *state.Finish) (*ending, state.TokenStatus, error) {
	if err := checkFinish(f); err != nil {
		return nil, 0, err
	}
	if f.Live.Token == 0 { // which would compare as "is not there"
		return nil, state.TokenFenced, nil
	}
	e := &ending{of: f, to: f.Attempt.State}
	live := *f.Live
	var room [1]state.Attempt // most runs have one
	live.Attempts = attemptsWith(room[:0], live.Attempts, &f.Attempt)
	if !f.Retry.IsZero() {
		e.to = state.StateWaiting
		live.State, live.Owner, live.NextTry = e.to, state.Owner{}, f.Retry
		e.request = s.waitRequest(&live)
		return e, 0, nil
	}
	if live.Listing != nil && e.to == state.StateSucceeded && len(f.List) > 0 {
		e.listed = true
		e.request = s.listRequest(&live, f)
		s.dropTraces(e.request, f)
		return e, 0, nil
	}
	rec := verdictOf(&live, e.to, f.Reason, f.Attempt.Ended)
	rec.Detail, rec.Tail, rec.OutputBytes = f.Detail, f.Tail, f.OutputBytes
	rec.Hooks, rec.Result = f.Hooks, e.to == state.StateSucceeded && len(f.Result) > 0
	if live.Listing != nil && e.to == state.StateSucceeded {
		rec.Detail = noShards
	}
	e.request, _ = s.verdictRequest(&live, &rec)
	s.dropTraces(e.request, f)
	s.keepResult(e.request, f)
	return e, 0, nil
}

// verdictOf is the verdict on a live record's run.
func verdictOf(l *state.Live, to state.RunState, reason string, now time.Time) state.Record {
	rec := state.Record{
		Generation: l.Generation,
		State:      to,
		Reason:     reason,
		Due:        l.Due,
		Recorded:   now,
		Shards:     l.Shards,
		Attempts:   l.Attempts,
		Origin:     l.Origin,
		Tries:      l.Tries,
		Chain:      l.Chain,
		LimitKey:   l.LimitKey,
	}
	if l.Shard == state.ListShard {
		rec.Split, rec.Shards = unlisted(l), 0
	}
	return rec
}

// finished says what became of a finish. After a refusal it reads why.
func (s *Store) finished(ctx context.Context, e *ending, res kv.TxnResult, err error) (state.TokenStatus, error) {
	if err != nil {
		return 0, err
	}
	stored := res.Succeeded
	if e.listed {
		if !stored {
			if stored, err = s.listed(ctx, e.of); err != nil {
				return 0, err
			}
		}
		if !stored {
			return state.TokenFenced, nil
		}
		return state.TokenStored, nil
	}
	if !stored {
		if res, err = s.look(ctx, s.tokenReads(e.of.Live)...); err != nil {
			return 0, err
		}
		if stored, _, err = s.ended(e.of.Live, &e.of.Attempt, e.to, res); err != nil {
			return 0, err
		}
	}
	if !stored {
		return state.TokenFenced, nil
	}
	s.noteEnd(e.of.Live, e.to)
	return state.TokenStored, nil
}

// checkFinish refuses what no record may hold.
func checkFinish(f *state.Finish) error {
	if err := state.CheckTransition(state.StateRunning, f.Attempt.State); err != nil {
		return err
	}
	if !f.Attempt.State.Verdict() {
		return fmt.Errorf("a run cannot go from running to %s by the end of an attempt", f.Attempt.State)
	}
	if !f.Retry.IsZero() && f.Live.AtMostOnce && !f.Attempt.Started.IsZero() {
		return ErrStartedOnce
	}
	if l := f.Live.Listing; l.Listed() && len(f.List) > 0 {
		if err := l.Dynamic.CheckList(f.List, false); err != nil {
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
	}
	for _, x := range [...]struct {
		what      string
		size, max int
	}{
		{"tail", len(f.Tail), state.MaxTailBytes},
		{"error", len(f.Attempt.Error), state.MaxErrorBytes},
		{"reason", len(f.Reason), state.MaxReasonBytes},
		{"detail", len(f.Detail), state.MaxDetailBytes},
		{"result", len(f.Result), state.MaxResultBytes},
	} {
		if x.size > x.max {
			return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrTooLarge, x.what, x.size, x.max)
		}
	}
	return nil
}

// attemptsWith is as and its end, without the oldest but for the first where
// they are too many, in room if that is enough. It leaves as alone.
func attemptsWith(room, as []state.Attempt, end *state.Attempt) []state.Attempt {
	all := append(append(room, as...), *end)
	if over := len(all) - state.MaxAttemptRecords; over > 0 {
		all = append(all[:1], all[1+over:]...)
	}
	return all
}

// noteEnd remembers what its owner's verdict leaves at the gate.
func (s *Store) noteEnd(l *state.Live, to state.RunState) {
	if l.Exclusive && to.Verdict() {
		s.holders.set(l.Job, holder{run: l.Run, token: l.Token, over: true})
	}
	if l.Place != 0 && to.Verdict() {
		s.places.free(s.keys.placesOf(l.Job, l.GateKey), l.Place)
	}
	if to.Verdict() {
		s.freeHolds(l)
	}
}

// verdictRequest ends a live record whose token is l.Token with the verdict of its
// owner. The gate's record stays, dead; others are deleted. The place that the run
// has, if it has one, is its own by its token.
func (s *Store) verdictRequest(l *state.Live, rec *state.Record) (*request, names) {
	if l.Header != 0 {
		return s.endShardRequest(l, rec)
	}
	value := codec.MarshalRecord(rec)
	r, k := s.tokenRequest(l)
	r.txn.Then = append(r.txn.Then, kv.Put(k.history, value, 0))
	r.writes = append(r.writes, s.batch.hash(k.history))
	s.buryRequest(r, l, rec, value)
	if !l.Exclusive {
		r.txn.Then = append(r.txn.Then, kv.Delete(k.live))
		r.writes = append(r.writes, s.batch.hash(k.live))
	}
	if l.Place != 0 {
		place := s.keys.place(l.Job, l.GateKey, l.Place)
		r.txn.Then = append(r.txn.Then, kv.Delete(place))
		r.writes = append(r.writes, s.batch.hash(place))
	}
	s.dropHolds(r, l)
	return r, k
}

// foreignRequest is verdictRequest for whoever else ends a run. It deletes the
// record at the gate too, so that an end by the owner that comes late is fenced:
// its token alone tells that its run has no verdict.
func (s *Store) foreignRequest(l *state.Live, rec *state.Record) *request {
	r, k := s.verdictRequest(l, rec)
	s.dropProgress(r, l)
	if l.Exclusive {
		r.txn.Then = append(r.txn.Then, kv.Delete(k.live))
		r.writes = append(r.writes, s.batch.hash(k.live), s.batch.hash(k.active)) // as claims do
	}
	return r
}

// waitRequest puts a live record whose token is l.Token into the state of l,
// which nobody owns.
func (s *Store) waitRequest(l *state.Live) *request {
	value := codec.MarshalLive(l)
	r, k := s.tokenRequest(l)
	r.txn.Then = append(r.txn.Then, kv.Put(k.live, value, 0))
	r.writes = append(r.writes, s.batch.hash(k.live))
	if l.Exclusive {
		r.writes = append(r.writes, s.batch.hash(k.active)) // as claims do
	}
	return r
}

// tokenRequest is a request that changes a live run only while its token
// stands. It is sent often and seldom refused, so it has no else branch: what
// tokenReads reads afterwards tells why.
func (s *Store) tokenRequest(l *state.Live) (*request, names) {
	k := s.keys.names(l)
	room := &struct {
		request
		ifRoom    [2]kv.Compare
		thenRoom  [2]kv.Op
		readRoom  [3]uint64
		writeRoom [3]uint64
	}{}
	r := &room.request
	r.txn.If = room.ifRoom[:0]
	if !mutant.Off(mutant.FinishToken) {
		r.txn.If = append(r.txn.If, unchanged(k.live, l.Token))
	}
	if !mutant.Off(mutant.FirstVerdict) {
		r.txn.If = append(r.txn.If, absent(k.history))
	}
	r.txn.Then = room.thenRoom[:0]
	r.reads = append(room.readRoom[:0], s.batch.hash(k.live), s.batch.hash(k.history))
	r.writes = room.writeRoom[:0]
	if !l.Exclusive {
		r.reads = append(r.reads, s.batch.hash(k.active))
	}
	return r, k
}

// tokenReads reads a run's verdict and the live record.
func (s *Store) tokenReads(l *state.Live) []kv.Op {
	return []kv.Op{kv.Get(s.keys.historyRun(l.Job, l.Run)), kv.Get(s.keys.live(l))}
}

// ended tells, from a refusal, whether an earlier try of the same request was
// carried out: whether last, the newest attempt of l, as it ended, is in the record
// that to asks for, or in one that came of that. revision is that of the live
// record, if it still waits as the request left it.
func (s *Store) ended(l *state.Live, last *state.Attempt, to state.RunState, res kv.TxnResult) (ok bool, revision int64, err error) {
	same := func(a *state.Attempt) bool { return sameEnd(a, last) }
	in := func(as []state.Attempt) bool { return hasEnd(as, last) }
	if kvs := res.Results[0].KVs; len(kvs) > 0 {
		rec, err := decodeRecord(l.Job, l.Run, kvs[0])
		if err != nil {
			return false, 0, err
		}
		if to == state.StateWaiting {
			end := rec.ShardEnd(l.Shard)
			return in(rec.Attempts) || end != nil && in(end.Attempts), 0, nil
		}
		if l.Header != 0 {
			end := rec.ShardEnd(l.Shard)
			return end != nil && end.State == to && in(end.Attempts), 0, nil
		}
		n := len(rec.Attempts)
		return rec.State == to && n > 0 && same(&rec.Attempts[n-1]), 0, nil
	}
	if kvs := res.Results[1].KVs; len(kvs) > 0 && (to == state.StateWaiting || l.Header != 0) {
		stored, err := decodeLive(l.Job, l.Exclusive, kvs[0])
		if err != nil || stored.Run != l.Run || stored.Shard != l.Shard || !in(stored.Attempts) {
			return false, 0, err
		}
		if to != state.StateWaiting {
			return stored.State == to, 0, nil
		}
		if stored.State == state.StateWaiting && stored.Attempt == l.Attempt {
			revision = stored.Token
		}
		return true, revision, nil
	}
	return false, 0, nil
}

// sameEnd tells whether two attempts are one, with one end.
func sameEnd(a, b *state.Attempt) bool {
	return a.Number == b.Number && a.Token == b.Token && a.State == b.State && codec.Micros(a.Ended) == codec.Micros(b.Ended)
}

func hasEnd(as []state.Attempt, end *state.Attempt) bool {
	return slices.ContainsFunc(as, func(a state.Attempt) bool { return sameEnd(&a, end) })
}

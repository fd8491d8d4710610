package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// MarkLost deals with a live record whose owner's registration is gone, as one
// atomic check: the term stands, the registration does not, and the record is
// as l has it. An at-most-once run gets the verdict lost, and so does one of which
// state.MaxHandovers attempts came to nothing; others wait for a further attempt from now on, and the waiting record with its new token is
// answered. ok is false where nothing was changed because the owner came to an
// end, or the registration stands after all. It is idempotent for the same now.
// Errors are those of package kv, and state.ErrTermLost.
func (s *Store) MarkLost(ctx context.Context, term state.Term, l state.Live, now time.Time) (waiting state.Live, ok bool, err error) {
	if l.State != state.StateRunning || l.Token == 0 {
		return state.Live{}, false, nil
	}
	next, ok, err := s.markLost(ctx, term, &l, now)
	if err != nil {
		return state.Live{}, false, fmt.Errorf("mark %s %s lost: %w", l.Job, l.Run, err)
	}
	return next, ok, nil
}

func (s *Store) markLost(ctx context.Context, term state.Term, l *state.Live, now time.Time) (state.Live, bool, error) {
	next := *l
	next.Attempts = attemptsWith(nil, l.Attempts, &state.Attempt{
		Number: l.Attempt, Node: l.Owner.Node, Token: l.Token, Term: l.Term, Claimed: l.Claimed, Ended: now,
		State: state.StateLost, Error: "the executor's registration ended",
	})
	var rec *state.Record
	spent := l.Handovers() >= state.MaxHandovers
	if l.AtMostOnce && !mutant.Off(mutant.AtMostOnce) || spent {
		next.State = state.StateLost
		lost := verdictOf(&next, state.StateLost, "", now)
		if rec = &lost; spent {
			rec.Reason, rec.Detail = state.ReasonAttempts, fmt.Sprintf("executors were lost during %d attempts", l.Handovers())
		}
	} else {
		next.State, next.Owner, next.NextTry = state.StateWaiting, state.Owner{}, now
	}
	build := func() *request {
		r := s.waitRequest
		if rec != nil {
			r = func(l *state.Live) *request { return s.foreignRequest(l, rec) }
		}
		made := r(&next)
		if !mutant.Off(mutant.OwnerGone) {
			made.txn.If = append(made.txn.If, kv.Compare{
				Key: s.keys.node(l.Owner.Node), Target: kv.TargetCreateRevision, Relation: kv.NotEqual, Int: l.Owner.Revision,
			})
		}
		made.txn.Else = s.tokenReads(&next)
		return made
	}
	var res kv.TxnResult
	var err error
	send := func(r *request) (kv.TxnResult, error) { return s.lead(ctx, term, r) }
	if rec == nil {
		res, err = send(build())
	} else {
		res, err = s.commitVerdict(ctx, &next, rec.State, rec.Recorded, build, send)
	}
	if err != nil {
		return state.Live{}, false, err
	}
	revision := res.Revision
	if !res.Succeeded {
		var stored bool
		if stored, revision, err = s.ended(&next, &next.Attempts[len(next.Attempts)-1], next.State, res); err != nil {
			return state.Live{}, false, err
		}
		if !stored || next.State == state.StateWaiting && revision == 0 { // claimed since
			return state.Live{}, false, over(term, res)
		}
	}
	if next.State == state.StateWaiting {
		next.Token = revision
	} else if next.Exclusive {
		s.holders.set(next.Job, holder{})
	}
	return next, true, nil
}

// GiveUp ends a waiting run, for a reason of the leader's, with the verdict to.
// job is what that relies on, as DecideVersion has it: a revision of the job,
// state.NoJob or 0. ok is false where the run was no longer as l has it. It is
// idempotent for the same now. Errors are those of package kv, state.ErrTermLost,
// state.ErrJobChanged, and a verdict that no waiting run can have.
func (s *Store) GiveUp(
	ctx context.Context, term state.Term, l state.Live, to state.RunState, reason string, now time.Time, job int64,
) (ok bool, err error) {
	rec := verdictOf(&l, to, reason, now)
	ok, err = s.giveUp(ctx, term, &l, &rec, job)
	if err != nil {
		return false, fmt.Errorf("give up %s %s: %w", l.Job, l.Run, err)
	}
	return ok, nil
}

func (s *Store) giveUp(ctx context.Context, term state.Term, l *state.Live, rec *state.Record, job int64) (bool, error) {
	if l.State != state.StateWaiting {
		return false, fmt.Errorf("a run that is %s cannot be given up", l.State)
	}
	if err := state.CheckTransition(state.StateWaiting, rec.State); err != nil {
		return false, err
	}
	if l.Token == 0 { // which would compare as "is not there"
		return false, nil
	}
	at := 0
	if l.Header != 0 {
		at = 1 // a shard's end is in its own record
	}
	var value []byte
	res, err := s.commitVerdict(ctx, l, rec.State, rec.Recorded, func() *request {
		r := s.foreignRequest(l, rec)
		value = r.txn.Then[0].Value
		r.txn.Else = s.tokenReads(l)
		if job != 0 {
			jobKey := s.keys.job(l.Job)
			r.txn.If = append(r.txn.If, unchanged(jobKey, max(job, 0)))
			r.reads = append(r.reads, s.batch.hash(jobKey))
			r.txn.Else = append(r.txn.Else, keyOnly(jobKey))
		}
		return r
	}, func(r *request) (kv.TxnResult, error) { return s.lead(ctx, term, r) })
	if err != nil {
		return false, err
	}
	if !res.Succeeded && !wrote(res.Results[at], value) {
		err := over(term, res)
		stands := len(res.Results[0].KVs) == 0 && modRevision(res.Results[1]) == l.Token
		if err == nil && job != 0 && stands && modRevision(res.Results[2]) != max(job, 0) {
			err = state.ErrJobChanged
		}
		return false, err
	}
	if l.Exclusive {
		s.holders.set(l.Job, holder{})
	}
	return true, nil
}

// wrote tells whether a read found just this value: an earlier try of the
// request was carried out.
func wrote(read kv.Result, value []byte) bool {
	return len(read.KVs) > 0 && bytes.Equal(read.KVs[0].Value, value)
}

// lead commits a leader's request while the term stands. If it was refused,
// over tells whether because the term is over, which is to be asked after
// whether an earlier try was carried out.
func (s *Store) lead(ctx context.Context, term state.Term, r *request) (kv.TxnResult, error) {
	if term.Number == 0 { // which would compare as "is not there"
		return kv.TxnResult{}, state.ErrTermLost
	}
	if !mutant.Off(mutant.TermFence) {
		r.guard(termGuard(term))
	}
	r.txn.Else = append(r.txn.Else, keyOnly(term.Key))
	return s.batch.do(ctx, r)
}

// over answers state.ErrTermLost if a refused request of lead's found the term
// over.
func over(term state.Term, res kv.TxnResult) error {
	if leader := res.Results[len(res.Results)-1].KVs; len(leader) == 0 || leader[0].CreateRevision != term.Number {
		return state.ErrTermLost
	}
	return nil
}

func termGuard(t state.Term) kv.Compare {
	return kv.Compare{Key: t.Key, Target: kv.TargetCreateRevision, Int: t.Number}
}

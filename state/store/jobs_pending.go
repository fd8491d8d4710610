package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// PutPending makes the wish for a run durable, if the job exists and is not
// paused at that moment, and answers p with its revision. Errors: ErrNotFound,
// ErrPaused, ErrCorrupt for a broken job, ErrExists where the run has a pending
// key or a verdict already.
//
// After an unknown outcome it looks for the run before it asks again. A wish
// that reaches the store later still may be left beside its own claimed run;
// the claim of that one is refused, since the run is live or has a verdict.
func (s *Store) PutPending(ctx context.Context, p state.Pending) (state.Pending, error) {
	revision, err := s.putPending(ctx, &p, nil, nil)
	if err != nil {
		return p, fmt.Errorf("put pending run %s %s: %w", p.Job, p.Run, err)
	}
	p.Revision = revision
	return p, nil
}

// putPending is PutPending; dead is the dead letter of p.Origin that it is made of, nil for
// none, and payload what the run is to work on. errMoved: the record beside the dead letter
// has gone since.
func (s *Store) putPending(ctx context.Context, p *state.Pending, dead *letter, payload []byte) (int64, error) {
	value, err := marshalPending(p)
	if err != nil {
		return 0, err
	}
	pendingKey, historyKey := s.keys.pendingRun(p.Job, p.Run), s.keys.historyRun(p.Job, p.Run)
	entry, err := s.GetJob(ctx, p.Job)
	if err != nil {
		return 0, err
	}
	unsure := false
	for range maxEdits {
		if entry.Broken != nil {
			return 0, entry.Broken
		}
		if entry.Job.PauseEnded(p.Requested) {
			if entry, err = s.endPause(ctx, p.Job, p.Requested); err != nil {
				return 0, err
			}
			continue
		}
		if entry.Job.Paused {
			return 0, ErrPaused
		}
		if p.Origin == "" && p.LimitKey != "" && !state.PerKey(entry.Job.Spec.Limits) {
			return 0, ErrNotPerKey // a run again has its first run's, whatever the job's limits are by now
		}
		t := kv.Txn{
			If:   []kv.Compare{unchanged(s.keys.job(p.Job), entry.Job.Revision), absent(pendingKey), absent(historyKey)},
			Then: []kv.Op{kv.Put(pendingKey, value, 0)},
			Else: []kv.Op{kv.Get(s.keys.job(p.Job)), kv.Get(pendingKey), keyOnly(historyKey)},
		}
		if len(payload) > 0 {
			t.Then = append(t.Then, kv.Put(s.keys.payload(p.Job, p.Run), payload, 0))
		}
		if dead != nil {
			key := s.keys.deadRun(p.Job, p.Origin)
			t.If = append(t.If, unchanged(key, dead.revision))
			t.Else = append(t.Else, keyOnly(key))
			s.dropLetter(&t, p.Job, dead)
		}
		var res kv.TxnResult
		found := int64(0)
		err := s.repeat(ctx, func(ctx context.Context) (err error) {
			if unsure {
				if found, err = s.findRun(ctx, p.Job, p.Run); err != nil || found != 0 {
					return err
				}
			}
			res, err = s.kv.Txn(ctx, t)
			unsure = unsure || err != nil && !harmless(err)
			return err
		})
		switch {
		case err != nil && unsure && !errors.Is(err, kv.ErrUnknown):
			return 0, fmt.Errorf("%w: %w", kv.ErrUnknown, err)
		case err != nil:
			return 0, err
		case found != 0:
			return found, nil
		case res.Succeeded:
			return res.Revision, nil
		}
		pending := res.Results[1].KVs
		if unsure && len(pending) > 0 && bytes.Equal(pending[0].Value, value) {
			return pending[0].ModRevision, nil
		}
		if history := res.Results[2].KVs; len(history) > 0 || len(pending) > 0 {
			if unsure && len(history) > 0 {
				return history[0].ModRevision, nil
			}
			return 0, ErrExists
		}
		if dead != nil && modRevision(res.Results[3]) != dead.revision {
			return 0, ErrNotFound
		}
		job := res.Results[0].KVs
		if len(job) == 0 {
			return 0, ErrNotFound
		}
		if dead != nil && job[0].ModRevision == entry.Job.Revision {
			return 0, errMoved
		}
		entry = s.jobEntry(job[0])
	}
	return 0, ErrContended
}

// stable encodes maps in one order: see state/codec.
var stable = proto.MarshalOptions{Deterministic: true}

func marshalPending(p *state.Pending) ([]byte, error) {
	return stable.Marshal(&statev1.Pending{
		Requested: codec.Micros(p.Requested), Actor: p.Actor, Reason: p.Reason, AllowOverlap: p.AllowOverlap,
		Origin: string(p.Origin), LimitKey: p.LimitKey, Correlation: p.Correlation, Upstream: codec.UpstreamToProto(p.Upstream),
		Split: codec.SplitToProto(p.Split),
	})
}

// findRun answers the revision of any record of a run, 0 if there is none.
func (s *Store) findRun(ctx context.Context, id state.JobID, run state.RunID) (int64, error) {
	e, err := s.GetRun(ctx, id, run)
	switch {
	case errors.Is(err, ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case e.Pending != nil:
		return e.Pending.Revision, nil
	case e.Record != nil:
		return e.Record.Revision, nil
	case len(e.Live) > 0:
		return e.Live[0].Token, nil
	}
	return 0, e.Broken
}

// DecodePending reads a pending run from its key and value. An error wraps
// ErrCorrupt.
func (s *Store) DecodePending(from kv.KeyValue) (state.Pending, error) {
	id, run, err := parseRunKey(s.keys.pending(), from.Key)
	var message statev1.Pending
	if err == nil {
		err = proto.Unmarshal(from.Value, &message)
	}
	if err != nil {
		return state.Pending{Job: id, Run: run, Revision: from.ModRevision}, fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
	}
	return state.Pending{
		Job: id, Run: run, Revision: from.ModRevision, Born: from.CreateRevision,
		Requested:    codec.Time(message.GetRequested()),
		Actor:        message.GetActor(),
		Reason:       message.GetReason(),
		AllowOverlap: message.GetAllowOverlap(),
		Queued:       codec.Time(message.GetQueued()),
		Origin:       state.RunID(message.GetOrigin()),
		LimitKey:     message.GetLimitKey(),
		Split:        codec.SplitFromProto(message.GetSplit()),
		Chain:        codec.ChainFromProto(&message),
	}, nil
}

// parseRunKey reads job and run from a key "<prefix><ns>/<job>/<run>[/…]".
func parseRunKey(prefix, key string) (state.JobID, state.RunID, error) {
	rest, err := below(prefix, key)
	if err != nil {
		return state.JobID{}, "", err
	}
	id, more, err := parseJob(rest)
	if err != nil {
		return id, "", err
	}
	if more == "" {
		return id, "", fmt.Errorf("key part %q names no run", rest)
	}
	run, err := runPart(more)
	return id, run, err
}

package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// GateKey is where the record lies that holds a job's overlap gate.
func (s *Store) GateKey(id state.JobID) string { return s.keys.activeGate(id) }

// CheckGate answers an error that wraps ErrCorrupt, with the key, where the
// record at the job's gate cannot be read. Then no run of the job is claimed:
// whose record that was nobody can tell, so it may be one of a run that is at
// work. Other errors are those of package kv.
func (s *Store) CheckGate(ctx context.Context, id state.JobID) error {
	key := s.keys.activeGate(id)
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, key, "", kv.RangeOptions{})
	})
	if err == nil && len(res.KVs) > 0 {
		_, err = readGate(id, res.KVs[0])
	}
	if err != nil {
		return fmt.Errorf("check the gate of %s: %w", id, err)
	}
	return nil
}

func readGate(id state.JobID, from kv.KeyValue) (state.Live, error) {
	l, err := decodeLive(id, true, from)
	if err == nil && l.Run == "" {
		err = errors.New("it names no run")
	}
	if err != nil {
		return l, fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
	}
	return l, nil
}

// gateOf reads who is at the gate. A record that cannot be read is nobody's: it
// keeps its run from going on, since its token is another one now, and every
// other from being claimed. So a verdict may be given to any of them.
func (s *Store) gateOf(id state.JobID, read kv.Result) holder {
	if len(read.KVs) == 0 {
		return holder{}
	}
	l, err := readGate(id, read.KVs[0])
	if err != nil {
		return holder{token: read.KVs[0].ModRevision}
	}
	return holder{run: l.Run, token: l.Token}
}

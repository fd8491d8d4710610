package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// SaveProgress notes how far an attempt has come, while its token stands. The last
// one counts: an older one that is repeated late may replace a newer. TokenFenced: the
// attempt is no longer the run's.
func (s *Store) SaveProgress(ctx context.Context, p state.ProgressReport) (state.TokenStatus, error) {
	status, err := s.saveProgress(ctx, &p)
	if err != nil {
		return 0, fmt.Errorf("save progress of %s %s: %w", p.Live.Job, p.Live.Run, err)
	}
	return status, nil
}

func (s *Store) saveProgress(ctx context.Context, p *state.ProgressReport) (state.TokenStatus, error) {
	if n := len(p.Progress.Message); n > state.MaxProgressMessage {
		return 0, fmt.Errorf("%w: message has %d bytes, at most %d are allowed", ErrTooLarge, n, state.MaxProgressMessage)
	}
	if p.Live.Token == 0 { // which would compare as "is not there"
		return state.TokenFenced, nil
	}
	value, err := proto.Marshal(codec.ProgressToProto(&p.Progress, p.Live.Token))
	if err != nil {
		return 0, err
	}
	key := s.keys.progressOf(p.Live.Job, p.Live.Run) + strconv.Itoa(p.Live.Shard)
	r, _ := s.tokenRequest(&p.Live)
	r.txn.Then = append(r.txn.Then, kv.Put(key, value, 0))
	r.writes = append(r.writes, s.batch.hash(key))
	res, err := s.batch.do(ctx, r)
	switch {
	case err != nil:
		return 0, err
	case res.Succeeded:
		return state.TokenStored, nil
	}
	return state.TokenFenced, nil
}

func (s *Store) dropProgress(r *request, l *state.Live) {
	key := s.keys.progressOf(l.Job, l.Run) + strconv.Itoa(l.Shard)
	r.txn.Then = append(r.txn.Then, kv.Delete(key))
	r.writes = append(r.writes, s.batch.hash(key))
}

// ProgressKey names what ListProgress answers.
type ProgressKey struct {
	Job   state.JobID
	Run   state.RunID
	Shard int
}

// Reported is the progress of an attempt, and its token: what is of another than the
// live record's is of an attempt before.
type Reported struct {
	state.Progress
	Token int64
}

// ListProgress answers how far attempts have come: of a run, or, where that is empty,
// of all runs of a job; of all jobs of a namespace, or of all there are, where these
// are empty. What cannot be read is left out.
func (s *Store) ListProgress(ctx context.Context, id state.JobID, run state.RunID) (map[ProgressKey]Reported, error) {
	prefix := s.keys.progress()
	switch {
	case run != "":
		prefix = s.keys.progressOf(id, run)
	case id.Name != "":
		prefix += jobPart(id) + "/"
	case id.Namespace != "":
		prefix += escape(id.Namespace) + "/"
	}
	res, err := s.read(ctx, func(ctx context.Context) (kv.RangeResult, error) {
		return s.kv.Range(ctx, prefix, end(prefix), kv.RangeOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("list progress: %w", err)
	}
	all := make(map[ProgressKey]Reported, len(res.KVs))
	for _, item := range res.KVs {
		var p statev1.Progress
		key, err := s.keys.parseProgress(item.Key)
		if err = errors.Join(err, proto.Unmarshal(item.Value, &p)); err != nil {
			s.log.Warn("progress of a run cannot be read", "key", item.Key, "err", err)
			continue
		}
		all[key] = Reported{codec.ProgressFromProto(&p), p.GetToken()}
	}
	return all, nil
}

func (k keys) parseProgress(key string) (ProgressKey, error) {
	id, more, err := parseJob(strings.TrimPrefix(key, k.progress()))
	if err != nil {
		return ProgressKey{}, err
	}
	part, number, _ := strings.Cut(more, "/")
	run, err := unescape(part)
	if err != nil {
		return ProgressKey{}, err
	}
	shard, err := strconv.Atoi(number)
	return ProgressKey{Job: id, Run: state.RunID(run), Shard: shard}, err
}

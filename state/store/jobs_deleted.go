package store

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// ListDeleted answers the deletions of jobs that no leader has dealt with yet:
// each as the job's last version, whose Job has the ID, and as its Revision that
// of the note. One that cannot be read is logged and left out.
func (s *Store) ListDeleted(ctx context.Context) ([]state.JobVersion, error) {
	var all []state.JobVersion
	prefix := s.keys.deleted()
	err := s.scan(ctx, prefix, func(from kv.KeyValue) {
		id, _, err := parseJob(from.Key[len(prefix):])
		var message statev1.Version
		if err == nil {
			err = proto.Unmarshal(from.Value, &message)
		}
		if err != nil {
			s.log.Error("unreadable note of a deletion is left alone", "key", from.Key, "err", err)
			return
		}
		v := state.JobVersion{
			Job:    codec.JobFromProto(message.GetJob()),
			Change: state.Change(message.GetChange()),
			Actor:  message.GetActor(),
			Reason: message.GetReason(),
			Time:   codec.Time(message.GetTime()),
		}
		v.Job.ID, v.Job.Revision = id, from.ModRevision
		all = append(all, v)
	})
	if err != nil {
		return nil, fmt.Errorf("list deleted jobs: %w", err)
	}
	return all, nil
}

// ForgetDeleted notes that a leader has dealt with a deletion that ListDeleted
// answered, while the term stands. One that is not as given any more is left
// alone.
func (s *Store) ForgetDeleted(ctx context.Context, term state.Term, v *state.JobVersion) error {
	key := s.keys.deletedJob(v.Job.ID)
	r := &request{writes: []uint64{s.batch.hash(key)}}
	r.txn.If = []kv.Compare{unchanged(key, v.Job.Revision)}
	r.txn.Then = []kv.Op{kv.Delete(key)}
	res, err := s.lead(ctx, term, r)
	if err == nil && !res.Succeeded {
		err = over(term, res)
	}
	if err != nil {
		return fmt.Errorf("forget the deletion of %s: %w", v.Job.ID, err)
	}
	return nil
}

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// NextHistory answers the first job, in order of keys, that has any history or any
// version, at from or behind it; next is where to go on. The first from is empty. ok
// is false where there is none.
func (s *Store) NextHistory(ctx context.Context, from string) (id state.JobID, next string, ok bool, err error) {
	prefixes := []string{s.keys.history(), s.keys.segments(), s.keys.versions()}
	if id, ok, err = s.nextJob(ctx, prefixes, "", "", from); err != nil {
		return id, "", false, fmt.Errorf("look for history: %w", err)
	}
	return id, end(jobPart(id) + "/"), ok, nil
}

// LastVersion answers the newest version of a job, which may have been deleted.
// There being none that can be read is ErrNotFound.
func (s *Store) LastVersion(ctx context.Context, id state.JobID) (state.JobVersion, error) {
	page, _, err := s.OlderVersions(ctx, id, 0)
	if err == nil && len(page) == 0 {
		err = fmt.Errorf("last version of %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return state.JobVersion{}, err
	}
	return page[0], nil
}

// ForgetJob removes the versions of a job that was deleted before an instant, and all
// that is kept beside them, while the term stands; done is false where there is such
// a job, where a leader has still to deal with the deletion, or where the job has any
// record of a run. Errors are those of package kv, and state.ErrTermLost.
func (s *Store) ForgetJob(ctx context.Context, term state.Term, id state.JobID, before time.Time) (done bool, err error) {
	if done, err = s.forgetJob(ctx, term, id, before); err != nil {
		return false, fmt.Errorf("forget %s: %w", id, err)
	}
	return done, nil
}

func (s *Store) forgetJob(ctx context.Context, term state.Term, id state.JobID, before time.Time) (bool, error) {
	if term.Number == 0 { // which would compare as "is not there"
		return false, state.ErrTermLost
	}
	last, err := s.LastVersion(ctx, id)
	if err != nil {
		return false, notFound(err)
	}
	if last.Change != state.ChangeDelete || !last.Time.Before(before) {
		return false, nil
	}
	versions := s.keys.versionsOf(id)
	t := kv.Txn{
		If: []kv.Compare{
			absent(s.keys.job(id)), absent(s.keys.deletedJob(id)),
			absentBelow(s.keys.historyOf(id)), absentBelow(s.keys.segmentsOf(id)), absentBelow(s.keys.activeOf(id)), absentBelow(s.keys.pendingOf(id)),
			// Nothing was added since the deletion was read.
			{Key: versions, End: end(versions), Target: kv.TargetModRevision, Relation: kv.Less, Int: last.Job.Revision + 1},
			termGuard(term),
		},
		Then: []kv.Op{
			kv.DeleteRange(versions, end(versions)), kv.Delete(s.keys.swept(id)),
			kv.Delete(s.keys.ownCircuit(id)), // of runs that outlived it
			kv.DeleteRange(s.keys.backfillsOf(id), end(s.keys.backfillsOf(id))),
			kv.DeleteRange(s.keys.backfillSlotsOf(id), end(s.keys.backfillSlotsOf(id))), // of one that cannot be read
			kv.DeleteRange(s.keys.results(id), end(s.keys.results(id))),
		},
		Else: []kv.Op{keyOnly(term.Key)},
	}
	// Dead letters stay, with what they need. Without a live run there will be no other.
	letters, err := s.look(ctx, countRange(s.keys.deadOf(id)))
	if err != nil {
		return false, err
	}
	if len(letters.Results[0].KVs) == 0 {
		t.Then = append(t.Then, kv.DeleteRange(s.keys.payloads(id), end(s.keys.payloads(id))))
	}
	res, _, err := s.send(ctx, t)
	if err != nil {
		return false, err
	}
	if !res.Succeeded {
		return false, over(term, res)
	}
	return true, nil
}

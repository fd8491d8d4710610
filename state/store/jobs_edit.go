package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/mutant"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

const (
	// patience is how long a request outside group commit is repeated while the
	// store is away; an election of etcd's takes one to two seconds.
	patience = 10 * time.Second
	// maxEdits bounds how often a change of a job is made anew because others
	// came first. Each time one of them got through.
	maxEdits = 1000
)

// edit is one change of a job, made upon what is stored.
type edit struct {
	id            state.JobID
	revision      int64 // expected; 0: any
	actor, reason string
	now           time.Time
	dryRun        bool
	// calendars has the job take its calendars over as they are now.
	calendars bool
	// term is set where the change is the leader's: it then stands with the change,
	// or that is refused.
	term state.Term
	// apply makes the next message from the stored job (nil: there is none), as of
	// an instant in microseconds, and says what the change is; 0 is none. A deleted
	// job has no next.
	apply func(was *JobEntry, now int64) (next *statev1.Job, change state.Change, err error)
}

// stored is what there is of a job.
type stored struct {
	job        kv.KeyValue // Key is empty where there is no job
	generation int64       // of the newest version
	mark       int64       // the watermark, in microseconds; 0: there is none
}

// edit changes a job and answers it as it is then, and the change. The job and
// the record of its version are written in one transaction that compares the
// job's revision and that the version does not exist. That record tells, after
// an unknown outcome, whether the transaction was applied.
//
// The change takes effect at e.now, or at the watermark where that is ahead: what
// it has passed is decided, and is not made due again because a clock is slow.
//
// A pause that has come to its end is ended first, by a version of its own, if no
// leader has got to that yet: so the slots between that end and the change are the
// resumed version's.
func (s *Store) edit(ctx context.Context, e *edit) (JobEntry, state.Change, error) {
	have, err := s.readStored(ctx, e.id)
	if err != nil {
		return JobEntry{}, 0, err
	}
	for try := range maxEdits {
		var was *JobEntry
		if have.job.Key != "" {
			entry := s.jobEntry(have.job)
			was = &entry
		}
		if was != nil && e.revision != 0 && e.revision != have.job.ModRevision {
			return JobEntry{}, 0, ErrChanged
		}
		now := max(codec.Micros(e.now), have.mark)
		apply, made := e.apply, e
		if was != nil && was.Job.PauseEnded(codec.Time(now)) && was.Broken == nil && !e.dryRun {
			apply, made = pauseEnd, &edit{actor: state.Leaderd, reason: pauseEnded}
		}
		next, change, err := apply(was, now)
		if err != nil {
			return JobEntry{}, 0, err
		}
		if change == 0 {
			return *was, 0, nil
		}
		links := s.linksOf(e.id, was, next)
		if made == e && e.calendars {
			if err := s.snapshot(ctx, e.id, next, &links); err != nil {
				return JobEntry{}, 0, err
			}
		}
		if made == e {
			if err := s.follow(ctx, e.id, was, next, e.dryRun, &links); err != nil {
				return JobEntry{}, 0, err
			}
		}
		version := made.version(was, next, change, have.generation+1, now)
		if e.dryRun {
			return s.entryOf(e.id, next, have.job.ModRevision, have.job.CreateRevision), change, nil
		}
		revision, found, err := s.commitEdit(ctx, e, &have, next, version, links)
		if err != nil {
			return JobEntry{}, 0, err
		}
		if revision != 0 && made == e {
			return s.entryOf(e.id, next, revision, cmp.Or(have.job.CreateRevision, revision)), change, nil
		}
		if revision != 0 { // the pause is over; now for the change itself
			if found, err = s.readStored(ctx, e.id); err != nil {
				return JobEntry{}, 0, err
			}
			if e.revision == have.job.ModRevision && found.job.ModRevision == revision {
				e.revision = revision
			}
		}
		have = found
		if try >= 2 {
			if err := sleep(ctx, rand.N(20*time.Millisecond)); err != nil {
				return JobEntry{}, 0, err
			}
		}
	}
	return JobEntry{}, 0, ErrContended
}

// version stamps next and makes the record of the version.
func (e *edit) version(was *JobEntry, next *statev1.Job, change state.Change, generation, now int64) *statev1.Version {
	v := &statev1.Version{
		Job: next, Change: uint32(change), Actor: e.actor, Reason: e.reason, Time: now,
	}
	switch {
	case next != nil:
		next.Generation, next.Updated, next.UpdatedBy = generation, now, e.actor
	case was.Message != nil:
		v.Job = proto.CloneOf(was.Message)
		v.Job.Generation = generation
	default:
		v.Job = &statev1.Job{Generation: generation}
	}
	return v
}

func (s *Store) entryOf(id state.JobID, message *statev1.Job, revision, born int64) JobEntry {
	e := JobEntry{Message: message, Job: codec.JobFromProto(message)}
	e.Job.ID, e.Job.Revision, e.Job.Born = id, revision, born
	return e
}

// readStored reads what commitEdit's transaction builds upon.
func (s *Store) readStored(ctx context.Context, id state.JobID) (have stored, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		res, err := s.kv.Txn(ctx, kv.Txn{Then: s.storedOps(id)})
		if err == nil {
			have, err = s.keys.stored(id, res.Results)
		}
		return err
	})
	return have, err
}

func (s *Store) storedOps(id state.JobID) []kv.Op {
	versions := s.keys.versionsOf(id)
	all := kv.GetRange(versions, end(versions), 0)
	all.Keys = true
	return []kv.Op{kv.Get(s.keys.job(id)), all, kv.Get(s.keys.watermark())}
}

func (k keys) stored(id state.JobID, res []kv.Result) (stored, error) {
	var have stored
	if kvs := res[0].KVs; len(kvs) > 0 {
		have.job = kvs[0]
	}
	if kvs := res[1].KVs; len(kvs) > 0 {
		var err error
		if have.generation, err = k.parseVersion(id, kvs[len(kvs)-1].Key); err != nil {
			return have, err
		}
	}
	if kvs := res[2].KVs; len(kvs) > 0 {
		var mark statev1.Watermark
		if err := readTimeline(kvs[0], &mark); err == nil { // else the leader mends it
			have.mark = mark.GetInstant()
		}
	}
	// Versions may have been swept, or restored from elsewhere.
	var message statev1.Job
	if err := proto.Unmarshal(have.job.Value, &message); err == nil {
		have.generation = max(have.generation, message.GetGeneration())
	}
	return have, nil
}

func (k keys) parseVersion(id state.JobID, key string) (int64, error) {
	generation, err := strconv.ParseInt(strings.TrimPrefix(key, k.versionsOf(id)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: key %q is no version", ErrCorrupt, key)
	}
	return generation, nil
}

// commitEdit writes next (nil: deletes the job) and its version. It answers the
// revision, or 0 and what is stored instead of have.
func (s *Store) commitEdit(
	ctx context.Context, e *edit, have *stored, next *statev1.Job, version *statev1.Version, links links,
) (int64, stored, error) {
	id := e.id
	record, err := proto.Marshal(version)
	if err != nil {
		return 0, stored{}, err
	}
	ops := []kv.Op{kv.Delete(s.keys.job(id)), kv.Put(s.keys.deletedJob(id), record, 0)}
	if mutant.Off(mutant.DeletedNote) {
		ops = ops[:1]
	}
	if prefix := s.keys.checkpointsOfJob(id); next == nil {
		ops = append(ops, kv.DeleteRange(prefix, end(prefix)), kv.Delete(s.keys.ownCircuit(id)))
	}
	if next != nil {
		value, err := proto.Marshal(next)
		if err != nil {
			return 0, stored{}, err
		}
		ops = []kv.Op{kv.Put(s.keys.job(id), value, 0)}
		if have.job.Key == "" {
			ops = append(ops, kv.Delete(s.keys.deletedJob(id))) // its versions tell
		}
	}
	generation := version.GetJob().GetGeneration()
	versionKey := s.keys.version(id, generation)
	t := kv.Txn{
		If:   []kv.Compare{unchanged(s.keys.job(id), have.job.ModRevision), absent(versionKey)},
		Then: append(ops, kv.Put(versionKey, record, 0), kv.Put(s.changedKey, nil, 0)),
		Else: append(s.storedOps(id), kv.Get(versionKey)),
	}
	t.If, t.Then = append(t.If, links.compares...), append(t.Then, links.ops...)
	if oldest := generation - state.MaxVersionsKept + 1; oldest > 1 {
		t.Then = append(t.Then, kv.DeleteRange(s.keys.versionsOf(id), s.keys.version(id, oldest)))
	}
	if e.term.Number != 0 {
		t.If = append(t.If, termGuard(e.term))
		t.Else = append(t.Else, keyOnly(e.term.Key))
	}
	res, unsure, err := s.send(ctx, t)
	if err != nil {
		return 0, stored{}, err
	}
	if res.Succeeded {
		s.changed.set(res.Revision)
		return res.Revision, stored{}, nil
	}
	if kvs := res.Results[3].KVs; unsure && len(kvs) > 0 && bytes.Equal(kvs[0].Value, record) {
		return kvs[0].ModRevision, stored{}, nil
	}
	if e.term.Number != 0 {
		if err := over(e.term, res); err != nil {
			return 0, stored{}, err
		}
	}
	now, err := s.keys.stored(id, res.Results)
	return 0, now, err
}

// send commits t, repeating it while the store is away, for as long as ctx and
// patience last. unsure tells that an earlier try may have been applied: then
// t's compares fail, and its else branch must tell. If even the last try leaves
// the outcome open, the error wraps kv.ErrUnknown.
func (s *Store) send(ctx context.Context, t kv.Txn) (res kv.TxnResult, unsure bool, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		res, err = s.kv.Txn(ctx, t)
		unsure = unsure || err != nil && !harmless(err)
		return err
	})
	if err != nil && unsure && !errors.Is(err, kv.ErrUnknown) {
		err = fmt.Errorf("%w: %w", kv.ErrUnknown, err)
	}
	return res, unsure, err
}

// read calls get until it answers, while the store is away.
func (s *Store) read(ctx context.Context, get func(context.Context) (kv.RangeResult, error)) (res kv.RangeResult, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		res, err = get(ctx)
		return err
	})
	return res, err
}

// repeat is repeatEach with commitTimeout.
func (s *Store) repeat(ctx context.Context, try func(context.Context) error) error {
	return s.repeatEach(ctx, commitTimeout, try)
}

// repeatEach calls try, each time for at most each, until it answers something
// else than a passing failure, or ctx or patience ends.
func (s *Store) repeatEach(ctx context.Context, each time.Duration, try func(context.Context) error) error {
	begun := time.Now()
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		once, cancel := context.WithTimeout(ctx, each)
		err := try(once)
		cancel()
		if err == nil || !passing(err) || ctx.Err() != nil || time.Since(begun)+wait > patience {
			return err
		}
		s.log.Debug("store is asked again", "err", err, "wait", wait)
		if stop := sleep(ctx, wait/2+rand.N(wait/2)); stop != nil {
			return fmt.Errorf("%w: %w", err, stop)
		}
	}
}

// harmless tells errors after which a transaction was certainly not applied. That
// the quota is used up is none of them: etcd carries out the request that crosses it.
func harmless(err error) bool {
	return !errors.Is(err, kv.ErrUnknown) && (errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrTooManyRequests) ||
		errors.Is(err, kv.ErrInvalid) || errors.Is(err, kv.ErrPermission) ||
		errors.Is(err, kv.ErrLeaseNotFound) || errors.Is(err, kv.ErrCompacted))
}

// passing tells errors after which the same request may yet succeed.
func passing(err error) bool {
	return errors.Is(err, kv.ErrUnknown) || errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrTooManyRequests) ||
		errors.Is(err, context.DeadlineExceeded)
}

func sleep(ctx context.Context, d time.Duration) error {
	pauseFor(ctx, d)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// pauseFor waits for d or the end of ctx, which the caller looks at itself.
func pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// below is what follows prefix in key.
func below(prefix, key string) (string, error) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", fmt.Errorf("key %q is not below %q", key, prefix)
	}
	return rest, nil
}

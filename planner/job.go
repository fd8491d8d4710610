package planner

import (
	"errors"
	"time"

	"github.com/leaderd/leaderd/planner/placement"
	"github.com/leaderd/leaderd/state"
)

// Job is a version of a job as planning needs it. It is immutable.
type Job struct {
	ID         state.JobID
	Revision   int64
	Born       int64 // the revision at which it was made
	Generation int64
	// Effective is the instant after which slots of this version are due, and of
	// older ones no more.
	Effective time.Time
	*Policy
	Selector placement.Selector
	// Shards splits the job's runs; nil: they are one piece of work each.
	Shards *state.Shards
	// wants is nil for a job without limits that prefers no executors.
	wants *wants
	// After has other jobs' ends make runs; nil: none do.
	After *state.After
	// ConcurrencyKey names whose runs count beside the job's own, if any do.
	ConcurrencyKey string
	Paused         bool
	// Adhoc is set where a submission made the job, for its run.
	Adhoc bool
	// pausedUntil is when the pause ends by itself, in microseconds; 0: it does not.
	pausedUntil int64
	// Broken is set where the stored job cannot be planned. Such a job is due
	// never and harms no other.
	Broken error

	// catalog, if it is set, is told that the job's slots cannot be computed.
	catalog   *Catalog
	schedules schedules
	// rules is nil for a job whose slots are all due at once, and all run.
	rules *rules
	// stored is the job's value in the store, which its spec is read from when
	// an executor needs it.
	stored []byte
}

// ErrNoTarget: a stored job names nothing to run that this version knows.
var ErrNoTarget = errors.New("spec: has no target that this version knows")

// Compile makes the planned form of a job, to ask when it is due. What keeps it
// from being planned ends up in Broken.
func Compile(j *state.Job) *Job { return compile(j, nil) }

func compileSpec(j *state.Job, stored []byte) *Job {
	spec := j.Spec.WithDefaults()
	c := &Job{
		ID:         j.ID,
		Revision:   j.Revision,
		Born:       j.Born,
		Generation: j.Generation,
		Effective:  j.Effective,
		Policy:     policyOf(&spec),
		Selector:   selector(spec.Selector).Needing(spec.Resources),
		wants:      wantsOf(&spec),
		Shards:     spec.Shards,
		After:      spec.After,
		Paused:     j.Paused,
		Adhoc:      j.Adhoc,
		stored:     stored,

		ConcurrencyKey: spec.ConcurrencyKey,
	}
	if j.Paused {
		if !j.PausedUntil.IsZero() {
			c.pausedUntil = j.PausedUntil.UnixMicro()
		}
		// A pause leaves the job's own instant alone, since it makes no slot due.
		c.Effective = j.Updated
	}
	c.schedules, c.Broken = parseSchedules(j, &spec)
	if c.Broken == nil {
		c.rules, c.Broken = compileRules(j, &spec)
	}
	if c.Broken == nil && spec.Command == nil && spec.HTTP == nil && !spec.NoOp {
		c.Broken = ErrNoTarget
	}
	if c.Broken != nil {
		c.schedules, c.rules = schedules{}, nil
	}
	return c
}

// selector is the placement form of a spec's selector.
func selector(labels map[string]string) placement.Selector {
	if len(labels) == 0 {
		return placement.Selector{}
	}
	require := make(map[string][]string, len(labels))
	for label, value := range labels {
		require[label] = []string{value}
	}
	return placement.Require(require)
}

// broken is the planned form of a stored job that cannot even be read.
func broken(id state.JobID, revision int64, err error) *Job {
	return &Job{ID: id, Revision: revision, Policy: &Policy{}, Broken: err}
}

// splits tells whether the job's runs are split when they are claimed.
func (j *Job) splits() bool { return j.Shards != nil && !j.Shards.Listed() }

// first is the number of the shard that a run's first entry is of.
func (j *Job) first() int {
	if j.Shards.Listed() {
		return state.ListShard
	}
	return 0
}

// shape tells how a run that was asked for begins: with which shard, and whether it is
// split when it is claimed. One that repeats some shards of another is, whatever the job's
// runs are.
func (j *Job) shape(p *state.Pending) (shard int, split bool) {
	if p.Split != nil {
		return 0, true
	}
	return j.first(), j.splits()
}

// due tells whether the job can be due at all.
func (j *Job) due() bool { return j.Broken == nil && !j.Paused && len(j.schedules.all) > 0 }

// NextSlot is the first slot after the instant, or the zero time where there is
// none, or the job is paused or broken. It may be one that does not run: see Bar.
func (j *Job) NextSlot(after time.Time) time.Time { return j.guarded(j.nextSlot, after) }

func (j *Job) nextSlot(after time.Time) time.Time {
	if !j.due() {
		return time.Time{}
	}
	if after.Before(j.Effective) {
		after = j.Effective
	}
	return j.schedules.next(after)
}

package state

import (
	"fmt"
	"time"
)

// JobID names a job: a name, unique inside a namespace.
type JobID struct {
	Namespace string
	Name      string
}

// String is "namespace/name".
func (id JobID) String() string { return id.Namespace + "/" + id.Name }

// Job is a named spec in a namespace, as the store holds it.
type Job struct {
	ID JobID
	// UID tells a job from an earlier one of the same name.
	UID string
	// Generation counts the versions of the job from 1: every put, pause and
	// resume makes a new one.
	Generation int64
	Spec       JobSpec
	// Paused jobs are due at no slot and start no run.
	Paused      bool
	PauseReason string
	// PauseActor is who paused it.
	PauseActor string
	// PausedUntil is when the pause ends by itself; zero: it does not.
	PausedUntil time.Time
	// Created and Updated are the wall clock of the node that served the change.
	Created time.Time
	Updated time.Time
	// UpdatedBy is who made the newest version.
	UpdatedBy string
	// Effective is the instant after which slots of this version are due.
	Effective time.Time
	// Anchor is what @every counts from: the instant at which the schedules
	// were last changed. A failover, a restart and an edit of anything else
	// leave it alone.
	Anchor time.Time
	// Adhoc is set where a submission made the job, for its run.
	Adhoc bool
	// Calendars are those that the spec names, as this version has them.
	Calendars []JobCalendar
	// Revision is the store's ModRevision of the job, which claims compare.
	Revision int64
	// Born is the revision at which the job was made.
	Born int64
}

// JobSpec says when a job is due, what it runs and by which policies. The
// fields mean what leaderd.v1.JobSpec says; zero values stand for the defaults
// named there (see WithDefaults).
type JobSpec struct {
	Description string
	Labels      map[string]string

	Schedules []string
	TimeZone  string
	// Start and End bound the slots, [Start, End); zero: they do not.
	Start, End time.Time
	// Jitter is how long after its slot a run is due at most; see the function of
	// that name.
	Jitter       time.Duration
	MissingTime  MissingTime
	RepeatedTime RepeatedTime
	// ExcludedCalendars and OnlyCalendars name calendars of the job's namespace.
	ExcludedCalendars []string
	OnlyCalendars     []string

	Overlap Overlap
	// MaxConcurrent is how many runs may be live at a time; 0: any number where
	// Overlap is OverlapAllow, else 1.
	MaxConcurrent int
	// QueueLimit is how many runs wait at most, where Overlap is OverlapQueue; 0
	// means DefaultQueueLimit.
	QueueLimit int
	// ConcurrencyKey names whose runs count beside the job's own: those of all
	// jobs of the namespace with the same key. Empty: no others.
	ConcurrencyKey string

	CatchUp       CatchUp
	CatchUpWindow time.Duration // 0: none
	CatchUpLimit  int
	Guarantee     Guarantee
	StartDeadline time.Duration

	// Selector has the node labels that an executor must have to run the job.
	Selector map[string]string
	// Preference has those by which executors come first that have them all.
	Preference map[string]string
	// Resources are what an executor must have to spare for each run, or shard.
	Resources Resources

	Timeout   time.Duration
	KillGrace time.Duration

	// Checkpoint shapes what runs save; nil: as its zero value.
	Checkpoint *CheckpointPolicy
	// Drain is what becomes of a run whose executor shuts down.
	Drain Drain
	// StoreOutage is what becomes of slots that come while the store cannot be reached.
	StoreOutage StoreOutage
	// Shards splits each run; nil: a run is one piece of work.
	Shards *Shards

	// Retry is nil for a job whose attempts are not made again.
	Retry *Retry
	// RunTimeout bounds a run over all its attempts, QueueTimeout how long one waits
	// for others; 0: nothing does.
	RunTimeout, QueueTimeout time.Duration
	// DeadLetter is nil for a job whose runs leave no dead letters.
	DeadLetter *DeadLetterPolicy

	// Limits bound the job's runs together with those of other jobs.
	Limits []Limit
	// Priority and Weight say how its runs are taken when they wait for room; a Weight
	// of 0 means DefaultWeight.
	Priority Priority
	Weight   int
	// CircuitBreaker is nil for a job whose runs start however many failed.
	CircuitBreaker *CircuitBreaker
	// Hooks is nil for a job of which nothing follows a run's verdict.
	Hooks *Hooks
	// After has other jobs' ends make runs; nil: none do.
	After *After
	// KeepResult has all runs leave results, not only those that were submitted.
	KeepResult bool

	// PauseAfterFailures is how many runs in a row may fail or time out before
	// the job is paused; 0: any number.
	PauseAfterFailures int

	// Retention is for how long past runs are kept.
	Retention Retention

	// Exactly one target is set.
	Command *Command
	HTTP    *HTTP
	NoOp    bool
}

// Command is a program to run on the executor.
type Command struct {
	// Argv is the program and its arguments; the program is looked up in PATH.
	Argv []string
	// Shell is a script for /bin/sh -c. Exactly one of Argv and Shell is set.
	Shell string
	// Env is added to the executor's allowed environment.
	Env map[string]string
	// Dir is the working directory; empty means the executor's.
	Dir string
}

// HTTP is a request to make.
type HTTP struct {
	Method string // default POST
	URL    string
	Header map[string]string
	Body   []byte
	// ExpectedCodes are the status codes that mean success; none means 200–299.
	ExpectedCodes []int
}

// CatchUp is what happens to slots that fell due while nothing could plan them.
type CatchUp uint8

// Catch-up policies.
const (
	// CatchUpLatest runs the latest of them, once. The default.
	CatchUpLatest CatchUp = iota
	// CatchUpNone runs none.
	CatchUpNone
	// CatchUpAll runs the newest CatchUpLimit of them, one after another.
	CatchUpAll
)

// MissingTime is what becomes of a local time that the zone's clock leaves out.
type MissingTime uint8

// Policies for local times that are left out.
const (
	// MissingShift runs it at the first instant after the gap. The default.
	MissingShift MissingTime = iota
	// MissingSkip gives that instant the verdict skipped:dst.
	MissingSkip
)

// RepeatedTime is in which pass a local time runs that occurs twice.
type RepeatedTime uint8

// Policies for local times that occur twice.
const (
	// RepeatedFirst runs it the first time only. The default.
	RepeatedFirst RepeatedTime = iota
	// RepeatedLast runs it the second time only.
	RepeatedLast
	// RepeatedBoth runs it both times.
	RepeatedBoth
)

// Guarantee is what a lost attempt means for its run.
type Guarantee uint8

// Start guarantees.
const (
	// AtLeastOnce starts a run whose executor was lost again. The default.
	AtLeastOnce Guarantee = iota
	// AtMostOnce gives it the verdict lost.
	AtMostOnce
)

// Defaults of a JobSpec.
const (
	DefaultTimeZone      = "UTC"
	DefaultStartDeadline = 10 * time.Minute
	DefaultKillGrace     = 10 * time.Second
	DefaultHTTPTimeout   = time.Minute
	DefaultHTTPMethod    = "POST"
	DefaultCatchUpLimit  = 100
)

// WithDefaults fills every unset field with its default. A command without a
// timeout has none.
func (s JobSpec) WithDefaults() JobSpec {
	if s.TimeZone == "" {
		s.TimeZone = DefaultTimeZone
	}
	if s.StartDeadline == 0 {
		s.StartDeadline = DefaultStartDeadline
	}
	if s.KillGrace == 0 {
		s.KillGrace = DefaultKillGrace
	}
	if s.CatchUpLimit == 0 {
		s.CatchUpLimit = DefaultCatchUpLimit
	}
	if s.Weight == 0 {
		s.Weight = DefaultWeight
	}
	if s.HTTP != nil {
		h := *s.HTTP
		if h.Method == "" {
			h.Method = DefaultHTTPMethod
		}
		s.HTTP = &h
		if s.Timeout == 0 {
			s.Timeout = DefaultHTTPTimeout
		}
	}
	return s
}

// PauseEnded tells whether the pause of a job has come to its end by now.
func (j *Job) PauseEnded(now time.Time) bool {
	return j.Paused && !j.PausedUntil.IsZero() && !now.Before(j.PausedUntil)
}

// Leaderd is who makes the versions that nobody asked for: where a pause ends by
// itself, or failures pause a job.
const Leaderd = "leaderd"

// JobVersion is one version of a job: who made it, when, why, and its spec.
type JobVersion struct {
	Job    Job
	Change Change
	Actor  string
	Reason string
	Time   time.Time
}

// Change is what made a version.
type Change uint8

// Changes.
const (
	ChangeCreate Change = iota + 1
	ChangeUpdate
	ChangePause
	ChangeResume
	ChangeDelete
	// ChangeCalendar: a calendar that the job names was changed.
	ChangeCalendar
)

// String is the change's name in records and answers.
func (c Change) String() string {
	switch c {
	case ChangeCreate:
		return "create"
	case ChangeUpdate:
		return "update"
	case ChangePause:
		return "pause"
	case ChangeResume:
		return "resume"
	case ChangeDelete:
		return "delete"
	case ChangeCalendar:
		return "calendar"
	}
	return fmt.Sprintf("change(%d)", uint8(c))
}

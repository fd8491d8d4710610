package planner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leaderd/leaderd/state"
)

// Store is what the planner needs of the store. Writes that name a term fail
// with an error for which Config.TermLost answers true when it is over.
type Store interface {
	GetWatermark(ctx context.Context) (state.Watermark, error)
	PutWatermark(ctx context.Context, term state.Term, w state.Watermark) error
	GetClosed(ctx context.Context) (state.Closed, error)
	// LastChange is the revision of the last change of any job as of now, 0 where
	// none is known.
	LastChange(ctx context.Context) (int64, error)
	CloseTimeline(ctx context.Context, term state.Term, instant time.Time) (state.Closed, error)
	Decide(ctx context.Context, term state.Term, rec state.Record, exclusive bool, pending int64) (bool, error)
	DecideRange(ctx context.Context, term state.Term, rec state.Record, closed int64) (bool, error)
	// DecideVersion is Decide while the job is at a revision, or with state.NoJob
	// does not exist; else the error is state.ErrJobChanged.
	DecideVersion(ctx context.Context, term state.Term, rec state.Record, exclusive bool, pending, job int64) (bool, error)
	// CheckGate answers an error that wraps state.ErrUnreadable where the record
	// at the job's gate cannot be read.
	CheckGate(ctx context.Context, id state.JobID) error
	ListDecided(ctx context.Context, id state.JobID, first, last time.Time) (state.Decided, error)
	// OlderVersions are a page of a job's versions before a generation, its deletions
	// included, the newest first. next is the generation before which the next page
	// begins, 0 where there is none.
	OlderVersions(ctx context.Context, id state.JobID, before int64) (page []state.JobVersion, next int64, err error)
	// ListDeleted are the deletions of jobs that no leader has dealt with.
	ListDeleted(ctx context.Context) ([]state.JobVersion, error)
	ForgetDeleted(ctx context.Context, term state.Term, v *state.JobVersion) error
	ListLive(ctx context.Context, want func(*state.Live) bool) ([]state.Live, error)
	// EndPause resumes a job whose pause has come to its end; one that has another
	// revision is state.ErrJobChanged.
	EndPause(ctx context.Context, term state.Term, id state.JobID, revision int64, now time.Time) error
	// FailuresInARow tells whether the newest n runs of a job's version that ended by
	// themselves all failed, and the last of them.
	FailuresInARow(ctx context.Context, id state.JobID, generation int64, n int) (last state.RunID, all bool, err error)
	// PauseFailing pauses a job; one that has another revision is state.ErrJobChanged.
	PauseFailing(ctx context.Context, term state.Term, id state.JobID, revision int64, reason string, now time.Time) error
	// LiveOf are the live records of one run, none if it has a verdict.
	LiveOf(ctx context.Context, id state.JobID, run state.RunID) ([]state.Live, error)
	// FeedBackfill moves a backfill on: it counts the runs that have ended and makes
	// more, so that at most so many are under way, which are answered.
	FeedBackfill(ctx context.Context, term state.Term, id state.JobID, b state.BackfillID, most int, now time.Time) (state.Backfill, []state.RunID, error)
	// RunShards are the header and the shards of a run that is split.
	RunShards(ctx context.Context, id state.JobID, run state.RunID) (state.RunShards, error)
	// Conclude gives such a run its verdict, if its shards are as they were seen.
	Conclude(ctx context.Context, term state.Term, header state.Live, rec state.Record, seen int64) (bool, error)
	MarkLost(ctx context.Context, term state.Term, l state.Live, now time.Time) (state.Live, bool, error)
	// GiveUp relies on the job as DecideVersion does; 0 relies on nothing.
	TrimDead(ctx context.Context, term state.Term, id state.JobID, keep int) (dropped int, err error)
	GiveUp(
		ctx context.Context, term state.Term, l state.Live, to state.RunState, reason string, now time.Time, job int64,
	) (bool, error)
	// SweepPending deletes the pending key of a run that has another record; gone is
	// false where it has none.
	SweepPending(ctx context.Context, term state.Term, p *state.Pending) (gone bool, err error)
	// FindLive answers the live records of a run; over is true where it is over.
	FindLive(ctx context.Context, id state.JobID, run state.RunID) (live []state.Live, over bool, err error)
	// CancelWaiting is GiveUp for a run that is to end.
	CancelWaiting(ctx context.Context, term state.Term, l state.Live, c *state.Cancel, now time.Time) (bool, error)
	DropCancel(ctx context.Context, term state.Term, c *state.Cancel) error
	// AdvanceChain makes the runs of a job that are due after the ends of others.
	AdvanceChain(ctx context.Context, term state.Term, a state.Advance) (state.Advanced, error)
	// NextHistory is the first job with history or versions at from or behind it; next
	// is where to go on.
	NextHistory(ctx context.Context, from string) (id state.JobID, next string, ok bool, err error)
	// SweepJob is one bounded step of a job's retention.
	SweepJob(ctx context.Context, term state.Term, sw state.Sweep) (state.Swept, error)
	// SweepRates forgets the rates of limits that have been full since before an instant.
	SweepRates(ctx context.Context, term state.Term, before time.Time) error
	// RetireJob deletes a job that a submission made, if it has no run any more, live or
	// past.
	RetireJob(ctx context.Context, term state.Term, id state.JobID, now time.Time) (done bool, err error)
	// SweepCircuits forgets the circuits that no job names any more.
	SweepCircuits(ctx context.Context, term state.Term) error
	// SweepPlaces gives places at gates and limits back whose runs have no record.
	SweepPlaces(ctx context.Context, term state.Term) (freed int, err error)
	// ForgetJob removes what is kept of a job that was deleted before an instant and
	// has no history any more.
	ForgetJob(ctx context.Context, term state.Term, id state.JobID, before time.Time) (done bool, err error)
}

// Sources are what the planner follows. All functions but Fresh call each at once with
// everything, and after every change, until ctx ends; then they answer nil.
type Sources struct {
	Catalog *Catalog
	// Fresh blocks until Catalog has all that was stored up to a revision. A
	// leader whose watch is late would pass slots that it does not know of.
	Fresh func(ctx context.Context, revision int64) error
	// Nodes are all registered nodes.
	Nodes func(ctx context.Context, each func([]state.Node)) error
	// Pending are all pending runs, or, after the first call, those that are
	// new or were changed, and with their job, run and revision those that are gone.
	Pending func(ctx context.Context, each func(are, gone []state.Pending)) error
	// Backfills are all backfills, in the same way. nil: there are none.
	Backfills func(ctx context.Context, each func([]state.Backfill)) error
	// Cancels are all wishes that runs end, or, after the first call, the new ones.
	Cancels func(ctx context.Context, each func([]state.Cancel)) error
	// Space tells how full the store is. nil: it is not known.
	Space func(ctx context.Context) (state.Space, error)
	// Reclaim makes room of what was removed in the store, if it is leaderd's own to
	// do so. nil: it is not.
	Reclaim func(ctx context.Context) error
}

// Planner leads, one term at a time, and serves the executors' sessions.
type Planner struct {
	cfg     Config
	store   Store
	sources Sources
	metrics *metrics

	mu   sync.Mutex
	term *term // that sessions go to; nil while this node does not lead
	// trouble is why the newest term ended before it planned, at troubled.
	trouble  error
	troubled time.Time
}

// New makes a Planner; it starts nothing.
func New(store Store, sources Sources, cfg Config) (*Planner, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("planner: %w", err)
	}
	return &Planner{cfg: cfg, store: store, sources: sources, metrics: newMetrics(cfg.Registerer)}, nil
}

// Run leads for one term: it blocks until ctx ends or leading fails. Only one
// call may run at a time. When it returns, nothing of the term is left.
func (p *Planner) Run(ctx context.Context, leadership state.Term) error {
	t := newTerm(p, leadership)
	p.setTerm(t)
	defer p.setTerm(nil)
	err := t.run(ctx)
	if err != nil && !errors.Is(err, state.ErrTermLost) {
		p.setTrouble(err)
	}
	return err
}

// troubleLasts is how long Trouble tells of a term that came to nothing.
const troubleLasts = time.Minute

// Trouble answers why this node, the last time that it was to lead, did not; nil
// if it did, or if that was more than a minute ago.
func (p *Planner) Trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trouble == nil || time.Since(p.troubled) > troubleLasts {
		return nil
	}
	return fmt.Errorf("led in vain %s ago: %w", time.Since(p.troubled).Round(time.Second), p.trouble)
}

func (p *Planner) setTrouble(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble, p.troubled = err, time.Now()
}

// Beat answers when the loop of the running term last advanced; zero while this
// node does not lead. It advances at least every second.
func (p *Planner) Beat() time.Time {
	if t := p.current(); t != nil {
		return time.UnixMicro(t.beat.Load())
	}
	return time.Time{}
}

// now is this node's wall clock. It has no monotonic part, by which a difference
// of two readings would not show that the clock was set, or that the machine
// slept, in between.
func (p *Planner) now() time.Time { return p.cfg.Wall().Round(0) }

func (p *Planner) setTerm(t *term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term = t
}

func (p *Planner) current() *term {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term
}

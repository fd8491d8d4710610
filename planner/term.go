package planner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leaderd/leaderd/internal/minheap"
	"github.com/leaderd/leaderd/planner/placement"
	"github.com/leaderd/leaderd/state"
)

const (
	// tick is how often the loop plans, checks and sends without an event.
	tick = 50 * time.Millisecond
	// recheck is how far before the watermark a successor looks again at jobs
	// that were changed, where the watermark does not tell which it speaks for.
	recheck = 15 * time.Second
)

// errStale: the jobs as this node knows them are older than its term.
var errStale = errors.New("the jobs' watch was behind")

// errTermOver: the term ended while something waited for its loop.
var errTermOver = errors.New("term is over")

// term is one leadership. Its loop goroutine owns everything but the channels
// and atomics; others hand it functions to run (see post).
type term struct {
	*Planner
	leadership state.Term

	posted chan func()
	over   chan struct{} // closed when the loop has ended
	beat   atomic.Int64

	jobs     map[state.JobID]*timed
	timeline timeline
	// planned is the instant up to which the timeline has been popped.
	planned time.Time

	open map[openKey]*entry
	// numbered is the number of the newest job.
	numbered uint64
	early    int                  // how many of open are early
	begun    int                  // how many are of shards of runs that are begun
	byDue    minheap.Heap[*entry] // for the watermark; drops what is done lazily
	checks   minheap.Heap[*entry] // by when to look at an entry again

	sessions map[string]*session // by node
	table    *placement.Table    // of the nodes that attend
	balancer *placement.Balancer
	moved    bool                  // executors came or went since the last placeAnew
	nodes    map[string]state.Node // registered, by name
	gotNodes bool

	// floor is where the watermark is: it never goes back. spoken is the revision of
	// the jobs that it speaks for: while a slot behind it that a change made due
	// later is undecided, the change is not among them, and a successor looks at the
	// job again.
	floor  time.Time
	spoken int64
	// known is the revision up to which changes of jobs have been taken into
	// account.
	known int64
	// durable is the newest watermark that is stored.
	durable atomic.Pointer[state.Watermark]
	// replays are jobs whose slots are being decided apart from the timeline;
	// they hold the watermark where it was.
	replays  int
	replayed time.Time
	// closed is the closed part of the timeline as this term knows it, closing
	// how far that is being moved by closings that are under way.
	closed   state.Closed
	closing  time.Time
	closings int
	// closedLost is set where the stored end of the closed part cannot be read:
	// what it was is not known here.
	closedLost bool
	watching   bool // see watchClosed
	// afterClosing waits for the last of them.
	afterClosing []func()
	// catchUps are the open entries of caught-up slots. While there are any the
	// timeline is not closed again, which would take them back.
	catchUps int
	// asked are the open entries of runs that were asked for.
	asked int
	// queues are the jobs with runs that wait for others, queued how many those
	// are.
	queues queues
	queued int
	// lines are what waits at limits, tokens those of rates, by when they have the next.
	lines  lines
	tokens minheap.Heap[*line]
	// cancels are the wishes that runs end which are not known to be over.
	cancels map[cancelKey]*state.Cancel
	// musters are the runs that are split, begun and not known to be over; mustered is
	// when they were looked at last, and spread where a job's shards go.
	musters  map[cancelKey]*muster
	mustered time.Time
	spread   spread

	queue   []func(context.Context) func() // tasks that wait for a place
	running int
	group   *errgroup.Group
	ctx     context.Context //nolint:containedctx // the term's own lifetime, for its tasks

	hedges   hedgeBudget
	lateness lateness
	marks    chan state.Watermark // newest only
	lastMark time.Time
	// lastLate is what late found last, lateAgain when it looks again.
	lastLate  state.Late
	lateAgain time.Time
	lastSeen  time.Time // wall clock of the loop's last turn

	looking, lookAgain bool // see lookForWaiting

	gates gates
	// settled is what the sweeps of history rely on; nil before the first watermark of
	// the term is stored.
	settled atomic.Pointer[settled]

	delays delays

	// pauses are the jobs that were paused until an instant, by that; those that
	// were changed since are dropped late.
	pauses minheap.Heap[*Job]

	failures failures

	chains chains

	backfills backfills

	unclaimed unclaimed
}

func newTerm(p *Planner, leadership state.Term) *term {
	return &term{
		Planner:    p,
		leadership: leadership,
		posted:     make(chan func(), 1024),
		over:       make(chan struct{}),
		jobs:       make(map[state.JobID]*timed),
		open:       make(map[openKey]*entry),
		sessions:   make(map[string]*session),
		nodes:      make(map[string]state.Node),
		marks:      make(chan state.Watermark, 1),
		queues:     make(queues),
		cancels:    make(map[cancelKey]*state.Cancel),
		musters:    make(map[cancelKey]*muster),
	}
}

// run leads until ctx ends (then the error is nil) or something fails.
func (t *term) run(ctx context.Context) error {
	begun := time.Now()
	t.beat.Store(begun.UnixMicro())
	select {
	case <-t.sources.Catalog.Ready():
	case <-ctx.Done():
		close(t.over)
		return nil
	}
	if err := t.rebalance(); err != nil {
		close(t.over)
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	t.group, t.ctx = group, gctx
	var err error
	if t.known, err = t.fresh(gctx); err != nil {
		close(t.over)
		return t.inVain(ctx, err)
	}
	jobs, changes := t.sources.Catalog.follow()
	defer changes.close()
	for _, j := range jobs {
		t.known = max(t.known, j.Revision)
	}
	mark, gone, err := t.begin(gctx)
	if err != nil {
		close(t.over)
		return t.inVain(ctx, err)
	}
	t.goSafely(func() error { return t.loop(gctx, jobs, gone, changes, mark, begun) })
	t.goSafely(func() error { return t.writeMarks(gctx) })
	t.goSafely(func() error {
		return t.sources.Nodes(gctx, func(ns []state.Node) { t.post(gctx, func() { t.setNodes(ns) }) })
	})
	t.goSafely(func() error {
		return t.sources.Pending(gctx, func(are, gone []state.Pending) {
			t.post(gctx, func() {
				t.addPending(are)
				t.forgetDelayed(gone)
			})
		})
	})
	if t.sources.Backfills != nil {
		group.Go(func() error {
			return t.sources.Backfills(gctx, func(bs []state.Backfill) { t.post(gctx, func() { t.noteBackfills(bs) }) })
		})
	}
	group.Go(func() error {
		return t.sources.Cancels(gctx, func(cs []state.Cancel) { t.post(gctx, func() { t.addCancels(cs) }) })
	})
	t.goSafely(func() error { return t.retain(gctx) })
	err = group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// inVain is how a term ends that could not take over: with nothing to be said if it
// was ended from outside.
func (t *term) inVain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended
	}
	return fmt.Errorf("take over: %w", err)
}

// fresh waits until all changes of jobs are known that were stored before the term
// began, and answers the revision up to which they are. The term's number does not
// tell: it is that at which its candidate began to wait for its turn, which may be
// days ago. A node whose watch is so late that this takes long had better not lead.
func (t *term) fresh(ctx context.Context) (known int64, err error) {
	limit := t.cfg.Horizon / 3
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w for %s", errStale, limit))
	defer cancel()
	changed, err := t.store.LastChange(ctx)
	if err != nil {
		return 0, err
	}
	known = max(changed, t.leadership.Number)
	return known, t.sources.Fresh(ctx, known)
}

// markText is a watermark for the log: none before the first leader's first one.
func markText(mark state.Watermark) string {
	if mark.Instant.IsZero() {
		return "none"
	}
	return mark.Instant.Format(time.RFC3339Nano)
}

// loop is the one goroutine that owns the term.
func (t *term) loop(
	ctx context.Context, jobs []*Job, gone []state.JobVersion, changes *Changes, mark state.Watermark, begun time.Time,
) error {
	defer close(t.over)
	defer t.closeSessions()
	now := t.now()
	t.takeOver(jobs, gone, mark, now)
	t.setTrouble(nil)
	t.metrics.takeover.Set(time.Since(begun).Seconds())
	t.cfg.Logger.Info("planning", "term", t.leadership.Number, "jobs", len(jobs), "watermark", markText(mark),
		"took", time.Since(begun))

	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	token := time.NewTimer(tick)
	defer token.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case do := <-t.posted:
			do()
			t.drainPosted()
		case <-changes.wake:
			for _, c := range changes.take() {
				t.change(c, t.now())
				t.known = max(t.known, c.revision)
			}
		case <-ticker.C:
		case <-token.C:
		}
		t.turn(t.now())
		if wait, ok := t.untilToken(); ok {
			token.Reset(wait)
		}
	}
}

// drainPosted runs what else has been posted, so that a turn serves many, for no
// longer than a tick.
func (t *term) drainPosted() {
	begun := time.Now()
	for range cap(t.posted) {
		if t.ctx.Err() != nil || time.Since(begun) > tick {
			return
		}
		select {
		case do := <-t.posted:
			do()
		default:
			return
		}
	}
}

// turn does what is due at now: it plans ahead, looks after what is late, sends
// and moves the watermark.
func (t *term) turn(now time.Time) {
	t.beat.Store(time.Now().UnixMicro())
	if gap := now.Sub(t.lastSeen); !t.lastSeen.IsZero() && gap > t.cfg.Horizon && now.After(t.planned) {
		// The clock was set forward, or the process slept: nobody planned.
		t.overslept(now.Truncate(time.Second))
	}
	t.lastSeen = now
	if t.moved {
		t.placeAnew()
	}
	t.endPauses(now)
	t.auditFailures(now)
	t.feedBackfills(now)
	t.auditChains(now)
	t.openDelayed(now)
	t.musterAll(now)
	t.tendLines(now)
	t.plan(now)
	t.check(now)
	for _, s := range t.sessions {
		t.flush(s)
	}
	if now.Sub(t.lastMark) >= time.Second || now.Before(t.lastMark) {
		t.mark(now)
	}
}

func jobKey(id state.JobID) string { return id.Namespace + "/" + id.Name }

package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leaderd/leaderd/planner/placement"
	"github.com/leaderd/leaderd/state"
)

const (
	// tick is how often the loop plans, checks and sends without an event.
	tick = 50 * time.Millisecond
	// maxTasks is how many store operations of a term are under way at a time.
	maxTasks = 128
	// closedBehind is how far the closed part of the timeline stays behind the
	// watermark: what is older may be swept.
	closedBehind = 10 * time.Minute
	// recheck is how far before the watermark a successor looks again at jobs
	// that were changed: a change takes effect before it is stored.
	recheck = time.Minute
)

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

	open   map[entryKey]*entry
	byDue  minheap[*entry] // for the watermark; drops what is done lazily
	checks minheap[*entry] // by when to look at an entry again

	sessions map[string]*session // by node
	table    *placement.Table    // of the nodes that attend
	balancer *placement.Balancer
	nodes    map[string]state.Node // registered, by name
	gotNodes bool

	// replays are jobs whose outage is being worked up; they hold the watermark
	// where it was.
	replays  int
	replayed time.Time
	// catchUps are the open entries of caught-up slots. While there are any the
	// timeline is not closed again, which would take them back.
	catchUps int

	queue   []func(context.Context) func() // tasks that wait for a place
	running int
	group   *errgroup.Group
	ctx     context.Context //nolint:containedctx // the term's own lifetime, for its tasks

	hedges   hedgeBudget
	lateness lateness
	late     atomic.Pointer[state.Lateness]
	marks    chan state.Watermark // newest only
	lastMark time.Time
	lastSeen time.Time // wall clock of the loop's last turn
	closed   time.Time
}

func newTerm(p *Planner, leadership state.Term) *term {
	return &term{
		Planner:    p,
		leadership: leadership,
		posted:     make(chan func(), 1024),
		over:       make(chan struct{}),
		jobs:       make(map[state.JobID]*timed),
		open:       make(map[entryKey]*entry),
		sessions:   make(map[string]*session),
		nodes:      make(map[string]state.Node),
		marks:      make(chan state.Watermark, 1),
	}
}

// run leads until ctx ends (then the error is nil) or something fails.
func (t *term) run(ctx context.Context) error {
	begun := time.Now()
	select {
	case <-t.sources.Catalog.Ready():
	case <-ctx.Done():
		return nil
	}
	if err := t.rebalance(); err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	t.group, t.ctx = group, gctx
	mark, err := t.store.GetWatermark(gctx)
	if err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	group.Go(func() error { return t.loop(gctx, mark, begun) })
	group.Go(func() error { return t.writeMarks(gctx) })
	group.Go(func() error {
		return t.sources.Nodes(gctx, func(ns []state.Node) { t.post(gctx, func() { t.setNodes(ns) }) })
	})
	group.Go(func() error {
		return t.sources.Pending(gctx, func(ps []state.Pending) { t.post(gctx, func() { t.addPending(ps) }) })
	})
	err = group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// post hands the loop something to do. It answers false when the term is over.
func (t *term) post(ctx context.Context, do func()) bool {
	select {
	case t.posted <- do:
		return true
	case <-t.over:
	case <-ctx.Done():
	}
	return false
}

// task runs a store operation beside the loop; what it answers is run in the
// loop. Tasks beyond maxTasks wait their turn.
func (t *term) task(do func(context.Context) func()) {
	t.queue = append(t.queue, do)
	t.startTasks()
}

func (t *term) startTasks() {
	for t.running < maxTasks && len(t.queue) > 0 {
		do := t.queue[0]
		t.queue[0] = nil
		t.queue = t.queue[1:]
		t.running++
		t.group.Go(func() error {
			then := do(t.ctx)
			t.post(t.ctx, func() {
				t.running--
				then()
				t.startTasks()
			})
			return nil
		})
	}
}

// fail ends the term.
func (t *term) fail(err error) { t.group.Go(func() error { return err }) }

// loop is the one goroutine that owns the term.
func (t *term) loop(ctx context.Context, mark state.Watermark, begun time.Time) error {
	defer close(t.over)
	defer t.closeSessions()
	jobs, changes := t.sources.Catalog.follow()
	defer changes.close()
	now := time.Now()
	t.takeOver(jobs, mark, now)
	t.metrics.takeover.Set(time.Since(begun).Seconds())
	t.cfg.Logger.Info("planning", "term", t.leadership.Number, "jobs", len(jobs), "watermark", mark.Instant,
		"took", time.Since(begun))

	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case do := <-t.posted:
			do()
			t.drainPosted()
		case <-changes.wake:
			for _, c := range changes.take() {
				t.change(c, time.Now())
			}
		case <-ticker.C:
		}
		t.turn(time.Now())
	}
}

// drainPosted runs what else has been posted, so that a turn serves many.
func (t *term) drainPosted() {
	for range cap(t.posted) {
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
	t.beat.Store(now.UnixMicro())
	if gap := now.Sub(t.lastSeen); !t.lastSeen.IsZero() && gap > t.cfg.Horizon && now.After(t.planned) {
		// The clock was set forward, or the process slept: nobody planned.
		t.outage(t.planned, now)
	}
	t.lastSeen = now
	t.plan(now)
	t.check(now)
	for _, s := range t.sessions {
		t.flush(s)
	}
	if now.Sub(t.lastMark) >= time.Second || now.Before(t.lastMark) {
		t.mark(now)
	}
}

// plan pops what is due within the horizon off the timeline, as far as the
// bound on open entries allows.
func (t *term) plan(now time.Time) {
	until := now.Add(t.cfg.Horizon)
	for len(t.open) < t.cfg.MaxOpen {
		job, slot, ok := t.timeline.pop(until)
		if !ok {
			t.planned = later(t.planned, until)
			t.metrics.horizon.Set(t.cfg.Horizon.Seconds())
			t.metrics.open.Set(float64(len(t.open)))
			return
		}
		t.planned = later(t.planned, slot.Add(-time.Nanosecond))
		t.add(&entry{entryKey: entryKey{job: job, due: slot.UnixMicro()}, version: job.job}, now)
	}
	t.metrics.horizon.Set(max(0, t.planned.Sub(now).Seconds()))
	t.metrics.open.Set(float64(len(t.open)))
}

// add opens an entry and plans it onto its executor.
func (t *term) add(e *entry, now time.Time) {
	if _, dup := t.open[e.entryKey]; dup {
		return
	}
	t.open[e.entryKey] = e
	e.at = len(e.job.open)
	e.job.open = append(e.job.open, e)
	if e.slot() {
		t.byDue.push(e.due, e)
	}
	if e.closed != 0 {
		t.catchUps++
	}
	if e.waiting != nil && e.waiting.NextTry.After(now) {
		t.checks.push(e.waiting.NextTry.UnixMicro(), e)
		return
	}
	t.place(e)
	t.checks.push(max(e.due, now.UnixMicro())+t.cfg.HedgeDelay.Microseconds(), e)
}

// close forgets an entry: it has a record, or is void.
func (t *term) close(e *entry) {
	if e.done {
		return
	}
	e.done = true
	e.holders = nil
	if e.closed != 0 {
		t.catchUps--
	}
	delete(t.open, e.entryKey)
	siblings := e.job.open
	last := len(siblings) - 1
	siblings[e.at] = siblings[last]
	siblings[e.at].at = e.at
	siblings[last] = nil
	e.job.open = siblings[:last]
}

// change takes a job's newest version into account.
func (t *term) change(c change, now time.Time) {
	was := t.jobs[c.id]
	if c.job != nil && was != nil && was.job.Revision >= c.job.Revision {
		return
	}
	switch {
	case was == nil && c.job == nil:
		return
	case was == nil:
		was = newTimed(c.job)
		t.jobs[c.id] = was
	default:
		t.supersede(was, c.job, now)
	}
	if c.job == nil {
		t.timeline.remove(was)
		t.balancer.Release(jobKey(c.id))
		delete(t.jobs, c.id)
		return
	}
	was.job, was.last = c.job, never
	t.balancer.Release(jobKey(c.id)) // its selector may be another
	if c.job.Broken != nil {
		t.cfg.Logger.Warn("job is quarantined: it is due never until it is mended", "job", c.id, "err", c.job.Broken)
	}
	t.timeline.put(was, c.job.Effective)
}

// supersede takes back what was planned of a job's older version. Slots that
// were due before the change get a verdict; to is nil for a deleted job.
func (t *term) supersede(was *timed, to *Job, now time.Time) {
	for _, s := range t.sessions {
		s.forget(was.job)
	}
	effective, verdict, reason := now, state.StateSkipped, state.ReasonDeleted
	if to != nil {
		effective, reason = to.Effective, state.ReasonSuperseded
		if to.Paused {
			reason = state.ReasonPaused
		}
	}
	for _, e := range slices.Clone(was.open) {
		switch {
		case e.waiting != nil || e.pending != nil:
			// A run that exists goes on with the newest version, or ends with
			// its job.
			if to == nil {
				t.decide(e, state.StateCancelled, state.ReasonDeleted, now)
			} else {
				e.version, e.holders = to, nil
				if !to.Paused {
					t.place(e)
				}
			}
		case micros(e.due).After(effective):
			t.close(e)
		default:
			t.decide(e, verdict, reason, now)
		}
	}
}

// mark sends the watermark to its writer, and closes the timeline behind it.
func (t *term) mark(now time.Time) {
	instant := now
	if t.planned.Before(now) {
		instant = t.planned
	}
	for t.byDue.len() > 0 {
		due, e := t.byDue.top()
		if e.done {
			t.byDue.pop()
			continue
		}
		if before := micros(due).Add(-time.Second); before.Before(instant) {
			instant = before
		}
		break
	}
	if t.replays > 0 && t.replayed.Before(instant) {
		instant = t.replayed
	}
	t.lastMark = now
	late := t.lateness.summary(now)
	select {
	case <-t.marks: // an older one that was not written yet
	default:
	}
	t.marks <- state.Watermark{Instant: instant, Written: now, Lateness: late}
	t.metrics.watermarkLag.Set(now.Sub(instant).Seconds())

	if behind := instant.Add(-closedBehind); behind.Sub(t.closed) >= time.Minute && t.replays == 0 && t.catchUps == 0 {
		t.closed = behind
		t.task(func(ctx context.Context) func() {
			_, err := t.store.CloseTimeline(ctx, t.leadership, behind)
			return func() { t.checkErr("close timeline", err) }
		})
	}
}

// writeMarks writes the watermark, the newest there is, until ctx ends.
func (t *term) writeMarks(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case w := <-t.marks:
			err := t.store.PutWatermark(ctx, t.leadership, w)
			if errors.Is(err, state.ErrTermLost) {
				return err
			}
			if err != nil && ctx.Err() == nil {
				t.cfg.Logger.Warn("watermark could not be written; the next one follows in a second", "err", err)
			}
		}
	}
}

// checkErr ends the term where err says that it is over, and logs other errors.
func (t *term) checkErr(what string, err error) {
	switch {
	case err == nil || t.ctx.Err() != nil:
	case errors.Is(err, state.ErrTermLost):
		t.fail(err)
	default:
		t.cfg.Logger.Warn("store operation is tried again", "what", what, "err", err)
	}
}

func micros(us int64) time.Time { return time.UnixMicro(us).UTC() }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func jobKey(id state.JobID) string { return id.Namespace + "/" + id.Name }

package unclaimed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/leaderd/leaderd/executor/output"
	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

// tick is how often the wall clock is looked at, at least.
const tick = time.Second

// Runner does the work of an attempt. *runner.Runner is one.
type Runner interface {
	Run(ctx context.Context, t runner.Task, out io.Writer) runner.Outcome
}

// Config shapes Runs. All but Output and Metrics are required.
type Config struct {
	Runner Runner
	// Capacity is how many may be at work at a time.
	Capacity int
	// Wall is the wall clock by which slots are due.
	Wall func() time.Time
	// Output keeps what the runs print; nil: it is dropped.
	Output *output.Ring
	Logger hclog.Logger
	// Metrics is where the metrics are registered. Default: nowhere.
	Metrics prometheus.Registerer
}

// Key names a run.
type Key struct {
	Job state.JobID
	Run state.RunID
}

// Start is a run that may begin without a claim.
type Start struct {
	Key
	// Due is when it may begin, Until when it is too late.
	Due, Until time.Time
	// Task is what it runs. Its Slot is set; its Token, Keeper and Kill are not.
	Task runner.Task
}

// End is how a run ended.
type End struct {
	State     state.RunState  `json:"state"`
	Started   time.Time       `json:"started"` // zero: never
	Ended     time.Time       `json:"ended"`
	ExitCode  *int            `json:"exitCode,omitempty"`
	Error     string          `json:"error,omitempty"`
	Crashed   bool            `json:"crashed,omitempty"`
	Directive state.Directive `json:"directive"`
	Result    []byte          `json:"result,omitempty"`
	Unkept    string          `json:"unkept,omitempty"`
	Tail      []byte          `json:"tail,omitempty"`
	Bytes     int64           `json:"bytes,omitempty"`
}

// Outcome is the end as a runner would have told it.
func (e *End) Outcome() runner.Outcome {
	o := runner.Outcome{
		State: e.State, Error: e.Error, Started: e.Started, Ended: e.Ended, Crashed: e.Crashed,
		Directive: e.Directive, Result: e.Result, Unkept: e.Unkept,
	}
	if e.ExitCode != nil {
		o.ExitCode, o.HasCode = *e.ExitCode, true
	}
	return o
}

// Run is one that has begun without a claim and is not recorded.
type Run struct {
	Key
	Due, Begun time.Time
	ended      chan struct{} // closed when end is set
	end        End
}

// Ended is closed when the run's end is known, and on disk if that took it.
func (r *Run) Ended() <-chan struct{} { return r.ended }

// End is how it ended, once Ended is closed.
func (r *Run) End() *End { return &r.end }

// Runs are the runs of a node that began without a claim. Its methods are safe for
// concurrent use and do not block, but for Close.
type Runs struct {
	cfg     Config
	disk    Disk
	results *prometheus.CounterVec
	room    chan struct{} // of Capacity: one for each at work

	work  context.Context //nolint:containedctx // of all that has begun
	stop  context.CancelCauseFunc
	kill  chan struct{}
	alive sync.WaitGroup

	mu     sync.Mutex
	runs   map[Key]*Run
	settle context.CancelFunc // ends the starts; nil: none are awaited
	closed bool
}

// Open reads from a disk what an earlier process has left: what that had not ended is
// interrupted.
func Open(disk Disk, cfg Config) (*Runs, error) {
	u := &Runs{
		cfg: cfg, disk: disk, room: make(chan struct{}, cfg.Capacity), kill: make(chan struct{}), runs: make(map[Key]*Run),
		results: promauto.With(cfg.Metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "leaderd_executor_unclaimed_total",
			Help: "Runs that began without a claim while the store could not be reached, by what became of them: begun; recorded as the run; noted as a double of a run that was decided otherwise; lost, since the run has no record of its own or the disk failed.",
		}, []string{"step"}),
	}
	u.work, u.stop = context.WithCancelCause(context.Background())
	facts, err := u.facts()
	if err != nil {
		return nil, fmt.Errorf("open runs without a claim: %w", err)
	}
	for _, f := range facts {
		r := &Run{Key: f.key(), Due: f.Due, Begun: f.Begun, ended: make(chan struct{})}
		if f.End == nil {
			f.End = &End{State: state.StateInterrupted, Started: f.Begun, Ended: cfg.Wall().UTC(), Error: "the node ended while it ran"}
		}
		r.end = *f.End
		close(r.ended)
		u.runs[r.Key] = r
	}
	return u, nil
}

// Find is the run of a key that began without a claim and is not recorded; nil: none.
func (u *Runs) Find(k Key) *Run {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.runs[k]
}

// All are the runs that are not recorded, the oldest first.
func (u *Runs) All() []*Run {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]*Run, 0, len(u.runs))
	for _, r := range u.runs {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *Run) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Run, b.Run)) })
	return all
}

// Adopt begins each of starts when it is due, until Settle.
func (u *Runs) Adopt(starts []Start) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || len(starts) == 0 {
		return
	}
	if u.settle != nil {
		u.settle()
	}
	var ctx context.Context
	ctx, u.settle = context.WithCancel(u.work)
	slices.SortStableFunc(starts, func(a, b Start) int { return a.Due.Compare(b.Due) })
	u.alive.Go(func() { u.await(ctx, starts) })
}

// Settle ends the starts: the node is registered again.
func (u *Runs) Settle() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.settle != nil {
		u.settle()
		u.settle = nil
	}
}

// await begins starts, in order.
func (u *Runs) await(ctx context.Context, starts []Start) {
	for i := range starts {
		s := &starts[i]
		for {
			left := s.Due.Sub(u.cfg.Wall())
			if left <= 0 {
				break
			}
			if !pause(ctx, min(left, tick)) {
				return
			}
		}
		select {
		case u.room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil || !u.begin(ctx, s) {
			<-u.room
		}
	}
}

// begin makes the start of a run durable, and then real, unless ctx has ended or it is
// too late.
func (u *Runs) begin(ctx context.Context, s *Start) bool {
	now := u.cfg.Wall().UTC()
	if now.After(s.Until) {
		return false
	}
	r := &Run{Key: s.Key, Due: s.Due.UTC(), Begun: now, ended: make(chan struct{})}
	f := &fact{Namespace: s.Job.Namespace, Job: s.Job.Name, Run: s.Run, Due: r.Due, Begun: now}
	u.mu.Lock()
	if u.closed || ctx.Err() != nil || u.runs[s.Key] != nil {
		u.mu.Unlock()
		return false
	}
	u.runs[s.Key] = r // found from now on, so that it is not claimed beside this
	u.mu.Unlock()
	if err := u.put(f); err != nil {
		u.cfg.Logger.Error("run does not begin without a claim: the disk does not hold it", "job", s.Job, "run", s.Run, "err", err)
		u.forget(r, "lost")
		// Whoever waits for it learns that it has not begun.
		r.end = End{State: state.StateInterrupted, Ended: now, Error: "it could not begin without a claim: " + err.Error()}
		close(r.ended)
		return false
	}
	u.results.WithLabelValues("begun").Inc()
	u.cfg.Logger.Warn("run begins without a claim, since the store cannot be reached; it may run elsewhere too",
		"job", s.Job, "run", s.Run, "late", now.Sub(r.Due).Round(time.Millisecond))
	u.alive.Go(func() { u.carry(r, f, s.Task) })
	return true
}

// carry does the work of a run, whatever becomes of it, and keeps its end.
func (u *Runs) carry(r *Run, f *fact, t runner.Task) {
	defer func() { <-u.room }()
	defer close(r.ended)
	r.end = u.perform(t)
	f.End = &r.end
	if err := u.put(f); err != nil {
		u.cfg.Logger.Error("end of a run without a claim is not on disk; if this process ends before it is recorded, it counts as interrupted",
			"job", r.Job, "run", r.Run, "err", err)
	}
}

func (u *Runs) perform(t runner.Task) (end End) {
	begun := u.cfg.Wall().UTC()
	var out *output.Writer
	defer func() {
		if p := recover(); p != nil {
			u.cfg.Logger.Error("a run crashed", "job", t.Job, "run", t.Run, "err", p, "stack", string(debug.Stack()))
			end = End{State: state.StateFailed, Error: fmt.Sprintf("panic: %v", p), Crashed: true, Started: begun, Ended: u.cfg.Wall().UTC()}
		}
		if out != nil {
			if err := out.Close(); err != nil {
				u.cfg.Logger.Warn("output of a run is not complete", "job", t.Job, "run", t.Run, "err", err)
			}
			end.Tail, end.Bytes = out.Tail(), out.Bytes()
		}
	}()
	t.Kill = u.kill
	var to io.Writer
	if u.cfg.Output != nil && !t.NoOp {
		w, err := u.cfg.Output.Create(output.Key{Job: t.Job, Run: t.Run, Attempt: t.Attempt})
		if err != nil {
			u.cfg.Logger.Warn("output of a run is not kept", "job", t.Job, "run", t.Run, "err", err)
		} else {
			out, to = w, w
		}
	}
	o := u.cfg.Runner.Run(u.work, t, to)
	end = End{
		State: o.State, Started: o.Started.UTC(), Ended: o.Ended.UTC(), Error: o.Error, Crashed: o.Crashed,
		Directive: o.Directive, Result: o.Result, Unkept: o.Unkept,
	}
	if o.HasCode {
		end.ExitCode = &o.ExitCode
	}
	return end
}

// Recorded forgets a run that the store has as the run that it is, Noted one that it
// has as a double, Lost one that it will not have.
func (u *Runs) Recorded(r *Run) { u.drop(r, "recorded") }

// Noted: see Recorded.
func (u *Runs) Noted(r *Run) { u.drop(r, "noted") }

// Lost: see Recorded.
func (u *Runs) Lost(r *Run) { u.drop(r, "lost") }

func (u *Runs) drop(r *Run, step string) {
	if !u.forget(r, step) {
		return
	}
	if err := u.disk.Remove(r.name()); err != nil {
		u.cfg.Logger.Warn("file of a run that is recorded is left behind", "job", r.Job, "run", r.Run, "err", err)
	}
}

func (u *Runs) forget(r *Run, step string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.runs[r.Key] != r {
		return false
	}
	delete(u.runs, r.Key)
	u.results.WithLabelValues(step).Inc()
	return true
}

// Close begins nothing more, stops what is at work with cause and waits for its end, for
// grace, after which it is killed, and for as long again.
func (u *Runs) Close(cause error, grace time.Duration) error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.stop(cause)
	over := make(chan struct{})
	go func() { u.alive.Wait(); close(over) }()
	for range 2 {
		timer := time.NewTimer(grace)
		select {
		case <-over:
			timer.Stop()
			return nil
		case <-timer.C:
		}
		select {
		case <-u.kill:
		default:
			close(u.kill)
		}
	}
	return errors.New("work without a claim did not end")
}

// pause waits for d; false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

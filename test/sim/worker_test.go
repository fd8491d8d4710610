package sim

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor"
	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/executor/unclaimed"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

type leaderNow = executor.Leader

// Follow implements executor.Leaders.
func (l *leaders) Follow() (executor.Leader, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.changed
}

// worker is one life of an executor.
type worker struct {
	w        *world
	name     string
	host     *host
	link     *link
	wire     *wire
	store    *store.Store
	executor *executor.Executor
	begun    *unclaimed.Runs // without a claim
	disk     *disk           // where those are
	stop     context.CancelFunc
	done     chan struct{}
}

// place shapes a worker.
type place struct {
	labels   map[string]string
	capacity int
	has      state.Resources
	grace    time.Duration
}

// worker starts an executor.
func (w *world) worker(name string, p place) *worker {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.ctx)
	h := w.host(name)
	x := &worker{w: w, name: name, host: h, link: newLink(w.mem, h, &w.late), wire: newWire(h), stop: stop, done: make(chan struct{})}
	var err error
	x.store, err = store.New(x.link, store.Config{Logger: w.logger(name).Named("store")})
	require.NoError(w.t, err)
	x.begin()
	x.executor, err = executor.New(journal{x.store, w.history}, w.leaders, x, x.wire.dial, executor.Config{
		Node:       state.Node{Name: name, Executor: true, Labels: p.labels, Capacity: p.capacity, Resources: p.has, Started: h.wall()},
		TTL:        w.registration,
		DrainGrace: p.grace,
		KillGrace:  time.Second,
		Wall:       h.wall,
		Unclaimed:  x.begun,
		Logger:     w.logger(name).Named("executor"),
	})
	require.NoError(w.t, err)
	go func() {
		defer close(x.done)
		if err := x.executor.Run(ctx); err != nil {
			w.logger(name).Error("executor ended", "err", err)
		}
	}()
	w.workers[name] = x
	return x
}

// begin gives an executor the disk that the one before it of its name has left behind: a
// copy, for what that may yet do reaches nobody.
func (x *worker) begin() {
	x.disk = x.w.disks[x.name].copy()
	x.w.disks[x.name] = x.disk
	var err error
	x.begun, err = unclaimed.Open(x.disk, unclaimed.Config{
		Runner: x, Capacity: 100, Wall: x.host.wall, Logger: x.w.logger(x.name).Named("unclaimed"),
	})
	require.NoError(x.w.t, err)
}

// kill ends an executor as a crash does: its work stops at once, and nothing it
// does from now on reaches anybody.
func (x *worker) kill() {
	delete(x.w.workers, x.name)
	x.link.cut()
	x.host.die()
	x.wire.cut(true)
	x.w.history.died(x)
	x.stop()
	x.w.gone.Go(x.wait)
}

// drain ends an executor in order, in the background.
func (x *worker) drain() {
	delete(x.w.workers, x.name)
	x.w.drains[x.name] = x
	x.stop()
	x.w.gone.Go(x.wait)
}

// draining tells whether an executor of that name is still at it.
func (w *world) draining(name string) bool {
	x := w.drains[name]
	if x == nil {
		return false
	}
	select {
	case <-x.done:
		return false
	default:
		return true
	}
}

func (x *worker) wait() {
	<-x.done
	x.store.Close()
}

// revoke ends the executor's lease behind its back.
func (x *worker) revoke() {
	if reg, ok := x.executor.Current(); ok {
		x.w.audit.forced(reg.Owner)
		_ = x.w.api.Deregister(x.w.ctx, reg)
	}
}

// Run implements executor.Runner.
func (x *worker) Run(ctx context.Context, t runner.Task, _ io.Writer) runner.Outcome {
	// Where the process stands still, it does so just before the executor's last
	// look at its registration.
	x.host.hold()
	o := runner.Outcome{State: state.StateInterrupted, Error: "dead", Started: x.host.wall()}
	if x.host.isDead() {
		return o
	}
	if ctx.Err() != nil {
		o.Error = context.Cause(ctx).Error()
		return o
	}
	if t.After != nil {
		return x.hook(ctx, &t, o)
	}
	work, end := x.w.history.start(x, &t)
	o.State, o.Error = work.state, ""
	if o.State != state.StateSucceeded {
		o.Error = "the work went wrong"
	}
	if t.Timeout > 0 && t.Timeout < work.takes && work.saves == 0 {
		work.takes, work.crash = t.Timeout, nil
		o.State, o.Error = state.StateTimedOut, "timed out after "+t.Timeout.String()
	} else {
		o.Directive = work.says
	}
	switch {
	case work.saves > 0 && t.Keeper != nil:
		x.saving(ctx, &t, work, &o)
	case work.takes > 0 && !sleep(ctx, work.takes):
		o.State, o.Error = state.StateInterrupted, context.Cause(ctx).Error()
		if errors.Is(context.Cause(ctx), runner.ErrCancelled) {
			o.State = state.StateCancelled
		}
		work.crash, o.Directive = nil, state.Directive{}
	}
	if t.Step == state.StepList {
		o.Result = x.w.history.list(&t)
	}
	o.Ended = x.host.wall()
	end(o.State)
	x.host.hold()
	if work.crash != nil {
		work.crash()
	}
	return o
}

// hook runs a hook.
func (x *worker) hook(ctx context.Context, t *runner.Task, o runner.Outcome) runner.Outcome {
	takes := x.w.history.hook(x, t)
	o.State, o.Error = state.StateSucceeded, ""
	switch {
	case !sleep(ctx, min(takes, t.Timeout)):
		o.State, o.Error = state.StateInterrupted, context.Cause(ctx).Error()
	case takes > t.Timeout:
		o.State, o.Error = state.StateTimedOut, "timed out"
	}
	o.Ended = x.host.wall()
	x.host.hold()
	return o
}

// journal is the store as an executor of the same process uses it. It writes
// down which ends were acknowledged.
type journal struct {
	*store.Store
	history *history
}

// KeepAlive implements executor.Registry.
func (j journal) KeepAlive(ctx context.Context, reg state.Registration) (time.Duration, error) {
	return j.KeepAliveNode(ctx, reg)
}

// StartFinish implements executor.Journal.
func (j journal) StartFinish(ctx context.Context, f *state.Finish, done func(state.TokenStatus, error)) {
	j.Store.StartFinish(ctx, f, func(status state.TokenStatus, err error) {
		if err == nil && status == state.TokenStored {
			j.history.acknowledged(f)
		}
		done(status, err)
	})
}

// work is what a job's runs do.
type work struct {
	takes time.Duration
	state state.RunState
	crash func() // called at the end: it panics or ends its goroutine
	says  state.Directive
	saves int // checkpoints, each after its part of the time
}

// span is one execution of work.
type span struct {
	job     state.JobID
	run     state.RunID
	shard   int
	attempt int
	token   int64
	node    string
	begun   time.Time
	wall    time.Time // begun by the node's clock
	ended   time.Time // zero: it goes on
	state   state.RunState
	died    bool // with its node
	resumed int64
	given   map[string]string // the parameters of a shard
	hook    state.HookName    // of hooks, which are no work

	worker *worker
}

// history is what really ran, and what executors were told was stored.
type history struct {
	mu    sync.Mutex
	work  map[state.JobID]work
	parts map[state.JobID]map[int]work // of shards that do something else
	spans []*span
	acks  []state.Finish
	hooks []span
	lists map[state.JobID]string
	// hookTakes is how long hooks take.
	hookTakes time.Duration
}

func newHistory() *history { return &history{work: map[state.JobID]work{}} }

// does says what the runs of a job do from now on.
func (h *history) does(j *job, takes time.Duration, how state.RunState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.work[j.id] = work{takes: takes, state: how}
}

// says is does for work that tells what shall follow.
func (h *history) says(j *job, takes time.Duration, how state.RunState, says state.Directive) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.work[j.id] = work{takes: takes, state: how, says: says}
}

// shardDoes says what a shard of a job's runs does that is unlike the others.
func (h *history) shardDoes(j *job, shard int, takes time.Duration, how state.RunState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parts == nil {
		h.parts = map[state.JobID]map[int]work{}
	}
	if h.parts[j.id] == nil {
		h.parts[j.id] = map[int]work{}
	}
	h.parts[j.id][shard] = work{takes: takes, state: how}
}

// crashes has the runs of a job end their goroutine in a way of their own.
func (h *history) crashes(j *job, takes time.Duration, crash func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.work[j.id] = work{takes: takes, state: state.StateFailed, crash: crash}
}

func (h *history) start(x *worker, t *runner.Task) (work, func(state.RunState)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &span{
		job: t.Job, run: t.Run, shard: t.Shard, attempt: t.Attempt, token: t.Token,
		node: x.name, begun: time.Now(), wall: x.host.wall(), worker: x,
		resumed: -1, // see resumes
	}
	if t.Part != nil {
		s.given = t.Part.Params
	}
	h.spans = append(h.spans, s)
	does, ok := h.work[t.Job]
	if part, has := h.parts[t.Job][t.Shard]; has {
		does, ok = part, true
	}
	if !ok {
		does.state = state.StateSucceeded
	}
	return does, func(how state.RunState) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s.ended.IsZero() {
			s.ended, s.state = time.Now(), how
		}
	}
}

// hook notes that a hook was begun, and tells how long it takes.
func (h *history) hook(x *worker, t *runner.Task) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hooks = append(h.hooks, span{job: t.Job, run: t.Run, token: t.Token, node: x.name, begun: time.Now(), hook: t.After.Hook, state: t.After.State})
	return h.hookTakes
}

// died ends all that a worker ran.
func (h *history) died(x *worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.spans {
		if s.worker == x && s.ended.IsZero() {
			s.ended, s.died = time.Now(), true
		}
	}
}

func (h *history) acknowledged(f *state.Finish) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acks = append(h.acks, *f)
}

// all are the spans so far, in order of their begin.
func (h *history) all() []span {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]span, len(h.spans))
	for i, s := range h.spans {
		out[i] = *s
	}
	return out
}

// of are a job's spans so far.
func (h *history) of(j *job) []span {
	var out []span
	for _, s := range h.all() {
		if s.job == j.id {
			out = append(out, s)
		}
	}
	return out
}

// running is how many executions go on on a node; empty: on all.
func (h *history) running(node string) int {
	n := 0
	for _, s := range h.all() {
		if s.ended.IsZero() && (node == "" || s.node == node) {
			n++
		}
	}
	return n
}

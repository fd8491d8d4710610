package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is a Journal whose answers a test can replace.
type journal struct {
	latency time.Duration

	mu          sync.Mutex
	taken       bool // by another process, the name
	revision    int64
	keepAlive   func(ctx context.Context) (time.Duration, error)
	onClaim     func(ctx context.Context, c state.Claim) (state.ClaimResult, error)
	onFinish    func(ctx context.Context, f state.Finish) (state.TokenStatus, error)
	claims      []claimCall
	finishes    []state.Finish
	registered  []time.Time
	renewed     time.Time
	payload     []byte // of all submitted runs
	payloadErr  error
	deregisters int
	ttl         time.Duration

	onSave  func(c state.Checkpoint) (state.CheckpointResult, error)
	fenced  bool // what work saves is
	last    state.SavedCheckpoint
	saves   []state.Checkpoint
	reports []state.ProgressReport
	hooks   []state.HookReport

	noRegister func(ctx context.Context) error
	noteDouble func(r state.DoubleReport) error
	doubles    []state.DoubleReport
}

type claimCall struct {
	at time.Time
	state.Claim
}

func (j *journal) Register(ctx context.Context, n state.Node, ttl time.Duration) (state.Registration, error) {
	j.mu.Lock()
	hook := j.noRegister
	j.mu.Unlock()
	if hook != nil {
		return state.Registration{}, hook(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.taken {
		return state.Registration{}, fmt.Errorf("x: %w", state.ErrNameTaken)
	}
	j.revision++
	j.ttl = ttl
	j.registered = append(j.registered, time.Now())
	j.renewed = time.Now()
	return state.Registration{Owner: state.Owner{Node: n.Name, Revision: j.revision}, Lease: j.revision, TTL: ttl}, nil
}

func (j *journal) KeepAlive(ctx context.Context, reg state.Registration) (time.Duration, error) {
	j.mu.Lock()
	hook := j.keepAlive
	j.mu.Unlock()
	if hook != nil {
		return hook(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.renewed = time.Now()
	return reg.TTL, nil
}

func (j *journal) GetPayload(context.Context, state.JobID, state.RunID) ([]byte, error) {
	return j.payload, j.payloadErr
}

func (j *journal) Deregister(context.Context, state.Registration) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.deregisters++
	return nil
}

func (j *journal) Checkpoint(_ context.Context, c state.Checkpoint) (state.CheckpointResult, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.onSave != nil {
		return j.onSave(c)
	}
	switch {
	case j.fenced:
		return state.CheckpointResult{Status: state.TokenFenced}, nil
	case c.Previous != j.last.Revision:
		return state.CheckpointResult{}, state.ErrCheckpointChanged
	}
	j.revision++
	j.last = state.SavedCheckpoint{
		Number: c.Number, Data: c.Data, Token: c.Live.Token, Run: c.Live.Run, Saved: c.Saved, Revision: j.revision,
	}
	j.saves = append(j.saves, c)
	return state.CheckpointResult{Status: state.TokenStored, Revision: j.revision}, nil
}

func (j *journal) GetCheckpoint(context.Context, state.CheckpointRef) (state.SavedCheckpoint, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last, nil
}

func (j *journal) SaveProgress(_ context.Context, p state.ProgressReport) (state.TokenStatus, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reports = append(j.reports, p)
	if j.fenced {
		return state.TokenFenced, nil
	}
	return state.TokenStored, nil
}

func (j *journal) Claim(ctx context.Context, c state.Claim) (state.ClaimResult, error) {
	j.mu.Lock()
	j.claims = append(j.claims, claimCall{time.Now(), c})
	hook := j.onClaim
	j.mu.Unlock()
	if j.latency > 0 {
		time.Sleep(j.latency)
	}
	if hook != nil {
		return hook(ctx, c)
	}
	return j.grant(c), nil
}

func (j *journal) grant(c state.Claim) state.ClaimResult {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.revision++
	live := c.Live
	live.Exclusive, live.Token = c.Exclusive, j.revision
	return state.ClaimResult{Status: state.Claimed, Live: &live}
}

func (j *journal) Finish(ctx context.Context, f state.Finish) (state.TokenStatus, error) {
	j.mu.Lock()
	hook := j.onFinish
	j.mu.Unlock()
	if hook != nil {
		if status, err := hook(ctx, f); status != state.TokenStored || err != nil {
			return status, err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.finishes = append(j.finishes, f)
	return state.TokenStored, nil
}

func (j *journal) set(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
}

// made and gone count registrations and deregistrations; kept is the start of the
// last renewal that was answered.
func (j *journal) made() (n int)       { j.set(func() { n = len(j.registered) }); return n }
func (j *journal) gone() (n int)       { j.set(func() { n = j.deregisters }); return n }
func (j *journal) kept() (t time.Time) { j.set(func() { t = j.renewed }); return t }

func (j *journal) claimed() []claimCall {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]claimCall(nil), j.claims...)
}

func (j *journal) finished() []state.Finish {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]state.Finish(nil), j.finishes...)
}

// leaders says who leads.
type leaders struct {
	mu      sync.Mutex
	leader  Leader
	changed chan struct{}
}

func (l *leaders) Follow() (Leader, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader, l.changed
}

func (l *leaders) lead(term int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader = Leader{Name: "n", Address: "leader:1", Term: term}
	close(l.changed)
	l.changed = make(chan struct{})
}

// link is one Attend stream, with the test as the leader.
type link struct {
	begun time.Time
	down  chan *workerv1.AttendResponse
	mute  bool // sends no pulses

	mu    sync.Mutex
	hello *workerv1.Hello
	said  []*workerv1.Progress
	free  int32
	err   error
	cut   chan struct{}
}

const testPulse = time.Second

// side is the executor's side of a link.
type side struct {
	*link
	ctx context.Context
}

func (s side) Send(m *workerv1.AttendRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	switch {
	case m.GetHello() != nil:
		s.hello = m.GetHello()
	case m.GetReport() != nil:
		s.said = append(s.said, m.GetReport().GetProgress()...)
	case m.GetPulse() != nil:
		s.free = m.GetPulse().GetFree()
	}
	return nil
}

func (s side) Recv() (*workerv1.AttendResponse, error) {
	var pulse <-chan time.Time
	if !s.mute {
		pulse = time.After(testPulse)
	}
	select {
	case m := <-s.down:
		return m, nil
	case <-pulse:
		return &workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Pulse{Pulse: &workerv1.Pulse{}}}, nil
	case <-s.cut:
		return nil, s.err
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (l *link) send(ms ...*workerv1.AttendResponse) {
	for _, m := range ms {
		l.down <- m
	}
	synctest.Wait()
}

func (l *link) welcome(term int64) {
	l.send(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Welcome{Welcome: &workerv1.Welcome{
		Term: term, Horizon: durationpb.New(15 * time.Second), PulseInterval: durationpb.New(testPulse),
	}}})
}

func (l *link) plan(specs []*workerv1.Spec, entries ...*workerv1.Entry) {
	l.send(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Plan{Plan: &workerv1.Plan{Specs: specs, Entries: entries}}})
}

func (l *link) revoke(refs ...uint32) {
	l.send(&workerv1.AttendResponse{Kind: &workerv1.AttendResponse_Revoke{Revoke: &workerv1.Revoke{Refs: refs}}})
}

// hangUp breaks the link.
func (l *link) hangUp() {
	l.mu.Lock()
	l.err = errors.New("link broken")
	close(l.cut)
	l.mu.Unlock()
	synctest.Wait()
}

// steps are the reported steps, once all that is waiting was sent.
func (l *link) steps() []workerv1.Progress_Step {
	var steps []workerv1.Progress_Step
	for _, p := range l.reports() {
		steps = append(steps, p.GetStep())
	}
	return steps
}

func (l *link) reports() []*workerv1.Progress {
	time.Sleep(2 * reportDelay)
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*workerv1.Progress(nil), l.said...)
}

// bench is an executor with all that it needs.
type rig struct {
	t       *testing.T
	x       *Executor
	journal *journal
	work    *work
	leaders *leaders
	links   chan *link
	mute    bool
	stop    context.CancelFunc
	ended   chan error
}

// newRig starts an executor in the test's bubble; change alters its parts first.
func newRig(t *testing.T, change func(*rig, *Config)) *rig {
	t.Helper()
	r := &rig{
		t:       t,
		journal: &journal{latency: 5 * time.Millisecond},
		work:    &work{},
		leaders: &leaders{changed: make(chan struct{})},
		links:   make(chan *link, 64),
		ended:   make(chan error, 1),
	}
	cfg := Config{Node: state.Node{Name: "n1", Executor: true}}
	if change != nil {
		change(r, &cfg)
	}
	x, err := New(Waiting(r.journal), r.leaders, r.work, nil, cfg)
	require.NoError(t, err)
	x.dial = func(ctx context.Context, _ string) (stream, func(), error) {
		l := &link{begun: time.Now(), down: make(chan *workerv1.AttendResponse, 64), mute: r.mute, cut: make(chan struct{})}
		select {
		case r.links <- l:
		case <-ctx.Done():
		}
		return side{l, ctx}, func() {}, nil
	}
	r.x = x
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.ended <- x.Run(ctx) }()
	synctest.Wait()
	return r
}

// lead makes a term and answers its welcomed session.
func (r *rig) lead(term int64) *link {
	r.leaders.lead(term)
	return r.next(term)
}

// next answers the executor's next session, welcomed.
func (r *rig) next(term int64) *link {
	l := <-r.links
	l.welcome(term)
	return l
}

// fresh is next, without those sessions that nobody welcomed in time.
func (r *rig) fresh(term int64) *link {
	for len(r.links) > 0 {
		<-r.links
	}
	return r.next(term)
}

// close drains the executor.
func (r *rig) close() {
	r.t.Helper()
	r.stop()
	require.NoError(r.t, <-r.ended)
}

package sim

import (
	"bytes"
	"context"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/planner"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
	"github.com/leaderd/leaderd/test/sim/exact"
)

func TestMain(m *testing.M) {
	if exact.On {
		exact.MakeThreads()
	}
	goleak.VerifyTestMain(m)
}

const (
	// electionTTL is the leader's lease, registrationTTL an executor's, where a test
	// does not say otherwise.
	electionTTL     = 5 * time.Second
	registrationTTL = 4 * time.Second
)

// world is one cluster and all that is around it.
type world struct {
	t   *testing.T
	ctx context.Context
	mem *memkv.Store
	// api is a store without faults, as a client's requests reach it.
	api *store.Store
	// client is where they are stamped; its clock may be wrong too.
	client  *host
	net     *network
	leaders *leaders
	history *history
	audit   *audit
	log     *journalLog
	level   hclog.Level
	plan    planner.Config
	// election and registration are the TTLs of leases.
	election, registration time.Duration
	late                   background
	// hosts are the nodes' hosts by name; a clock outlives its node. skewed is the
	// greatest error of a clock so far.
	hosts  map[string]*host
	skewed time.Duration

	controls map[string]*control
	workers  map[string]*worker
	// disks are where executors keep what they began without a claim, by name.
	disks  map[string]*disk
	drains map[string]*worker
	// gone are nodes that were killed and wind down.
	gone sync.WaitGroup
	stop context.CancelFunc
	all  sync.WaitGroup
}

// bubble runs a test in a world of its own, at a whole minute.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *world) {
		f(t, w)
		w.verify(false)
	})
}

// inBubble is bubble without a last look at the invariants.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		f(t, w)
	})
}

func newWorld(t *testing.T) *world {
	ctx, stop := context.WithCancel(context.Background())
	w := &world{
		t: t, ctx: ctx, stop: stop,
		mem:      memkv.New(),
		net:      newNetwork(),
		history:  newHistory(),
		log:      &journalLog{hash: fnv.New64a()},
		level:    hclog.Info,
		controls: map[string]*control{},
		workers:  map[string]*worker{},
		disks:    map[string]*disk{},
		drains:   map[string]*worker{},
		hosts:    map[string]*host{},
		late:     background{ctx: ctx},
		client:   &host{name: "client"},
		election: electionTTL, registration: registrationTTL,
	}
	var err error
	w.api, err = store.New(w.mem, store.Config{})
	require.NoError(t, err)
	w.audit = newAudit(w.mem, w.api)
	w.leaders = newLeaders(w.mem)
	w.all.Go(func() { w.audit.run(ctx) })
	w.all.Go(func() { w.leaders.run(ctx) })
	synctest.Wait()
	return w
}

// close ends all nodes in order, and shows the log of a test that failed.
func (w *world) close() {
	for _, h := range w.hosts {
		h.resume()
	}
	for _, name := range slices.Sorted(maps.Keys(w.workers)) {
		w.workers[name].drain()
	}
	for _, name := range slices.Sorted(maps.Keys(w.controls)) {
		w.controls[name].kill()
	}
	w.gone.Wait()
	w.stop()
	w.late.all.Wait()
	w.all.Wait()
	w.api.Close()
	w.mem.Close()
	if w.t.Failed() {
		w.trace(w.t)
		w.t.Log("log of the cluster:\n" + w.log.tail())
	}
}

// host makes the host of a new life of a node. It has the clock of the last one.
func (w *world) host(name string) *host {
	h := &host{name: name, net: w.net}
	if before := w.hosts[name]; before != nil {
		h.set(before.skew())
	}
	w.hosts[name] = h
	return h
}

// setClock sets the clock of a node.
func (w *world) setClock(h *host, skew time.Duration) {
	h.set(skew)
	w.skewed = max(w.skewed, skew, -skew)
}

// logger is a node's.
func (w *world) logger(node string) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: node, Level: w.level, Output: w.log, TimeFormat: "15:04:05.000", TimeFn: func() time.Time { return time.Now().UTC() },
	})
}

// journalLog is the newest part of the log.
type journalLog struct {
	mu     sync.Mutex
	hash   hash.Hash64 // of all lines
	all    io.Writer   // gets all lines, if it is set
	buf    bytes.Buffer
	word   string
	stalls time.Duration
}

const maxLog = 256 << 10

// stall makes the next writer of a line with a word wait for d.
func (l *journalLog) stall(word string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.word, l.stalls = word, d
}

func (l *journalLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	d := l.stalls
	if d > 0 && bytes.Contains(p, []byte(l.word)) {
		l.stalls = 0
		l.mu.Unlock()
		time.Sleep(d)
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	line, _, _ := bytes.Cut(p, []byte("stack=")) // which has addresses
	_, _ = l.hash.Write(line)
	if l.all != nil {
		_, _ = l.all.Write(p)
	}
	if l.buf.Len() > 2*maxLog {
		l.buf.Next(l.buf.Len() - maxLog)
	}
	return l.buf.Write(p)
}

// sum is a hash of all that was logged.
func (l *journalLog) sum() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hash.Sum64()
}

func (l *journalLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// pass lets virtual time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until lets virtual time pass up to an instant.
func (w *world) until(at time.Time) { w.pass(time.Until(at)) }

// eventually waits for a condition, looking every 100 ms, for at most d.
func (w *world) eventually(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(d); !ok(); w.pass(100 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(w.t, "not within "+d.String(), what)
		}
	}
}

// job is a spec in the making; its target does nothing by itself: what the work
// does is the history's to say (see history.does).
type job struct {
	id   state.JobID
	spec state.JobSpec
}

// newJob is a job of namespace ns that allows overlap.
func newJob(name string, schedules ...string) *job {
	return &job{
		id:   state.JobID{Namespace: "ns", Name: name},
		spec: state.JobSpec{Schedules: schedules, NoOp: true, Overlap: state.OverlapAllow},
	}
}

func (j *job) with(change func(*state.JobSpec)) *job {
	change(&j.spec)
	return j
}

func (j *job) proto() *leaderdv1.JobSpec { return codec.SpecToProto(&j.spec) }

// put stores a job.
func (w *world) put(j *job) {
	w.t.Helper()
	_, err := w.api.PutJob(w.ctx, store.PutJob{ID: j.id, Spec: j.proto(), AllowMissing: true, Actor: "test", Now: w.client.wall()})
	require.NoError(w.t, err)
}

func (w *world) change(j *job) store.ChangeJob {
	return store.ChangeJob{ID: j.id, Actor: "test", Reason: "test", Now: w.client.wall()}
}

func (w *world) pause(j *job) {
	w.t.Helper()
	_, _, err := w.api.PauseJob(w.ctx, w.change(j))
	require.NoError(w.t, err)
}

func (w *world) resume(j *job) {
	w.t.Helper()
	_, _, err := w.api.ResumeJob(w.ctx, w.change(j))
	require.NoError(w.t, err)
}

func (w *world) delete(j *job) {
	w.t.Helper()
	require.NoError(w.t, w.api.DeleteJob(w.ctx, w.change(j)))
}

// trigger asks for a run.
func (w *world) trigger(j *job, nonce uint32, allowOverlap bool) state.RunID {
	w.t.Helper()
	run := state.TriggerRunID(time.Now(), nonce)
	_, err := w.api.PutPending(w.ctx, state.Pending{
		Job: j.id, Run: run, Requested: time.Now(), Actor: "test", AllowOverlap: allowOverlap,
	})
	require.NoError(w.t, err)
	return run
}

// entry reads a run.
func (w *world) entry(j *job, run state.RunID) store.RunEntry {
	w.t.Helper()
	e, err := w.api.GetRun(w.ctx, j.id, run)
	require.NoError(w.t, err, "run %s", run)
	return e
}

// verdict is how a run ended: "succeeded", "missed:outage", or what is live.
func (w *world) verdict(j *job, run state.RunID) string {
	w.t.Helper()
	e, err := w.api.GetRun(w.ctx, j.id, run)
	switch {
	case err != nil:
		return err.Error()
	case e.Record != nil && e.Record.Reason != "":
		return fmt.Sprintf("%s:%s", e.Record.State, e.Record.Reason)
	case e.Record != nil:
		return e.Record.State.String()
	case len(e.Live) > 0:
		return e.Live[0].State.String()
	case !e.Pending.Queued.IsZero():
		return "queued"
	}
	return "pending"
}

func (w *world) slotVerdict(j *job, slot time.Time) string {
	w.t.Helper()
	return w.verdict(j, state.SlotRunID(slot))
}

// records are the verdicts of a job's runs so far.
func (w *world) records(j *job) []state.Record {
	var all []state.Record
	for _, e := range w.audit.all() {
		if kind, _ := e.part(); kind == "history" && !e.Deleted {
			if r, err := e.record(); err == nil && r.Job == j.id {
				all = append(all, r)
			}
		}
	}
	return all
}

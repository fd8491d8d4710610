package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/etcdkv"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/test/etcdtest"
)

// TestModel lets executors, two leaders that both believe, and people who edit
// jobs work on a store that loses answers, and reads from its history whether
// the invariants held (see judgement).
func TestModel(t *testing.T) {
	cases, seen := uint64(2500), map[string]int{}
	if testing.Short() {
		cases = 250
	}
	for seed := range cases {
		synctest.Test(t, func(t *testing.T) {
			db := memkv.New()
			defer db.Close()
			runModel(t, db, DefaultPrefix, seed, 50*time.Millisecond, seen)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Log(seen)
	for _, what := range []string{
		"claim claimed", "claim live", "claim decided", "claim skipped", "claim held", "claim stale",
		"claim disowned", "attempt 3", "caught up", "end 1", "end 2", "decision true", "decision false", "lost", "range",
	} {
		require.NotZero(t, seen[what], what)
	}
}

func TestModelOnEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcd")
	}
	db := etcdkv.New(etcdtest.Start(t).Client(), etcdkv.Options{})
	for seed := range uint64(15) {
		runModel(t, db, fmt.Sprintf("/model-%d/", seed), seed, time.Millisecond, map[string]int{})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// lossy loses answers, and delivers some requests after all hope is gone.
type lossy struct {
	kv.KV
	pace time.Duration
	late sync.WaitGroup

	t *testing.T

	mu  sync.Mutex
	rng *rand.Rand
}

func (l *lossy) draw(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.IntN(n)
}

func (l *lossy) Txn(ctx context.Context, t kv.Txn) (kv.TxnResult, error) {
	if met := meetings(&t); met != "" {
		l.t.Errorf("two requests of one transaction meet at %s", met)
	}
	time.Sleep(time.Duration(l.draw(int(l.pace))))
	switch l.draw(24) {
	case 0:
		return kv.TxnResult{}, kv.ErrUnavailable
	case 1:
		return kv.TxnResult{}, kv.ErrUnknown
	case 2, 3:
		if _, err := l.KV.Txn(ctx, t); err != nil {
			return kv.TxnResult{}, err
		}
		return kv.TxnResult{}, kv.ErrUnknown
	case 4:
		after := time.Duration(l.draw(int(10 * l.pace)))
		l.late.Go(func() {
			time.Sleep(after)
			_, _ = l.KV.Txn(context.WithoutCancel(ctx), t) // its answer is what is lost
		})
		return kv.TxnResult{}, kv.ErrUnknown
	}
	res, err := l.KV.Txn(ctx, t)
	time.Sleep(time.Duration(l.draw(int(l.pace))))
	return res, err
}

const (
	modelSlots = 7
	modelSteps = 12
)

var modelJobs = []state.JobID{
	{Namespace: "default", Name: "exclusive"}, // always
	{Namespace: "default", Name: "changing"},
}

// plan is what somebody believes about a run.
type modelPlan struct {
	job     state.JobID
	run     state.RunID
	due     time.Time
	closed  int64
	pending int64
	beside  bool
}

type model struct {
	*rig
	seed  uint64
	pace  time.Duration
	world *lossy
	stores

	mu       sync.Mutex
	policies map[state.JobID]map[int64]bool // exclusive, by the job's revision
	plans    []modelPlan
	stamp    int
	said     said
	seen     map[string]int // how often what happened
}

type stores [2]*Store

// said is what callers were told.
type said struct {
	claimed []state.Live
	ends    []saidEnd
	decided []saidDecided
}

type saidEnd struct {
	live    state.Live
	attempt state.Attempt
	retry   bool
	status  state.TokenStatus
}

type saidDecided struct {
	rec state.Record
	ok  bool
}

func runModel(t *testing.T, db kv.KV, prefix string, seed uint64, pace time.Duration, seen map[string]int) {
	m := &model{
		seen: seen, rig: &rig{t: t, db: db}, seed: seed, pace: pace, policies: map[state.JobID]map[int64]bool{},
		world: &lossy{KV: db, t: t, pace: pace, rng: rand.New(rand.NewPCG(seed, 99))},
	}
	for i := range m.stores {
		s, err := New(m.world, Config{Prefix: prefix, MaxBatch: 4, MaxInFlight: 3})
		require.NoError(t, err)
		m.stores[i] = s
	}
	m.s = m.stores[0]
	begun := m.put(prefix+"begin", "")
	for i, id := range modelJobs {
		m.policies[id] = map[int64]bool{}
		m.edit(id, i == 0 || seed%2 == 0)
	}
	term := m.lead("one")
	var actors sync.WaitGroup
	for i := range 3 {
		actors.Go(func() { m.execute(i, m.random(i)) })
	}
	actors.Go(func() { m.preside(term, m.stores[0], m.random(10)) })
	actors.Go(func() {
		rng := m.random(11)
		m.rest(rng, 6)
		m.depose(term)
		m.preside(m.lead("two"), m.stores[1], rng)
	})
	actors.Go(func() { m.meddle(m.random(12)) })
	actors.Wait()
	for _, s := range m.stores {
		s.Close()
	}
	m.world.late.Wait()
	judge(m, begun)
}

func (m *model) random(actor int) *rand.Rand { return rand.New(rand.NewPCG(m.seed, uint64(actor))) }

// rest waits for a while of at most n paces.
func (m *model) rest(rng *rand.Rand, n int) { time.Sleep(time.Duration(rng.IntN(n * int(m.pace)))) }

// patience is the context of a call: some callers leave early.
func (m *model) patience(rng *rand.Rand) (context.Context, context.CancelFunc) {
	if rng.IntN(6) == 0 {
		return context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(4*int(m.pace))))
	}
	return context.WithCancel(context.Background())
}

func (m *model) note(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[what]++
}

// next is an instant that no other record has.
func (m *model) next() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stamp++
	return slotAt(modelSlots).Add(time.Duration(m.stamp) * time.Second)
}

func (m *model) edit(id state.JobID, exclusive bool) {
	rev := m.setJob(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policies[id][rev] = exclusive
}

// meddle edits, deletes and triggers jobs.
func (m *model) meddle(rng *rand.Rand) {
	for i := range modelSteps {
		m.rest(rng, 6)
		id := modelJobs[rng.IntN(2)]
		switch rng.IntN(6) {
		case 0:
			m.removeJob(id)
			m.rest(rng, 3)
			fallthrough
		case 1, 2:
			m.edit(id, id == modelJobs[0] || rng.IntN(2) == 0)
		default:
			due := slotAt(rng.IntN(modelSlots)).Add(time.Second)
			p := modelPlan{job: id, run: state.TriggerRunID(due, uint32(i)), due: due, beside: id != modelJobs[0] && rng.IntN(3) == 0}
			p.pending = m.put(m.s.keys.pendingRun(id, p.run), "wish")
			m.mu.Lock()
			m.plans = append(m.plans, p)
			m.mu.Unlock()
		}
	}
}

// believe draws a claim that somebody may have planned.
func (m *model) believe(rng *rand.Rand) state.Claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := rng.IntN(modelSlots)
	p := modelPlan{job: modelJobs[rng.IntN(2)], run: slotRun(n), due: slotAt(n)}
	if len(m.plans) > 0 && rng.IntN(2) == 0 {
		p = m.plans[rng.IntN(len(m.plans))]
	}
	var rev int64
	old := rng.IntN(5) == 0
	for r := range m.policies[p.job] {
		if rev == 0 || old != (r > rev) {
			rev = r
		}
	}
	return state.Claim{
		Job: p.job, JobRevision: rev, Exclusive: m.policies[p.job][rev] && !p.beside,
		Pending: p.pending, ClosedRevision: p.closed, ApplyOverlap: rng.IntN(2) == 0,
		// Generation and Term tell the judge what the claim relied on.
		Live: state.Live{Run: p.run, Shards: 1, Generation: rev, Attempt: 1, Term: p.closed, Due: p.due, Claimed: p.due},
	}
}

// preside is a leader who believes in its term until it is told otherwise, and
// longer.
func (m *model) preside(term state.Term, s *Store, rng *rand.Rand) {
	ctx := context.Background()
	was, err := s.GetClosed(ctx)
	if err != nil {
		m.t.Errorf("get closed: %v", err)
		return
	}
	upTo := was.Instant // it decides single slots only behind this
	for range modelSteps {
		m.rest(rng, 4)
		switch rng.IntN(5) {
		case 0:
			to := slotAt(rng.IntN(modelSlots))
			closed, err := s.CloseTimeline(ctx, term, to)
			if err == nil {
				upTo = later(upTo, closed.Instant)
				m.replay(term, s, rng, closed)
			}
		case 1, 2:
			m.tend(term, s, rng)
		default:
			rec := skipOf(modelJobs[rng.IntN(2)], rng.IntN(modelSlots))
			pending := int64(0)
			if c := m.believe(rng); c.Pending != 0 {
				rec.Job, rec.Run, rec.Due, pending = c.Job, c.Live.Run, c.Live.Due, c.Pending
			} else if !rec.Due.After(upTo) {
				continue
			}
			rec.Recorded = m.next()
			ctx, cancel := m.patience(rng)
			ok, err := s.Decide(ctx, term, rec, rng.IntN(2) == 0, pending)
			cancel()
			m.decided(rec, ok, err)
		}
	}
}

func (m *model) decided(rec state.Record, ok bool, err error) {
	if err == nil || errors.Is(err, state.ErrTermLost) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.said.decided = append(m.said.decided, saidDecided{rec, ok})
		m.seen[fmt.Sprint("decision ", ok)]++
	} else if !errors.Is(err, kv.ErrUnknown) && !errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		m.t.Errorf("decide: %v", err)
	}
}

// replay works up the closed part of the timeline: one slot is caught up, the
// others get verdicts in ranges.
func (m *model) replay(term state.Term, s *Store, rng *rand.Rand, closed state.Closed) {
	ctx := context.Background()
	for _, id := range modelJobs {
		d, err := s.ListDecided(ctx, id, slotAt(0), closed.Instant)
		if err != nil {
			m.t.Errorf("list decided: %v", err)
			return
		}
		last := int(closed.Instant.Sub(slot0) / time.Minute)
		catchUp := rng.IntN(last + 1)
		if !d.Has(slotAt(catchUp)) {
			m.mu.Lock()
			m.plans = append(m.plans, modelPlan{job: id, run: slotRun(catchUp), due: slotAt(catchUp), closed: closed.Revision})
			m.mu.Unlock()
		}
		for first := 0; first <= last; first++ {
			end := first
			for end <= last && end != catchUp && !d.Has(slotAt(end)) {
				end++
			}
			if end == first {
				continue
			}
			rec := rangeOf(id, first, end-1)
			rec.Recorded = m.next()
			ctx, cancel := m.patience(rng)
			ok, err := s.DecideRange(ctx, term, rec, closed.Revision)
			cancel()
			if ok && rec.Count > 1 {
				m.note("range")
			}
			m.decided(rec, ok, err)
			first = end
		}
	}
}

// tend deals with lost and waiting runs.
func (m *model) tend(term state.Term, s *Store, rng *rand.Rand) {
	ctx := context.Background()
	live, err := s.ListLive(ctx, all)
	if err != nil {
		return // it is asked again next time
	}
	for _, l := range live {
		if l.State == state.StateRunning {
			ctx, cancel := m.patience(rng)
			next, ok, err := s.MarkLost(ctx, term, l, m.next())
			cancel()
			if ok {
				m.note("lost")
			}
			if err == nil && ok && next.State != state.StateWaiting && next.State != state.StateLost {
				m.t.Errorf("marked lost, and yet %s", next.State)
			}
		} else if rng.IntN(3) == 0 {
			rec := state.Record{Job: l.Job, Run: l.Run, Recorded: m.next()}
			ok, err := s.GiveUp(ctx, term, l, state.StateMissed, "", rec.Recorded, 0)
			m.decided(rec, ok, err)
		}
	}
}

package executor

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// The wall clock is set back and forth while a run waits: it begins at the first
// look that shows the slot, and never at one that does not.
func TestStartsFollowTheWallClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var offset atomic.Int64
		clock := func() int64 { return time.Now().UnixNano() + offset.Load() }
		due := time.Now().Add(10 * time.Second).UnixNano()
		began := make(chan int64, 10)
		s := starts{wall: clock, wake: make(chan struct{}, 1), begin: func(*run) { began <- clock() }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.run(ctx); close(ended) }()
		waits := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
			require.Empty(t, began)
		}
		s.add(&run{live: &state.Live{}, plan: &plan{due: due, start: due}})
		waits(9999 * time.Millisecond)
		offset.Store(int64(-time.Hour))
		waits(30 * time.Minute)
		offset.Store(int64(-time.Minute))
		waits(0)
		offset.Store(int64(time.Hour)) // a suspend is seen within a second
		time.Sleep(tick)
		synctest.Wait()
		require.GreaterOrEqual(t, <-began, due)

		// An earlier slot, and one that is past, do not wait for a later one.
		now := clock()
		for _, in := range []time.Duration{time.Hour, time.Millisecond, -time.Second} {
			s.add(&run{live: &state.Live{}, plan: &plan{due: now + int64(in), start: now + int64(in)}})
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, began, 2)

		// The end begins what waits, and what comes later.
		cancel()
		<-ended
		s.add(&run{live: &state.Live{}, plan: &plan{due: now + int64(time.Hour), start: now + int64(time.Hour)}})
		synctest.Wait()
		require.Len(t, began, 4)
	})
}

func TestFifoKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f fifo[int]
		in, out := 0, 0
		for _, n := range rapid.SliceOf(rapid.IntRange(-3000, 3000)).Draw(t, "ops") {
			for ; n > 0; n-- {
				f.push(in)
				in++
			}
			for ; n < 0 && f.len() > 0; n++ {
				require.Equal(t, out, f.first())
				require.Equal(t, out, f.pop())
				out++
			}
			require.Equal(t, in-out, f.len())
		}
	})
}

func TestLeadStaysInItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLead()
		now := int64(time.Hour)
		for range rapid.IntRange(0, 300).Draw(t, "claims") {
			now += rapid.Int64Range(0, int64(time.Second)).Draw(t, "step")
			if l.inFlight > 0 && rapid.Bool().Draw(t, "answer") {
				l.end(now, time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "took")))
			} else {
				l.begin(now)
			}
			v := l.value(rapid.IntRange(0, 1<<20).Draw(t, "backlog"))
			require.True(t, v >= minLead && v <= maxLead, v)
		}
	})
}

func TestLeadFollowsLatencyAndRate(t *testing.T) {
	l := newLead()
	now := int64(time.Hour)
	require.Equal(t, minLead, l.value(0))
	require.Equal(t, minLead+500*time.Millisecond, l.value(assumedRate/2))
	for range 100 {
		l.begin(now)
		now += int64(100 * time.Millisecond)
		l.end(now, 100*time.Millisecond)
	}
	require.InDelta(t, 400*time.Millisecond, l.value(0), float64(time.Millisecond))
	require.InDelta(t, assumedRate, l.rate, 0, "what is idle tells nothing of the rate")
	// 200 in flight, 2,000 answers a second.
	for range 200 {
		l.begin(now)
	}
	for range 10_000 {
		now += int64(500 * time.Microsecond)
		l.end(now, 100*time.Millisecond)
		l.begin(now)
	}
	require.InDelta(t, 2000, l.rate, 50)
	require.InDelta(t, 1400*time.Millisecond, l.value(2000), float64(50*time.Millisecond))
}

func TestPlans(t *testing.T) {
	sp := newSpec(&session{}, &workerv1.Spec{Ref: 1, Namespace: "ns", Job: "job"})
	require.Equal(t, state.DefaultStartDeadline, sp.deadline)
	require.True(t, sp.exclusive)
	due := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	p, k, err := newPlan(sp, &workerv1.Entry{Ref: 1, Due: due.UnixMicro()}, &slotIDs{})
	require.NoError(t, err)
	require.EqualValues(t, "20261130T020000Z", k.run)
	require.EqualValues(t, 1, k.attempt)
	require.EqualValues(t, 1, p.shards)
	now := due.Add(time.Hour).UnixNano()
	require.Equal(t, due.Add(sp.deadline).UnixNano(), p.until(1, now))
	require.Equal(t, now+int64(sp.deadline), p.until(2, now))
	p.closed = 4
	require.Equal(t, now+int64(sp.deadline), p.until(1, now))

	for _, bad := range []*workerv1.Entry{{Due: -1}, {Due: math.MaxInt64}, {Shard: -1}, {Attempt: -1}} {
		_, _, err := newPlan(sp, bad, &slotIDs{})
		require.Error(t, err)
	}
}

func TestMetricsAreLintedAndBounded(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	_, err := New(Waiting(&journal{}), &leaders{}, &work{}, nil, Config{Node: state.Node{Name: "n"}, Metrics: reg})
	require.NoError(t, err)
	families, err := reg.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	for _, f := range families {
		require.Regexp(t, "^leaderd_executor_", f.GetName())
		if f.GetName() == "leaderd_executor_finished_total" {
			require.Len(t, f.GetMetric(), 6)
		}
	}
}

func TestConfigNamesEveryViolation(t *testing.T) {
	_, err := New(Waiting(&journal{}), &leaders{}, &work{}, nil, Config{
		Node: state.Node{Capacity: -1}, TTL: time.Hour, DrainGrace: -1, KillGrace: -1,
	})
	for _, field := range []string{"Node.Name", "Node.Capacity", "TTL", "DrainGrace", "KillGrace"} {
		require.ErrorContains(t, err, field+":")
	}
}

// A leader takes no hello that is larger than a message may be: whoever holds many runs
// of long names could never attend one again.
func TestHelloFitsAMessage(t *testing.T) {
	d := &desk{entries: make(map[key]*entry)}
	job := state.JobID{Namespace: strings.Repeat("n", state.MaxNameBytes), Name: strings.Repeat("j", state.MaxNameBytes)}
	for i := range int32(20_000) {
		k := key{job: job, run: "20261130T020000Z-trigger-5f3a9c01", shard: i, attempt: 1}
		d.entries[k] = &entry{key: k, place: claimed, token: math.MaxInt64}
	}
	held := d.heldRuns(maxHeld)
	size := proto.Size(&workerv1.Hello{Held: held})
	require.LessOrEqual(t, size, maxHeld)
	require.Greater(t, size, maxHeld/2, "as much as there is room for")
}

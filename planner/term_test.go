package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// newTestTerm is a term that nobody runs.
func newTestTerm(t *testing.T) *term {
	tm := newTerm(&Planner{cfg: Config{}.WithDefaults(), metrics: newMetrics(nil)}, state.Term{Number: 1})
	require.NoError(t, tm.rebalance())
	tm.ctx, tm.closing = t.Context(), epoch // nothing is to be closed
	return tm
}

// attending makes an executor attend.
func (t *term) attending(name string) *session {
	node := state.Node{Name: name, Executor: true, Capacity: 1, Revision: int64(100 + len(t.nodes))}
	t.nodes[name] = node
	s := newSession(state.Owner{Node: name, Revision: node.Revision})
	t.attend(s, &workerv1.Hello{})
	return s
}

// opened opens an entry that is due at an instant.
func (t *term) opened(job *timed, due time.Time) *entry {
	e := &entry{entryKey: entryKey{job: job, due: due.UnixMicro()}, version: job.job}
	t.add(e, due)
	return e
}

// Executors that come and go together cost one look at what is open.
func TestPlacementIsDoneOnceATurn(t *testing.T) {
	tm := newTestTerm(t)
	job := newTimed(testJob(t, "a", "* * * * * *"))
	var all []*entry
	for n := range 20 {
		all = append(all, tm.opened(job, epoch.Add(time.Duration(n)*time.Second)))
	}
	before := tm.table
	a, b := tm.attending("a"), tm.attending("b")
	require.Same(t, before, tm.table, "not for each of them")
	tm.turn(epoch)
	require.NotSame(t, before, tm.table)
	for _, e := range all {
		require.Len(t, e.holders, 1)
	}
	before = tm.table
	tm.end(a, errLeft)
	c := tm.attending("c")
	require.Same(t, before, tm.table)
	tm.turn(epoch)
	for _, e := range all {
		require.Len(t, e.holders, 1)
		require.Contains(t, []*session{b, c}, e.holders[0])
	}
}

// However often an executor refuses an entry, one look at it is to come.
func TestRefusalsAddNoChecks(t *testing.T) {
	tm := newTestTerm(t)
	s := tm.attending("a")
	tm.turn(epoch)
	job := newTimed(testJob(t, "a", "* * * * * *"))
	e := tm.opened(job, epoch)
	tm.gates.checking = map[state.JobID]bool{}
	for n := range maxGateChecks {
		tm.gates.checking[state.JobID{Name: fmt.Sprint(n)}] = true // enough is looked at
	}
	for now := epoch; now.Before(epoch.Add(10 * time.Second)); now = now.Add(100 * time.Millisecond) {
		if e.heldBy(s) {
			tm.report(s, &workerv1.Report{Progress: []*workerv1.Progress{{
				Ref: s.refs[e.version], Due: e.due, Attempt: 1, Step: workerv1.Progress_STEP_REFUSED,
			}}}, now)
		}
		tm.check(now)
		require.LessOrEqual(t, tm.checks.Len(), 4)
	}
}

// A hedge is counted where one more executor got the entry, and only such are.
func TestHedgesAreThoseThatWereMade(t *testing.T) {
	tm, registry := newTestTerm(t), prometheus.NewRegistry()
	tm.metrics = newMetrics(registry)
	hedges := func() float64 {
		all, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range all {
			if family.GetName() == "leaderd_planner_hedges_total" {
				return family.GetMetric()[0].GetCounter().GetValue()
			}
		}
		return -1
	}
	tm.attending("a")
	tm.turn(epoch)
	e := tm.opened(newTimed(testJob(t, "a", "* * * * * *")), epoch)
	require.Len(t, e.holders, 1)
	tm.check(epoch.Add(time.Second))
	require.Zero(t, hedges(), "there is no other executor")
	tm.attending("b")
	tm.turn(epoch.Add(time.Second))
	tm.check(epoch.Add(2 * time.Second))
	require.Len(t, e.holders, 2)
	require.InDelta(t, 1, hedges(), 0)
}

// One shard of a slot's run is enough to find that the run has to wait: no entry of
// another one holds the watermark from then on.
func TestAQueuedRunLeavesNoShardBehind(t *testing.T) {
	tm := newTestTerm(t)
	sessions := []*session{tm.attending("a"), tm.attending("b"), tm.attending("c")}
	tm.turn(epoch)
	v := compile(&state.Job{
		ID:        state.JobID{Namespace: "default", Name: "split"},
		Spec:      state.JobSpec{Schedules: []string{"* * * * * *"}, NoOp: true, Overlap: state.OverlapQueue, Shards: &state.Shards{Count: 3}},
		Effective: epoch, Anchor: epoch, Revision: 1,
	}, nil)
	require.NoError(t, v.Broken)
	job := newTimed(v)
	slot := epoch.Add(time.Second)
	first, next := slotEntry(job, v, slot), slotEntry(job, v, slot.Add(time.Second))
	for _, e := range []*entry{first, next} {
		require.True(t, tm.add(e, epoch))
		tm.addHelpers(e, epoch)
	}
	require.Len(t, job.open, 6)
	for _, e := range job.open {
		if e.shard == 2 && e.due == first.due {
			s := e.holders[0]
			require.Contains(t, sessions, s)
			tm.report(s, &workerv1.Report{Progress: []*workerv1.Progress{{
				Ref: s.refs[v], Due: e.due, Shard: 2, Attempt: 1, Step: workerv1.Progress_STEP_QUEUED,
			}}}, slot)
			break
		}
	}
	require.Len(t, job.open, 3)
	require.True(t, first.done)
	hold, held := tm.hold()
	require.True(t, held)
	require.Equal(t, slot, hold, "by the slot after it")
}

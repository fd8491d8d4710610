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

// A job that wants every slot caught up keeps no other from being planned: where the
// room becomes scarce only its newest slots are kept.
func TestAStuckJobThatWantsAllLeavesRoom(t *testing.T) {
	tm := newTestTerm(t)
	tm.cfg.MaxOpen = 200
	v := compile(&state.Job{
		ID:        state.JobID{Namespace: "default", Name: "all"},
		Spec:      state.JobSpec{Schedules: []string{"* * * * * *"}, NoOp: true, CatchUp: state.CatchUpAll, CatchUpLimit: 1000, StartDeadline: time.Hour},
		Effective: epoch, Anchor: epoch, Revision: 1,
	}, nil)
	require.NoError(t, v.Broken)
	job := tm.newTimed(v)
	first := tm.opened(job, epoch)
	for tm.counted() < 99 {
		tm.opened(job, epoch.Add(time.Duration(tm.counted())*time.Second))
	}
	now := epoch.Add(time.Minute)
	require.False(t, tm.overtaken(first, now))
	last := tm.opened(job, epoch.Add(59*time.Second+time.Millisecond))
	require.True(t, tm.overtaken(first, now))
	require.False(t, tm.overtaken(last, epoch.Add(59*time.Second+time.Millisecond)))
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

// plannedJob is a job whose slots may begin without a claim.
func plannedJob(t *testing.T) *Job {
	t.Helper()
	v := compile(&state.Job{
		ID: state.JobID{Namespace: "default", Name: "planned"},
		Spec: state.JobSpec{
			Schedules: []string{"* * * * * *"}, NoOp: true, Overlap: state.OverlapAllow, StoreOutage: state.OutageRunPlanned,
		}.WithDefaults(),
		Effective: epoch, Anchor: epoch, Revision: 1,
	}, nil)
	require.NoError(t, v.Broken)
	return v
}

// What an executor may begin without a claim is nobody else's while its registration may
// stand; one that has registered anew is heard before it is.
func TestAnExecutorThatIsCutOffKeepsWhatItMayBegin(t *testing.T) {
	tm := newTestTerm(t)
	tm.cfg.Wall = func() time.Time { return epoch }
	tm.running, tm.gotNodes = maxTasks, true // nothing is asked of the store
	tm.unclaimed = newUnclaimed(state.Watermark{}, epoch, tm.cfg.Horizon)
	a, b := tm.attending("a"), tm.attending("b")
	tm.turn(epoch)
	e := tm.opened(tm.newTimed(plannedJob(t)), epoch)
	other := tm.opened(tm.newTimed(testJob(t, "other", "* * * * * *")), epoch)
	had := e.holders[0]
	if had == b {
		a, b = b, a
	}
	tm.end(a, errLeft)
	tm.turn(epoch)
	require.Equal(t, []*session{a}, e.holders, "it may have begun")
	require.Equal(t, []*session{b}, other.holders)

	// It comes back.
	again := tm.nodes[a.owner.Node]
	again.Revision += 100
	nodes := []state.Node{again, tm.nodes[b.owner.Node]}
	tm.setNodes(nodes)
	tm.turn(epoch)
	require.Empty(t, e.holders, "it has something to tell, perhaps")
	back := newSession(state.Owner{Node: again.Name, Revision: again.Revision})
	tm.attend(back, &workerv1.Hello{Unrecorded: []*workerv1.Unrecorded{{Namespace: "default", Job: "planned", Run: string(e.runID())}}})
	tm.turn(epoch)
	require.Equal(t, []*session{back}, e.holders)
	for late := epoch; late.Before(epoch.Add(time.Hour)); late = late.Add(time.Minute) {
		tm.check(late)
	}
	require.Equal(t, []*session{back}, e.holders, "however late, it has begun there")
	require.Equal(t, state.StateNone, e.verdict)
	tm.close(e)
	require.Empty(t, tm.unclaimed.told)
}

// A new leader leaves what fell due before it alone for a horizon where executors have
// registered since the last watermark: one of them may have begun it.
func TestALeaderIsNotFasterThanThoseWhoBegan(t *testing.T) {
	tm := newTestTerm(t)
	now := epoch
	tm.cfg.Wall, tm.running = func() time.Time { return now }, maxTasks
	tm.unclaimed = newUnclaimed(state.Watermark{Instant: epoch.Add(-time.Minute), Revision: 100}, epoch, tm.cfg.Horizon)
	s := tm.attending("a") // at revision 100: it has had that for long
	tm.turn(epoch)
	job := tm.newTimed(plannedJob(t))
	kept := tm.opened(job, epoch.Add(-2*time.Second))
	require.Equal(t, []*session{s}, kept.holders, "there are no signs of an outage")
	b := tm.attending("b") // at 101
	tm.turn(epoch)
	held, next := tm.opened(job, epoch.Add(-time.Second)), tm.opened(job, epoch.Add(time.Second))
	require.Empty(t, held.holders)
	require.NotEmpty(t, next.holders, "it is not due yet")
	tm.noteUnrecorded(b, []*workerv1.Unrecorded{{Namespace: "default", Job: "planned", Run: string(kept.runID())}})
	require.Equal(t, []time.Time{epoch.Add(-2 * time.Second)}, tm.toldSlots(job.job))
	now = epoch.Add(tm.cfg.Horizon)
	tm.check(now)
	require.NotEmpty(t, held.holders, "nobody has begun it")
}

package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

func named(name string) state.JobID { return state.JobID{Namespace: "ns", Name: name} }

// after puts a job that runs after others, as any and completion have it where that is
// said.
func (r *rig) after(name string, jobs ...string) (state.Job, error) {
	spec := specOf()
	if len(jobs) > 0 {
		spec.After = &leaderdv1.After{Jobs: jobs}
	}
	res, err := r.s.PutJob(context.Background(), putOf(named(name), spec))
	return res.Entry.Job, err
}

func (r *rig) mustAfter(name string, jobs ...string) state.Job {
	r.t.Helper()
	j, err := r.after(name, jobs...)
	require.NoError(r.t, err)
	return j
}

// ends has a run of a job end.
func (r *rig) ends(j state.Job, n int, to state.RunState, result string) state.Live {
	r.t.Helper()
	l := r.start(claimOf(j.ID, j.Revision, r.register(fmt.Sprint("n", n)), n, false))
	f := endOf(l, to)
	f.Result = []byte(result)
	require.Equal(r.t, state.TokenStored, r.finish(f))
	return l
}

func advanceOf(j state.Job) state.Advance {
	return state.Advance{
		Job: j.ID, JobRevision: j.Revision, Generation: j.Generation, After: j.Spec.After, Paused: j.Paused, Now: slotAt(1000),
	}
}

// advanced makes all that is due after others.
func (r *rig) advanced(term state.Term, j state.Job) (runs []state.RunID) {
	r.t.Helper()
	for {
		done, err := r.s.AdvanceChain(context.Background(), term, advanceOf(j))
		require.NoError(r.t, err)
		runs = append(runs, done.Runs...)
		if !done.More {
			return runs
		}
	}
}

func TestCircles(t *testing.T) {
	r := newRig(t)
	_, err := r.after("a", "a")
	require.ErrorContains(t, err, "a -> a")
	_, err = r.after("b", "a")
	var missing *MissingUpstreamError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{"a"}, missing.Names)
	r.mustAfter("a")
	r.mustAfter("b", "a")
	r.mustAfter("c", "b")
	_, err = r.after("a", "c")
	var circle *CycleError
	require.ErrorAs(t, err, &circle)
	require.Equal(t, []string{"a", "b", "c", "a"}, circle.Path)
	require.ErrorIs(t, r.s.DeleteJob(t.Context(), ChangeJob{ID: named("a"), Now: slotAt(1)}), ErrFollowed)
	r.mustAfter("b") // the edge goes
	r.mustAfter("a", "c")
	_, err = r.after("b", "a")
	require.ErrorContains(t, err, "b -> c -> a -> b")
	require.NoError(t, r.s.DeleteJob(t.Context(), ChangeJob{ID: named("a"), Now: slotAt(1)}))
	require.NoError(t, r.s.DeleteJob(t.Context(), ChangeJob{ID: named("c"), Now: slotAt(1)}))
	for key := range r.dump() {
		require.NotContains(t, key, "followers")
	}
	// A dry run looks for no job that may be about to be made.
	p := putOf(named("x"), specOf())
	p.Spec.After, p.DryRun = &leaderdv1.After{Jobs: []string{"y"}}, true
	_, err = r.s.PutJob(t.Context(), p)
	require.NoError(t, err)
}

// Edges that are made at the same time close no circle.
func TestCirclesAtOnce(t *testing.T) {
	for range 20 {
		r := newRig(t)
		other := r.other()
		const n = 5
		for i := range n {
			r.mustAfter(fmt.Sprint("j", i))
		}
		var wait sync.WaitGroup
		stores, errs := []*Store{r.s, other}, make([]error, n)
		for i := range n {
			wait.Go(func() {
				spec := specOf()
				spec.After = &leaderdv1.After{Jobs: []string{fmt.Sprint("j", (i+1)%n)}}
				_, errs[i] = stores[i%2].PutJob(context.Background(), putOf(named(fmt.Sprint("j", i)), spec))
			})
		}
		wait.Wait()
		bad := 0
		for _, err := range errs {
			if err != nil {
				require.ErrorContains(t, err, "in a circle")
				bad++
			}
		}
		require.Equal(t, 1, bad)
	}
}

// Each end that counts makes one run, with what it left; what ended before does not
// count; and two leaders, lost answers and late repetitions make no second one.
func TestAdvanceChain(t *testing.T) {
	r := newRig(t)
	a := r.mustAfter("a")
	r.ends(a, 1, state.StateSucceeded, "before")
	b := r.mustAfter("b", "a")
	term := r.lead("l")
	require.Empty(t, r.advanced(term, b))
	for i := 2; i < 40; i++ {
		r.ends(a, i, []state.RunState{state.StateSucceeded, state.StateFailed}[i%2], fmt.Sprint("left ", i))
	}
	calls := 0
	r.onTxn(func(txn *kv.Txn) faulty.Fault {
		if calls++; calls%3 == 0 && len(txn.If) > 0 {
			return faulty.Fault{After: kv.ErrUnknown}
		}
		return faulty.Fault{}
	})
	r.advanced(term, b)
	r.onTxn(nil)
	require.Empty(t, r.advanced(term, b))
	made := map[state.RunID]bool{}
	prefix := r.s.keys.pendingOf(b.ID)
	all, err := r.db.Range(t.Context(), prefix, end(prefix), kv.RangeOptions{})
	require.NoError(t, err)
	for _, found := range all.KVs {
		p, err := r.s.DecodePending(found)
		require.NoError(t, err)
		require.Len(t, p.Upstream, 1)
		up := p.Upstream[0]
		require.Equal(t, "a", up.Job)
		require.Equal(t, state.StateSucceeded, up.State)
		require.Equal(t, "a/"+string(up.Run), p.Correlation)
		require.False(t, made[up.Run])
		made[up.Run] = true
		payload, err := r.s.GetPayload(t.Context(), b.ID, p.Run)
		require.NoError(t, err)
		result, err := r.s.GetResult(t.Context(), a.ID, up.Run)
		require.NoError(t, err)
		require.Equal(t, result, payload)
	}
	require.Len(t, made, 19)
	require.False(t, made[slotRun(1)])

	// A leader that is over, and an older version of the job, make none.
	r.ends(a, 50, state.StateSucceeded, "")
	newer := r.mustAfter("b") // it follows nobody
	require.NotEqual(t, newer.Revision, b.Revision)
	_, err = r.s.AdvanceChain(t.Context(), term, advanceOf(b))
	require.ErrorIs(t, err, state.ErrJobChanged)
	b = r.mustAfter("b", "a")
	r.ends(a, 51, state.StateSucceeded, "")
	r.depose(term)
	_, err = r.s.AdvanceChain(t.Context(), term, advanceOf(b))
	require.ErrorIs(t, err, state.ErrTermLost)
	require.Len(t, r.advanced(r.lead("m"), b), 1)
}

// Ends of one transaction share a revision; a step that takes some of them in forgets
// none of the others.
func TestAdvanceChainWithinARevision(t *testing.T) {
	r := newRig(t)
	a := r.mustAfter("a")
	b := r.mustAfter("b", "a")
	var ops []kv.Op
	for i := range 30 {
		l := r.start(claimOf(a.ID, a.Revision, r.register(fmt.Sprint("n", i)), i, false))
		f := endOf(l, state.StateSucceeded)
		e, _, err := r.s.beginFinish(&f)
		require.NoError(t, err)
		ops = append(ops, e.request.txn.Then...)
	}
	r.commit(kv.Txn{Then: ops})
	require.Len(t, r.advanced(r.lead("l"), b), 30)
}

func TestAdvanceChainOfAll(t *testing.T) {
	r := newRig(t)
	a, b := r.mustAfter("a"), r.mustAfter("b")
	c := r.mustAfter("c", "a", "b")
	term := r.lead("l")
	r.ends(a, 1, state.StateSucceeded, "one")
	require.Empty(t, r.advanced(term, c))
	r.ends(a, 2, state.StateSucceeded, "two")
	r.ends(b, 3, state.StateFailed, "")
	require.Empty(t, r.advanced(term, c))
	r.ends(b, 4, state.StateSucceeded, "")
	runs := r.advanced(term, c)
	require.Len(t, runs, 1)
	payload, err := r.s.GetPayload(t.Context(), c.ID, runs[0])
	require.NoError(t, err)
	require.JSONEq(t, `[{"job": "a", "run": "20261130T020200Z", "state": "succeeded", "result": "dHdv"},
		{"job": "b", "run": "20261130T020400Z", "state": "succeeded"}]`, string(payload))
	r.ends(b, 5, state.StateSucceeded, "")
	require.Empty(t, r.advanced(term, c), "a has not ended anew")
	r.ends(a, 6, state.StateSucceeded, "")
	require.Len(t, r.advanced(term, c), 1)
}

// A result that retention removes while another job's end is waited for is told to be lost,
// and only that.
func TestAdvanceChainOfSweptResults(t *testing.T) {
	r := newRig(t)
	a, b := r.mustAfter("a"), r.mustAfter("b")
	c := r.mustAfter("c", "a", "b")
	term := r.lead("l")
	meets := func(n int, result string) state.Record {
		r.ends(a, n, state.StateSucceeded, result)
		require.Empty(t, r.advanced(term, c))
		r.ends(a, n+1, state.StateFailed, "")
		require.Empty(t, r.advanced(term, c))
		sweeps(t, r.s, term, r.everything(a.ID, 1))
		_, ok := r.record(a.ID, slotRun(n))
		require.False(t, ok)
		r.ends(b, n+2, state.StateSucceeded, "of b")
		runs := r.advanced(term, c)
		require.Len(t, runs, 1)
		entry, err := r.s.GetRun(t.Context(), c.ID, runs[0])
		require.NoError(t, err)
		payload, err := r.s.GetPayload(t.Context(), c.ID, runs[0])
		require.NoError(t, err)
		return state.Record{Chain: entry.Pending.Chain, Tail: payload}
	}
	lost := meets(1, "one")
	require.Equal(t, []state.Upstream{
		{Job: "a", Run: slotRun(1), State: state.StateSucceeded, ResultLost: true}, {Job: "b", Run: slotRun(3), State: state.StateSucceeded},
	}, lost.Upstream)
	require.JSONEq(t, `[{"job": "a", "run": "20261130T020100Z", "state": "succeeded", "resultLost": true},
		{"job": "b", "run": "20261130T020300Z", "state": "succeeded", "result": "b2YgYg=="}]`, string(lost.Tail))
	none := meets(5, "")
	require.False(t, none.Upstream[0].ResultLost, "it left none")
}

// What would run after another while its job is paused has a verdict that says so.
func TestAdvanceChainOfPausedJob(t *testing.T) {
	r := newRig(t)
	a := r.mustAfter("a")
	r.mustAfter("b", "a")
	paused, _, err := r.s.PauseJob(t.Context(), ChangeJob{ID: named("b"), Actor: "ada", Now: slotAt(1)})
	require.NoError(t, err)
	r.ends(a, 2, state.StateSucceeded, "")
	runs := r.advanced(r.lead("l"), paused.Job)
	require.Len(t, runs, 1)
	rec, ok := r.record(named("b"), runs[0])
	require.True(t, ok)
	require.Equal(t, state.ReasonPaused, rec.Reason)
	require.Equal(t, slotRun(2), rec.Upstream[0].Run)
}

// A hook's end is noted once, and changes nothing else; the verdict keeps its revision.
func TestNoteHook(t *testing.T) {
	r := newRig(t)
	l := r.start(claimOf(billing, r.setJob(billing), r.register("n"), 1, true))
	f := endOf(l, state.StateFailed)
	f.Hooks = []state.HookRun{{Name: state.HookOnFailure}, {Name: state.HookOnExit}}
	require.Equal(t, state.TokenStored, r.finish(f))
	before, _ := r.record(billing, l.Run)
	note := state.HookReport{Job: billing, Run: l.Run, Token: l.Token, Hook: state.HookRun{
		Name: state.HookOnExit, State: state.StateSucceeded, Started: slotAt(2), Ended: slotAt(3), Tail: []byte("done"),
	}}
	require.NoError(t, r.s.NoteHook(t.Context(), note))
	again := note
	again.Hook.State = state.StateFailed
	require.NoError(t, r.s.NoteHook(t.Context(), again), "the first counts")
	is, _ := r.record(billing, l.Run)
	require.Equal(t, note.Hook, is.Hooks[1])
	require.Equal(t, before.Hooks[0], is.Hooks[0])
	is.Hooks = before.Hooks
	require.Equal(t, before, is)

	note.Token++
	require.ErrorIs(t, r.s.NoteHook(t.Context(), note), ErrNotFound, "of another attempt")
	note.Token, note.Hook.Name = l.Token, state.HookOnSuccess
	require.ErrorIs(t, r.s.NoteHook(t.Context(), note), ErrNotFound, "not due")
	note.Run = slotRun(9)
	require.ErrorIs(t, r.s.NoteHook(t.Context(), note), ErrNotFound)
	note.Hook.Tail = make([]byte, state.MaxHookTail+1)
	require.ErrorIs(t, r.s.NoteHook(t.Context(), note), ErrTooLarge)
}

// An attempt that began without a claim is noted once with a run that was decided
// otherwise, and changes nothing else.
func TestNoteDouble(t *testing.T) {
	r := newRig(t)
	l := r.start(claimOf(billing, r.setJob(billing), r.register("n"), 1, true))
	double := state.DoubleReport{Job: billing, Run: l.Run, Attempt: state.Attempt{
		Number: 1, Node: "cut-off", Started: slotAt(2), Ended: slotAt(3), State: state.StateFailed, ExitCode: 3, HasCode: true, Error: "x", Unclaimed: true,
	}}
	require.ErrorIs(t, r.s.NoteDouble(t.Context(), double), ErrNotFound, "it is live")
	require.Equal(t, state.TokenStored, r.finish(endOf(l, state.StateSucceeded)))
	before, _ := r.record(billing, l.Run)
	for range 2 {
		require.NoError(t, r.s.NoteDouble(t.Context(), double))
	}
	is, _ := r.record(billing, l.Run)
	require.Equal(t, []state.Attempt{double.Attempt}, is.Doubles)
	is.Doubles = nil
	require.Equal(t, before, is)
	for n := range 2 * state.MaxDoubles {
		double.Attempt.Started = slotAt(10 + n)
		require.NoError(t, r.s.NoteDouble(t.Context(), double))
	}
	is, _ = r.record(billing, l.Run)
	require.Len(t, is.Doubles, state.MaxDoubles)
	double.Attempt.Error = strings.Repeat("x", state.MaxErrorBytes+1)
	require.ErrorIs(t, r.s.NoteDouble(t.Context(), double), ErrTooLarge)
}

// What somebody has damaged holds nobody up: what ended since is followed.
func TestAdvanceChainOfDamage(t *testing.T) {
	r := newRig(t)
	a := r.mustAfter("a")
	b := r.mustAfter("b", "a")
	term := r.lead("l")
	r.ends(a, 1, state.StateSucceeded, "")
	r.put(r.s.keys.historyRun(a.ID, slotRun(2)), "\xff")
	r.put(r.s.keys.historyOf(a.ID)+"~", "")
	r.put(r.s.keys.follower(a.ID, "b"), "\xff")
	require.Empty(t, r.advanced(term, b))
	r.put(r.s.keys.historyRun(a.ID, slotRun(3)), "\xff")
	r.ends(a, 4, state.StateSucceeded, "")
	require.Len(t, r.advanced(term, b), 1)
}

// TestStrayFollower: a key among the edges that names no job stands in the way of none.
func TestStrayFollower(t *testing.T) {
	r := newRig(t)
	r.mustAfter("a")
	r.put(r.s.keys.followersIn("ns")+"a/%zz", "")
	r.put(r.s.keys.followersIn("ns")+"%zz/b", "")
	r.mustAfter("b", "a")
	_, err := r.after("a", "b")
	require.ErrorAs(t, err, new(*CycleError))
	err = r.s.DeleteJob(t.Context(), ChangeJob{ID: named("a"), Now: slotAt(0)})
	require.ErrorIs(t, err, ErrFollowed)
	require.ErrorContains(t, err, "%zz")
}

package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// queued is the claim of a run that waits, by its pending key as that is now.
func (r *rig) queued(c state.Claim) state.Claim {
	r.t.Helper()
	key, ok := r.get(r.s.keys.pendingRun(c.Job, c.Live.Run))
	require.True(r.t, ok, "%s does not wait", c.Live.Run)
	c.Pending = key.ModRevision
	return c
}

// Runs wait in order, no more than may; each starts once those before it are over.
func TestQueue(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		r := newRig(t)
		rev, o := r.setJob(billing), r.register("n1")
		g := state.Gate{Policy: state.OverlapQueue, QueueLimit: 2}
		if !exclusive {
			g.Limit = 1
		}
		claim := func(n int) state.Claim { return gated(billing, rev, o, n, g) }
		live := r.start(claim(0))
		lost := 0
		r.onTxn(func(txn *kv.Txn) faulty.Fault { // an answer of each that is asked for
			if lost++; len(txn.If) > 0 && lost%3 == 0 {
				return faulty.Fault{After: kv.ErrUnknown}
			}
			return faulty.Fault{}
		})
		early := claim(1)
		early.ApplyOverlap = false
		require.Equal(t, state.ClaimHeld, r.claim(early).Status, "before it is due nothing is stored")
		require.Equal(t, state.ClaimQueued, r.claim(claim(1)).Status)
		require.Equal(t, state.ClaimQueued, r.claim(claim(1)).Status, "asked again")
		require.Equal(t, state.ClaimQueued, r.claim(claim(2)).Status)
		require.Equal(t, state.ClaimSkipped, r.claim(claim(3)).Status)
		rec, _ := r.record(billing, slotRun(3))
		require.Equal(t, "the queue is full: 2 of at most 2 runs wait", rec.Detail)

		second := r.queued(claim(2))
		r.end(live)
		require.Equal(t, state.ClaimHeld, r.claim(second).Status, "no run passes one that was due earlier")
		live = r.start(r.queued(claim(1)))
		_, waits := r.get(r.s.keys.pendingRun(billing, slotRun(1)))
		require.False(t, waits)
		require.Equal(t, state.ClaimHeld, r.claim(second).Status)
		r.end(live)
		require.Equal(t, state.ClaimQueued, r.claim(claim(4)).Status, "nor does one that does not wait yet")
		live = r.start(second)
		r.end(live)
		r.end(r.start(r.queued(claim(4))))
	})
}

// A run that waits has a record: neither the leader's verdict nor a closing passes it.
func TestQueuedSlotIsDecided(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	rev, o := r.setJob(billing), r.register("n1")
	g := state.Gate{Policy: state.OverlapQueue, QueueLimit: 5}
	r.start(gated(billing, rev, o, 0, g))
	require.Equal(t, state.ClaimQueued, r.claim(gated(billing, rev, o, 1, g)).Status)
	ok, err := r.s.Decide(ctx, term, skipOf(billing, 1), true, 0)
	require.NoError(t, err)
	require.False(t, ok)
	closed, err := r.s.CloseTimeline(ctx, term, slotAt(3))
	require.NoError(t, err)
	ok, err = r.s.DecideRange(ctx, term, rangeOf(billing, 1, 3), closed.Revision)
	require.NoError(t, err)
	require.False(t, ok)
	d, err := r.s.ListDecided(ctx, billing, slotAt(0), slotAt(3))
	require.NoError(t, err)
	require.True(t, d.Has(slotAt(1)))
	require.False(t, d.Has(slotAt(2)))
	ok, err = r.s.Decide(ctx, term, skipOf(billing, 1), true, r.queued(gated(billing, rev, o, 1, g)).Pending)
	require.NoError(t, err)
	require.True(t, ok, "with its pending key it may be given up")
	require.Equal(t, state.StateMissed, r.verdict(billing, slotRun(1)))
}

// The newest run takes the place of those that wait; an older one never does.
func TestReplace(t *testing.T) {
	r := newRig(t)
	rev, o := r.setJob(billing), r.register("n1")
	queue := state.Gate{Policy: state.OverlapQueue, QueueLimit: 100}
	live := r.start(gated(billing, rev, o, 0, queue))
	const n = 2*maxReplaced + 2 // waited by another policy
	for i := range n {
		require.Equal(t, state.ClaimQueued, r.claim(gated(billing, rev, o, 1+i, queue)).Status)
	}
	replace := state.Gate{Policy: state.OverlapReplace}
	newest := gated(billing, rev, o, n+2, replace)
	require.Equal(t, state.ClaimQueued, r.claim(newest).Status)
	for i := range n {
		rec, ok := r.record(billing, slotRun(1+i))
		require.True(t, ok)
		require.Equal(t, state.ReasonReplaced, rec.Reason)
		require.Equal(t, "run "+string(newest.Live.Run)+" took its place", rec.Detail)
		require.Equal(t, slotAt(1+i), rec.Due)
	}
	require.Equal(t, state.ClaimSkipped, r.claim(gated(billing, rev, o, n+1, replace)).Status)
	rec, _ := r.record(billing, slotRun(n+1))
	require.Equal(t, state.ReasonReplaced, rec.Reason)
	r.end(live)
	r.start(r.queued(newest))
}

// The wish that the live run ends is stored with the run that waits for that, once.
func TestCancelPolicy(t *testing.T) {
	r := newRig(t)
	rev, o := r.setJob(billing), r.register("n1")
	g := state.Gate{Policy: state.OverlapCancel}
	live := r.start(gated(billing, rev, o, 0, g))
	require.Equal(t, state.ClaimQueued, r.claim(gated(billing, rev, o, 1, g)).Status)
	key := r.s.keys.cancelRun(billing, live.Run)
	wish, ok := r.get(key)
	require.True(t, ok)
	c, err := r.s.DecodeCancel(wish)
	require.NoError(t, err)
	require.Equal(t, state.ReasonOverlap, c.Reason)
	require.Equal(t, "run "+string(slotRun(1))+" of "+billing.String()+" was due", c.Detail)
	require.Equal(t, state.ClaimQueued, r.claim(gated(billing, rev, o, 2, g)).Status)
	rec, _ := r.record(billing, slotRun(1))
	require.Equal(t, state.ReasonReplaced, rec.Reason, "of those that wait the newest stays")
	again, _ := r.get(key)
	require.Equal(t, wish.ModRevision, again.ModRevision, "the first wish counts")
	require.Equal(t, state.ClaimHeld, r.claim(r.queued(gated(billing, rev, o, 2, g))).Status)
	f := endOf(live, state.StateCancelled)
	require.Equal(t, state.TokenStored, r.finish(f))
	r.start(r.queued(gated(billing, rev, o, 2, g)))
}

// A pending key that was written late is swept where its run has another record, also
// one that cannot be read, and left alone where it has none.
func TestSweepPending(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	rev, o := r.setJob(billing), r.register("n1")
	pending := func(n int) *state.Pending {
		key := r.s.keys.pendingRun(billing, slotRun(n))
		return &state.Pending{Job: billing, Run: slotRun(n), Revision: r.put(key, "")}
	}
	there := func(p *state.Pending) bool {
		_, ok := r.get(r.s.keys.pendingRun(billing, p.Run))
		return ok
	}
	alone := pending(0)
	gone, err := r.s.SweepPending(ctx, term, alone)
	require.NoError(t, err)
	require.False(t, gone)
	require.True(t, there(alone))

	bothWays(t, func(t *testing.T, exclusive bool) {
		n := map[bool]int{true: 10, false: 20}[exclusive]
		live := r.start(claimOf(billing, rev, o, n, exclusive))
		beside := pending(n)
		_, err = r.s.SweepPending(ctx, state.Term{Key: term.Key, Number: term.Number + 1}, beside)
		require.ErrorIs(t, err, state.ErrTermLost)
		require.True(t, there(beside))
		gone, err = r.s.SweepPending(ctx, term, beside)
		require.NoError(t, err)
		require.True(t, gone)
		require.False(t, there(beside))
		r.end(live)
		newer := pending(n)
		old := *newer
		old.Revision--
		gone, err = r.s.SweepPending(ctx, term, &old)
		require.NoError(t, err)
		require.True(t, gone, "that one is gone")
		require.True(t, there(newer), "this one is not asked about")
		gone, err = r.s.SweepPending(ctx, term, newer)
		require.NoError(t, err)
		require.True(t, gone)
	})
	unreadable := pending(30)
	r.put(r.s.keys.historyRun(billing, slotRun(30)), "\xff")
	gone, err = r.s.SweepPending(ctx, term, unreadable)
	require.NoError(t, err)
	require.True(t, gone)
	require.False(t, there(unreadable))
}

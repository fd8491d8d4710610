package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// bury has a run of a job that keeps dead letters end.
func (r *rig) bury(n int, exclusive bool, to state.RunState) state.Live {
	c := claimOf(billing, r.setJob(billing), r.register(fmt.Sprint("n", n)), n, exclusive)
	c.Live.DeadLetter = true
	l := r.start(c)
	require.Equal(r.t, state.TokenStored, r.finish(endOf(l, to)))
	return l
}

// A dead letter is stored with a verdict that is dead, and with no other; it is the
// record itself.
func TestDeadLetterComesWithItsVerdict(t *testing.T) {
	bothWays(t, func(t *testing.T, exclusive bool) {
		for to, want := range map[state.RunState]bool{
			state.StateFailed: true, state.StateTimedOut: true, state.StateSucceeded: false, state.StateCancelled: false, state.StateInterrupted: false,
		} {
			t.Run(to.String(), func(t *testing.T) {
				r := newRig(t)
				l := r.bury(5, exclusive, to)
				rec, err := r.s.GetDead(t.Context(), billing, l.Run)
				if !want {
					require.ErrorIs(t, err, ErrNotFound)
					return
				}
				require.NoError(t, err)
				verdict, ok := r.record(billing, l.Run)
				require.True(t, ok)
				require.Equal(t, verdict, rec, "of the same revision")
			})
		}
	})
}

// A job that keeps none costs no key, and a try that is not the last leaves none.
func TestNoDeadLetter(t *testing.T) {
	r := newRig(t)
	l := r.start(claimOf(billing, r.setJob(billing), r.register("a"), 5, true))
	require.Equal(t, state.TokenStored, r.finish(endOf(l, state.StateFailed)))
	_, err := r.s.GetDead(t.Context(), billing, l.Run)
	require.ErrorIs(t, err, ErrNotFound)

	c := claimOf(billing, r.setJob(billing), r.register("b"), 6, true)
	c.Live.DeadLetter = true
	l = r.start(c)
	f := endOf(l, state.StateFailed)
	f.Retry = slotAt(7)
	require.Equal(t, state.TokenStored, r.finish(f))
	_, err = r.s.GetDead(t.Context(), billing, l.Run)
	require.ErrorIs(t, err, ErrNotFound)
}

// Whatever answers are lost, a dead letter is requeued once: its key goes in the
// transaction that makes the run.
func TestRequeueDead(t *testing.T) {
	for _, lost := range []int{0, 1, 2} {
		t.Run(fmt.Sprint("one of so many answers is lost: ", lost), func(t *testing.T) {
			r := newRig(t)
			l := r.bury(5, true, state.StateFailed)
			_, err := r.s.PutJob(t.Context(), putOf(billing, specOf("@every 1m")))
			require.NoError(t, err)
			calls := 0
			r.onTxn(func(txn *kv.Txn) faulty.Fault {
				if calls++; len(txn.If) > 0 && lost != 0 && calls%lost == 0 && calls < 9 {
					return faulty.Fault{After: kv.ErrUnknown}
				}
				return faulty.Fault{}
			})
			p := state.Pending{Job: billing, Run: state.TriggerRunID(slotAt(9), 1), Requested: slotAt(9), Origin: l.Run}
			got, err := r.s.RequeueDead(t.Context(), p)
			require.NoError(t, err)
			stored, there := r.get(r.s.keys.pendingRun(billing, p.Run))
			require.True(t, there)
			require.Equal(t, stored.ModRevision, got.Revision)
			back, err := r.s.DecodePending(stored)
			require.NoError(t, err)
			require.Equal(t, l.Run, back.Origin)
			p.Run = state.TriggerRunID(slotAt(9), 2)
			_, err = r.s.RequeueDead(t.Context(), p)
			require.ErrorIs(t, err, ErrNotFound)
		})
	}
}

// A paused job's dead letter stays where it is.
func TestRequeueDeadOfAPausedJob(t *testing.T) {
	r := newRig(t)
	l := r.bury(5, true, state.StateFailed)
	_, err := r.s.PutJob(t.Context(), putOf(billing, specOf("@every 1m")))
	require.NoError(t, err)
	_, _, err = r.s.PauseJob(t.Context(), ChangeJob{ID: billing, Actor: "ada", Now: slotAt(8)})
	require.NoError(t, err)
	_, err = r.s.RequeueDead(t.Context(), state.Pending{Job: billing, Run: state.TriggerRunID(slotAt(9), 1), Requested: slotAt(9), Origin: l.Run})
	require.ErrorIs(t, err, ErrPaused)
	_, err = r.s.GetDead(t.Context(), billing, l.Run)
	require.NoError(t, err)
}

// Those that were due first are dropped, while the term stands, and lists are paged.
func TestTrimDead(t *testing.T) {
	r := newRig(t)
	var runs []state.RunID
	for n := range 5 {
		runs = append(runs, r.bury(n+1, false, state.StateFailed).Run)
	}
	first, more, err := r.s.ListDead(t.Context(), ListDead{Namespace: billing.Namespace, Limit: 3})
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, first, 3)
	rest, more, err := r.s.ListDead(t.Context(), ListDead{AfterJob: billing, AfterRun: first[2].Run, Limit: 3})
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, runs[3], rest[0].Run)

	term := r.lead("l")
	n, err := r.s.TrimDead(t.Context(), term, billing, 2)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	left, _, err := r.s.ListDead(t.Context(), ListDead{Namespace: billing.Namespace, Job: billing.Name, Limit: 10})
	require.NoError(t, err)
	require.Len(t, left, 2)
	require.Equal(t, runs[3], left[0].Run)
	r.depose(term)
	_, err = r.s.TrimDead(t.Context(), term, billing, 1)
	require.ErrorIs(t, err, state.ErrTermLost)
	require.NoError(t, r.s.DropDead(t.Context(), billing, runs[4]))
	require.ErrorIs(t, r.s.DropDead(t.Context(), billing, runs[4]), ErrNotFound)
}

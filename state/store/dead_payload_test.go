package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// burySubmitted puts the record of a submitted run that failed, its payload and its dead
// letter there.
func (r *rig) burySubmitted(n int) state.RunID {
	run := state.SubmitRunID(slotAt(n), uint64(n))
	rec := state.Record{State: state.StateFailed, Due: slotAt(n)}
	writeRecord(r.t, r.s, billing, run, rec)
	r.put(r.s.keys.deadRun(billing, run), string(codec.MarshalRecord(&rec)))
	r.put(r.s.keys.payload(billing, run), "seven")
	return run
}

// TestDeadLetterKeepsItsPayload: what a submitted run was to work on is kept as long as
// there is its record or its dead letter, and no longer.
func TestDeadLetterKeepsItsPayload(t *testing.T) {
	const runs = 150 // more than one step removes
	for name, swept := range map[string]bool{"record swept": true, "record kept": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			_, err := r.s.PutJob(t.Context(), putOf(billing, specOf()))
			require.NoError(t, err)
			term := r.lead("l")
			dead := make([]state.RunID, runs)
			for n := range dead {
				dead[n] = r.burySubmitted(n)
			}
			payloads := func() int { return count(t, r.s, r.s.keys.payloads(billing)) }
			sweep := func() {
				sw := r.everything(billing, runs)
				sw.Before = slotAt(1_000_000)
				sweeps(t, r.s, term, sw)
				require.Zero(t, count(t, r.s, r.s.keys.historyOf(billing)))
			}
			if swept {
				sweep()
			}
			require.Equal(t, runs, payloads())

			again := state.SubmitRunID(slotAt(9000), 1)
			_, err = r.s.RequeueDead(t.Context(), state.Pending{Job: billing, Run: again, Requested: slotAt(9000), Origin: dead[0]})
			require.NoError(t, err)
			given, err := r.s.GetPayload(t.Context(), billing, again)
			require.NoError(t, err)
			require.Equal(t, "seven", string(given))
			require.NoError(t, r.s.DropDead(t.Context(), billing, dead[1]))
			n, err := r.s.TrimDead(t.Context(), term, billing, 1)
			require.NoError(t, err)
			require.Equal(t, runs-3, n)
			require.Zero(t, count(t, r.s, r.s.keys.deadOf(billing))-1)
			if !swept {
				require.Equal(t, runs+1, payloads(), "the records have them")
				sweep()
			}
			require.Equal(t, 2, payloads(), "that of the new run, and that of the last dead letter")
		})
	}
}

// TestForgottenJobKeepsPayloads: a job that was deleted and forgotten leaves its dead
// letters, with what they need.
func TestForgottenJobKeepsPayloads(t *testing.T) {
	r := newRig(t)
	term := r.lead("l")
	_, err := r.s.PutJob(t.Context(), putOf(billing, specOf()))
	require.NoError(t, err)
	run := r.burySubmitted(1)
	stray := r.s.keys.payload(billing, state.SubmitRunID(slotAt(2), 2))
	r.put(stray, "p")
	job, err := r.s.GetJob(t.Context(), billing)
	require.NoError(t, err)
	now := job.Job.Updated.Add(time.Hour)
	require.NoError(t, r.s.DeleteJob(t.Context(), ChangeJob{ID: billing, Actor: "a", Now: now}))
	gone, err := r.s.ListDeleted(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.s.ForgetDeleted(t.Context(), term, &gone[0]))
	sw := r.everything(billing, 10)
	sw.Before = slotAt(1_000_000)
	sweeps(t, r.s, term, sw)
	done, err := r.s.ForgetJob(t.Context(), term, billing, now.Add(time.Second))
	require.NoError(t, err)
	require.True(t, done)
	given, err := r.s.GetPayload(t.Context(), billing, run)
	require.NoError(t, err)
	require.Equal(t, "seven", string(given))
	require.NoError(t, r.s.DropDead(t.Context(), billing, run))
	_, there := r.get(r.s.keys.payload(billing, run))
	require.False(t, there)
}

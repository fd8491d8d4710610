package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

func TestDecideBesideAnUnreadableGate(t *testing.T) {
	r := newRig(t)
	term, ctx := r.lead("l"), t.Context()
	require.NoError(t, r.s.CheckGate(ctx, billing))
	for i, value := range []string{"\xffrubbish", ""} {
		r.put(r.s.GateKey(billing), value)
		err := r.s.CheckGate(ctx, billing)
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, r.s.GateKey(billing))
		ok, err := r.s.Decide(ctx, term, skipOf(billing, 5+i), true, 0)
		require.NoError(t, err)
		require.True(t, ok)

		rec := skipOf(billing, 20+10*i)
		rec.Until, rec.Count = slotAt(25+10*i), 6
		closed, err := r.s.CloseTimeline(ctx, term, slotAt(100))
		require.NoError(t, err)
		ok, err = r.s.DecideRange(ctx, term, rec, closed.Revision)
		require.NoError(t, err)
		require.True(t, ok)
	}
}

func TestDecideVersion(t *testing.T) {
	r := newRig(t)
	term, ctx := r.lead("l"), t.Context()
	one := r.setJob(billing)
	two := r.setJob(billing)
	_, err := r.s.DecideVersion(ctx, term, skipOf(billing, 5), true, 0, one)
	require.ErrorIs(t, err, state.ErrJobChanged)
	ok, err := r.s.DecideVersion(ctx, term, skipOf(billing, 5), true, 0, two)
	require.NoError(t, err)
	require.True(t, ok)
	// It is idempotent, whatever has become of the job.
	r.remove(r.s.keys.job(billing))
	ok, err = r.s.DecideVersion(ctx, term, skipOf(billing, 5), true, 0, two)
	require.NoError(t, err)
	require.True(t, ok)
	_, err = r.s.DecideVersion(ctx, term, skipOf(billing, 6), true, 0, two)
	require.ErrorIs(t, err, state.ErrJobChanged)
	r.depose(term)
	_, err = r.s.DecideVersion(ctx, term, skipOf(billing, 6), true, 0, two)
	require.ErrorIs(t, err, state.ErrTermLost)
}

// A verdict that relies on there being no job is not given while there is one.
func TestDecideWithoutAJob(t *testing.T) {
	r := newRig(t)
	term, ctx := r.lead("l"), t.Context()
	rev, a := r.setJob(billing), r.register("a")
	w := r.wait(r.start(claimOf(billing, rev, a, 4, false)))
	cancel := skipOf(billing, 5)
	decide := func() (bool, error) { return r.s.DecideVersion(ctx, term, cancel, false, 0, state.NoJob) }
	giveUp := func() (bool, error) {
		return r.s.GiveUp(ctx, term, w, state.StateCancelled, state.ReasonDeleted, slotAt(9), state.NoJob)
	}
	for _, do := range []func() (bool, error){decide, giveUp} {
		_, err := do()
		require.ErrorIs(t, err, state.ErrJobChanged)
	}
	r.remove(r.s.keys.job(billing))
	for _, do := range []func() (bool, error){decide, giveUp} {
		ok, err := do()
		require.NoError(t, err)
		require.True(t, ok)
	}
	r.setJob(billing) // They are idempotent, whatever has become of the job.
	for _, do := range []func() (bool, error){decide, giveUp} {
		ok, err := do()
		require.NoError(t, err)
		require.True(t, ok)
	}
}

func TestCloseTimelineOverWhatCannotBeRead(t *testing.T) {
	r := newRig(t)
	term, ctx := r.lead("l"), t.Context()
	require.NoError(t, r.s.PutWatermark(ctx, term, state.Watermark{Instant: slotAt(50), Written: slotAt(51)}))
	rubbish := r.put(r.s.keys.closed(), "\xff")
	got, err := r.s.GetClosed(ctx)
	require.ErrorIs(t, err, ErrCorrupt)
	require.Equal(t, state.Closed{Revision: rubbish}, got)
	closed, err := r.s.CloseTimeline(ctx, term, slotAt(9))
	require.NoError(t, err)
	got, err = r.other().GetClosed(ctx)
	require.NoError(t, err)
	require.Equal(t, closed, got)
	require.Equal(t, slotAt(50), got.Mark, "the watermark is kept here too")

	r.put(r.s.keys.watermark(), "")
	mark, err := r.s.GetWatermark(ctx)
	require.ErrorIs(t, err, ErrCorrupt)
	require.NotZero(t, mark.Revision)
	// What another store closes next goes on from there.
	closed, err = r.other().CloseTimeline(ctx, term, slotAt(60))
	require.NoError(t, err)
	require.Equal(t, slotAt(50), closed.Mark)
}

func TestKeysOfNoJob(t *testing.T) {
	r := newRig(t)
	for _, rest := range []string{"default", "default/billing/more", "default/billing/", "default/a%zz", "default/%61", "/", ""} {
		job, err := r.s.DecodeJob(kv.KeyValue{Key: r.s.keys.jobs() + rest, Value: []byte("")})
		require.ErrorIs(t, err, ErrCorrupt, rest)
		require.Zero(t, job.ID, rest)
	}
	job, err := r.s.DecodeJob(kv.KeyValue{Key: r.s.keys.job(billing), Value: []byte("\xff")})
	require.ErrorIs(t, err, ErrCorrupt)
	require.Equal(t, billing, job.ID)
}

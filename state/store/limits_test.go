package store

import (
	"context"
	"crypto/sha256"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
)

// limited is a claim of a due run of a job that overlaps freely and has limits.
func limited(id state.JobID, revision int64, o state.Owner, n int, limits ...state.Limit) state.Claim {
	c := claimOf(id, revision, o, n, false)
	c.Gate, c.Limits, c.ApplyOverlap = state.Gate{}, limits, true
	c.Live.Claimed = c.Live.Due
	return c
}

// holds is how many places are taken at a limit.
func (r *rig) holds(id state.LimitID) int {
	held, err := r.s.LimitHolders(context.Background(), id)
	require.NoError(r.t, err)
	return len(held)
}

// A run has a place at each limit until its verdict, whoever gives it that; one that is
// due while a limit is reached waits, and is claimed by its pending key.
func TestPlacesAtLimits(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	term := r.lead("l")
	report := state.JobID{Namespace: "other", Name: "report"}
	rev, there, o := r.setJob(billing), r.setJob(report), r.register("n1")
	db, all := state.Limit{Name: "db", Max: 2}, state.Limit{Name: "all", Cluster: true, Max: 3}
	here, elsewhere, everywhere := db.ID("default", ""), db.ID("other", ""), all.ID("default", "")
	require.Equal(t, everywhere, all.ID("other", ""))

	first, second := r.start(limited(billing, rev, o, 0, db, all)), r.start(limited(billing, rev, o, 1, db, all))
	require.Equal(t, []state.Hold{{Limit: here, Place: 1}, {Limit: everywhere, Place: 1}}, first.Holds)
	waits := r.claim(limited(billing, rev, o, 2, db, all))
	require.Equal(t, state.ClaimQueued, waits.Status)
	require.Equal(t, 1, waits.Limit, "db is the one that is reached")
	require.Zero(t, waits.NotBefore)
	require.Equal(t, state.ClaimQueued, r.claim(limited(billing, rev, o, 2, db, all)).Status, "it waits already")

	third := r.start(limited(report, there, o, 0, db, all))
	require.Equal(t, []state.Hold{{Limit: elsewhere, Place: 1}, {Limit: everywhere, Place: 3}}, third.Holds)
	held := r.claim(limited(report, there, o, 1, db, all))
	require.Equal(t, state.ClaimQueued, held.Status)
	require.Equal(t, 2, held.Limit, "the cluster's is reached")

	// It goes on waiting, until there is room.
	pending, err := r.s.GetRun(ctx, billing, slotRun(2))
	require.NoError(t, err)
	require.NotZero(t, pending.Pending.Queued)
	again2 := limited(billing, rev, o, 2, db, all)
	again2.Pending = pending.Pending.Revision
	res := r.claim(again2)
	require.Equal(t, state.ClaimHeld, res.Status)
	require.Equal(t, 1, res.Limit)
	r.end(first)
	require.Equal(t, state.Claimed, r.claim(again2).Status)
	require.Equal(t, 2, r.holds(here))
	require.Equal(t, 3, r.holds(everywhere))

	// A run between attempts keeps its places, and whoever ends it gives them back.
	between := r.wait(second)
	require.Equal(t, second.Holds, between.Holds)
	require.Equal(t, 2, r.holds(here))
	ok, err := r.s.GiveUp(ctx, term, between, state.StateMissed, state.ReasonDeadline, slotAt(6), 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 1, r.holds(here))
	r.unregister(o)
	third.AtMostOnce = true
	_, ok, err = r.s.MarkLost(ctx, term, third, slotAt(6))
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, r.holds(elsewhere))
	require.Equal(t, 1, r.holds(everywhere))
}

// A limit that is per key bounds the runs of each key by itself, and those of none
// together with what names it as a whole. Further attempts and requeued runs keep the key.
func TestLimitPerKey(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	rev, o := r.setJob(billing), r.register("n1")
	each, whole := state.Limit{Name: "db", Max: 1, PerKey: true}, state.Limit{Name: "db", Max: 1}
	rate := state.Limit{Name: "api", PerKey: true, Rate: state.Rate{Runs: 1, Per: time.Hour}}
	n := 0
	claim := func(key string, limits ...state.Limit) state.Claim {
		n++
		c := limited(billing, rev, o, n, limits...)
		c.Live.LimitKey = key
		return c
	}
	odd := []string{"acme", "acme/0001", "/", "ü %", "db"}
	var live []state.Live
	for i, key := range append(odd, "") {
		l := r.start(claim(key, each))
		require.Equal(t, []state.Hold{{Limit: state.LimitID{Namespace: "default", Name: "db", Key: key}, Place: 1}}, l.Holds)
		live = append(live, l)
		for _, other := range append(odd, "")[:i+1] {
			require.Equal(t, state.ClaimQueued, r.claim(claim(other, each)).Status, other)
		}
	}
	require.Equal(t, state.ClaimQueued, r.claim(claim("", whole)).Status, "who has no key counts for the whole")
	require.Equal(t, state.ClaimQueued, r.claim(claim("acme", whole)).Status)
	r.end(live[len(odd)])
	require.Equal(t, state.ClaimQueued, r.claim(claim("acme", each)).Status)
	l := r.start(claim("acme", whole))
	require.Equal(t, state.LimitID{Namespace: "default", Name: "db"}, l.Holds[0].Limit, "who is not per key takes no notice of keys")

	between := r.wait(live[0])
	require.Equal(t, "acme", between.LimitKey)
	require.Equal(t, live[0].Holds, between.Holds)
	next := limited(billing, rev, o, 1, each)
	next.Live.Run, next.Live.Attempt, next.Token = between.Run, between.Attempt+1, between.Token
	res := r.claim(next)
	require.Equal(t, state.Claimed, res.Status)
	require.Equal(t, "acme", res.Live.LimitKey)
	require.Equal(t, live[0].Holds, res.Live.Holds)
	r.end(*res.Live)
	rec, _ := r.record(billing, between.Run)
	require.Equal(t, "acme", rec.LimitKey)
	require.Equal(t, state.Claimed, r.claim(claim("acme", each)).Status)

	for _, key := range []string{"acme", "other"} {
		require.Equal(t, state.Claimed, r.claim(claim(key, rate)).Status)
		require.Equal(t, state.ClaimQueued, r.claim(claim(key, rate)).Status)
	}

	r.put(r.s.keys.deadRun(named("dead"), slotRun(1)), string(codec.MarshalRecord(&state.Record{State: state.StateFailed, Due: slotAt(1), LimitKey: "acme"})))
	_, err := r.s.PutJob(ctx, putOf(named("dead"), specOf()))
	require.NoError(t, err)
	again, err := r.s.RequeueDead(ctx, state.Pending{Job: named("dead"), Run: state.TriggerRunID(slotAt(9), 1), Requested: slotAt(9), Origin: slotRun(1)})
	require.NoError(t, err)
	run, err := r.s.GetRun(ctx, named("dead"), again.Run)
	require.NoError(t, err)
	require.Equal(t, "acme", run.Pending.LimitKey)
}

// A key of limits is refused where there is none that is per key.
func TestSubmitWithLimitKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := openMemory(t)
		ctx := t.Context()
		spec := specOf()
		_, err := s.PutJob(ctx, putOf(billing, spec))
		require.NoError(t, err)
		sub, own := wish(1, "k", ""), specWish(2, "", "l", "")
		sub.Pending.LimitKey, own.Pending.LimitKey = "acme", "acme"
		_, _, err = s.Submit(ctx, sub)
		require.ErrorIs(t, err, ErrNotPerKey)
		_, _, _, err = s.SubmitSpec(ctx, own)
		require.ErrorIs(t, err, ErrNotPerKey)
		spec.Limits = []*leaderdv1.Limit{{Name: "whole", Max: 1}, {Name: "each", Max: 1, PerKey: true}}
		_, err = s.PutJob(ctx, putOf(billing, spec))
		require.NoError(t, err)
		_, _, err = s.Submit(ctx, sub)
		require.NoError(t, err)
		own.Spec = spec
		_, _, _, err = s.SubmitSpec(ctx, own)
		require.NoError(t, err)
		entry, err := s.GetRun(ctx, billing, sub.Pending.Run)
		require.NoError(t, err)
		require.Equal(t, "acme", entry.Pending.LimitKey)
		for _, key := range []string{"", "other"} {
			again, twice := wish(3, "k", ""), specWish(4, "", "", "")
			again.Pending.LimitKey, twice.Pending.LimitKey = key, key
			_, _, err = s.Submit(ctx, again)
			require.ErrorIs(t, err, ErrKeyReused, "it would count elsewhere")
			twice.Spec, twice.Key = spec, own.Key
			_, _, _, err = s.SubmitSpec(ctx, twice)
			require.ErrorIs(t, err, ErrKeyReused, "it would count elsewhere")
		}
		_, err = s.PutJob(ctx, putOf(billing, specOf()))
		require.NoError(t, err)
		again := wish(3, "k", "")
		again.Pending.LimitKey = "acme"
		_, duplicate, err := s.Submit(ctx, again)
		require.NoError(t, err)
		require.True(t, duplicate)
		require.Equal(t, sha256.Sum256([]byte("seven")), [32]byte(wishOf([]byte("seven"), keyPart(&state.Pending{})...)), "as those that are stored")
	})
}

// Of slots of a job that skips one waits, and the next are skipped; what was asked for
// waits all the same.
func TestWhoWaitsAtALimit(t *testing.T) {
	r := newRig(t)
	report := state.JobID{Namespace: "default", Name: "report"}
	rev, other, o := r.setJob(billing), r.setJob(report), r.register("n1")
	db := state.Limit{Name: "db", Max: 1}
	r.start(limited(report, other, o, 0, db))
	exclusive := func(n int) state.Claim {
		c := limited(billing, rev, o, n, db)
		c.Exclusive = true
		return c
	}
	early := exclusive(0)
	early.ApplyOverlap = false
	require.Equal(t, state.ClaimHeld, r.claim(early).Status, "it is not due yet")
	require.Equal(t, state.ClaimQueued, r.claim(exclusive(0)).Status)
	require.Equal(t, state.ClaimSkipped, r.claim(exclusive(1)).Status)
	rec, _ := r.record(billing, slotRun(1))
	require.Equal(t, "run "+string(slotRun(0))+" waits for limit db", rec.Detail)
	asked := exclusive(2)
	asked.Live.Run = state.TriggerRunID(slotAt(1), 1)
	asked.Pending = r.put(r.s.keys.pendingRun(billing, asked.Live.Run), "")
	require.Equal(t, state.ClaimQueued, r.claim(asked).Status)
}

// Tokens come evenly, a burst of them after a quiet time, and a clock that was wrong
// once stops nobody for long.
func TestRates(t *testing.T) {
	r := newRig(t)
	rev, o := r.setJob(billing), r.register("n1")
	rate := state.Limit{Name: "api", Rate: state.Rate{Runs: 2, Per: time.Second, Burst: 3}}
	at := slotAt(0)
	n := 0
	try := func(after time.Duration) state.ClaimResult {
		n++
		c := limited(billing, rev, o, n, rate)
		c.Live.Due, c.Live.Claimed = at, at.Add(after)
		return r.claim(c)
	}
	for range 3 {
		require.Equal(t, state.Claimed, try(0).Status)
	}
	res := try(0)
	require.Equal(t, state.ClaimQueued, res.Status)
	require.Equal(t, at.Add(500*time.Millisecond), res.NotBefore)
	require.Equal(t, state.ClaimQueued, try(499*time.Millisecond).Status)
	require.Equal(t, state.Claimed, try(500*time.Millisecond).Status)
	require.Equal(t, state.ClaimQueued, try(501*time.Millisecond).Status)
	for range 3 {
		require.Equal(t, state.Claimed, try(time.Minute).Status, "it has filled up")
	}
	require.Equal(t, state.ClaimQueued, try(time.Minute).Status)
	require.Equal(t, state.Claimed, try(3*time.Hour).Status, "a clock that is ahead")
	require.Equal(t, state.Claimed, try(time.Minute+time.Second).Status, "is not believed by others")

	term := r.lead("l")
	require.NoError(t, r.s.SweepRates(t.Context(), term, at.Add(time.Minute)))
	require.Equal(t, 1, r.count(r.s.keys.prefix+"rates/"), "it is in use")
	require.NoError(t, r.s.SweepRates(t.Context(), term, at.Add(time.Hour)))
	require.Zero(t, r.count(r.s.keys.prefix+"rates/"))
	require.Equal(t, state.Claimed, try(time.Hour).Status)
	require.ErrorIs(t, r.s.SweepRates(t.Context(), state.Term{Number: 1, Key: "x"}, at.Add(3*time.Hour)), state.ErrTermLost)
}

// A rate that was raised counts at once, whatever starts by the one before have used up;
// and jobs that differ in a rate keep to their own.
func TestRatesDiffer(t *testing.T) {
	r := newRig(t)
	rev, o := r.setJob(billing), r.register("n1")
	slow := state.Limit{Name: "api", Rate: state.Rate{Runs: 1, Per: time.Hour, Burst: 3}}
	quick := state.Limit{Name: "api", Rate: state.Rate{Runs: 1, Per: time.Second}}
	n := 0
	try := func(limit state.Limit, after time.Duration) state.ClaimResult {
		n++
		c := limited(billing, rev, o, n, limit)
		c.Live.Due, c.Live.Claimed = slotAt(0), slotAt(0).Add(after)
		return r.claim(c)
	}
	for range 3 {
		require.Equal(t, state.Claimed, try(slow, 0).Status)
	}
	require.Equal(t, slotAt(0).Add(time.Hour), try(slow, 0).NotBefore)
	require.Equal(t, slotAt(0).Add(time.Second), try(quick, 0).NotBefore)
	for i := range 5 {
		at := time.Duration(i+1) * time.Second
		require.Equal(t, state.Claimed, try(quick, at).Status)
		require.Equal(t, state.ClaimQueued, try(quick, at+999*time.Millisecond).Status)
	}
	require.Equal(t, slotAt(0).Add(time.Hour), try(slow, time.Minute).NotBefore, "the quick ones do not put it off")
	require.Equal(t, state.Claimed, try(slow, time.Hour).Status)
	require.Equal(t, state.ClaimQueued, try(slow, time.Hour).Status)
}

func (r *rig) count(prefix string) int {
	res, err := r.db.Range(context.Background(), prefix, end(prefix), kv.RangeOptions{})
	require.NoError(r.t, err)
	return len(res.KVs)
}

// A place that cannot be read counts as taken. A key among them that is none shuts the
// limit, or the gate, where claims meet it: what is due waits or is skipped, and the key is
// told. No claim fails by it, and all goes on once it is deleted.
func TestUnreadablePlaces(t *testing.T) {
	r := newRig(t)
	rev, o := r.setJob(billing), r.register("n1")
	db, three := state.Limit{Name: "db", Max: 3}, state.Gate{Policy: state.OverlapAllow, Limit: 3}
	for i, of := range []struct {
		name string
		fit  int // how many runs start beside it
	}{{"0002", 2}, {"0002/x", 3}, {"!", 3}, {"1", 0}, {"0005/x", 0}, {"abc", 0}, {"9999", 0}} {
		atLimit, atGate := r.s.keys.limitPlaces(db.ID("default", ""))+of.name, r.s.keys.placesOf(billing, "")+of.name
		r.put(atLimit, "\xff")
		r.put(atGate, "\xff")
		var live []state.Live
		for n := range 4 {
			waits, skipped := limited(billing, rev, o, 20*i+n, db), gated(billing, rev, o, 20*i+10+n, three)
			if n < of.fit {
				live = append(live, r.start(waits), r.start(skipped))
				continue
			}
			require.Equal(t, state.ClaimQueued, r.claim(waits).Status, of.name)
			require.Equal(t, state.ClaimSkipped, r.claim(skipped).Status, of.name)
		}
		held, err := r.s.LimitHolders(t.Context(), db.ID("default", ""))
		require.NoError(t, err)
		require.Contains(t, held, Holder{Unreadable: atLimit})
		held, err = r.s.GateHolders(t.Context(), billing, three)
		require.NoError(t, err)
		require.Contains(t, held, Holder{Unreadable: atGate})
		require.Len(t, held, of.fit+1)
		if of.fit == 0 {
			rec, _ := r.record(billing, slotRun(20*i+10))
			require.Equal(t, "the run of the key "+atGate+", which cannot be read, was live", rec.Detail)
		}
		for _, l := range live {
			r.end(l)
		}
		r.remove(atLimit)
		r.remove(atGate)
		r.end(r.start(limited(billing, rev, o, 20*i+19, db)))
		r.end(r.start(gated(billing, rev, o, 20*i+18, three)))
	}
}

// A run that waits at a limit already reads no other's keys when it is held again.
func TestHeldAtALimitReadsItsOwn(t *testing.T) {
	r := newRig(t)
	rev, o := r.setJob(billing), r.register("n1")
	db := state.Limit{Name: "db", Max: 1}
	r.start(limited(billing, rev, o, 0, db))
	var last state.Claim
	for n := range 5 {
		last = limited(billing, rev, o, n+1, db)
		require.Equal(t, state.ClaimQueued, r.claim(last).Status)
	}
	run, err := r.s.GetRun(t.Context(), billing, last.Live.Run)
	require.NoError(t, err)
	last.Pending = run.Pending.Revision
	r.onTxn(func(txn *kv.Txn) faulty.Fault {
		for _, op := range txn.Then {
			require.False(t, op.Key == r.s.keys.pendingOf(billing) && op.End != "", "it reads all")
		}
		return faulty.Fault{}
	})
	require.Equal(t, state.ClaimHeld, r.claim(last).Status)
}

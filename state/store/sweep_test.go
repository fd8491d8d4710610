package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// sweeps carries out a sweep to its end.
func sweeps(t testing.TB, s *Store, term state.Term, sw state.Sweep) (done state.Swept) {
	for n := 0; ; n++ {
		one, err := s.SweepJob(t.Context(), term, sw)
		require.NoError(t, err)
		done.Removed += one.Removed
		done.Packed += one.Packed
		if !one.More {
			return done
		}
		require.Less(t, n, 10_000, "no end")
		sw.After, sw.Passed = one.After, one.Passed
	}
}

// everything is a sweep that may touch all records that were written by now.
func (r *rig) everything(id state.JobID, keep int) state.Sweep {
	far := slotAt(1_000_000)
	return state.Sweep{Job: id, MaxRuns: keep, Bound: far, Young: far, Closed: r.put(r.s.Prefix()+"now", "")}
}

// runsOf are all runs of a job, as they are listed.
func runsOf(t testing.TB, s *Store, id state.JobID, page int) (out []RunEntry) {
	l := ListRuns{Namespace: id.Namespace, Job: id.Name, Limit: page}
	for {
		p, err := s.ListRuns(t.Context(), l)
		require.NoError(t, err)
		out = append(out, p.Runs...)
		if !p.More {
			return out
		}
		l.AfterJob, l.AfterRun = p.LastJob, p.LastRun
	}
}

// TestPackedReadsAsBefore: whatever is packed, and when, every reader answers what it
// answers of a twin of which nothing is.
func TestPackedReadsAsBefore(t *testing.T) {
	ignore := []cmp.Option{
		cmpopts.IgnoreUnexported(RunEntry{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(state.Record{}, "Job", "Revision"),
		cmpopts.IgnoreFields(RunEntry{}, "Job"),
	}
	twin := state.JobID{Namespace: billing.Namespace, Name: "twin"}
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		r.setJob(billing)
		term := r.lead("l")
		const slots = 400
		revisions := map[state.RunID]int64{}
		add := func(run state.RunID, rec state.Record) {
			if _, twice := revisions[run]; twice {
				return
			}
			writeRecord(t, r.s, billing, run, rec)
			got, err := r.s.GetRun(t.Context(), billing, run)
			require.NoError(rt, err)
			revisions[run] = got.Record.Revision
			writeRecord(t, r.s, twin, run, rec)
		}
		at := 0
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			for range rapid.IntRange(1, 60).Draw(rt, "records") {
				at += rapid.IntRange(1, 3).Draw(rt, "step")
				n := at
				if rapid.IntRange(0, 5).Draw(rt, "late") == 0 {
					n = rapid.IntRange(0, at).Draw(rt, "earlier")
				}
				rec := state.Record{State: state.StateSucceeded, Due: slotAt(n), Recorded: slotAt(at).Add(time.Second), Tail: []byte(fmt.Sprint("run ", n))}
				switch rapid.IntRange(0, 6).Draw(rt, "kind") {
				case 0:
					add(state.TriggerRunID(slotAt(n), uint32(at)), rec)
				case 1:
					rec.State, rec.Until, rec.Count, rec.Due = state.StateMissed, slotAt(at+4), 5, slotAt(at)
					add(slotRun(at), rec)
					at += 4
				case 2:
					b := state.BackfillID(fmt.Sprintf("%s-%08x", slotRun(at), n))
					add(b.Run(slotAt(n)), rec)
				default:
					add(slotRun(n), rec)
				}
			}
			sweeps(t, r.s, term, r.everything(billing, 1_000_000))
		}
		want := runsOf(t, r.s, twin, 1000)
		require.Empty(rt, cmp.Diff(want, runsOf(t, r.s, billing, rapid.IntRange(1, 50).Draw(rt, "page")), ignore...))
		for run, revision := range revisions {
			got, err := r.s.GetRun(t.Context(), billing, run)
			require.NoError(rt, err)
			require.Equal(rt, revision, got.Record.Revision)
		}
		probe := rapid.IntRange(0, slots).Draw(rt, "probe")
		one := func(id state.JobID) any {
			n := probe
			run := slotRun(n)
			e, err := r.s.GetRun(t.Context(), id, run)
			return []any{err == nil, e.Record}
		}
		require.Empty(rt, cmp.Diff(one(twin), one(billing), ignore...))
		from := rapid.IntRange(0, at).Draw(rt, "from")
		to := rapid.IntRange(from+1, at+10).Draw(rt, "to")
		limit := rapid.IntRange(1, 70).Draw(rt, "limit")
		window := func(id state.JobID) any {
			slots, err := r.s.ListSlots(t.Context(), ListSlots{Job: id, From: slotAt(from), To: slotAt(to), Limit: limit})
			require.NoError(rt, err)
			decided, err := r.s.ListDecided(t.Context(), id, slotAt(from), slotAt(to))
			require.NoError(rt, err)
			filled, err := r.s.BackfilledSlots(t.Context(), id, slotAt(from), slotAt(to))
			require.NoError(rt, err)
			newest, err := r.s.ListRuns(t.Context(), ListRuns{Namespace: id.Namespace, NewestFirst: true, Since: slotAt(from), Limit: 1000})
			require.NoError(rt, err)
			var runs []state.RunID
			for _, e := range newest.Runs {
				if e.Job == id {
					runs = append(runs, e.Run)
				}
			}
			return []any{slots, decided.Slots, decided.Ranges, filled, runs}
		}
		opts := slices.Concat(ignore, []cmp.Option{cmpopts.SortSlices(func(a, b state.Record) bool { return a.Run < b.Run })})
		require.Empty(rt, cmp.Diff(window(twin), window(billing), opts...))
	})
}

// TestSweepKeepsWhatItMust: a sweep of everything leaves the newest runs of the
// number, and notes what it removed; with the note, no slot up to there is undecided.
func TestSweepKeepsWhatItMust(t *testing.T) {
	for _, keep := range []int{1, 7, 20, 300} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			r := newRig(t)
			r.setJob(billing)
			term := r.lead("l")
			const runs = 1000
			for n := range runs {
				writeRecord(t, r.s, billing, slotRun(n), state.Record{State: state.StateSucceeded, Due: slotAt(n), Recorded: slotAt(n)})
				if n%170 == 0 {
					sweeps(t, r.s, term, r.everything(billing, keep))
				}
			}
			sweeps(t, r.s, term, r.everything(billing, keep))
			left := runsOf(t, r.s, billing, 100)
			require.GreaterOrEqual(t, len(left), keep)
			require.LessOrEqual(t, len(left), keep+max(keep/8, packRuns))
			require.Equal(t, slotRun(runs-1), left[0].Run)
			oldest := runs - len(left)
			require.Equal(t, slotRun(oldest), left[len(left)-1].Run, "a hole")
			floor, err := r.s.Floor(t.Context(), billing)
			require.NoError(t, err)
			require.Equal(t, slotAt(oldest-1), floor.Instant)
			require.EqualValues(t, oldest, floor.Removed)
			decided, err := r.s.ListDecided(t.Context(), billing, slotAt(0), slotAt(runs+1))
			require.NoError(t, err)
			require.True(t, decided.Has(slotAt(0)))
			require.True(t, decided.Has(slotAt(runs-1)))
			require.False(t, decided.Has(slotAt(runs)))
		})
	}
}

// TestSweepLeavesAlone: what is young, not closed yet, of a backfill that is under way
// or at the job's gate is neither removed nor packed, whatever the limits say.
func TestSweepLeavesAlone(t *testing.T) {
	record := func(n int) state.Record {
		return state.Record{State: state.StateSucceeded, Due: slotAt(n), Recorded: slotAt(n)}
	}
	for name, test := range map[string]func(r *rig, sw *state.Sweep) state.RunID{
		"written after the closing": func(r *rig, _ *state.Sweep) state.RunID {
			writeRecord(t, r.s, billing, slotRun(3), record(3))
			return slotRun(3)
		},
		"written late": func(r *rig, sw *state.Sweep) state.RunID {
			rec := record(3)
			rec.Recorded = slotAt(500)
			writeRecord(t, r.s, billing, slotRun(3), rec)
			*sw = r.everything(billing, 1)
			sw.Young = slotAt(400)
			return slotRun(3)
		},
		"behind the bound": func(r *rig, sw *state.Sweep) state.RunID {
			writeRecord(t, r.s, billing, slotRun(300), record(300))
			*sw = r.everything(billing, 1)
			sw.Bound = slotAt(299)
			return slotRun(300)
		},
		"a range that ends behind the bound": func(r *rig, sw *state.Sweep) state.RunID {
			rec := record(3)
			rec.Until, rec.Count = slotAt(300), 2
			writeRecord(t, r.s, billing, slotRun(3), rec)
			*sw = r.everything(billing, 1)
			sw.Bound = slotAt(299)
			return slotRun(3)
		},
		"at the gate": func(r *rig, sw *state.Sweep) state.RunID {
			writeLive(t, r.s, state.Live{Job: billing, Run: slotRun(3), Shards: 1, State: state.StateRunning, Exclusive: true})
			writeRecord(t, r.s, billing, slotRun(3), record(3))
			*sw = r.everything(billing, 1)
			return slotRun(3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setJob(billing)
			term := r.lead("l")
			for n := 100; n < 200; n++ {
				writeRecord(t, r.s, billing, slotRun(n), record(n))
			}
			sw := r.everything(billing, 1)
			run := test(r, &sw)
			sweeps(t, r.s, term, sw)
			require.LessOrEqual(t, len(runsOf(t, r.s, billing, 100)), 3)
			_, ok := r.get(r.s.keys.historyRun(billing, run))
			require.True(t, ok)
		})
	}
}

// TestSweepOfTheGatesRun: by age the verdict of the run that the gate names goes too,
// and its dead record with it, so that the run is not live again; the job's next claim
// is made.
func TestSweepOfTheGatesRun(t *testing.T) {
	r := newRig(t)
	job := r.setJob(billing)
	owner := r.register("x")
	term := r.lead("l")
	l := r.start(claimOf(billing, job, owner, 1, true))
	r.end(l)
	sw := r.everything(billing, 10)
	sw.Before = slotAt(1_000_000)
	require.Equal(t, 1, sweeps(t, r.s, term, sw).Removed)
	_, held, err := r.s.GateHolder(t.Context(), billing)
	require.NoError(t, err)
	require.False(t, held)
	live, err := r.s.ListLive(t.Context(), func(*state.Live) bool { return true })
	require.NoError(t, err)
	require.Empty(t, live)
	require.Equal(t, state.TokenFenced, r.finish(endOf(l, state.StateSucceeded)), "its end that comes once more")
	other := r.other() // which does not know
	other.holders.set(billing, holder{run: l.Run, token: l.Token})
	res, err := other.Claim(t.Context(), claimOf(billing, job, owner, 2, true))
	require.NoError(t, err)
	require.Equal(t, state.Claimed, res.Status)
}

// TestSweptSlotIsNotClaimed: of a slot whose record was removed or packed no claim is
// made any more: neither by a plan of old, nor by one that catches it up.
func TestSweptSlotIsNotClaimed(t *testing.T) {
	for name, keep := range map[string]int{"removed": 1, "packed": 1000} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, exclusive bool) {
				r := newRig(t)
				job := r.setJob(billing)
				owner := r.register("x")
				term := r.lead("l")
				// The slot is caught up: planned under a closing that lies behind it.
				closing := r.closeTo(term, 200)
				caught := claimOf(billing, job, owner, 1, exclusive)
				caught.ClosedRevision = closing.Revision
				r.end(r.start(caught))
				for n := 2; n < 100; n++ {
					writeRecord(t, r.s, billing, slotRun(n), state.Record{State: state.StateSucceeded, Due: slotAt(n)})
				}
				if exclusive { // another run is at the gate now
					newer := claimOf(billing, job, owner, 150, true)
					newer.ClosedRevision = closing.Revision
					r.end(r.start(newer))
				}
				sw := state.Sweep{Job: billing, MaxRuns: keep, Bound: slotAt(200), Young: slotAt(1_000_000), Closed: closing.Revision}
				done := sweeps(t, r.s, term, sw)
				require.Zero(t, done.Removed+done.Packed, "nothing was written before the closing")

				sw.Closed = r.closeTo(term, 201).Revision
				sweeps(t, r.s, term, sw)
				_, ok := r.get(r.s.keys.historyRun(billing, slotRun(1)))
				require.False(t, ok)
				for _, s := range []*Store{r.s, r.other()} {
					for _, c := range []state.Claim{caught, claimOf(billing, job, owner, 1, exclusive)} {
						res, err := s.Claim(t.Context(), c)
						require.NoError(t, err)
						require.NotEqual(t, state.Claimed, res.Status)
					}
				}
			})
		})
	}
}

// TestSweepIsFenced: a leader that is over removes nothing, and what changed since a
// step looked is left alone.
func TestSweepIsFenced(t *testing.T) {
	r := newRig(t)
	r.setJob(billing)
	term := r.lead("l")
	for n := range 100 {
		writeRecord(t, r.s, billing, slotRun(n), state.Record{State: state.StateSucceeded, Due: slotAt(n)})
	}
	sw := r.everything(billing, 1)
	r.depose(term)
	_, err := r.s.SweepJob(t.Context(), term, sw)
	require.ErrorIs(t, err, state.ErrTermLost)
	sw.MaxRuns = 1000
	_, err = r.s.SweepJob(t.Context(), term, sw)
	require.ErrorIs(t, err, state.ErrTermLost)
	require.Len(t, runsOf(t, r.s, billing, 100), 100)
}

// TestForgetJob: what a deleted job leaves goes when its runs have gone, and not while
// there is a job of the name.
func TestForgetJob(t *testing.T) {
	r := newRig(t)
	term := r.lead("l")
	_, err := r.s.PutJob(t.Context(), putOf(billing, specOf("@daily")))
	require.NoError(t, err)
	job, err := r.s.GetJob(t.Context(), billing)
	require.NoError(t, err)
	now := job.Job.Updated.Add(time.Hour)
	forget := func() bool {
		done, err := r.s.ForgetJob(t.Context(), term, billing, now.Add(time.Second))
		require.NoError(t, err)
		return done
	}
	require.False(t, forget(), "it is there")
	require.NoError(t, r.s.DeleteJob(t.Context(), ChangeJob{ID: billing, Actor: "a", Now: now}))
	require.False(t, forget(), "no leader has decided its last slots")
	gone, err := r.s.ListDeleted(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.s.ForgetDeleted(t.Context(), term, &gone[0]))
	writeRecord(t, r.s, billing, slotRun(1), state.Record{State: state.StateSucceeded, Due: slotAt(1)})
	require.False(t, forget(), "it has history")
	sw := r.everything(billing, 10)
	sw.Before = slotAt(1_000_000)
	sweeps(t, r.s, term, sw)
	broken := state.NewBackfillID(slotAt(1), 1) // which never ended
	r.put(r.s.keys.backfill(billing, broken), "\xff")
	r.put(r.s.keys.backfillSlots(billing, broken), "s")
	require.True(t, forget())
	left, err := r.s.kv.Range(t.Context(), r.s.Prefix(), kv.PrefixEnd(r.s.Prefix()), kv.RangeOptions{KeysOnly: true})
	require.NoError(t, err)
	for _, found := range left.KVs {
		require.NotContains(t, found.Key, "/"+jobPart(billing))
	}
	require.False(t, forget(), "once")
}

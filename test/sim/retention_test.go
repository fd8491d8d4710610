package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

// count is how many runs of a job are kept.
func (w *world) count(j *job) (n int) {
	w.t.Helper()
	l := store.ListRuns{Namespace: j.id.Namespace, Job: j.id.Name, Limit: 1000}
	for {
		page, err := w.api.ListRuns(w.ctx, l)
		require.NoError(w.t, err)
		n += len(page.Runs)
		if !page.More {
			return n
		}
		l.AfterJob, l.AfterRun = page.LastJob, page.LastRun
	}
}

// keys is how many keys begin with a prefix.
func (w *world) keys(prefix string) int {
	w.t.Helper()
	found, err := w.mem.Range(w.ctx, prefix, kv.PrefixEnd(prefix), kv.RangeOptions{KeysOnly: true})
	require.NoError(w.t, err)
	return len(found.KVs)
}

// TestRetention: what a job keeps is bounded by number and by age, over failovers;
// older runs are packed, and no slot that was swept runs again.
func TestRetention(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.plan.Retention.Period = time.Minute
		few := newJob("few", "*/10 * * * * *").with(func(s *state.JobSpec) { s.Retention = state.Retention{MaxRuns: 40} })
		young := newJob("young", "*/30 * * * * *").with(func(s *state.JobSpec) {
			s.Retention, s.Overlap = state.Retention{MaxAge: 20 * time.Minute}, state.OverlapSkip
		})
		all := newJob("all", "* * * * *")
		once := newJob("once", "@at 2000-01-01T00:05:00Z").with(func(s *state.JobSpec) {
			s.Retention, s.Overlap = state.Retention{MaxAge: 10 * time.Minute}, state.OverlapSkip
		})
		for _, j := range []*job{few, young, all, once} {
			w.put(j)
		}
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		begun := time.Now()
		for i := range 6 {
			w.pass(25 * time.Minute)
			w.control([]string{"c2", "c1"}[i%2])
			w.controls[[]string{"c1", "c2"}[i%2]].kill()
		}
		w.pass(25 * time.Minute)
		passed := time.Since(begun)
		// Ten minutes are always kept, and some are added between two looks.
		require.LessOrEqual(t, w.count(few), 40+14*6)
		require.GreaterOrEqual(t, w.count(few), 40)
		require.LessOrEqual(t, w.count(young), 24*2)
		require.GreaterOrEqual(t, w.count(young), 19*2)
		require.InDelta(t, int(passed/time.Minute), w.count(all), 2)
		require.Zero(t, w.count(once), "and the gate with it")
		require.Less(t, w.keys(store.DefaultPrefix+"history/ns/all/"), 45)
		require.Positive(t, w.keys(store.DefaultPrefix+"segments/ns/all/"))
		require.Zero(t, w.keys(store.DefaultPrefix+"active/ns/once/"))
		floor, err := w.api.Floor(w.ctx, few.id)
		require.NoError(t, err)
		require.Positive(t, floor.Removed)
		w.verify(true)
	})
}

// TestRetentionOfDeletedJobs: what a deleted job leaves goes by age, its versions too.
func TestRetentionOfDeletedJobs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.plan.Retention.Period, w.plan.Retention.MaxAge = time.Minute, 30*time.Minute
		gone := newJob("gone", "*/10 * * * * *")
		stays := newJob("stays", "*/10 * * * * *")
		w.put(gone)
		w.put(stays)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(15 * time.Minute)
		w.delete(gone)
		w.pass(20 * time.Minute)
		require.Positive(t, w.count(gone))
		w.pass(30 * time.Minute)
		require.Zero(t, w.count(gone))
		for _, below := range []string{"history/", "segments/", "versions/", "swept/"} {
			require.Zero(t, w.keys(store.DefaultPrefix+below+"ns/gone/")+w.keys(store.DefaultPrefix+below+"ns/gone"), below)
			if below == "versions/" {
				require.Positive(t, w.keys(store.DefaultPrefix+below+"ns/stays"))
			}
		}
		w.put(gone)
		w.pass(time.Minute)
		require.Positive(t, w.count(gone), "a new job of the name")
	})
}

// TestSweepingInAnOutage: nobody leads for long, with history that is to go: slots
// that were decided before are not worked up again, and each of the outage gets its
// verdict.
func TestSweepingInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.plan.Retention.Period, w.plan.Retention.MaxRuns = time.Minute, 1
		var jobs []*job
		for name, catchUp := range map[string]state.CatchUp{"all": state.CatchUpAll, "latest": state.CatchUpLatest, "none": state.CatchUpNone} {
			j := newJob(name, "*/5 * * * * *").with(func(s *state.JobSpec) {
				s.CatchUp, s.StartDeadline, s.Overlap = catchUp, time.Hour, state.OverlapSkip
			})
			jobs = append(jobs, j)
			w.put(j)
		}
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.pass(25 * time.Minute)
		w.controls["c1"].kill()
		w.pass(20 * time.Minute)
		w.control("c2")
		w.pass(40 * time.Minute)
		for _, j := range jobs {
			require.Less(t, w.count(j), 200)
		}
		w.verify(true)
	})
}

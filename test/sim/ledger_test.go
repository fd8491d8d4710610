package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/ledger"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/store"
)

// ledger counts what a job's ledger answers of a window; the slots that it answers as a
// range count each.
func (w *world) ledger(j *job, from, to time.Time) map[string]int64 {
	w.t.Helper()
	in := &ledger.Input{Now: time.Now()}
	var err error
	in.Mark, err = w.api.GetWatermark(w.ctx)
	require.NoError(w.t, err)
	entries, err := w.api.ListVersions(w.ctx, j.id, 0, state.MaxVersionsKept)
	require.NoError(w.t, err)
	var versions []state.JobVersion
	for i := range entries {
		entries[i].Version.Job.Revision = entries[i].Revision
		versions = append(versions, entries[i].Version)
	}
	in.Spans = ledger.Spans(versions)
	page, err := w.api.ListSlots(w.ctx, store.ListSlots{Job: j.id, From: from, To: to, Limit: 5000})
	require.NoError(w.t, err)
	require.True(w.t, page.Until.Equal(to))
	in.Records = page.Slots
	answers, next := ledger.List(in, ledger.Window{Since: from, From: from, To: to, Most: 5000})
	require.True(w.t, next.IsZero())
	counts := map[string]int64{}
	for _, a := range answers {
		name := strings.ToLower(strings.TrimPrefix(a.Answer.String(), "ANSWER_"))
		if a.Answer == leaderdv1.Slot_ANSWER_VERDICT {
			rec := a.Run.Record
			if name = rec.State.String(); rec.Reason != "" {
				name += ":" + rec.Reason
			}
		}
		counts[name] += a.Count
	}
	return counts
}

// TestLedgerOverFailovers has leaders die and the whole cluster stand still while a job
// is paused, resumed and edited: its ledger has an answer for every minute, and no slot
// that nobody can explain.
func TestLedgerOverFailovers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		j := newJob("minutely", "* * * * *")
		w.worker("e1", place{})
		w.control("c1")
		w.awaitLeader(0)
		w.until(time.Now().Truncate(time.Minute).Add(90 * time.Second))
		w.put(j)
		from := time.Now().Truncate(time.Second)
		number := 1
		failover := func() {
			term := w.leader().term.Load()
			w.controls[fmt.Sprintf("c%d", number)].kill()
			number++
			w.control(fmt.Sprintf("c%d", number))
			w.awaitLeader(term)
		}
		w.pass(5 * time.Minute)
		failover()
		w.pass(5 * time.Minute)
		w.pause(j)
		w.pass(3 * time.Minute)
		failover()
		w.pass(4 * time.Minute)
		w.resume(j)
		w.pass(2 * time.Minute)
		w.put(j.with(func(s *state.JobSpec) { s.Schedules = []string{"*/2 * * * *"} }))
		failover()
		w.pass(10 * time.Minute)
		// An outage of an hour.
		w.controls[fmt.Sprintf("c%d", number)].kill()
		w.workers["e1"].kill()
		w.pass(time.Hour)
		w.worker("e2", place{})
		w.control("c9")
		w.awaitLeader(0)
		w.pass(5 * time.Minute)

		to := time.Now().Truncate(time.Second)
		got := w.ledger(j, from, to)
		require.Zero(t, got["unexplained"], "%v", got)
		require.EqualValues(t, 7, got["paused"], "%v", got)
		require.GreaterOrEqual(t, got["missed:outage"], int64(28), "%v", got)
		var total int64
		for _, n := range got {
			total += n
		}
		require.Equal(t, int64(to.Sub(from)/time.Minute), total, "each minute was due, paused or edited away: %v", got)
		t.Log(got)
		w.verify(true)
	})
}

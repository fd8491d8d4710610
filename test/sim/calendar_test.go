package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/store"
)

// putCalendar stores a calendar of namespace ns.
func (w *world) putCalendar(name string, entries ...state.CalendarEntry) int {
	w.t.Helper()
	res, err := w.api.PutCalendar(w.ctx, store.PutCalendar{
		ID: state.CalendarID{Namespace: "ns", Name: name}, Spec: codec.CalendarSpecToProto(&state.CalendarSpec{Entries: entries}),
		AllowMissing: true, Actor: "test", Now: w.client.wall,
	})
	require.NoError(w.t, err)
	return res.Jobs
}

func period(from, to time.Time) state.CalendarEntry {
	return state.CalendarEntry{Name: "break", Start: from, End: to}
}

// TestCalendars has one job avoid a calendar and another keep to it, while it is
// changed and the leader lost.
func TestCalendars(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		begun := time.Now().UTC().Truncate(time.Minute)
		at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
		w.putCalendar("break", period(at(20), at(40)))
		avoids := newJob("avoids", "*/5 * * * * *").with(func(s *state.JobSpec) { s.ExcludedCalendars = []string{"break"} })
		keeps := newJob("keeps", "*/5 * * * * *").with(func(s *state.JobSpec) { s.OnlyCalendars = []string{"break"} })
		w.put(avoids)
		w.put(keeps)
		w.control("c1")
		w.control("c2")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(at(31))
		w.leader().kill()
		w.until(at(51))
		for s := 5; s <= 50; s += 5 {
			in := s >= 20 && s < 40
			want := map[bool]string{true: "skipped:calendar", false: "succeeded"}
			require.Equal(t, want[in], w.slotVerdict(avoids, at(s)), "%d s", s)
			require.Equal(t, want[!in], w.slotVerdict(keeps, at(s)), "%d s", s)
		}
		require.Contains(t, w.entry(avoids, state.SlotRunID(at(25))).Record.Detail, "in calendar break: break, ")
		require.Equal(t, "outside of calendar break", w.entry(keeps, state.SlotRunID(at(5))).Record.Detail)

		// What was planned by the old calendar does not start by it.
		require.Equal(t, 2, w.putCalendar("break", period(at(52), at(70))))
		require.Zero(t, w.putCalendar("break", period(at(52), at(70))), "it is so already")
		w.until(at(81))
		for s := 55; s < 70; s += 5 {
			require.Equal(t, "skipped:calendar", w.slotVerdict(avoids, at(s)))
			require.Equal(t, "succeeded", w.slotVerdict(keeps, at(s)))
		}
		require.Equal(t, "succeeded", w.slotVerdict(avoids, at(70)))

		id := state.CalendarID{Namespace: "ns", Name: "break"}
		used := &store.CalendarInUseError{}
		require.ErrorAs(t, w.api.DeleteCalendar(w.ctx, id, 0), &used)
		require.Equal(t, []state.JobID{avoids.id, keeps.id}, used.Jobs)
		w.delete(avoids)
		w.put(keeps.with(func(s *state.JobSpec) { s.OnlyCalendars = nil }))
		require.NoError(t, w.api.DeleteCalendar(w.ctx, id, 0))
		_, err := w.api.PutJob(w.ctx, store.PutJob{
			ID: avoids.id, Spec: avoids.proto(), AllowMissing: true, Actor: "test", Now: w.client.wall(),
		})
		missing := &store.MissingCalendarsError{}
		require.ErrorAs(t, err, &missing)
		w.pass(time.Minute)
		w.verify(true)
	})
}

// TestCalendarInAnOutage has equal skips of a time without a leader in one record.
func TestCalendarInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		begun := time.Now().UTC().Truncate(time.Minute)
		at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
		w.putCalendar("break", period(at(30), at(60)))
		j := newJob("a", "*/5 * * * * *").with(func(s *state.JobSpec) { s.ExcludedCalendars = []string{"break"} })
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(at(12))
		w.controls["c1"].kill()
		w.workers["e1"].kill()
		w.until(at(58))
		w.control("c2")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(at(72))
		skipped := w.entry(j, state.SlotRunID(at(30))).Record
		require.Equal(t, "skipped:calendar", w.slotVerdict(j, at(30)))
		require.EqualValues(t, 6, skipped.Count)
		require.Equal(t, at(55), skipped.Until)
		require.Equal(t, "missed:outage", w.slotVerdict(j, at(15)))
		require.Equal(t, "succeeded", w.slotVerdict(j, at(25)), "the newest that may run")
		w.verify(true)
	})
}

package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/faulty"
	"github.com/leaderd/leaderd/state/store"
)

func outageJobs(w *world) (latest, none, rare *job) {
	latest = newJob("latest", "*/5 * * * * *")
	none = newJob("none", "*/5 * * * * *").with(func(s *state.JobSpec) { s.CatchUp = state.CatchUpNone })
	rare = newJob("rare", "30 * * * * *")
	for _, j := range []*job{latest, none, rare} {
		w.put(j)
	}
	return latest, none, rare
}

// TestOutage has nobody there for a minute.
func TestOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		latest, none, rare := outageJobs(w)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		begun := time.Now()
		w.until(begun.Truncate(time.Minute).Add(12 * time.Second))
		w.controls["c1"].kill()
		w.workers["e1"].kill()
		down := time.Now() // :12
		w.pass(time.Minute)
		w.control("c1")
		w.worker("e1", place{})
		c := w.awaitLeader(0)
		up := time.Now()
		w.pass(10 * time.Second)
		at := func(s int) time.Time { return down.Truncate(time.Minute).Add(time.Duration(s) * time.Second) }

		require.Equal(t, "succeeded", w.slotVerdict(latest, at(10)))
		for s := 15; s <= 65; s += 5 {
			require.Equal(t, "missed:outage", w.slotVerdict(latest, at(s)))
			require.Equal(t, "missed:outage", w.slotVerdict(none, at(s)))
		}
		require.EqualValues(t, 11, w.entry(latest, state.SlotRunID(at(15))).Record.Count, "as one range")
		require.Equal(t, "succeeded", w.slotVerdict(latest, at(70)))
		require.Equal(t, "missed:outage", w.slotVerdict(none, at(70)))
		require.Equal(t, "succeeded", w.slotVerdict(rare, at(30)))
		require.Len(t, w.history.of(rare), 1)
		w.punctual(latest, up, up.Add(8*time.Second), 0)
		w.punctual(none, up, up.Add(8*time.Second), 0)
		require.Empty(t, c.terms())
		w.verify(true)
	})
}

// TestStoreAway has all nodes standing, and the store away for a minute.
func TestStoreAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		latest, _, rare := outageJobs(w)
		links := []*link{w.control("c1").link, w.control("c2").link, w.worker("e1", place{}).link, w.worker("e2", place{}).link}
		w.awaitLeader(0)
		w.until(time.Now().Truncate(time.Minute).Add(12 * time.Second))
		for _, l := range links {
			l.setDown(true)
		}
		w.pass(time.Minute)
		for _, l := range links {
			l.setDown(false)
		}
		w.awaitLeader(0)
		w.pass(10 * time.Second)
		up := time.Now()
		w.pass(20 * time.Second)
		w.punctual(latest, up, up.Add(19*time.Second), 0)
		require.Len(t, w.history.of(rare), 2, "the one in the outage, and the one after it")
		w.verify(true)
	})
}

// TestOutageIsWorkedUpByTheNext cuts a leader off just when it has closed the
// timeline: what it was about to decide is its successor's to decide.
func TestOutageIsWorkedUpByTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		latest, none, _ := outageJobs(w)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(time.Now().Truncate(time.Minute).Add(12 * time.Second))
		w.controls["c1"].kill()
		slot := time.Now().Truncate(time.Second).Add(28 * time.Second) // :40
		w.pass(time.Minute)
		c := w.control("c2")
		c.link.watchTxn(func(txn *kv.Txn) faulty.Fault {
			for _, op := range txn.Then {
				if strings.HasPrefix(op.Key, store.DefaultPrefix+"history/") {
					return faulty.Fault{Before: kv.ErrUnavailable}
				}
			}
			return faulty.Fault{}
		})
		w.awaitLeader(0)
		w.pass(2 * time.Second)
		c.kill()
		w.control("c3")
		w.awaitLeader(c.term.Load())
		w.pass(30 * time.Second)
		require.Equal(t, "missed:outage", w.slotVerdict(latest, slot))
		require.Equal(t, "missed:outage", w.slotVerdict(none, slot))
		w.verify(true)
	})
}

// TestStalledLeader has the leader's loop stand still while all else goes on, as
// if its process had slept.
func TestStalledLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		latest, _, _ := outageJobs(w)
		w.control("c1")
		w.worker("e1", place{})
		c := w.awaitLeader(0)
		w.pass(2 * time.Second)
		w.log.stall("executor attends", 50*time.Second)
		w.worker("e2", place{})
		w.pass(52 * time.Second)
		require.Empty(t, c.terms(), "the term went on")
		up := time.Now()
		w.pass(20 * time.Second)
		w.punctual(latest, up, up.Add(19*time.Second), 0)
		w.verify(true)
		missed := 0
		for _, r := range w.records(latest) {
			if r.Reason == state.ReasonOutage {
				missed++
			}
		}
		require.Positive(t, missed)
	})
}

// TestTriggerInOutage asks for runs that end between slots which are decided as
// a range.
func TestTriggerInOutage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, none, _ := outageJobs(w)
		w.control("c1")
		w.worker("e1", place{})
		w.awaitLeader(0)
		w.until(time.Now().Truncate(time.Minute).Add(12 * time.Second))
		w.controls["c1"].kill()
		w.pass(30 * time.Second)
		run := w.trigger(none, 7, false)
		w.pass(30 * time.Second)
		w.control("c2")
		w.awaitLeader(0)
		w.pass(10 * time.Second)
		require.Equal(t, "succeeded", w.verdict(none, run))
		w.verify(true)
	})
}

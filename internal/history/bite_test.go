package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
)

// spoilt are ways to spoil the good history, by the only rule that each breaks.
var spoilt = []struct {
	name  string
	rule  history.Rule
	spoil func(m *maker)
}{
	// Invariant 1.
	{"the same attempt starts twice", history.Twice, func(m *maker) {
		_, _, s := m.find("b", 2)
		m.Starts = append(m.Starts, *s)
	}},
	{"the same attempt is claimed twice", history.Twice, func(m *maker) {
		_, cl, _ := m.find("b", 2)
		again := *cl
		again.Token--
		m.Claims = append(m.Claims, again)
	}},
	{"at most once, and lost, and tried again", history.Twice, func(m *maker) {
		m.Jobs["b"][1].AtMostOnce = true
		m.Claims, m.Sources = nil, m.Sources&^history.ClaimLog
	}},
	{"at most once, and started as two attempts", history.Twice, func(m *maker) {
		m.Claims, m.Jobs["b"][1].AtMostOnce = nil, true
		m.Sources &^= history.ClaimLog
		r, _, s := m.find("b", 15)
		r.Attempts[0].State = "interrupted"
		first := *s
		first.Attempt, first.Token, first.Resumed, first.At = 1, 100, 0, at(15)
		m.Starts = append(m.Starts, first)
	}},
	{"a second attempt after a success", history.Again, func(m *maker) {
		r, _, _ := m.find("b", 15)
		r.Attempts[0].State = "succeeded"
		m.Starts = append(m.Starts, history.Start{Job: "b", Run: id(15), Attempt: 1, Token: 100, Mark: "two", At: at(15), Ended: at(15)})
	}},
	{"a claim after the verdict", history.Again, func(m *maker) {
		r, _, _ := m.find("b", 2)
		r.Ended = 29
	}},
	{"work of another token than was claimed", history.Unclaimed, func(m *maker) {
		m.Jobs["b"][0].NoWork = true
		_, _, s := m.find("b", 2)
		s.Token++
	}},
	{"work of no run", history.Unclaimed, func(m *maker) {
		m.Starts = append(m.Starts, history.Start{Job: "b", Run: id(8), Attempt: 1, Token: 63, Mark: "two", At: at(8), Ended: at(8)})
	}},
	{"work without a claim", history.Unclaimed, func(m *maker) {
		m.Starts = append(m.Starts, history.Start{Job: "b", Run: id(6), Attempt: 1, Mark: "two", At: at(6), Ended: at(6)})
	}},
	{"work without a claim that no record owns up to", history.Unclaimed, func(m *maker) {
		m.Jobs["b"][1].RunPlanned = true
		r, _, _ := m.find("b", 6)
		r.Doubles = 1
		for range 2 {
			m.Starts = append(m.Starts, history.Start{Job: "b", Run: id(6), Attempt: 1, Mark: "two", At: at(6), Ended: at(6)})
		}
	}},
	{"work without a claim before it was due", history.Early, func(m *maker) {
		m.Jobs["b"][1].RunPlanned = true
		r, _, _ := m.find("b", 6)
		r.Doubles = 1
		m.Starts = append(m.Starts, history.Start{Job: "b", Run: id(6), Attempt: 1, Mark: "two", At: at(5.9), Ended: at(6)})
	}},
	{"a recorded attempt without a claim that no work wrote down", history.Silent, func(m *maker) {
		m.Jobs["b"][1].RunPlanned = true
		r, _, _ := m.find("b", 6)
		r.Attempts[0].Unclaimed = true
	}},
	{"work before its claim", history.Unclaimed, func(m *maker) {
		_, cl, _ := m.find("b", 2)
		cl.At = at(2.5)
	}},
	{"work before its claim, by the clock of the logs", history.Unclaimed, func(m *maker) {
		_, cl, _ := m.find("b", 2)
		cl.At = at(2.5)
		m.OneClock, m.LogClock = false, true
	}},
	{"a success that no work wrote down", history.Silent, func(m *maker) {
		m.Starts = keep(m.Starts, func(s history.Start) bool { return s.Run != id(2) || s.Job != "b" })
	}},
	{"tokens that fall", history.Tokens, func(m *maker) {
		r, _, _ := m.find("b", 15)
		r.Attempts[0].Token = 106
		m.Claims, m.Sources = nil, history.WorkLog
		m.Ends, m.Checkpoints, r.Ended = nil, nil, 107
	}},
	{"an attempt that was planned after its claim", history.Tokens, func(m *maker) {
		r, _, _ := m.find("b", 2)
		r.Attempts[0].Term = 31
	}},
	// Invariant 2.
	{"a slot without a record", history.Unaccounted, func(m *maker) { m.remove("a", 3) }},
	{"a slot in and out of a range", history.Doubled, func(m *maker) {
		m.Runs = append(m.Runs, history.Run{Job: "b", ID: id(9), State: "skipped", Reason: "overlap", Due: at(9), Count: 1, Decided: 100, Ended: 100})
	}},
	{"a run that is listed twice", history.Doubled, func(m *maker) { m.Runs = append(m.Runs, m.Runs[0]) }},
	{"a verdict on no slot", history.Undue, func(m *maker) {
		m.Runs = append(m.Runs, history.Run{Job: "b", ID: id(5), State: "skipped", Reason: "overlap", Due: at(5), Count: 1, Decided: 42, Ended: 42})
	}},
	{"a range that counts wrong", history.Undue, func(m *maker) {
		r, _, _ := m.find("b", 9)
		r.Count = 3
	}},
	{"a range that counts wrong, of no generation", history.Undue, func(m *maker) {
		r, _, _ := m.find("b", 9)
		r.Count, r.Generation = 3, 0
	}},
	{"a run that says another slot", history.Undue, func(m *maker) {
		r, _, _ := m.find("b", 6)
		r.Due = at(6.5)
	}},
	{"a miss without a reason", history.Reasonless, func(m *maker) {
		r, _, _ := m.find("b", 9)
		r.Reason = ""
	}},
	{"a slot whose deadline is long over", history.Overdue, func(m *maker) {
		m.remove("a", 10)
		m.To, m.Now, m.Overdue, m.Marks = at(9), at(9+180), at(9+180), nil
		m.Jobs["a"] = append(m.Jobs["a"], history.Version{Revision: 1000, Effective: at(10.5), Deleted: true})
		m.Jobs["b"] = append(m.Jobs["b"], history.Version{Revision: 1001, Effective: at(15.5), Deleted: true, Generation: 3})
	}},
	{"a watermark that falls", history.Watermark, func(m *maker) { m.Marks[1].Instant, m.Marks[1].Revision = at(0.4), 13 }},
	{"a watermark of an older term", history.Watermark, func(m *maker) { m.Marks[2].Term = 4 }},
	{"a watermark of older jobs", history.Watermark, func(m *maker) { m.Marks[1].Jobs, m.Marks[2].Jobs = 41, 12 }},
	{"a watermark that passed an undecided slot", history.Watermark, func(m *maker) {
		slow := history.Version{Revision: 10, Effective: at(-100), Schedules: []string{"5 0 2 * * *"}}
		m.Jobs["c"] = []history.Version{slow}
		m.run("c", id(5), at(5), 111, "")
		m.Marks[2].Revision = 110
	}},
	{"a pause that never ended", history.Asleep, func(m *maker) {
		m.Jobs["b"] = append(m.Jobs["b"], history.Version{
			Revision: 1001, Effective: at(15.5), Paused: true, Until: at(20), Generation: 3,
		})
		m.Now = at(100)
	}},
	{"a pause that ended too late", history.Asleep, func(m *maker) {
		m.Jobs["b"] = append(m.Jobs["b"],
			history.Version{Revision: 1001, Effective: at(15.5), Paused: true, Until: at(20), Generation: 3},
			history.Version{Revision: 1002, Effective: at(20.5), Generation: 4})
	}},
	{"a pause for failures that were not", history.Asleep, func(m *maker) {
		m.Jobs["b"] = append(m.Jobs["b"], history.Version{Revision: 1001, Effective: at(15.5), Paused: true, PausedAfter: 1, Generation: 3})
	}},
	{"a backfill that forgot a slot", history.Backfilled, func(m *maker) {
		m.Backfills = []history.Backfill{{Job: "b", Prefix: "x-", Slots: []time.Time{at(1)}, Concurrency: 1, Ended: true, Succeeded: 1}}
	}},
	{"a backfill's run of no slot", history.Backfilled, func(m *maker) {
		run := id(16) + "-backfill-00000001-"
		m.run("b", run+id(1), at(16), 103, "two")
		m.Backfills = []history.Backfill{{Job: "b", Prefix: run, Slots: []time.Time{at(2)}, Concurrency: 1}}
	}},
	{"a backfill with too many runs at a time", history.Backfilled, func(m *maker) {
		run := id(16) + "-backfill-00000001-"
		m.run("b", run+id(1), at(16), 103, "two")
		m.run("b", run+id(2), at(16), 105, "two")
		m.Runs[len(m.Runs)-2].Ended = 107
		m.Backfills = []history.Backfill{{Job: "b", Prefix: run, Slots: []time.Time{at(1), at(2)}, Concurrency: 1}}
	}},
	// Invariant 3.
	{"work before its slot", history.Early, func(m *maker) {
		_, _, s := m.find("b", 2)
		s.Local = at(1.999)
	}},
	{"an attempt that began before its slot", history.Early, func(m *maker) {
		r, _, _ := m.find("b", 2)
		r.Attempts[0].Started = at(1.999)
	}},
	{"a claim after the pause", history.Unfenced, func(m *maker) { m.token("a", 5, 51); m.Runs[5].Ended = 49 }},
	{"a claim after the deletion", history.Unfenced, func(m *maker) {
		m.Jobs["b"] = append(m.Jobs["b"], history.Version{Revision: 103, Effective: at(15.5), Deleted: true})
	}},
	{"a claim after the quarantine", history.Unfenced, func(m *maker) {
		m.Jobs["b"] = append(m.Jobs["b"], history.Version{Revision: 103, Effective: at(15.5), Broken: true})
	}},
	{"a claim before the job", history.Unfenced, func(m *maker) { m.token("a", 1, 9) }},
	{"an old slot by the new version", history.Unfenced, func(m *maker) {
		m.token("b", 4, 43)
		_, _, s := m.find("b", 4)
		s.Mark = "two"
		m.Sources &^= history.MarkLog
	}},
	{"an old slot of a queue that never waited, by the new version", history.Unfenced, func(m *maker) {
		queued(m)
		r, _, _ := m.find("b", 4)
		r.Asked = time.Time{}
	}},
	{"a skip of a generation that never was", history.Undue, func(m *maker) {
		r, _, _ := m.find("b", 9)
		r.Generation, r.Count, r.Until = 7, 1, time.Time{}
		m.Runs = append(m.Runs, history.Run{Job: "b", ID: id(12), State: "missed", Reason: "outage", Due: at(12), Count: 1, Decided: 99, Ended: 99})
	}},
	{"a run that was split after the edit", history.Undue, func(m *maker) { m.split(42) }},
	{"a run that waited, and began before it was due", history.Early, func(m *maker) {
		queued(m)
		r, _, _ := m.find("b", 4)
		r.Asked = at(4.5)
	}},
	{"old work after the edit", history.Unfenced, func(m *maker) {
		_, _, s := m.find("b", 6)
		s.Mark = "one"
	}},
	{"an old plan after the edit", history.Unfenced, func(m *maker) {
		_, cl, _ := m.find("b", 6)
		cl.Generation = 1
	}},
	{"work of a slot that a calendar bars", history.Barred, func(m *maker) {
		m.Jobs["b"][1].Excluded = []history.Calendar{{Name: "night", Entries: []history.CalendarEntry{{Start: at(5.5), End: at(6.5)}}}}
	}},
	{"work outside of a calendar that the job keeps to", history.Barred, func(m *maker) {
		m.Jobs["b"][1].Only = []history.Calendar{{Name: "day", Entries: []history.CalendarEntry{{Days: []string{"MON-SUN"}, From: "03:00"}}}}
	}},
	{"a skip of a calendar that does not bar", history.Barred, func(m *maker) {
		r, _, _ := m.find("b", 9)
		r.State, r.Reason = "skipped", "calendar"
	}},
	{"work before its jitter", history.Early, func(m *maker) { m.Jobs["b"][1].Jitter = time.Minute; m.Sources &^= history.MarkLog }},
	// Invariant 4.
	{"a claim while another run is live", history.Overlap, func(m *maker) {
		r, _, _ := m.find("a", 1)
		r.Ended = 25
	}},
	{"a claim while a run that was asked for is live", history.Overlap, func(m *maker) {
		m.run("a", id(1)+"-trigger-00000001", at(1.5), 22, "")
		m.token("a", 1, 20)
		last := &m.Runs[len(m.Runs)-1]
		last.Override, last.Ended = true, 30
		m.Claims[len(m.Claims)-1].Exclusive = false
		m.token("a", 2, 24)
		m.token("a", 3, 32)
		m.token("a", 4, 34)
		m.token("a", 5, 36)
		m.Sources &^= history.MarkLog
	}},
	{"a claim together with another run's", history.Overlap, func(m *maker) {
		m.run("a", id(1)+"-trigger-00000001", at(1.5), 22, "")
		m.Runs[len(m.Runs)-1].Override = true
		m.Claims[len(m.Claims)-1].Exclusive = false
	}},
	{"more runs than a job has places", history.Overlap, func(m *maker) {
		m.Jobs["b"][0].Limit = 1
		for _, s := range []float64{2, 4} {
			_, cl, _ := m.find("b", s)
			cl.Placed = true
		}
		r, _, _ := m.find("b", 2)
		r.Ended = 35
	}},
	{"a third run beside two places", history.Overlap, func(m *maker) {
		m.Jobs["b"][1].Limit = 2
		m.run("b", id(8)+"-trigger-00000001", at(8), 63, "two")
		for i := range m.Claims {
			cl := &m.Claims[i]
			cl.Placed = cl.Job == "b" && cl.Token >= 60 && cl.Token <= 63
		}
		r, _, _ := m.find("b", 6)
		r.Ended = 64
		for i := range m.Runs {
			if m.Runs[i].Job == "b" && m.Runs[i].Decided == 62 {
				m.Runs[i].Ended = 70
			}
		}
	}},
	{"more runs of two jobs than their limit allows", history.Overlap, func(m *maker) {
		limits := []history.Limit{{Name: "default/db", Max: 2}}
		for _, job := range []string{"a", "b"} {
			for i := range m.Jobs[job] {
				m.Jobs[job][i].Limits = limits
			}
		}
		m.run("b", id(8)+"-trigger-00000001", at(8), 63, "two")
		m.run("b", id(8)+"-trigger-00000002", at(8), 65, "two")
		m.Runs[len(m.Runs)-2].Ended = 70
		r, _, _ := m.find("b", 6)
		r.Ended = 66
	}},
	{"more runs with one key than a limit per key allows", history.Overlap, func(m *maker) {
		limits := []history.Limit{{Name: "default/db", Max: 1, PerKey: true}}
		for i := range m.Jobs["b"] {
			m.Jobs["b"][i].Limits = limits
		}
		m.run("b", id(8)+"-trigger-00000001", at(8), 63, "two")
		m.run("b", id(8)+"-trigger-00000002", at(8), 65, "two")
		m.Runs[len(m.Runs)-2].Ended = 70
		for i := range m.Runs {
			m.Runs[i].LimitKey = "acme"
		}
	}},
	{"attempts that ran side by side", history.Overlap, func(m *maker) {
		r, _, _ := m.find("a", 1)
		r.Attempts[0].Ended = at(2.5)
	}},
	{"work that ran side by side", history.Overlap, func(m *maker) {
		_, _, s := m.find("a", 1)
		s.Ended = at(2.5)
	}},
	{"work that ran side by side, by the clock of the logs", history.Overlap, func(m *maker) {
		_, _, s := m.find("a", 1)
		s.Ended = at(2.5)
		m.OneClock, m.LogClock = false, true
	}},
	// Invariant 5.
	{"a checkpoint that goes back", history.Backward, func(m *maker) { m.Checkpoints[2].Sequence = 39 }},
	{"a checkpoint of a fenced owner", history.Backward, func(m *maker) {
		m.Checkpoints = append(m.Checkpoints, history.Checkpoint{Job: "b", Run: id(15), Token: 100, Revision: 106, Sequence: 40})
	}},
	{"an attempt that begins anew", history.Resumed, func(m *maker) {
		_, _, s := m.find("b", 15)
		s.Resumed = 10
	}},
	// Invariant 6.
	{"an acknowledged end that is lost", history.Lost, func(m *maker) {
		m.Ends = append(m.Ends, history.End{Job: "b", Run: id(15), Token: 100, State: "interrupted", Retry: true})
	}},
	{"an acknowledged verdict that is lost", history.Lost, func(m *maker) {
		r, _, _ := m.find("b", 15)
		r.State, r.Ended, r.Attempts[1].State = "running", 0, "running"
	}},
	{"a claimed run that vanished", history.Lost, func(m *maker) {
		m.Claims = append(m.Claims, history.Claim{Job: "b", Run: id(8) + "-trigger-00000002", Attempt: 1, Token: 65, Owner: m.owner})
	}},
	{"a verdict that was overwritten", history.Changed, func(m *maker) {
		m.Verdicts = append(m.Verdicts, history.Verdict{Job: "b", Run: id(2), State: "failed", Revision: 120})
	}},
	{"a verdict that was removed", history.Changed, func(m *maker) {
		m.Verdicts = append(m.Verdicts, history.Verdict{Job: "b", Run: id(2), Revision: 120})
	}},
	{"a verdict that its attempt denies", history.Changed, func(m *maker) {
		r, _, _ := m.find("b", 2)
		r.State = "failed"
	}},
	{"a record that cannot be read", history.Unreadable, func(m *maker) {
		r, _, _ := m.find("b", 2)
		*r = history.Run{Job: "b", ID: id(2), Unreadable: "its stored record cannot be read"}
		m.Sources &^= history.MarkLog
	}},
	// Invariant 7.
	{"work that outlived its registration", history.Outlived, func(m *maker) {
		m.Registrations[0].EndRevision, m.Registrations[0].Ended = 200, at(15.001)
	}},
	{"a claim without a registration", history.Disowned, func(m *maker) {
		_, cl, _ := m.find("b", 2)
		cl.Owner.Revision = 8
	}},
	// Invariants 8 to 10.
	{"a process that died", history.Harm, func(m *maker) {
		m.Incidents = append(m.Incidents, history.Incident{Node: "n1", Text: "exit status 2"})
	}},
	{"a slot that the leader's loss made late", history.Late, func(m *maker) {
		_, _, s := m.find("b", 4)
		s.At, s.Ended = at(4.2), at(4.2)
	}},
	{"a slot that the leader's loss lost", history.Late, func(m *maker) {
		m.remove("b", 4)
		m.Runs = append(m.Runs, history.Run{Job: "b", ID: id(4), State: "missed", Reason: "outage", Due: at(4), Count: 1, Decided: 33, Ended: 33})
	}},
	{"a slot of a lost executor", history.Late, func(m *maker) {
		m.Losses = m.Losses[1:]
		_, _, s := m.find("b", 4)
		s.At, s.Ended = at(4.2), at(4.2)
	}},
	{"something that took too long", history.Held, func(m *maker) { m.Waits[0].Done = at(6) }},
	{"something that was never done", history.Held, func(m *maker) { m.Waits[0].Done = time.Time{} }},
}

// TestCheckBites spoils the good history in one way a case, so that it breaks one
// rule alone.
func TestCheckBites(t *testing.T) {
	bitten := map[int]bool{}
	for _, c := range spoilt {
		t.Run(c.name, func(t *testing.T) {
			m := good()
			c.spoil(m)
			r := history.Check(m.Facts)
			require.Equal(t, map[history.Rule]bool{c.rule: true}, rules(r), "%v", r.Violations)
			for _, v := range r.Violations {
				require.Equal(t, c.rule.Invariant(), v.Invariant)
				require.Contains(t, v.String(), fmt.Sprintf("invariant %d (%s)", v.Invariant, v.Rule))
				require.NotEmpty(t, v.Text)
			}
			bitten[c.rule.Invariant()] = true
		})
	}
	for i := 1; i <= 10; i++ {
		require.True(t, bitten[i], "no case breaks invariant %d", i)
	}
}

package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
)

var t0 = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

func id(seconds float64) string { return at(seconds).Format("20060102T150405Z") }

const everything = history.WorkLog | history.WorkEnds | history.ClaimLog | history.VerdictLog | history.EndLog |
	history.CheckpointLog | history.RegistrationLog | history.MarkLog | history.LossLog | history.WaitLog | history.IncidentLog

// maker makes histories.
type maker struct {
	*history.Facts
	owner history.Owner
}

// add adds a run of one attempt that began a millisecond after its slot and took
// as long. It was claimed with the token, and its verdict came at the next
// revision.
func (m *maker) add(job string, seconds float64, token int64, mark string) {
	m.run(job, id(seconds), at(seconds), token, mark)
}

func (m *maker) run(job, run string, due time.Time, token int64, mark string) {
	begun := due.Add(time.Millisecond)
	m.Claims = append(m.Claims, history.Claim{
		Job: job, Run: run, Attempt: 1, Token: token, Owner: m.owner, At: due.Add(-time.Second), Exclusive: job == "a", AtMostOnce: job == "a",
	})
	m.Starts = append(m.Starts, history.Start{Job: job, Run: run, Attempt: 1, Token: token, Mark: mark, At: begun, Ended: begun.Add(time.Millisecond)})
	m.Runs = append(m.Runs, history.Run{
		Job: job, ID: run, State: "succeeded", Due: due, Count: 1, Decided: token, Ended: token + 1,
		Attempts: []history.Attempt{{
			Number: 1, Token: token, Term: 5, Node: m.owner.Node, State: "succeeded", Started: begun, Ended: begun.Add(time.Millisecond),
		}},
	})
	m.Verdicts = append(m.Verdicts, history.Verdict{Job: job, Run: run, State: "succeeded", Revision: token + 1})
	m.Ends = append(m.Ends, history.End{Job: job, Run: run, Token: token, State: "succeeded"})
}

func (m *maker) find(job string, seconds float64) (r *history.Run, cl *history.Claim, s *history.Start) {
	for i := range m.Runs {
		if m.Runs[i].Job == job && m.Runs[i].ID == id(seconds) {
			r = &m.Runs[i]
		}
	}
	for i := range m.Claims {
		if m.Claims[i].Job == job && m.Claims[i].Run == id(seconds) {
			cl = &m.Claims[i]
		}
	}
	for i := range m.Starts {
		if m.Starts[i].Job == job && m.Starts[i].Run == id(seconds) {
			s = &m.Starts[i]
		}
	}
	return r, cl, s
}

// token gives a run another token, everywhere.
func (m *maker) token(job string, seconds float64, token int64) {
	r, cl, s := m.find(job, seconds)
	r.Attempts[0].Token, cl.Token, s.Token = token, token, token
	r.Decided, r.Ended = token, token+1
	for i := range m.Ends {
		if m.Ends[i].Job == job && m.Ends[i].Run == id(seconds) {
			m.Ends[i].Token = token
		}
	}
}

// remove removes all traces of a run.
func (m *maker) remove(job string, seconds float64) {
	m.Runs = keep(m.Runs, func(r history.Run) bool { return r.Job != job || r.ID != id(seconds) })
	m.Claims = keep(m.Claims, func(r history.Claim) bool { return r.Job != job || r.Run != id(seconds) })
	m.Starts = keep(m.Starts, func(r history.Start) bool { return r.Job != job || r.Run != id(seconds) })
	m.Verdicts = keep(m.Verdicts, func(r history.Verdict) bool { return r.Job != job || r.Run != id(seconds) })
	m.Ends = keep(m.Ends, func(r history.End) bool { return r.Job != job || r.Run != id(seconds) })
}

func keep[E any](all []E, want func(E) bool) (out []E) {
	for _, e := range all {
		if want(e) {
			out = append(out, e)
		}
	}
	return out
}

// good is a history with nothing wrong, of all sources: job a, due every second,
// exclusive and at-most-once, paused from 5.5 to 8.5 with one claim before the
// pause for a slot after it; job b with an edit, an outage and a second attempt
// that resumed; and a run of b that somebody asked for.
func good() *maker {
	m := &maker{owner: history.Owner{Node: "n1", Revision: 7}}
	a := history.Version{Schedules: []string{"@every 1s"}, Anchor: at(0), AtMostOnce: true, Exclusive: true, Deadline: time.Minute}
	version := func(v history.Version, revision int64, seconds float64) history.Version {
		v.Revision, v.Effective = revision, at(seconds)
		return v
	}
	paused := version(a, 50, 5.5)
	paused.Paused = true
	m.Facts = &history.Facts{
		From: at(1), To: at(10), Sources: everything, OneClock: true, KnowsOverrides: true,
		Jobs: map[string][]history.Version{
			"a": {version(a, 10, 0), paused, version(a, 80, 8.5)},
			"b": {
				{Revision: 11, Effective: at(0), Schedules: []string{"*/2 * * * * *"}, Mark: "one", Generation: 1},
				{Revision: 41, Effective: at(4.5), Schedules: []string{"*/3 * * * * *"}, Mark: "two", Generation: 2},
			},
		},
		Registrations: []history.Registration{{Owner: m.owner}},
		Marks: []history.Mark{
			{Instant: at(0.5), Revision: 12, Term: 5}, {Instant: at(4.9), Revision: 40, Term: 5}, {Instant: at(10), Revision: 110, Term: 6},
		},
		Losses: []history.Loss{
			{What: "the leader was killed", At: at(3), Until: at(4), Limit: 100 * time.Millisecond},
			{What: "n2 was killed", Executor: "n2", At: at(3), Noticed: at(4), Until: at(4), Limit: 100 * time.Millisecond},
		},
		Waits: []history.Wait{{What: "another leader", Asked: at(3), Done: at(4), Limit: 2 * time.Second}},
	}
	for s := 1; s <= 5; s++ {
		m.add("a", float64(s), 20+2*int64(s), "")
	}
	m.add("a", 6, 48, "") // claimed just before the pause
	m.add("a", 9, 90, "")
	m.add("a", 10, 92, "")
	m.add("b", 2, 30, "one")
	m.add("b", 4, 32, "one")
	m.add("b", 6, 60, "two")
	m.run("b", id(7)+"-trigger-00000001", at(7), 62, "two")
	// An outage over 9 and 12, then 15 at the second attempt.
	m.Runs = append(m.Runs, history.Run{
		Job: "b", ID: id(9), State: "missed", Reason: "outage", Due: at(9), Until: at(12), Count: 2, Decided: 99, Ended: 99, Generation: 2,
	})
	m.add("b", 15, 104, "two")
	last := &m.Runs[len(m.Runs)-1]
	last.Attempts = append([]history.Attempt{{Number: 1, Token: 100, State: "lost", Node: "n1"}}, last.Attempts...)
	last.Attempts[1].Number = 2
	m.Starts[len(m.Starts)-1].Attempt, m.Starts[len(m.Starts)-1].Resumed = 2, 40
	m.Claims[len(m.Claims)-1].Attempt = 2
	m.Claims = append(m.Claims, history.Claim{Job: "b", Run: id(15), Attempt: 1, Token: 100, Owner: m.owner})
	m.Checkpoints = []history.Checkpoint{
		{Job: "b", Run: id(15), Token: 100, Revision: 101, Sequence: 10},
		{Job: "b", Run: id(15), Token: 100, Revision: 102, Sequence: 40},
		{Job: "b", Run: id(15), Token: 104, Revision: 105, Sequence: 40},
	}
	return m
}

// queued has the last slot of b's first version wait for others until that was edited.
func queued(m *maker) {
	m.KnowsWaits, m.Jobs["b"][0].Queues = true, true
	m.token("b", 4, 43)
	r, _, s := m.find("b", 4)
	s.Mark, r.Asked, r.Decided = "two", at(4), 39
	m.Losses = nil
}

// split adds a slot of b's first version alone that is split into one shard, which was
// claimed after the edit. header is the token of the run as a whole.
func (m *maker) split(header int64) {
	m.add("b", 8, 64, "two")
	r, _, _ := m.find("b", 8)
	r.Shards, r.Needed, r.Decided = 1, 1, header
	m.Claims = append(m.Claims, history.Claim{Job: "b", Run: id(8), Shard: history.HeaderShard, Token: header})
}

// rules are those that a report has, each once.
func rules(r history.Report) map[history.Rule]bool {
	out := map[history.Rule]bool{}
	for _, v := range r.Violations {
		out[v.Rule] = true
	}
	return out
}

func TestGoodHistory(t *testing.T) {
	m := good()
	r := history.Check(m.Facts)
	require.Empty(t, r.Violations)
	require.Empty(t, r.Unchecked)
	require.EqualValues(t, 5+2+3+1, r.Slots) // 9 of b is in the outage
	l := m.Lateness(at(1), at(10))
	require.Equal(t, 11, l.Starts)
	require.Equal(t, time.Millisecond, l.Max)
	require.Equal(t, map[string]int64{"succeeded": 13, "missed:outage": 2}, m.Count())
}

// TestWithoutLogs has what a live cluster tells, and nothing else.
func TestWithoutLogs(t *testing.T) {
	m := good()
	m.Facts = &history.Facts{From: m.From, To: m.To, Jobs: m.Jobs, Runs: m.Runs}
	r := history.Check(m.Facts)
	require.Empty(t, r.Violations)
	said := map[int]bool{}
	for _, u := range r.Unchecked {
		require.NotEmpty(t, u.Why)
		said[u.Invariant] = true
	}
	require.Equal(t, map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true, 8: true, 9: true, 10: true}, said)
}

func TestUnknownScheduleIsSaid(t *testing.T) {
	m := good()
	m.Jobs["b"][1].Schedules = []string{"@sometimes"}
	r := history.Check(m.Facts)
	require.Len(t, r.Unchecked, 1)
	require.Equal(t, "b", r.Unchecked[0].Job)
	require.Contains(t, r.Unchecked[0].Why, "@sometimes")
	require.Empty(t, r.Violations)
}

func TestOlderVersionsAreUnknown(t *testing.T) {
	m := good()
	m.Jobs["a"] = m.Jobs["a"][1:]
	require.NotEmpty(t, history.Check(m.Facts).Violations)
	m.Since = map[string]time.Time{"a": at(5.5)}
	require.Empty(t, history.Check(m.Facts).Violations)
}

// An attempt that began without a claim, as its job allows, and that its record owns up
// to, is in order.
func TestUnclaimedAttempts(t *testing.T) {
	m := good()
	m.Jobs["b"][1].RunPlanned = true
	r, _, s := m.find("b", 6)
	r.Attempts[0].Unclaimed = true
	s.Token = 0
	require.Empty(t, history.Check(m.Facts).Violations)
}

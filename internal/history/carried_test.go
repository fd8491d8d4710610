package history_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
)

// retried is the good history, and a run of b of three shards of which one succeeded, one
// saved a checkpoint and failed, and one never started; and another run that repeats
// what failed of it.
func retried() (m *maker, first, again *history.Run) {
	m = good()
	n1 := m.owner
	claim := func(run string, shard int, token int64, seconds float64) {
		m.Claims = append(m.Claims, history.Claim{Job: "b", Run: run, Shard: shard, Attempt: 1, Token: token, Owner: n1, At: at(seconds)})
	}
	one := id(16) + "-trigger-00000002"
	two := id(17) + "-trigger-00000003"
	attempt := func(run string, shard int, token int64, seconds float64, state string, resumed int64) history.Attempt {
		claim(run, shard, token, seconds)
		begun, ended := at(seconds+0.1), at(seconds+0.3)
		m.Starts = append(m.Starts, history.Start{
			Job: "b", Run: run, Shard: shard, Attempt: 1, Token: token, Mark: "two", At: begun, Ended: ended, Resumed: resumed,
		})
		m.Ends = append(m.Ends, history.End{Job: "b", Run: run, Shard: shard, Token: token, State: state})
		return history.Attempt{Number: 1, Shard: shard, Token: token, Term: 6, Node: "n1", State: state, Started: begun, Ended: ended}
	}
	claim(one, history.HeaderShard, 201, 16)
	m.Runs = append(m.Runs, history.Run{
		Job: "b", ID: one, State: "failed", Due: at(16), Count: 1, Shards: 3, Needed: 3, Decided: 201, Ended: 210,
		Attempts: []history.Attempt{attempt(one, 0, 202, 16, "succeeded", 0), attempt(one, 1, 203, 16, "failed", 0)},
	})
	claim(two, history.HeaderShard, 221, 17)
	m.Runs = append(m.Runs, history.Run{
		Job: "b", ID: two, State: "succeeded", Due: at(17), Count: 1, Shards: 3, Needed: 3, Decided: 221, Ended: 230,
		Carried:  []history.Carried{{Run: one, Shards: []int{0}}},
		Attempts: []history.Attempt{attempt(two, 1, 222, 17, "succeeded", 4), attempt(two, 2, 223, 17, "succeeded", 0)},
	})
	m.Checkpoints = append(m.Checkpoints,
		history.Checkpoint{Job: "b", Run: one, Shard: 1, Token: 203, Revision: 204, Sequence: 3},
		history.Checkpoint{Job: "b", Run: one, Shard: 1, Token: 203, Revision: 205, Sequence: 4},
		history.Checkpoint{Job: "b", Run: two, Shard: 1, Token: 203, Revision: 222, Sequence: 4})
	return m, &m.Runs[len(m.Runs)-2], &m.Runs[len(m.Runs)-1]
}

func TestCheckOfRetries(t *testing.T) {
	m, first, again := retried()
	require.Empty(t, history.Check(m.Facts).Violations)
	m.Runs = keep(m.Runs, func(r history.Run) bool { return r.ID != first.ID })
	for _, found := range history.Check(m.Facts).Violations {
		require.NotEqual(t, again.ID, found.Run, "that the record of the other is not there any more is no fault of this one: %s", found)
	}

	for name, c := range map[string]struct {
		rule  history.Rule
		spoil func(m *maker, first, again *history.Run)
	}{
		"never a success": {history.Changed, func(m *maker, _, again *history.Run) {
			again.Carried[0].Shards = []int{0, 2}
			again.Attempts = again.Attempts[:1]
			m.drop(again.ID, 2)
		}},
		"of a run that is live": {history.Changed, func(_ *maker, first, _ *history.Run) { first.State = "running" }},
		"no such shard":         {history.Changed, func(_ *maker, _, again *history.Run) { again.Carried[0].Shards = []int{0, 3} }},
		"twice":                 {history.Changed, func(_ *maker, _, again *history.Run) { again.Carried[0].Shards = []int{0, 0} }},
		"too few have succeeded": {history.Changed, func(_ *maker, _, again *history.Run) {
			again.Carried = nil
		}},
		"and made again": {history.Again, func(m *maker, _, again *history.Run) {
			m.Claims = append(m.Claims, history.Claim{Job: "b", Run: again.ID, Attempt: 1, Token: 224, Owner: m.owner, At: at(17)})
		}},
		"goes on from an older checkpoint": {history.Resumed, func(m *maker, _, again *history.Run) {
			m.Checkpoints[len(m.Checkpoints)-1].Sequence = 3
			for i := range m.Starts {
				if s := &m.Starts[i]; s.Run == again.ID && s.Shard == 1 {
					s.Resumed = 3
				}
			}
		}},
		"goes on from nowhere": {history.Resumed, func(m *maker, _, again *history.Run) {
			for i := range m.Starts {
				if s := &m.Starts[i]; s.Run == again.ID && s.Shard == 1 {
					s.Resumed = 0
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m, first, again := retried()
			c.spoil(m, first, again)
			r := history.Check(m.Facts)
			require.Equal(t, map[history.Rule]bool{c.rule: true}, rules(r), "%v", r.Violations)
			require.Equal(t, again.ID, r.Violations[0].Run)
		})
	}
}

// drop removes the traces of a shard.
func (m *maker) drop(run string, shard int) {
	m.Claims = keep(m.Claims, func(c history.Claim) bool { return c.Run != run || c.Shard != shard })
	m.Starts = keep(m.Starts, func(s history.Start) bool { return s.Run != run || s.Shard != shard })
	m.Ends = keep(m.Ends, func(e history.End) bool { return e.Run != run || e.Shard != shard })
}

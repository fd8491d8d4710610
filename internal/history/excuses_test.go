package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
)

// TestExcuses are histories that look wrong and are not.
func TestExcuses(t *testing.T) {
	for name, change := range map[string]func(m *maker){
		"a skip of the old version by who had not heard": func(m *maker) {
			m.Runs = append(m.Runs, history.Run{Job: "b", ID: id(8), State: "skipped", Reason: "superseded", Due: at(8), Count: 1, Decided: 64, Ended: 64})
		},
		"a version that the leader may not know yet": func(m *maker) {
			m.remove("a", 9)
			m.Now, m.Settle, m.Sources = at(11), time.Minute, 0
		},
		"a change of which the instant is not sure": func(m *maker) {
			m.remove("a", 9)
			m.Jobs["a"][2].Slack = time.Second
		},
		"a registration that was taken away": func(m *maker) {
			m.Registrations[0].EndRevision, m.Registrations[0].Ended, m.Registrations[0].Forced = 200, at(15.001), true
		},
		"a slot that waited for others":           queued,
		"a shard that was claimed after the edit": func(m *maker) { m.split(39) },
		"a slot behind the watermark": func(m *maker) {
			m.remove("a", 10)
			m.To, m.Now, m.Overdue, m.Marks = at(9), at(12), at(12), nil
		},
		"a retry beside a run that was allowed to overlap": func(m *maker) {
			m.Jobs["b"][1].Exclusive = true
			m.Sources = 0
			m.OneClock = false
			m.run("b", id(16)+"-trigger-00000003", at(16), 103, "two")
			last := &m.Runs[len(m.Runs)-1]
			last.Override, last.State, last.Ended, last.Attempts[0].State = true, "running", 0, "running"
			m.Claims, m.Ends = nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := good()
			change(m)
			require.Empty(t, history.Check(m.Facts).Violations)
		})
	}
}

func TestManyViolationsAreBounded(t *testing.T) {
	f := &history.Facts{
		From: at(1), To: at(5000),
		Jobs: map[string][]history.Version{"a": {{Revision: 1, Effective: at(0), Schedules: []string{"@every 1s"}}}},
	}
	r := history.Check(f)
	require.Len(t, r.Violations, 1000)
	require.Equal(t, 4000, r.More)
	require.EqualValues(t, 5000, r.Slots)
}

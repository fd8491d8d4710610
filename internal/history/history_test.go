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

// good is a history with nothing wrong: a job due every second, exclusive and
// at-most-once, paused from 5.5 to 8.5 with one claim before the pause for a
// slot after it, and another job with an edit, an outage and a second attempt.
func good() *history.Facts {
	h := &history.Facts{Jobs: map[string][]history.Version{
		"a": {
			{Revision: 10, Effective: at(0), Anchor: at(0), Schedules: []string{"@every 1s"}, AtMostOnce: true, Exclusive: true},
			{Revision: 50, Effective: at(5.5), Anchor: at(0), Schedules: []string{"@every 1s"}, AtMostOnce: true, Exclusive: true, Paused: true},
			{Revision: 80, Effective: at(8.5), Anchor: at(0), Schedules: []string{"@every 1s"}, AtMostOnce: true, Exclusive: true},
		},
		"b": {
			{Revision: 11, Effective: at(0), Schedules: []string{"*/2 * * * * *"}, Mark: "one"},
			{Revision: 41, Effective: at(4.5), Schedules: []string{"*/3 * * * * *"}, Mark: "two"},
		},
	}}
	add := func(job string, seconds float64, token int64, mark string) {
		slot := at(seconds)
		h.Starts = append(h.Starts, history.Start{Job: job, Run: id(seconds), Attempt: 1, Token: token, Mark: mark, At: slot.Add(time.Millisecond)})
		h.Runs = append(h.Runs, history.Run{
			Job: job, ID: id(seconds), State: "succeeded", Due: slot, Count: 1,
			Attempts: []history.Attempt{{
				Number: 1, Token: token, Node: "n1", State: "succeeded",
				Started: slot.Add(time.Millisecond), Ended: slot.Add(2 * time.Millisecond),
			}},
		})
	}
	for _, s := range []float64{1, 2, 3, 4, 5} {
		add("a", s, 20+int64(s), "")
	}
	add("a", 6, 49, "") // claimed just before the pause
	add("a", 9, 90, "")
	add("a", 10, 91, "")
	add("b", 2, 30, "one")
	add("b", 4, 31, "one")
	add("b", 6, 60, "two")
	// An outage over 9 and 12, then 15 at the second attempt.
	h.Runs = append(h.Runs, history.Run{Job: "b", ID: id(9), State: "missed", Reason: "outage", Due: at(9), Until: at(12), Count: 2})
	add("b", 15, 101, "two")
	last := &h.Runs[len(h.Runs)-1]
	last.Attempts = append([]history.Attempt{{Number: 1, Token: 95, State: "lost"}}, last.Attempts...)
	last.Attempts[1].Number = 2
	h.Starts[len(h.Starts)-1].Attempt = 2
	return h
}

func window() (from, to time.Time) { return at(1), at(10) }

func TestGoodHistory(t *testing.T) {
	require.Empty(t, good().Check(at(1), at(10)))
	l := good().Lateness(at(1), at(10))
	require.Equal(t, 11, l.Starts)
	require.Equal(t, time.Millisecond, l.Max)
	require.Equal(t, map[string]int64{"succeeded": 12, "missed:outage": 2}, good().Count())
}

// TestCheckBites spoils the good history in one way a case.
func TestCheckBites(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		spoil func(*history.Facts)
	}{
		"slot without a record": {history.Unaccounted, func(h *history.Facts) { h.Runs, h.Starts = h.Runs[1:], h.Starts[1:] }},
		"slot in and out of a range": {history.Doubled, func(h *history.Facts) {
			h.Runs = append(h.Runs, history.Run{Job: "b", ID: id(9), State: "skipped", Due: at(9), Count: 1})
		}},
		"record listed twice": {history.Doubled, func(h *history.Facts) { h.Runs = append(h.Runs, h.Runs[0]) }},
		"record of no slot": {history.Undue, func(h *history.Facts) {
			h.Runs = append(h.Runs, history.Run{Job: "b", ID: id(5), State: "skipped", Due: at(5), Count: 1})
		}},
		"range that counts wrong": {history.Undue, func(h *history.Facts) { h.Runs[len(h.Runs)-2].Count = 3 }},
		"claim after the pause": {history.Unfenced, func(h *history.Facts) {
			h.Starts[5].Token, h.Runs[5].Attempts[0].Token = 51, 51
		}},
		"old work after the edit":        {history.Unfenced, func(h *history.Facts) { h.Starts[10].Mark = "one" }},
		"claim older than the job":       {history.Unfenced, func(h *history.Facts) { h.Starts[0].Token = 9 }},
		"start before its slot":          {history.Early, func(h *history.Facts) { h.Starts[0].At = at(0.999) }},
		"start of no run":                {history.Unknown, func(h *history.Facts) { h.Starts[0].Run = id(0.5) }},
		"start with another token":       {history.Unknown, func(h *history.Facts) { h.Starts[0].Token = 19 }},
		"success that nobody wrote down": {history.Silent, func(h *history.Facts) { h.Starts = h.Starts[1:] }},
		"same attempt twice":             {history.Twice, func(h *history.Facts) { h.Starts = append(h.Starts, h.Starts[8]) }},
		"at-most-once, two attempts": {history.Twice, func(h *history.Facts) {
			s := h.Starts[0]
			s.Attempt, s.Token = 2, 29
			h.Starts = append(h.Starts, s)
		}},
		"second attempt after a success": {history.Again, func(h *history.Facts) {
			h.Runs[len(h.Runs)-1].Attempts[0].State = "succeeded"
		}},
		"runs that overlap": {history.Overlap, func(h *history.Facts) { h.Runs[0].Attempts[0].Ended = at(2.5) }},
		"schedule nobody knows": {history.Broken, func(h *history.Facts) {
			h.Jobs["b"][1].Schedules = []string{"@yearly"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			c.spoil(h)
			kinds := map[string]bool{}
			for _, v := range h.Check(window()) {
				kinds[v.Kind] = true
			}
			require.True(t, kinds[c.kind], "found %v", kinds)
		})
	}
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		schedule string
		t        time.Time
		want     bool
	}{
		{"@every 2s", at(4), true},
		{"@every 2s", at(5), false},
		{"@every 2s", at(-2), false},
		{"@every 1s", at(0.5), false},
		{"* * * * * *", at(7), true},
		{"*/5 * * * * *", at(10), true},
		{"*/5 * * * * *", at(11), false},
		{"3-9/3,20 * * * * *", at(6), true},
		{"3-9/3,20 * * * * *", at(20), true},
		{"3-9/3,20 * * * * *", at(12), false},
		{"7/10 * * * * *", at(27), true},
		{"0 2 * * *", at(0), true},
		{"0 2 * * *", at(1), false},
		{"0 2 30 11 *", at(0), true},
		{"0 2 * * 1", at(0), true},
		{"0 2 * * 2", at(0), false},
	} {
		got, err := history.Due(c.schedule, t0, c.t)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%s at %s", c.schedule, c.t)
	}
	for _, bad := range []string{"* *", "x * * * *", "*/0 * * * *", "1-x * * * *", "@every soon", "0 0 1 * 1"} {
		_, err := history.Due(bad, t0, t0)
		require.Error(t, err, bad)
	}
}

package calendar_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/internal/history"
	"github.com/leaderd/leaderd/planner/calendar"
	"github.com/leaderd/leaderd/state"
)

var days = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

func drawEntry(t *rapid.T) state.CalendarEntry {
	day := func(name string, years ...int) string {
		d := time.Date(rapid.SampledFrom(years).Draw(t, name+" year"), 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, rapid.IntRange(0, 365).Draw(t, name))
		if years[0] == 2000 {
			return d.Format("01-02")
		}
		return d.Format(time.DateOnly)
	}
	year := rapid.SampledFrom([][]int{{2000}, {2026, 2027}}).Draw(t, "years")
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return state.CalendarEntry{Date: day("date", year...)}
	case 1:
		e := state.CalendarEntry{First: day("first", year...), Last: day("last", year...)}
		if year[0] != 2000 && e.Last < e.First {
			e.First, e.Last = e.Last, e.First
		}
		return e
	case 2:
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.Int64Range(0, 2*366*24*3600).Draw(t, "start")) * time.Second)
		return state.CalendarEntry{Start: start, End: start.Add(time.Duration(rapid.Int64Range(1, 40*24*3600).Draw(t, "length")) * time.Second)}
	}
	from := rapid.IntRange(0, 1438).Draw(t, "from")
	to := rapid.IntRange(from+1, 1440).Draw(t, "to")
	clock := func(m int) string { return fmt.Sprintf("%02d:%02d", m/60, m%60) }
	weekly := rapid.SampledFrom(days).Draw(t, "day")
	if rapid.Bool().Draw(t, "ranged") {
		weekly += "-" + rapid.SampledFrom(days).Draw(t, "last day")
	}
	return state.CalendarEntry{Days: []string{weekly}, From: clock(from), To: clock(to)}
}

// TestAgainstTheChecker compares with the checker's own reading of calendars, which
// shares no code with this one.
func TestAgainstTheChecker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"}).Draw(t, "zone")
		spec := state.CalendarSpec{Entries: rapid.SliceOfN(rapid.Custom(drawEntry), 1, 6).Draw(t, "entries")}
		jobZone := zone
		if rapid.Bool().Draw(t, "own zone") {
			spec.TimeZone, jobZone = zone, "UTC"
		}
		require.NoError(t, spec.Validate(state.ScheduleChecks{Zone: func(string) error { return nil }}))
		c, err := calendar.Compile(&spec, jobZone)
		require.NoError(t, err)
		other := history.Calendar{Zone: spec.TimeZone}
		for _, e := range spec.Entries {
			x := history.CalendarEntry{First: e.First, Last: e.Last, Start: e.Start, End: e.End, Days: e.Days, From: e.From, To: e.To}
			if e.Date != "" {
				x.First, x.Last = e.Date, e.Date
			}
			other.Entries = append(other.Entries, x)
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 300 {
			at = at.Add(time.Duration(rapid.Int64Range(1, 4*24*3600).Draw(t, "step")) * time.Second)
			want, err := other.Covers(at, jobZone)
			require.NoError(t, err)
			_, got := c.Covers(at)
			require.Equal(t, want, got, "%s in %+v", at, spec)
			steady := c.Steady(at)
			require.True(t, steady.After(at))
			then := at.Add(time.Duration(rapid.Int64Range(0, int64(steady.Sub(at)/time.Second)-1).Draw(t, "later")) * time.Second)
			_, same := c.Covers(then)
			require.Equal(t, got, same, "%s as %s, until %s, in %+v", then, at, steady, spec)
		}
	})
}

func TestCoversSaysBy(t *testing.T) {
	c, err := calendar.Compile(&state.CalendarSpec{TimeZone: "Europe/Berlin", Entries: []state.CalendarEntry{
		{Name: "Night", Days: []string{"MON-SUN"}, To: "06:00"},
		{Date: "12-25", Name: "Christmas"},
		{First: "12-30", Last: "01-02"},
	}}, "")
	require.NoError(t, err)
	for at, want := range map[string]string{
		"2026-12-24T22:59:59Z": "",
		"2026-12-24T23:00:00Z": "Christmas, 12-25",
		"2026-12-25T22:59:59Z": "Christmas, 12-25",
		"2026-12-25T23:00:00Z": "Night, MON-SUN 00:00 to 06:00",
		"2026-12-26T05:00:00Z": "",
		"2027-01-01T12:00:00Z": "12-30 to 01-02",
		"2027-01-02T23:00:00Z": "Night, MON-SUN 00:00 to 06:00",
	} {
		instant, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		got, ok := c.Covers(instant)
		require.Equal(t, want, got, at)
		require.Equal(t, want != "", ok)
	}
}

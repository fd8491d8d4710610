package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/planner/schedule/zoneinfo"
)

func TestExplainNamesTheField(t *testing.T) {
	anchor := time.Date(2026, 11, 30, 10, 5, 0, 0, time.UTC)
	for _, test := range []struct{ spec, zone, at, field, why string }{
		{"*/5 * * * *", "", "2026-11-30T10:07:00Z", "minute", "minute 7 is not in */5"},
		{"*/5 * * * *", "", "2026-11-30T10:05:30Z", "second", "second 30 is not in 0"},
		{"0 9 * * MON-FRI", "", "2026-11-29T09:00:00Z", "day of week", "day of week SUN is not in MON-FRI"},
		{"0 9 * * MON-FRI", "Europe/Berlin", "2026-12-01T09:00:00Z", "hour", "hour 10 is not in 9"},
		{"0 9 31 * *", "", "2026-11-30T09:00:00Z", "day of month", "day of month 30 is not in 31"},
		{"0 9 L-1 * *", "", "2026-11-30T09:00:00Z", "day of month", "day of month 30 is not in L-1"},
		{"0 9 * JAN,MAR *", "", "2026-11-30T09:00:00Z", "month", "month NOV is not in JAN,MAR"},
		{"0 0 13 * FRI", "", "2026-11-30T00:00:00Z", "day", "day 30 is not in 13, and MON is not in FRI"},
		{"0 9 * * 2#1", "", "2026-12-08T09:00:00Z", "day of week", "day of week TUE is not in 2#1"},
		{"H/15 * * * *", "", "2026-11-30T12:03:00Z", "minute", "minute 3 is not in H/15 (of this job: 2,17,32,47)"},
		{"@daily", "", "2026-11-30T10:00:00Z", "hour", "hour 10 is not in 0"},
		{"30 2 * * *", "Europe/Berlin", "2027-10-31T01:30:00Z", "clock", "the local time 02:30 occurs twice that day, and only the first time counts"},
		{"@every 1h30m", "", "2026-11-30T13:00:00Z", "interval", "it is 1h25m past the last multiple of 1h30m from 2026-11-30T10:05:00Z on"},
		{"@every 1h", "", "2026-11-30T09:05:00Z", "interval", "the interval counts from 2026-11-30T10:05:00Z, which is later"},
		{"@at 2026-12-24T18:00:00+01:00", "", "2026-12-24T18:00:00Z", "instants", "it is not 2026-12-24T17:00:00Z"},
		{"* * * * * *", "", "2026-11-30T10:00:00.5Z", "slot", "a slot is a whole second"},
	} {
		at, err := time.Parse(time.RFC3339, test.at)
		require.NoError(t, err)
		a, err := Explain(test.spec, Options{Zone: test.zone, Anchor: anchor, Job: "default/report"}, at)
		require.NoError(t, err)
		require.False(t, a.Due, test.spec)
		require.Equal(t, test.field, a.Misses[0].Field, test.spec)
		require.Equal(t, test.why, a.Misses[0].Why, test.spec)
	}
	_, err := Explain("*/60 * * * *", Options{}, anchor)
	require.ErrorContains(t, err, "the step must be less than 60")
}

func TestExplainSlots(t *testing.T) {
	for _, test := range []struct{ spec, at, wall, note string }{
		{"30 2 * * *", "2027-03-28T01:00:00Z", "2027-03-28T03:00:00", "it stands for the local time 02:30, which does not exist that day"},
		{"30 2 * * *", "2027-10-31T00:30:00Z", "2027-10-31T02:30:00", "the local time 02:30 occurs twice that day; this is the first time"},
		{"30 * * * *", "2027-10-31T01:30:00Z", "2027-10-31T02:30:00", "the local time 02:30 occurs twice that day; this is the second time"},
		{"30 2 * * *", "2027-07-01T00:30:00Z", "2027-07-01T02:30:00", ""},
	} {
		at, err := time.Parse(time.RFC3339, test.at)
		require.NoError(t, err)
		a, err := Explain(test.spec, Options{Zone: "Europe/Berlin"}, at)
		require.NoError(t, err)
		require.Equal(t, Answer{Due: true, Zone: "Europe/Berlin", Wall: test.wall, Note: test.note}, a)
	}
}

// TestExplainAgreesWithNext: an instant is explained as a slot exactly if it is
// one, near slots and near clock changes, and what is none has a reason.
func TestExplainAgreesWithNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(walkZones).Draw(t, "zone")
		loc, err := zoneinfo.Load(zone)
		require.NoError(t, err)
		o := Options{
			Zone:     zone,
			Anchor:   time.Unix(rapid.Int64Range(0, 2e9).Draw(t, "anchor"), 0),
			Job:      rapid.SampledFrom([]string{"", "default/a"}).Draw(t, "job"),
			Missing:  rapid.SampledFrom([]Missing{MissingShift, MissingSkip}).Draw(t, "missing"),
			Repeated: rapid.SampledFrom([]Repeated{RepeatedFirst, RepeatedLast, RepeatedBoth}).Draw(t, "repeated"),
		}
		spec := rapid.OneOf(
			rapid.SampledFrom([]string{"@every 7m", "@daily", "@at 2026-12-01T09:00:00Z,2027-01-01T00:00:00Z", "30 2 * * *", "*/10 1-3 * * *", "15,45 * L * MON#1"}),
			rapid.Map(drawCron(rapid.Bool().Draw(t, "seconds"), o.Job), func(c plainCron) string { return c.String() }),
		).Draw(t, "spec")
		s, err := Parse(spec, o)
		if err != nil {
			t.Skip("refused")
		}
		near := drawTransition(t, loc).Add(time.Duration(rapid.IntRange(-5*3600, 5*3600).Draw(t, "off")) * time.Second)
		for range 20 {
			a, err := Explain(spec, o, near)
			require.NoError(t, err)
			due := s.Next(near.Add(-time.Second)).Equal(near)
			require.Equal(t, due, a.Due, "%s in %s at %s", spec, zone, near)
			require.Equal(t, due, len(a.Misses) == 0)
			switch next := s.Next(near); {
			case next.IsZero():
				return
			case rapid.Bool().Draw(t, "to the slot"):
				near = next
			default:
				near = near.Add(time.Duration(rapid.IntRange(1, 3600).Draw(t, "on")) * time.Second)
			}
		}
	})
}

func TestClockChanges(t *testing.T) {
	year := func(spec string, o Options) (out []string) {
		o.Zone = "Europe/Berlin"
		s, err := Parse(spec, o)
		require.NoError(t, err)
		for _, c := range s.ClockChanges(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC), 10) {
			out = append(out, c.At.Format(time.RFC3339)+" "+c.First+" "+c.Effect.String())
		}
		return out
	}
	require.Equal(t, []string{"2027-03-28T01:00:00Z 2027-03-28T02:30:00 shifted", "2027-10-31T01:00:00Z 2027-10-31T02:30:00 first"}, year("30 2 * * *", Options{}))
	require.Equal(t, []string{"2027-03-28T01:00:00Z 2027-03-28T02:30:00 skipped", "2027-10-31T01:00:00Z 2027-10-31T02:30:00 last"},
		year("30 2 * * *", Options{Missing: MissingSkip, Repeated: RepeatedLast}))
	require.Equal(t, []string{"2027-03-28T01:00:00Z 2027-03-28T02:00:00 skipped", "2027-10-31T01:00:00Z 2027-10-31T02:00:00 both"}, year("*/30 * * * *", Options{}))
	require.Empty(t, year("30 4 * * *", Options{}))
	require.Empty(t, year("@every 1h", Options{}))
}

func TestShow(t *testing.T) {
	show := func(local string) (out []string) {
		s, err := Show("Europe/Berlin", local)
		require.NoError(t, err)
		for _, at := range s.At {
			out = append(out, at.Format(time.RFC3339))
		}
		if !s.Gap.IsZero() {
			out = append(out, "gap until "+s.Gap.Format(time.RFC3339))
		}
		return out
	}
	require.Equal(t, []string{"2026-11-30T01:30:00Z"}, show("2026-11-30T02:30"))
	require.Equal(t, []string{"gap until 2027-03-28T01:00:00Z"}, show("2027-03-28T02:30"))
	require.Equal(t, []string{"2027-03-28T01:00:00Z"}, show("2027-03-28T03:00:00"))
	require.Equal(t, []string{"2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z"}, show("2027-10-31T02:30"))
	_, err := Show("Europe/Berlin", "02:30")
	require.ErrorContains(t, err, "no local time")
	_, err = Show("Berlin", "2026-11-30T02:30")
	require.ErrorContains(t, err, "write Europe/Berlin")
}

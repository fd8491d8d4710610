package schedule

import (
	"testing"
	"time"
	"unsafe"

	robfig "github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/planner/schedule/zoneinfo"
)

func TestZeroSchedule(t *testing.T) {
	var s Schedule
	now := time.Unix(0, 0)
	require.True(t, s.Next(now).IsZero())
	require.True(t, s.Prev(now).IsZero())
	require.True(t, s.Latest(now, now.Add(time.Hour)).IsZero())
	require.Zero(t, s.Count(now, now.Add(time.Hour)))
}

func TestLimits(t *testing.T) {
	end := time.Unix(maxSlot, 0).UTC()
	for _, spec := range []string{"* * * * * *", "@every 1s", "0 0 29 2 *"} {
		for _, zone := range []string{"UTC", "Pacific/Apia", "America/New_York"} {
			s, err := Parse(spec, Options{Zone: zone, Anchor: time.Unix(minSlot, 0)})
			require.NoError(t, err)
			for _, at := range []time.Time{end, end.Add(time.Hour), time.Unix(1<<62, 0)} {
				require.True(t, s.Next(at).IsZero())
				require.False(t, s.Prev(at).After(end))
				require.False(t, s.Prev(at).IsZero())
			}
			for _, at := range []time.Time{{}, time.Unix(-1<<62, 0)} {
				require.True(t, s.Prev(at).IsZero())
				require.False(t, s.Next(at).IsZero())
			}
			require.Equal(t, s.Count(time.Time{}, end), s.Count(time.Unix(-1<<62, 0), time.Unix(1<<62, 0)))
			require.Zero(t, s.Count(end, time.Time{}))
		}
	}
	s, err := Parse("* * * * * *", Options{Zone: "Europe/Berlin"})
	require.NoError(t, err)
	require.Equal(t, end, s.Prev(end))
	require.Equal(t, maxSlot-minSlot+1, s.Count(time.Time{}, end), "real time: every second there is")
}

func TestInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anchor := rapid.Int64Range(minSlot, maxSlot).Draw(t, "anchor")
		step := rapid.Int64Range(1, 1<<33).Draw(t, "step")
		s, err := Parse("@every "+(time.Duration(step)*time.Second).String(), Options{Anchor: time.Unix(anchor, 999), Zone: "Asia/Tokyo"})
		require.NoError(t, err)
		from := rapid.Int64Range(minSlot, maxSlot).Draw(t, "from")
		next, prev := s.Next(time.Unix(from, 0)), s.Prev(time.Unix(from, 0))
		if !next.IsZero() {
			require.Zero(t, (next.Unix()-anchor)%step)
			require.Greater(t, next.Unix(), from)
			require.GreaterOrEqual(t, next.Unix(), anchor)
		}
		switch {
		case from < anchor:
			require.True(t, prev.IsZero())
			require.Equal(t, anchor, next.Unix())
		case !next.IsZero():
			require.Equal(t, next.Unix()-step, prev.Unix())
			require.EqualValues(t, 1, s.Count(prev, next))
			require.Equal(t, (prev.Unix()-anchor)/step+1, s.Count(time.Unix(anchor-1, 0), prev))
		}
	})
}

func TestInstants(t *testing.T) {
	s, err := Parse("@at 2026-12-24T18:00:00+01:00,2026-12-01T09:00:00Z", Options{})
	require.NoError(t, err)
	first, second := instant(t, "2026-12-01T09:00:00Z"), instant(t, "2026-12-24T17:00:00Z")
	require.Equal(t, first, s.Next(time.Time{}))
	require.Equal(t, second, s.Next(first))
	require.True(t, s.Next(second).IsZero())
	require.Equal(t, second, s.Prev(second.AddDate(1, 0, 0)))
	require.Equal(t, first, s.Prev(second.Add(-1)))
	require.True(t, s.Prev(first.Add(-1)).IsZero())
	require.EqualValues(t, 2, s.Count(time.Time{}, second))
	require.EqualValues(t, 1, s.Count(first, second))
	require.True(t, s.Latest(second, second.Add(time.Hour)).IsZero())
}

// An outage of years is one question for the latest slot and one for the count.
func TestLongOutage(t *testing.T) {
	from, until := instant(t, "2006-01-01T00:00:00Z"), instant(t, "2026-01-01T00:00:00.5Z")
	for _, spec := range []string{"* * * * * *", "@every 1s"} {
		s, err := Parse(spec, Options{Zone: "America/New_York", Anchor: from})
		require.NoError(t, err)
		require.Equal(t, instant(t, "2026-01-01T00:00:00Z"), s.Latest(from, until))
		require.Equal(t, until.Unix()-from.Unix(), s.Count(from, until))
	}
}

// Both day fields begin with *: dates must match both, here 29 February on a
// Sunday or Saturday. The longest wait crosses 2100.
func TestRareDate(t *testing.T) {
	s, err := Parse("0 0 */28 2 */6", Options{})
	require.NoError(t, err)
	from := instant(t, "2096-01-01T00:00:00Z")
	at := from
	for day := from; day.Year() < 2500; day = day.AddDate(0, 0, 1) {
		if day.Month() == time.February && day.Day()%28 == 1 && day.Weekday()%6 == 0 {
			next := s.Next(at)
			require.Equal(t, day, next)
			at = next
		}
	}
}

func TestMemory(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(cron{}), uintptr(48))
	s, err := Parse("30 2 * * *", Options{Zone: "Europe/Berlin"})
	require.NoError(t, err)
	at := instant(t, "2026-03-28T00:00:00Z")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		at = s.Next(at)
		s.Prev(at)
		s.Count(at, at.AddDate(1, 0, 0))
	}))
	z, err := zoneOf("Europe/Berlin")
	require.NoError(t, err)
	require.Less(t, len(z.starts), 1300, "a zone's table stays small")
}

var benchmarkSpecs = []struct{ name, spec, zone string }{
	{"minutely", "0 * * * * *", "Europe/Berlin"},
	{"5min", "0 */5 * * * *", "Europe/Berlin"},
	{"daily", "0 30 2 * * *", "America/New_York"},
	{"weekdays", "0 0 9 * * 1-5", "Asia/Kolkata"},
	{"monthly", "0 0 0 1 * *", "Australia/Lord_Howe"},
	{"yearly", "0 0 0 1 1 *", "Europe/London"},
	{"leapday", "0 0 9 29 2 *", "America/New_York"},
	{"utc", "0 30 2 * * *", "UTC"},
	{"chatham", "0 0 * * * *", "Pacific/Chatham"},
	{"casablanca", "0 0 12 * * *", "Africa/Casablanca"},
}

func BenchmarkNext(b *testing.B) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range benchmarkSpecs {
		b.Run("leaderd/"+c.name, func(b *testing.B) {
			s, err := Parse(c.spec, Options{Zone: c.zone})
			require.NoError(b, err)
			b.ReportAllocs()
			at := start
			for b.Loop() {
				if at = s.Next(at); at.Year() > 2090 {
					at = start
				}
			}
		})
		b.Run("robfig/"+c.name, func(b *testing.B) {
			s, err := fieldParser.Parse(c.spec)
			require.NoError(b, err)
			loc, err := zoneinfo.Load(c.zone)
			require.NoError(b, err)
			spec, ok := s.(*robfig.SpecSchedule)
			require.True(b, ok)
			spec.Location = loc
			b.ReportAllocs()
			at := start.In(loc)
			for b.Loop() {
				if at = s.Next(at); at.Year() > 2090 {
					at = start.In(loc)
				}
			}
		})
	}
}

// BenchmarkWorst is texts that never fire, and rare ones.
func BenchmarkWorst(b *testing.B) {
	for _, spec := range []string{"0 0 31 2 *", "0 0 */30 2 2#3", "0 0 31W,30W,LW 2,4 */6"} {
		b.Run("parse/"+spec, func(b *testing.B) {
			for b.Loop() {
				if _, err := Parse(spec, Options{Zone: "Europe/Berlin"}); err != nil {
					require.ErrorContains(b, err, "never fires")
				}
			}
		})
	}
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	for spec, missing := range map[string]Missing{
		"0 0 29 2 SUN#5":   MissingShift,
		"0 0 */28 2 */6":   MissingShift,
		"30 2 * 3 SUNL":    MissingSkip, // always in the gap: never
		"0 0 29 2 *":       MissingShift,
		"* * * * * *":      MissingShift,
		"0 0 L * MON#1,5L": MissingShift,
	} {
		s, err := Parse(spec, Options{Zone: "Europe/Berlin", Missing: missing})
		require.NoError(b, err)
		b.Run("next/"+spec, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Next(at)
			}
		})
	}
}

func BenchmarkPrev(b *testing.B) {
	s, err := Parse("30 2 * * *", Options{Zone: "America/New_York"})
	require.NoError(b, err)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		s.Prev(at)
	}
}

func BenchmarkCount30Days(b *testing.B) {
	s, err := Parse("* * * * * *", Options{Zone: "America/New_York"})
	require.NoError(b, err)
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	until := from.AddDate(0, 0, 30)
	b.ReportAllocs()
	for b.Loop() {
		s.Count(from, until)
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("0 */5 9-17 * * 1-5", Options{Zone: "Europe/Berlin"}); err != nil {
			b.Fatal(err)
		}
	}
}

package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRefused(t *testing.T) {
	for _, c := range []struct{ spec, field, want string }{
		{"0 22-2 * * *", "hour", `write "22-23,0-2"`},
		{"0 23-0 * * *", "hour", `write "23,0"`},
		{"0 0 * * 5-1", "day of week", `write "5-6,0-1"`},
		{"0 0 * * 7-3", "day of week", `write "0-3"`},
		{"0 0 25-5/4 * *", "day of month", `write "25,29,2"`},
		{"*/60 * * * *", "minute", "write 0 to run once an hour, or @every 60m"},
		{"*/90 * * * *", "minute", "@every 90m"},
		{"5/60 * * * *", "minute", "write 5 to run once an hour"},
		{"*/60 * * * * *", "second", "less than 60"},
		{"0 */24 * * *", "hour", "write 0 to run once a day, or @every 24h"},
		{"0 0 */31 * *", "day of month", "write 1 to run once a month"},
		{"0 0 1 */12 *", "month", "less than 12"},
		{"0 0 * * */7", "day of week", "less than 7"},
		{"*/0 * * * *", "minute", "from 1"},
		{"*/-1 * * * *", "minute", "from 1"},
		{"1/2/3 * * * *", "minute", "from 1"},
		{"1-2-3 * * * *", "minute", "is not 0-59"},
		{"1- * * * *", "minute", "is not 0-59"},
		{"-1 * * * *", "minute", "is not 0-59"},
		{"99999999999999999999 * * * *", "minute", "out of range"},
		{"٣ * * * *", "minute", "is not 0-59"},
		{"? * * * *", "minute", "only in the day fields"},
		{"0 0 ?/2 * *", "day of month", "must stand alone"},
		{"0 0 1,? * *", "day of month", "must stand alone"},
		{"MON * * * *", "minute", "is not 0-59"},
		{"0 0 * JANUARY *", "month", "write JAN"},
		{"0 0 * * Friday", "day of week", "write FRI"},
		{"0 0 12 ? * 2-6", "day of week", "MON-FRI"},
		{"0 0 12 ? * 6L", "day of week", "ambiguous"},
		{"0 0 12 ? * 2#1", "day of week", "ambiguous"},
		{"0 0 12 ? * MON,3", "day of week", "ambiguous"},
		{"0 12 * * 1 2026", "day of week", "no field for the year"},
		{"0 0 * L *", "month", "belong in the day fields"},
		{"L * * * *", "minute", "belong in the day fields"},
		{"0 0 1#2 * *", "day of month", "belongs in the day of week"},
		{"0 0 MON * *", "day of month", "MON belongs in the day of week"},
		{"0 0 * * JUL", "day of week", "JUL belongs in the month"},
		{"0 0 5L * *", "day of month", "belongs in the day of week"},
		{"0 0 * * 15W", "day of week", ""},
		{"0 0 * * W", "day of week", "15W is the working day nearest"},
		{"0 0 W * *", "day of month", "15W is the working day nearest"},
		{"0 0 LW-1 * *", "day of month", "LW is the last working day and takes no offset; L-1 is the day before the last, working or not"},
		{"0 0 WL * *", "day of month", "write LW"},
		{"0 0 0W * *", "day of month", "0 is out of range"},
		{"0 0 32w * *", "day of month", "32 is out of range"},
		{"0 0 1-5W * *", "day of month", "not with a range"},
		{"0 0 1-L * *", "day of month", "not with a range"},
		{"0 0 L/2 * *", "day of month", "a step goes with values"},
		{"0 0 15W/2 * *", "day of month", "a step goes with values"},
		{"0 0 L-0 * *", "day of month", "1-30 days before the last"},
		{"0 0 L-31 * *", "day of month", "1-30 days before the last"},
		{"0 0 LL * *", "day of month", "belongs in the day of week"},
		{"0 0 L5 * *", "day of month", "L-3, LW or 15W"},
		{"0 0 * * L", "day of week", "FRIL is the last Friday"},
		{"0 0 * * 8L", "day of week", "out of range"},
		{"0 0 * * 1-5L", "day of week", "a list such as FRIL,SATL"},
		{"0 0 * * MONDAYL", "day of week", "write MON"},
		{"0 0 * * #2", "day of week", "before #"},
		{"0 0 * * 1-5#2", "day of week", "a list such as MON#1,TUE#1"},
		{"0 0 * * 1#0", "day of week", "allowed are 1-5"},
		{"0 0 * * fri#6", "day of week", "write FRIL for the last"},
		{"0 0 * * 5#L", "day of week", "write 5L"},
		{"0 0 * * 5#1-3", "day of week", "MON#1,MON#3"},
		{"0 0 * * 8#1", "day of week", "out of range"},
		{"H(5) * * * *", "minute", "H is written"},
		{"H-5 * * * *", "minute", "H is written"},
		{"hello * * * *", "minute", "H is written"},
		{"H(1-5 * * * *", "minute", "H is written"},
		{"H(9-3) * * * *", "minute", "backward"},
		{"H(0-60) * * * *", "minute", "out of range"},
		{"H/60 * * * *", "minute", "write H to run once an hour, or @every 60m"},
		{"H/0 * * * *", "minute", "from 1"},
		{"H/ * * * *", "minute", "from 1"},
		{"0-H * * * *", "minute", "is not 0-59"},
		{"0 0 H(1-31) * *", "day of month", "write H(1-28)"},
		{"0 0 H(29-31) * *", "day of month", "L is the last day"},
		{"0 0 31 H *", "month", "might never fire"},
		{"0 0 31 H/7 *", "month", "those that have it are 1,3,5,7,8,10,12"},
		{"0 0 31 H(2-3) *", "month", "might never fire"},
		{"0 0 31 2,H *", "month", "might never fire"},
		{"0~59 * * * *", "minute", "write H(0-59)"},
		{"0 0 30W 2 *", "day of month", "month 2 has no such day"},
		{"0 0 L-29 2 *", "day of month", "month 2 has no such day"},
		{"0 0 */30 * MON#3", "day of month", "no such day is a day of week MON#3 as well"},
		{"0 0 30 2 *", "day of month", "month 2 has at most 29 days"},
		{"0 0 31 2,4,6,9,11 *", "day of month", "at most 30 days"},
		{"0 0 31 FEB ?", "day of month", "never fires"},
		{"0 0 * * *\n0 1 * * *", "", "9 fields"},
		{"*/5", "", "1 field, expected 5"},
		{"@reboot", "", "no meaning for a fleet"},
		{"@Daily", "", "write @daily"},
		{"@daily 5", "", "nothing may follow"},
		{"@fortnightly", "", "unknown descriptor"},
		{"@", "", "unknown descriptor"},
		{"@every", "interval", "@every 1h30m"},
		{"@every1h", "", "unknown descriptor"},
		{"@every 1d", "interval", "24h"},
		{"@every 0s", "interval", "positive"},
		{"@every -1h", "interval", "positive"},
		{"@every 1h 30m", "interval", "not a duration"},
		{"@every 999999999h", "interval", "not a duration"},
		{"TZ=Europe/Berlin @every 1h", "zone", "no effect"},
		{"TZ=Europe/Berlin @at 2026-01-01T00:00:00Z", "zone", "no effect"},
		{"TZ=Europe/Berlin", "zone", "nothing follows"},
		{"TZ=Europe/Berlin ", "zone", "nothing follows"},
		{"TZ= 0 0 * * *", "zone", "not an IANA"},
		{"TZ=Local 0 0 * * *", "zone", "node"},
		{"@at", "instant", "@at 2026"},
		{"@at 2026-01-01", "instant", "RFC 3339"},
		{"@at 2026-01-01T00:00:00", "instant", "RFC 3339"},
		{"@at 2026-01-01T0:00:00Z", "instant", "RFC 3339"},
		{"@at 2026-01-01T00:00:00.5Z", "instant", "whole second"},
		{"@at 2026-01-01T00:00:00Z,", "instant", "empty element"},
		{"@at 0001-01-01T00:00:00Z", "instant", "years 1 to 9999"},
		{"@at 9999-12-31T23:59:59-01:00", "instant", "years 1 to 9999"},
		{"@at " + strings.Repeat("2026-01-01T00:00:00Z,", 1001), "instant", "at most 1000"},
		{strings.Repeat("x", maxText+1), "", "at most 32768"},
	} {
		_, err := Parse(c.spec, Options{})
		var refused *ParseError
		require.ErrorAs(t, err, &refused, c.spec)
		require.Equal(t, c.field, refused.Field, c.spec)
		require.ErrorContains(t, err, c.want)
		require.NotErrorIs(t, err, ErrUnsupported)
		require.Less(t, len(err.Error()), 500)
	}
}

func TestUnsupported(t *testing.T) {
	for spec, hint := range map[string]string{
		"0 0 L-3W * *":             "",
		"0 0 12 * * ? 2026":        "leave it out, or use @at",
		"0 0 12 1/1 * ? *":         `write "0 0 12 1/1 * ?"`,
		"0 15 10 ? * 6L 2026-2030": "leave it out, or use @at",
		"0 15 10 ? * 2-6 *":        "weekdays as names",
		"0 15 10 ? * MON#2 *":      `write "0 15 10 ? * MON#2"`,
	} {
		_, err := Parse(spec, Options{})
		require.ErrorIs(t, err, ErrUnsupported, spec)
		require.ErrorContains(t, err, hint)
	}
}

func TestZoneSetTwice(t *testing.T) {
	for _, zone := range []string{"", "UTC"} {
		_, err := Parse("CRON_TZ=Asia/Tokyo 0 0 * * *", Options{Zone: zone})
		require.NoError(t, err)
	}
	_, err := Parse("CRON_TZ=Asia/Tokyo 0 0 * * *", Options{Zone: "Asia/Tokyo"})
	require.ErrorContains(t, err, "set twice")
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Missing: 2}, {Repeated: 3}} {
		_, err := Parse("0 0 * * *", o)
		require.ErrorContains(t, err, "no such policy")
	}
	_, err := Parse("@every 1h", Options{Anchor: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)})
	require.ErrorContains(t, err, "anchor")
}

func TestSameMeaning(t *testing.T) {
	for _, c := range [][2]string{
		{"@hourly", "0 * * * *"},
		{"@daily", "0 0 0 * * *"},
		{"@midnight", "\t0  0 * * *\n"},
		{"@weekly", "0 0 * * SUN"},
		{"@monthly", "0 0 1 * ?"},
		{"@yearly", "0 0 1 JAN *"},
		{"@annually", "00 00 01 01 *"},
		{"0 0 * * 7", "0 0 * * 0"},
		{"0 0 * * 0-7", "0 0 * * 0-6"},
		{"0 0 * * 1-7/2", "0 0 * * 1,3,5,0"},
		{"0 0 * * SAT-SUN", "0 0 * * 0,6"},
		{"0 0 ? * ?", "0 0 * * *"},
		{"0 0 * * 5-7", "0 0 * * FRI-sun"},
		{"0 0 L,lw,15w,L-3 * *", "0 0 l-3,15W,LW,L * *"},
		{"0 0 * * FRI#2,sunL,7#5", "0 0 * * 5#2,0L,0#5"},
		{"0 0 0 ? * MON#1", "0 0 ? * 1#1"},
		{"0 0 * * 1,2L", "0 0 * * 2L,1"},
		{"0 0 1 * 2L,1-2", "0 0 1 * 1,2,2L"},
		{"0 0 31 H(7-8) *", "0 0 31 H(JUL-AUG) ?"},
		{"@every 90s", "@every 1m30s"},
		{"@at 2026-01-02T00:00:00+01:00,2026-01-01T00:00:00Z", "@at 2026-01-01T00:00:00Z, 2026-01-01T23:00:00Z,2026-01-01T00:00:00Z"},
	} {
		a, err := Parse(c[0], Options{})
		require.NoError(t, err)
		b, err := Parse(c[1], Options{})
		require.NoError(t, err)
		require.Equal(t, b, a, "%q", c)
	}
}

func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"* * * * *", "*/5 1-3 ? JAN-MAR MON#2", "CRON_TZ=Europe/Berlin 0 0 2 * * *", "TZ=", "@every 1h", "@at 2026-01-01T00:00:00Z",
		"@daily", "0 0 29 2 *", "0 0 L * 5L", "H H * * *", "0 0 15W,LW,L-3 * MON#2,SUNL", "H(1-5)/2 H/3 H H H", "0 0 31 H/7 *", "0 0 12 1/1 * ? *", "0 0 */30 * 1#3", ",", "0 0 31 1-12/2 SUN-SUN", "30 2 29 2 */6",
	} {
		f.Add(spec, "UTC", int64(1772323200), uint8(0))
		f.Add(spec, "Australia/Lord_Howe", int64(253402300000), uint8(5))
	}
	f.Fuzz(func(t *testing.T, spec, zone string, from int64, policy uint8) {
		o := Options{Zone: zone, Missing: Missing(policy % 2), Repeated: Repeated(policy / 2 % 3)}
		s, err := Parse(spec, o)
		if err != nil {
			require.Equal(t, Schedule{}, s)
			require.NotEmpty(t, err.Error())
			return
		}
		words, err := Describe(spec, o)
		require.NoError(t, err)
		require.NotEmpty(t, words.When)
		start := time.Unix(from, 0)
		at := start
		for range 20 {
			next := s.Next(at)
			if next.IsZero() {
				return
			}
			require.Greater(t, next.Unix(), at.Unix())
			require.Equal(t, next, s.Prev(next))
			require.EqualValues(t, 1, s.Count(at, next))
			require.False(t, s.Prev(next.Add(-1)).After(at))
			at = next
		}
	})
}
